"""The code of a server process: it starts a server, serves requests and shuts the server down."""
