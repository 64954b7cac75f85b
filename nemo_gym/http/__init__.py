"""HTTP clients: connections, pools and replies, independent of tiers and routes."""
