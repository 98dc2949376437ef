"""The account of one rank: a ledger from its chain of events.

What is free before the weights, between the pools and at the end are points on one line; what lies between two points
and in no named pool is the rest of that stretch, and the rests together are the ledger's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..engines.contract import PoolReport, ServerLog
from ..reading.pools import distributed_inits
from ..terms import Role, Term
from ..units import Quantity, format_gib
from ..versions import version_key
from .chain import Event, Point, Taken
from .ledger import LABELS, POOLS, Card, Entry, Ledger, Name, Stretch, TotalOf

#: Between two figures of free memory something is always taken; more free than this is memory that came back.
_CAME_BACK_BYTES = 2**30 // 10
#: From this version on the draft is loaded before any pool is made (managers/scheduler.py).
_DRAFT_FIRST = "0.5.14"
_HOST_POOLS: dict[str, tuple[Name, str]] = {
    "host_kv_pool": ("kv", "KV cache in the host's memory"),
    "host_state_pool": ("state_ssm", "recurrent state in the host's memory"),
}


class Account:
    """One rank."""

    def __init__(self, log: ServerLog, rank: str, chain: tuple[Event, ...], expected: frozenset[Term] | None) -> None:
        self._log, self._rank, self._chain, self._expected = log, rank, chain, expected
        places = [place for place, event in enumerate(chain) if isinstance(event, Point)]
        self._points = [event for event in chain if isinstance(event, Point)]
        self._taken = [event for event in chain if isinstance(event, Taken)]
        first, last = (places[0], places[-1]) if places else (len(chain), len(chain) - 1)
        self._earlier = [event for event in chain[:first] if isinstance(event, Taken)]
        self._later = [event for event in chain[last + 1 :] if isinstance(event, Taken)] if places else []
        begins = self._points[:1]
        #: None: what the log tells first is later than the loading of the weights.
        self._start = begins[0] if begins and begins[0].kind == "before_loading" and not self._earlier else None

    def ledger(self, card: Card | None, pools: PoolReport, *, on_host: bool) -> Ledger | None:
        if not self._points and not any(one.size for one in self._taken):
            return None
        total, total_of, source = self._total(card)
        # A host's memory comes back whoever gives it.
        back = () if on_host else self._came_back()
        entries = [*self._head(card, pools), *self._named(total_of), *back, *self._until_failure()]
        left = self._left(total_of)
        known = Quantity.total(one.size for one in (*entries, left) if one.size is not None)
        # Without a figure of free memory, and without a card, nothing tells what else was taken.
        rest = total.minus(known) if self._points or card is not None else None
        return Ledger(
            rank=self._rank,
            total=total,
            total_of=total_of,
            total_source=source,
            entries=(*entries, _rest(rest, [*entries, left], on_host), left),
            stretches=tuple(self._stretches()),
            slack=self._slack(),
            on_host=on_host,
            beside=tuple(_beside(self._log, self._rank)),
        )

    # ── the total, and what is gone before loading ───────────────────────────────────────────────────────────────────

    def _total(self, card: Card | None) -> tuple[Quantity, TotalOf, str]:
        if card is not None:
            return Quantity(card.bytes, 0), "card", card.source
        if self._start is not None:
            return (
                self._start.free,
                "free_before_loading",
                f"free before loading, log {self._log.where(self._start.line)}",
            )
        earlier = Quantity.total(one.size for one in self._earlier if one.size is not None)
        if self._points:
            first = self._points[0]
            words = (
                f"free at log line {first.line}, and what is named before it: the log tells no card and no beginning"
            )
            return Quantity.total((first.free, earlier)), "accounted", words
        return earlier, "accounted", "the sum of what the log names: it tells no free memory and no card"

    def _head(self, card: Card | None, pools: PoolReport) -> Iterator[Entry]:
        if card is None:
            return
        if self._start is None:
            yield _unknown("before", "target", "unexplained")
            return
        gone = Quantity(card.bytes, 0).minus(self._start.free)
        used, init = pools.communication.get(self._rank), distributed_inits(self._log).get(self._rank)
        if used is None or init is None:
            yield _entry("before", "target", gone, None, "the total less what is free before loading")
            yield _unknown("communication", "target", "before")
            return
        source = "the total less communication and what is free before loading"
        yield _entry("before", "target", gone.minus(used), None, source)
        yield self._entry("communication", "target", used, init.line)

    # ── pools ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _named(self, total_of: TotalOf) -> list[Entry]:
        """The pools, in stacking order, those that are not logged among them."""
        inside: Name | None = None if total_of == "accounted" else "unexplained"
        found: list[Entry] = []
        for term in POOLS:
            for role in ("target", "draft"):
                mine = [one for one in self._taken if (one.term, one.role) == (term, role)]
                known = [one for one in mine if one.size is not None]
                if known:
                    found.append(
                        self._entry(term, role, Quantity.total(one.size for one in known if one.size), known[-1].line)
                    )
                for one in mine:
                    if one.size is None:
                        where = "left" if one in self._later else inside if one in self._earlier else "unexplained"
                        found.append(replace(_unknown(term, role, where), line=one.line))
            if term in self._silent() and not any(one.term == term for one in self._taken):
                # What came last and never was told to stand was being made when memory ran out.
                fails = term == "draft_kv" and inside is not None and any(one.fails for one in self._stretches())
                place: Name | None = "until_failure" if fails else inside
                found.append(_unknown(term, "draft" if term.startswith("draft") else "target", place))
        return found

    def _silent(self) -> frozenset[str]:
        """Terms that the server must have had by the end of the log, as far as the log's order tells."""
        kinds = {point.kind for point in self._points}
        drafts = any(one.role == "draft" for one in self._taken)
        if self._expected is not None:
            has: frozenset[str] = self._expected
        else:
            state = bool(self._log.state_pools) or any(self._log.decode.get("state_usage", ()))
            has = frozenset(("weights", "kv", *(("state_ssm",) if state else ())))
            has |= {"draft_weights", "draft_kv"} if drafts else set()
        done = "summary" in kinds
        pools = done or bool(kinds & {"pools_stand", "graphs"})
        reached: set[str] = {"state_conv", "state_ssm", "scratch_ssm", "scratch_conv", "kv"} if pools else set()
        if pools or any(one.term in ("kv", "state_ssm", "draft_kv") for one in self._taken):
            reached.add("weights")
            reached |= {"draft_weights"} if self._draft_first() else set()
        reached |= {"draft_weights", "draft_kv"} if done or drafts else set()
        reached |= {"graphs"} if done and self._captures() else set()
        return frozenset(reached & (has | {"graphs"}))

    def _draft_first(self) -> bool:
        """False also where the version is not known: then only later lines tell that the draft was loaded."""
        version = self._log.version or self._log.version_range[0]
        return version is not None and version_key(version) >= version_key(_DRAFT_FIRST)

    def _captures(self) -> bool:
        arguments = self._log.server_args
        if arguments is None:
            return True
        return arguments.get("disable_cuda_graph") is False and arguments.get("device") != "cpu"

    # ── between and after the figures of free memory ─────────────────────────────────────────────────────────────────

    def _stretches(self) -> Iterator[Stretch]:
        before: Point | None = None
        named: list[Taken] = []
        for event in self._chain:
            if isinstance(event, Taken):
                named.append(event)
                continue
            if before is not None:
                taken = Quantity.total(one.size for one in named if one.size is not None)
                yield Stretch(
                    first_line=before.line,
                    last_line=event.line,
                    before=before.free,
                    after=event.free,
                    named=tuple(dict.fromkeys(one.term for one in named)),
                    rest=before.free.minus(event.free).minus(taken),
                    fails=event.kind == "failure",
                )
            before, named = event, []

    def _came_back(self) -> Iterator[Entry]:
        back = [
            one for one in self._stretches() if not (one.named or one.fails) and -one.rest.bytes >= _CAME_BACK_BYTES
        ]
        if back:
            words = "; ".join(
                f"{self._between(one.first_line, one.last_line)}: {format_gib(one.before.bytes)} free, then "
                f"{format_gib(one.after.bytes)}"
                for one in back
            )
            yield _entry("given_back", "target", Quantity.total(one.rest for one in back), back[-1].last_line, words)

    def _until_failure(self) -> Iterator[Entry]:
        last = [one for one in self._stretches() if one.fails]
        if last:
            words = self._between(last[0].first_line, last[-1].last_line)
            yield _entry("until_failure", "target", Quantity.total(one.rest for one in last), last[-1].last_line, words)

    def _left(self, total_of: TotalOf) -> Entry:
        if not self._points:
            return _unknown("left", "target", "unexplained" if total_of == "card" else None)
        last = self._points[-1]
        later = Quantity.total(one.size for one in self._later if one.size is not None)
        source = f"log {self._log.where(last.line)}" + (", less what is named after it" if later.bytes else "")
        return _entry("left", "target", last.free.minus(later), last.line, source)

    def _entry(self, term: Name, role: Role, size: Quantity, line: int) -> Entry:
        return _entry(term, role, size, line, f"log {self._log.where(line)}")

    def _between(self, first: int, last: int) -> str:
        file, line = self._log.at(last, "").file, self._log.at(last, "").line
        return f"between log lines {self._log.at(first, '').line} and {line}{f' of {file}' if file else ''}"

    def _slack(self) -> Quantity | None:
        """Up to 0.5.13 the target's graphs stand before the draft's pools: slack that is in use, added back."""
        if self._expected is not None and "draft_kv" in self._expected and not self._has("draft_kv"):
            return None
        pools = [
            place
            for place, event in enumerate(self._chain)
            if isinstance(event, Taken) and event.term not in ("weights", "draft_weights", "graphs")
        ]
        if not pools:
            return None
        after = [event for event in self._chain[pools[-1] :] if isinstance(event, Point) and event.kind != "failure"]
        stood = next((point for point in after if point.kind == "pools_stand"), after[0] if after else None)
        if stood is None:
            return None
        graphs = (one for one in self._taken if one.term == "graphs" and one.line < stood.line)
        return Quantity.total((stood.free, *(one.size for one in graphs if one.size is not None)))

    def _has(self, term: str) -> bool:
        return any(one.term == term and one.size is not None for one in self._taken)


