"""HTTP clients: connections, pools and replies, independent of server types and routes."""
