"""What is asked against what a server has: keys by their dotted names, and how a difference is told.

For whoever compares a configuration with that of another server: an attached one, or a recorded one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Values that leave the choice to the engine.
OPEN = (None, "auto")
_MOST_TOLD = 4
_MOST_CHARACTERS = 80


def flat(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted key -> value; a value that is in no section under its own key."""
    found: dict[str, Any] = {}
    for section, values in sections.items():
        if isinstance(values, dict):
            found |= {f"{section}.{key}": value for key, value in values.items()}
        else:
            found[section] = values
    return found


def differing(wrong: Mapping[str, tuple[Any, Any]], theirs_is: str) -> str:
    """'parallel.tp_size: 1 asked, 2 served; …' of key -> (asked, the server's); of many the first ones."""
    each = [f"{key}: {in_words(mine)} asked, {in_words(theirs)} {theirs_is}" for key, (mine, theirs) in wrong.items()]
    more = f"; and {len(each) - _MOST_TOLD} more" if len(each) > _MOST_TOLD else ""
    return f"{'; '.join(each[:_MOST_TOLD])}{more}"


def in_words(value: Any) -> str:
    """A value as far as it fits into a sentence."""
    text = "not given" if value is None else str(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}…"
