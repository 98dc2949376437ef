"""Figures as cells: bytes, counts and intervals, with the exact value as plain text and the readable one as HTML."""

from __future__ import annotations

from typing import Any

from ..terms import Verdict
from ..units import Interval, format_gib
from .shown import Cell, Tone

_VERDICT_TONES: dict[str, Tone] = {
    "match": "good",
    "off": "bad",
    "not logged": "muted",
    "not predicted": "muted",
    "serves": "good",
    "served": "good",
    "capped": "warn",
    "refused": "bad",
    "crashed": "bad",
    "timed_out": "bad",
}


def verdict_cell(word: str) -> Cell:
    return Cell(text=word.replace("_", " "), tone=_VERDICT_TONES.get(word, "plain"))


def verdict_words(verdicts: tuple[Verdict, ...]) -> str:
    """'capped', or 'capped or refused' when the free memory leaves it open."""
    return " or ".join(verdicts)


def interval_cell(interval: Interval | None, unit: str, *, unknown: str = "not predicted") -> Cell:
    """A predicted figure: its point, and its range when it has one."""
    if interval is None:
        return Cell(text=unknown, tone="muted")
    if unit == "bytes":
        text = format_gib(interval.point, digits=3)
        if not interval.is_exact:
            text += f" ({interval.low / 2**30:,.3f} to {interval.high / 2**30:,.3f})"
        title = f"{interval.low:,} to {interval.high:,} B" if not interval.is_exact else f"{interval.point:,} B"
    else:
        text = f"{interval.point:,}"
        if not interval.is_exact:
            text += f" ({interval.low:,} to {interval.high:,})"
        title = None
    return Cell(text=text, plain=plain_interval(interval), title=title, number=True)


def plain_interval(interval: Interval) -> str:
    """'87061', or '84013 [80211, 90012]'."""
    return str(interval.point) if interval.is_exact else f"{interval.point} [{interval.low}, {interval.high}]"


def amount_cell(value: int | None, unit: str, *, unknown: str = "not logged", signed: bool = False) -> Cell:
    """An observed figure, or a difference of two."""
    if value is None:
        return Cell(text=unknown, tone="muted")
    sign = "+" if signed and value > 0 else ""
    if unit == "bytes":
        text = f"{sign}{format_gib(value, digits=3)}"
        return Cell(text=text, plain=f"{sign}{value}", title=f"{value:,} B", number=True)
    return Cell(text=f"{sign}{value:,}", plain=f"{sign}{value}", number=True)


def setting_text(value: Any) -> str:
    """A value of a params file as one would write it."""
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {setting_text(inner)}" for key, inner in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(setting_text(item) for item in value)
    return str(value)


def change_text(changes: dict[str, Any]) -> str:
    """'memory.max_running_requests=4 parallel.tp_size=2', as `--set` takes it."""
    return " ".join(f"{key}={setting_text(value)}" for key, value in changes.items())
