"""Messages as records: what kind of line it is, with its figures. One record per line that a form fits.

A record is still the engine's line; which of them belong together (begin and end, target and draft) is `assemble.py`'s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..form import squeeze
from . import formats
from .formats import Dated, VersionRange
from .message import Message
from .partial import FRAGMENTS, read_fragment, read_partly
from .scan import LOOKALIKES

_GRAPH = re.compile(r"Capture [\w -]{0,60}?graph")


@dataclass(frozen=True, slots=True)
class Record:
    kind: str
    figures: dict[str, Any]
    rank: str
    line: int
    text: str  # the whole message, wrapped lines joined
    whole: bool  # False: read in part
    versions: VersionRange
    foreign: bool = False  # worded as the version that was given does not word it


def record_of(message: Message, version: str | None = None) -> Record | None:
    """The record of a message; kind "unread" when it looks like ours and nothing fits; None when it is none of ours.

    With a version its own wordings (those of the nearest earlier file) go first; the others are read all the same.
    """
    text = message.text.lstrip(" \t>")
    best: Record | None = None
    longest = text
    for reading in message.readings():
        longest = reading = reading.lstrip(" \t>")
        found = _read(reading) or (_read(squeeze(reading), squeezed=True) if reading is not text else [])
        if found and found[0][0].form.kind == "resolved" and _may_be_cut(message, reading):
            break
        if found:
            best = best or _record(message, reading, found, version)
            if found[0][1].get("scratch_ssm") is not None:
                return _record(message, reading, found, version)
            if best.kind != "state_pool":  # broken before its scratch, a state line is whole without it
                return best
    if best is not None:
        return best
    if text.startswith(FRAGMENTS):
        fragment = read_fragment(longest) or read_fragment(text)
        return None if fragment is None else Record(*fragment, message.rank, message.line, text, False, (None, None))
    if not _looks_like_ours(text):
        return None
    partly = [found for found in (read_partly(text), read_partly(longest)) if found]
    kind, figures = max(partly, key=_figures_read, default=("unread", {}))
    return Record(kind, figures, message.rank, message.line, text, False, (None, None))


def _may_be_cut(message: Message, text: str) -> bool:
    """Whether its last figure may have more digits: that of the pool stands for the whole server."""
    return not message.is_ended and text[-1:].isdecimal()


def _figures_read(found: tuple[str, dict[str, Any]]) -> int:
    return sum(value is not None for value in found[1].values())


def _record(message: Message, text: str, found: list[tuple[Dated, dict[str, Any]]], version: str | None) -> Record:
    own = formats.spoken_by(version) if version else frozenset()
    chosen, figures = next((fit for fit in found if fit[0].form in own), found[0])
    return Record(
        kind=chosen.form.kind,
        figures=figures,
        rank=message.rank,
        line=message.line,
        text=text,
        whole=True,
        versions=formats.union((dated.since, dated.until) for dated, _ in found),
        foreign=version is not None and chosen.form not in own,
    )


def _read(text: str, *, squeezed: bool = False) -> list[tuple[Dated, dict[str, Any]]]:
    """All forms that fit, with their figures, the newest first."""
    candidates = formats.history() if squeezed else _candidates(text[:8])
    fits = (
        (dated, dated.form.read(text, squeezed=squeezed))
        for dated in candidates
        if dated.form.can_begin(text, squeezed=squeezed)
    )
    return [(dated, figures) for dated, figures in fits if figures is not None]


@lru_cache(maxsize=256)
def _candidates(beginning: str) -> tuple[Dated, ...]:
    return tuple(
        dated
        for dated in formats.history()
        if any(head.startswith(beginning) or beginning.startswith(head) for head in dated.form.heads)
    )


def _looks_like_ours(text: str) -> bool:
    if text.startswith("Capture "):
        return _GRAPH.match(text) is not None
    return text.startswith(LOOKALIKES)
