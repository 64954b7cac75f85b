"""Look up the addresses of colleagues."""

from __future__ import annotations

from nemo_gym import ToolError
from resources_servers.workplace_assistant.database import Database
from resources_servers.workplace_assistant.toolkits.arguments import Text, words_of


def find_email_address(database: Database, *, name: Text = "") -> list[str]:
    """Find the email addresses of the colleagues with this name; a first name or a part of it will do."""
    words = words_of(name)
    if not words:
        raise ToolError("name must not be empty.")
    found = [each for each in database.company.addresses if all(word in each.lower() for word in words)]
    if not found:
        raise ToolError(f"The directory has no entry for {name[:40]!r}.")
    return found


TOOLS = (find_email_address,)
