"""How far each rank of a start came: where all but one have passed a step, that one is what the others wait for.

In: a log. Out: a step and a line per rank, and in words who waits for whom. The ranks are those that the log names;
of plain tensor parallelism those of its tp_size too, which may have said nothing at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..engines.contract import ServerLog
from ..logtext import as_text
from ..rank_names import in_order, in_words

#: Steps of a start in their order, as what a rank has reached.
_STEPS = (
    "has said nothing",
    "has not begun to communicate",
    "is in the distributed init",
    "has ended the distributed init",
    "is loading weights",
    "has loaded weights",
    "has allocated a pool",
    "is capturing graphs",
    "has captured graphs",
)
_IN_INIT = 2
_MANY = tuple(re.sub(r"^(?:has|is)\b", lambda found: {"has": "have", "is": "are"}[found[0]], step) for step in _STEPS)
#: More ranks than any server has.
_MOST_RANKS = 1024
_MOST_LINES = 4
_WHOLE = 1 << 16  # bytes of a log that are kept as they came


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    step: int  # of `_STEPS`
    line: int | None  # its last line that is known; None: it has said nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    words: str  # one sentence; "": one rank
    hindmost: str = ""  # of it who is behind the others, and where: 'TP6, which has not begun to communicate'
    behind: bool = False  # some have not reached what others have
    communicating: bool = False  # nobody has come further than the distributed init
    #: Line -> rank: the last lines of those that are behind, and of one that waits
    last: Mapping[int, str] = field(default_factory=dict)


def named_ranks(log: ServerLog) -> list[str]:
    """The ranks of a server: those that its log names, and of plain tensor parallelism those that it must have."""
    rows = (log.notices, log.failures, log.weights, log.state_pools, log.kv_pools, log.graphs)
    named = {one.rank for every in rows for one in every}
    named.discard("")
    args = log.server_args or {}
    size, alone = args.get("tp_size"), all(args.get(key, 1) == 1 for key in ("pp_size", "nnodes"))
    plain = alone and all(re.fullmatch(r"TP\d{1,5}", rank) for rank in named)
    if isinstance(size, int) and 1 < size <= _MOST_RANKS and plain:
        named |= {f"TP{number}" for number in range(size)}
    return in_order(named)


def progress(log: ServerLog) -> dict[str, Reached]:
    """Rank -> what it reached, of a start that never became ready."""
    marks: dict[str, list[tuple[int, int]]] = {}
    for notice in log.notices:
        if notice.kind in ("distributed_begin", "distributed_ready"):
            marks.setdefault(notice.rank, []).append((2 + (notice.kind == "distributed_ready"), notice.line))
    for load in log.weights:
        marks.setdefault(load.rank, []).append((4 + (load.used is not None), load.line))
    for rank, line in [(pool.rank, pool.line) for pool in log.state_pools] + [(p.rank, p.line) for p in log.kv_pools]:
        marks.setdefault(rank, []).append((6, line))
    for graph in log.graphs:
        marks.setdefault(graph.rank, []).append((7 + (graph.used is not None), graph.line))
    spoken = last_lines(log)
    found = {}
    for rank in named_ranks(log):
        step, line = max(marks.get(rank, [(1 if rank in spoken else 0, 0)]))
        found[rank] = Reached(step=step, line=spoken.get(rank, line) or None)
    return found


def waiting(reached: Mapping[str, Reached]) -> Waiting:
    """'TP6 has not begun to communicate, TP0 to TP5, TP7 are in the distributed init and wait.'"""
    steps = sorted({one.step for one in reached.values()})
    if len(reached) < 2:
        return Waiting(words="")
    parts = []
    for step in steps:
        ranks = [rank for rank, one in reached.items() if one.step == step]
        parts.append(f"{in_words(ranks)} {(_STEPS if len(ranks) == 1 else _MANY)[step]}")
    behind = {rank: one for rank, one in reached.items() if one.step == steps[0]}
    communicating = steps[-1] == _IN_INIT
    if len(steps) == 1:
        words = f"All {len(reached)} ranks came equally far: each {_STEPS[steps[0]]}."
        return Waiting(words=words, communicating=communicating, last=dict(_last(reached)[-1:]))
    ahead = [rank for rank, one in reached.items() if one.step == steps[-1]]
    wait = "the other waits" if len(reached) - len(behind) == 1 else "the others wait"
    return Waiting(
        behind=True,
        communicating=communicating,
        hindmost=f"{in_words(behind)}, which {(_STEPS if len(behind) == 1 else _MANY)[steps[0]]}",
        words=f"{', '.join(parts)}: {wait} for {'it' if len(behind) == 1 else 'those that are behind'}.",
        last=dict((*_last(behind)[:_MOST_LINES], *_last({rank: reached[rank] for rank in ahead})[-1:])),
    )


def _last(ranks: Mapping[str, Reached]) -> tuple[tuple[int, str], ...]:
    """(line, rank), in the order of the lines."""
    return tuple(sorted((one.line, rank) for rank, one in ranks.items() if one.line is not None))


def last_lines(log: ServerLog) -> dict[str, int]:
    """Rank -> the number of its last line, in a log that was kept whole."""
    found: dict[str, int] = {}
    for number, text in texts(log).items():
        named = re.search(r"\[\d{4}-\d\d-\d\d[ T][\d:.,]{8,16}((?: [A-Z][A-Z_]{0,15}\d{1,5}){1,8})\]", text[:200])
        if named is not None:
            found[named[1].strip()] = number
    return found


def texts(log: ServerLog) -> dict[int, str]:
    """The lines of a log that was kept whole, by their numbers; else none."""
    if len(log.beginning) >= _WHOLE or log.places:
        return {}
    return dict(_numbered(log.beginning))


def _numbered(text: bytes) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.split(b"\n"), start=1):
        yield number, as_text(line)[:2000]
