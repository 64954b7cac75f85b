"""One request, from the socket to the handler and back."""
