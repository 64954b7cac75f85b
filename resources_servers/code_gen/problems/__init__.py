"""Generated programming problems: families of them, their tests and their wording."""
