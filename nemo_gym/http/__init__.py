"""The only place that calls out: between our own servers, and to endpoints outside."""
