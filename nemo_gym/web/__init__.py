"""The server side of HTTP: one request, from the socket to the handler and back."""
