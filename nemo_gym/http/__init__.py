"""HTTP as bytes: connections, pools and replies. No tier and no route is known here."""
