"""Pure functions between API shapes: no server, no clock but for time stamps, nothing is fetched."""
