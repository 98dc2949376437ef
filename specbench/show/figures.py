"""Figures as cells: bytes, counts and intervals, with the exact value as plain text and the readable one as HTML."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..diagnose.finding import NO_PREDICTION, OWN_WORDS, Finding, Remedy
from ..reading.outcome import in_words
from ..terms import Outcome, Verdict
from ..units import GIB, Interval, Quantity, format_gib, format_range, format_spread
from .shown import Cell, Tone

_VERDICT_TONES: dict[str, Tone] = {
    "match": "good",
    "off": "bad",
    "estimated": "muted",
    "not logged": "muted",
    "not predicted": "muted",
    "serves": "good",
    "capped": "warn",
    "refused": "bad",
}
_OUTCOME_TONES: dict[Outcome, Tone] = {
    "served": "good",
    "capped": "warn",
    "unanswered": "bad",
    "refused": "bad",
    "crashed": "bad",
    "timed_out": "bad",
    "no_record": "bad",
}
#: Half of the last digit, bytes, where sizes are printed in hundredths of a GiB.
_HUNDREDTHS = GIB // 200


def verdict_cell(word: str) -> Cell:
    return Cell(text=word, tone=_VERDICT_TONES.get(word, "plain"))


def outcome_cell(outcome: Outcome) -> Cell:
    """The word for how a run ended; `started` claims nothing, so it has no colour."""
    return Cell(text=in_words(outcome), tone=_OUTCOME_TONES.get(outcome, "plain"))


def asked_text(asked: int | None) -> str:
    """'8 asked'."""
    return "as many as fit asked" if asked is None else f"{asked:,} asked"


def falls_short(remedy: Remedy, wanted: int | None) -> bool:
    """Whether a remedy gives fewer requests at once than were asked for."""
    running = remedy.predicted.get("running_requests")
    return wanted is not None and running is not None and running < wanted


def remedy_cell(remedy: Remedy, wanted: int | None) -> Cell:
    """'serves', or 'serves 1 (fewer than asked)': to ask for less is not to get what was asked."""
    if remedy.verdict is None:
        return Cell(text=NO_PREDICTION[remedy.basis], tone="muted", wide=True)
    if falls_short(remedy, wanted):
        running = remedy.predicted["running_requests"]
        return Cell(text=f"serves {running}", below="fewer than asked", tone="warn")
    return verdict_cell(remedy.verdict)


def is_overflow(finding: Finding) -> bool:
    """Whether requests were too long, whatever their number."""
    return finding.id in ("context-overflow", "pool-overflow")


def effect_text(remedy: Remedy, wanted: int | None, finding: Finding, tokens: int | None) -> str:
    """What a remedy is predicted to give, in the figure that fell short: requests at once, or the longest input; and
    what becomes of the KV pool. Or what else it rests on. `tokens`: of the pool as it is; None: not known.
    """
    if remedy.verdict is None:
        return f"{NO_PREDICTION[remedy.basis]}; {remedy.note}"
    longest, running = remedy.predicted.get("max_input_tokens"), remedy.predicted.get("running_requests")
    effect: str = remedy.verdict
    if is_overflow(finding) and longest is not None:
        effect = f"inputs of up to {longest - 1:,} tokens"
    elif running is not None:
        effect = f"{running:,} at once" + (", fewer than asked" if falls_short(remedy, wanted) else "")
    then = remedy.predicted.get("kv_tokens")
    pool = "" if then is None or then == tokens else f", KV {_before(tokens)}{then:,} tokens"
    source = f"predicted from {remedy.predicted_from('')}" if remedy.basis == "config" else "predicted"
    return f"{OWN_WORDS if remedy.basis == 'own figures' else source}: {effect}{pool}"


def _before(tokens: int | None) -> str:
    return "" if tokens is None else f"{tokens:,} → "


def verdict_words(verdicts: tuple[Verdict, ...]) -> str:
    """'capped', or 'capped or refused' when the free memory leaves it open."""
    return " or ".join(verdicts)


def interval_cell(
    interval: Interval | None, unit: str, *, unknown: str = "not predicted", estimated: bool = False
) -> Cell:
    """A predicted figure: its point, and its range when it has one; an estimate says so."""
    if interval is None:
        return Cell(text=unknown, tone="muted")
    if unit == "bytes":
        text = format_gib(interval.point, digits=3)
        ends = [f"{end / GIB:z,.3f}" for end in (interval.low, interval.high)]
        if ends[0] != ends[1]:  # bounds that read the same tell nothing; the title has them in bytes
            text += f" ({ends[0]} to {ends[1]})"
        title = f"{format_range(interval)} B"
    else:
        text, title = format_spread(interval), None
    below = "estimated" if estimated else None
    return Cell(text=text, plain=plain_interval(interval), title=title, number=True, below=below)


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


def logged_cell(size: Quantity) -> Cell:
    """A size as it was read: a log prints hundredths of a GiB, and a third digit would be none of its own."""
    cell = amount_cell(size.bytes, "bytes")
    return replace(cell, text=format_gib(size.bytes)) if size.resolution_bytes >= _HUNDREDTHS else cell


def range_cell(low: int, high: int, unit: str) -> Cell:
    """An observed figure of several ranks: 'least to most', one figure where both read the same."""
    least, most = amount_cell(low, unit), amount_cell(high, unit)
    if least.text == most.text:
        return most
    text = f"{low / GIB:,.3f} to {most.text}" if unit == "bytes" else f"{low:,} to {high:,}"
    title = f"{low:,} to {high:,} B" if unit == "bytes" else None
    return Cell(text=text, plain=f"{low}..{high}", title=title, number=True)


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
