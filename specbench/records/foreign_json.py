"""JSON that another program wrote -> values that a record can hold, whatever it says.

In: text or bytes. Out: JSON's own values. ValueError (a few words): it is no JSON, or nested without end. The
non-obvious thing: Python reads and writes what JSON is not, NaN and halves of surrogate pairs, and a file that has one
cannot be written or read again; so a figure that is no number is None, and half a character is a question mark.
"""

from __future__ import annotations

import json
import math
from typing import Any

MOST_DEEP = 32


def parse(text: str | bytes) -> Any:
    """What `text` says, as `storable`. ValueError: nothing, or too deep."""
    return storable(decode(text))


def decode(text: str | bytes) -> Any:
    """What `text` says. ValueError: it is no JSON."""
    try:
        return _DECODER.decode(text if isinstance(text, str) else text.decode())
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None


def storable(value: Any, depth: int = 0) -> Any:
    """What a record can hold: no half of a surrogate pair, numbers within 64 bits (else None), no endless nesting."""
    if depth > MOST_DEEP:
        raise ValueError(f"nested more than {MOST_DEEP} deep")
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {storable(key): storable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item, depth + 1) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return None
    return value


def _no_number(text: str) -> None:
    """NaN and Infinity: a figure that is not known."""


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


_DECODER = json.JSONDecoder(parse_constant=_no_number, parse_float=_finite)
