"""The last lines of ranks, as evidence. In: a case, and whose last line each is. Out: these lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..engines.contract import Line
from ..reading.rank_progress import texts
from .case import Case


def labelled(case: Case, last: Mapping[int, str]) -> tuple[Line, ...]:
    """As evidence, each with whose last line it is: by itself it may say nothing of what happened."""
    found: list[Line] = []
    for number, rank in last.items():
        lines = case.line(number) or (case.log.at(number, texts(case.log).get(number, "")),)
        found += [replace(line, about=f"the last line of {rank}") for line in lines]
    return tuple(line for line in found if line.text)
