"""Remedies for the terminal: the flags, the same as `--set`, and what the prediction says each would do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..diagnose.finding import NO_PREDICTION, ORDER, OWN_WORDS, Remedy
from ..diagnose.remedy_words import on_server
from ..terms import Limit
from ..units import format_count

_EFFECTS: tuple[tuple[Limit, str], ...] = (
    ("running_requests", "requests"),
    ("state_slots", "slots"),
    ("kv_tokens", "KV tokens"),
)


def remedies_text(remedies: Sequence[Remedy], *, measured: str = "with the logged free memory") -> Group:
    """`measured`: how the effect was predicted where it rests on measured memory."""
    tried = all(remedy.verdict is not None for remedy in remedies)
    how = OWN_WORDS if any(remedy.basis == "own figures" for remedy in remedies) else "each tried by the prediction"
    parts: list[RenderableType] = [Text(f"\nremedies{f', {how}' if tried else ''}", style="bold")]
    if len(remedies) > 1:
        parts.append(Text(f"in this order: {ORDER}", style="dim"))
    for remedy in remedies:
        parts.append(Text(f"→ {on_server(remedy) or 'no server flag'}", style="green"))
        parts.append(Text(f"  {set_options(remedy)}"))
        parts.append(Text(f"  {effect(remedy, measured)}. {remedy.note}.", style="dim"))
    return Group(*parts)


def set_options(remedy: Remedy) -> str:
    """The same change as `specbench` takes it."""
    return " ".join(f"--set {key}={_value(value)}" for key, value in remedy.set.items())


def effect(remedy: Remedy, measured: str) -> str:
    """'8 requests; 32 slots; 117,815 KV tokens (predicted with the logged free memory)'. On a log's own figures with
    their bounds: '8 requests; 33 to 34 slots; …'.
    """
    if remedy.verdict is None:
        return NO_PREDICTION[remedy.basis]
    if remedy.basis == "own figures":
        bounds = (f"{bounds_text(remedy, limit)} {name}" for limit, name in _EFFECTS)
        return f"{'; '.join(bounds)} ({OWN_WORDS})"
    basis = "from the configuration alone" if remedy.basis == "config" else measured
    figures = (
        f"{format_count(remedy.predicted.get(limit), unknown='not predicted')} {name}" for limit, name in _EFFECTS
    )
    return f"{'; '.join(figures)} (predicted {basis})"


def bounds_text(remedy: Remedy, limit: Limit, *, unknown: str = "not predicted") -> str:
    """'33 to 34', or one figure where both bounds are the same."""
    bounds = remedy.spans.get(limit)
    if bounds is None:
        return format_count(remedy.predicted.get(limit), unknown=unknown)
    return f"{bounds.low:,}" if bounds.is_exact else f"{bounds.low:,} to {bounds.high:,}"


def _value(value: Any) -> str:
    """As `--set` reads it back."""
    return value if isinstance(value, str) else json.dumps(value)
