"""Names of a server's ranks in words. In: names as the engine prints them ("TP3", "DP0 TP1", "PP1 TP0"). Out: text.

Eight names in a row tell less than two: 'TP0 to TP7'. A list says which are meant; 'TP1 … TP6' does not.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)

_NUMBERS = re.compile(r"(\d{1,9})")
_PART = re.compile(r"([A-Z][A-Z_]{0,15})(\d{1,5})")
#: Fewer in a row are listed one by one.
_A_ROW = 3


def in_order(ranks: Iterable[str]) -> list[str]:
    """TP2 before TP10."""
    return sorted(ranks, key=_parts)


def in_words(ranks: Iterable[str]) -> str:
    """'TP0 to TP4, TP6', in order; '' of none."""
    return ", ".join(_rows(in_order(set(ranks))))


def numbers_in_words(every: Iterable[int]) -> str:
    """'0 to 7', '30 and 31', '24, 26 and 30 to 34', in order; '' of none."""
    rows = list(_rows([str(number) for number in sorted(set(every))]))
    return " and ".join(filter(None, (", ".join(rows[:-1]), *rows[-1:])))


def numbers(rank: str) -> dict[str, int]:
    """{"PP": 1, "TP": 0} of "PP1 TP0"; {} of one GPU, or of a name that is none of an engine's."""
    parts = [_PART.fullmatch(part) for part in rank.split()]
    return {part[1]: int(part[2]) for part in parts if part} if all(parts) else {}


def is_first(rank: str) -> bool:
    """The rank that answers for a server: "" on one GPU, else the one whose numbers are all 0."""
    return not rank or (bool(found := numbers(rank)) and not any(found.values()))


def by_value(values: Mapping[str, T]) -> list[tuple[str, T]]:
    """Ranks of one value together, in words, in the order of the first of each."""
    ranks: dict[T, list[str]] = {}
    for rank in in_order(values):
        ranks.setdefault(values[rank], []).append(rank)
    return [(in_words(named) or "rank 0", value) for value, named in ranks.items()]


def _rows(names: Sequence[str]) -> Iterator[str]:
    row: list[str] = []
    for name in names:
        if row and not _follows(row[-1], name):
            yield from _row(row)
            row = []
        row.append(name)
    yield from _row(row)


def _row(names: Sequence[str]) -> Iterable[str]:
    return [f"{names[0]} to {names[-1]}"] if len(names) >= _A_ROW else names


def _parts(name: str) -> tuple[list[str], list[int]]:
    parts = _NUMBERS.split(name)
    return parts[0::2], [int(number) for number in parts[1::2]]


def _follows(one: str, other: str) -> bool:
    """Whether every number that differs is one more: TP6 EP6, TP7 EP7; of 'DP0 TP7' and 'DP1 TP0' none follows."""
    (words, earlier), (other_words, later) = _parts(one), _parts(other)
    if words != other_words:
        return False
    steps = {after - before for before, after in zip(earlier, later, strict=True)}
    return 1 in steps and steps <= {0, 1}