# ── entries ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _entry(term: Name, role: Role, size: Quantity, line: int | None, source: str) -> Entry:
    return Entry(term=term, role=role, label=LABELS[term], size=size, line=line, source=source)


def _unknown(term: Name, role: Role, lies_in: Name | None) -> Entry:
    return Entry(term=term, role=role, label=LABELS[term], size=None, line=None, source="not logged", lies_in=lies_in)


def _rest(size: Quantity | None, entries: Sequence[Entry], on_host: bool) -> Entry:
    """Named by what lies in it; of a host's memory all else that runs there takes, the other ranks first of all."""
    held = dict.fromkeys(one.term.replace("_", " ") for one in entries if one.lies_in == "unexplained")
    words = list(held)
    label = "taken by the rest of the host, other ranks too" if on_host else LABELS["unexplained"]
    if words:
        names = " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]
        label = f"rest, in which {names} {'lie' if len(words) > 1 else 'lies'}, not logged"
    source = "what no entry names" if size is not None else "not known: neither free memory nor a card is told"
    return Entry(term="unexplained", role="target", label=label, size=size, line=None, source=source)


def _beside(log: ServerLog, rank: str) -> Iterator[Entry]:
    for notice in log.notices:
        size = notice.values.get("size")
        if notice.kind in _HOST_POOLS and notice.rank == rank and isinstance(size, Quantity):
            term, label = _HOST_POOLS[notice.kind]
            source = f"log {log.where(notice.line)}"
            yield Entry(term=term, role="target", label=label, size=size, line=notice.line, source=source)
