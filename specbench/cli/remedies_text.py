"""Remedies for the terminal: the flags, the same as `--set`, and what the prediction says each would do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from ..diagnose.finding import NO_PREDICTION, ORDER, OWN_FIGURES, OWN_WORDS, Remedy
from ..diagnose.remedy_words import on_server
from ..terms import Limit
from ..units import format_count, format_range

_EFFECTS: tuple[tuple[Limit, str], ...] = (
    ("running_requests", "requests"),
    ("state_slots", "slots"),
    ("kv_tokens", "KV tokens"),
)


def remedies_text(remedies: Sequence[Remedy], *, measured: str) -> Group:
    """`measured`: the words for the free memory of the start itself, for predictions that rest on it."""
    parts: list[RenderableType] = [Text(f"\nremedies{told_by(remedies, measured)}", style="bold")]
    usual = usual_source(remedies, measured) if told_by(remedies, measured) else None
    if len(remedies) > 1:
        parts.append(Text(f"in this order: {ORDER}", style="dim"))
    for remedy in remedies:
        parts.append(Text(f"→ {on_server(remedy) or 'no server flag'}", style="green"))
        parts.append(Text(f"  {set_options(remedy)}"))
        other = None if remedy.predicted_from(measured) == usual else measured
        parts.append(Text(f"  {effect(remedy, other)}. {remedy.note}.", style="dim"))
    return Group(*parts)


def sources(remedies: Sequence[Remedy], measured: str) -> dict[str, list[Remedy]]:
    """What predictions rest on -> the remedies that do, in their order; without those of which nothing is predicted."""
    found: dict[str, list[Remedy]] = {}
    for remedy in remedies:
        source = remedy.predicted_from(measured)
        if source is not None:
            found.setdefault(source, []).append(remedy)
    return found


def usual_source(remedies: Sequence[Remedy], measured: str) -> str | None:
    """What most of the predictions rest on; None: there are none."""
    found = sources(remedies, measured)
    return max(found, key=lambda source: len(found[source]), default=None)


def told_by(remedies: Sequence[Remedy], measured: str) -> str:
    """', each predicted from the logged free memory', and whether some rest on something else; "": not all are
    predicted."""
    usual = usual_source(remedies, measured)
    if usual is None or any(remedy.verdict is None for remedy in remedies):
        return ""
    if usual == OWN_FIGURES:  # computed without a prediction of the configuration
        return f", {OWN_WORDS}"
    several = ", where no other source is named" if len(sources(remedies, measured)) > 1 else ""
    return f", each predicted from {usual}{several}"


def set_options(remedy: Remedy) -> str:
    """The same change as `specbench` takes it."""
    return " ".join(f"--set {key}={_value(value)}" for key, value in remedy.set.items())


def effect(remedy: Remedy, measured: str | None) -> str:
    """'8 requests; 32 slots; 117,815 KV tokens (predicted from the logged free memory)'. On a log's own figures with
    their bounds: '8 requests; 33 to 34 slots; …'. `measured`: as above; None: what it rests on is said elsewhere.
    """
    if remedy.verdict is None:
        return NO_PREDICTION[remedy.basis]
    if remedy.basis == "own figures":
        bounds = (f"{bounds_text(remedy, limit)} {name}" for limit, name in _EFFECTS)
        return f"{'; '.join(bounds)} ({OWN_WORDS})"
    figures = (_figure(remedy.predicted.get(limit), name) for limit, name in _EFFECTS)
    source = "" if measured is None else f" from {remedy.predicted_from(measured)}"
    return f"{'; '.join(figures)} (predicted{source})"


def _figure(count: int | None, name: str) -> str:
    """'8 requests', '1 request'."""
    return f"{format_count(count, unknown='not predicted')} {name[:-1] if count == 1 else name}"


def bounds_text(remedy: Remedy, limit: Limit, *, unknown: str = "not predicted") -> str:
    """'33 to 34', or one figure where both bounds are the same."""
    bounds = remedy.spans.get(limit)
    if bounds is None:
        return format_count(remedy.predicted.get(limit), unknown=unknown)
    return format_range(bounds)


def _value(value: Any) -> str:
    """As `--set` reads it back."""
    return value if isinstance(value, str) else json.dumps(value)
