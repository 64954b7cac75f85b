"""Templates, and text from models, servers and endpoints, made safe for a terminal.

Such text is not trusted: control characters could change the terminal, and others could hide or reorder text.
"""

from __future__ import annotations

import json
import logging
import re
from string import Formatter

CODE_POINTS_SHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff\ud800-\udfff]"
)
"""A regex for characters that control the terminal, change the order of the text, or are invisible. It does not match
tabs, newlines and zero-width joiners."""
LOG_FORMAT = "%(levelname)s %(name)s: %(message)s"


def visible(text: str) -> str:
    """Return the text with escapes such as `\\x1b` in place of the characters in `CODE_POINTS_SHOWN`."""
    return CODE_POINTS_SHOWN.sub(_escape, text.replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def visible_json(text: str) -> str:
    """Return the same JSON with JSON's own escapes in place of the characters in `CODE_POINTS_SHOWN`."""
    return CODE_POINTS_SHOWN.sub(lambda match: json.dumps(match.group())[1:-1], text)


def fields_of_template(template: str) -> list[str]:
    """Return the names of a template's `{fields}`. Raise `ValueError` if the template has an unmatched brace."""
    return [name for _, name, _, _ in Formatter().parse(template) if name is not None]


class VisibleFormatter(logging.Formatter):
    """A formatter of log records for a terminal: `visible` is applied to messages and tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def log_to_terminal() -> None:
    """Log to standard error, unless the root logger has handlers already."""
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleFormatter(LOG_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
