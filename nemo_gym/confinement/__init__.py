"""How code that nobody trusts is kept in its place: bubblewrap, control groups, and how far they hold here."""
