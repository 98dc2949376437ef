"""How long starts of a campaign took, and which kernels are compiled on this machine, as far as its runs tell.

In: records of the campaign's folder, which may have been copied from another machine, and the starts of this call. Out:
seconds by kind of start, with and without kernels to compile.

The non-obvious thing: compiled kernels stay on the machine that compiled them. A record names its GPUs; where none of
them is here, or one side is not known, kernels count as still to be compiled, and the bill says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..configuration.config import RunConfig
from ..errors import RecordError
from ..host import machine
from ..records.caveats import on_cpu
from ..records.record import RunRecord
from .start_rows import Kind, kind_of, nearest

_UNKNOWN = "on a machine that may be another (its GPUs, or those here, are not known)"


def cards_here() -> frozenset[str]:
    """Ids of this machine's GPUs; empty: it has none, or nobody here can tell."""
    uses = machine.gpu_use()
    return frozenset() if isinstance(uses, str) else frozenset(use.uuid for use in uses if use.uuid is not None)


class SeenStarts:
    """Learns from every start that was measured."""

    def __init__(self, here: Callable[[], frozenset[str]] = cards_here) -> None:
        self._here = here  # asked only where a folder has runs
        self._seconds: dict[tuple[Kind, bool], float] = {}  # of the newest; True: it compiled its kernels
        self._warm: set[tuple[str, int]] = set()  # version, GPUs: kernels that are compiled here
        self._first: dict[tuple[str, int], str] = {}  # the same -> configuration of this call that compiles them
        self._elsewhere: dict[tuple[str, int], str] = {}  # the same -> why those of the folder do not count

    def read(self, records: Iterable[RunRecord]) -> None:
        """The runs of the folder, from whatever machines."""
        ready = [record for record in records if record.status.ready_s is not None]
        if not ready:
            return
        here = self._here()
        by_machine: dict[frozenset[str], set[tuple[str, int]]] = {}
        for record in sorted(ready, key=lambda record: record.status.started_unix_s or 0.0):
            kind, cards = kind_of(record.config), _cards(record)
            warm = by_machine.setdefault(cards, set())
            self._learn(kind, record.status.ready_s or 0.0, first=kind.compiled not in warm)
            warm.add(kind.compiled)
            if kind.on_cpu:
                continue
            if cards & here:
                self._warm.add(kind.compiled)
            elif cards and here:
                self._elsewhere.setdefault(kind.compiled, "on another machine")
            else:
                self._elsewhere[kind.compiled] = _UNKNOWN

    def saw(self, record: RunRecord) -> None:
        """A start of this call, that was expected before it was made, or is the first that is seen."""
        kind = kind_of(record.config)
        if record.status.ready_s is not None:
            first = kind.compiled not in self._warm or self._first.get(kind.compiled) == record.config.name
            self._learn(kind, record.status.ready_s, first=first)
            self._warm.add(kind.compiled)

    def expect(self, config: RunConfig) -> None:
        """A start that will have been made."""
        compiled = kind_of(config).compiled
        if self.compiles(config):
            self._first[compiled] = config.name
            self._warm.add(compiled)

    def compiles(self, config: RunConfig) -> bool:
        """Whether its kernels are still to be compiled here. On the CPU there are none."""
        return not on_cpu(config) and kind_of(config).compiled not in self._warm

    def elsewhere(self, config: RunConfig) -> str | None:
        """In a sentence, why kernels are to be compiled though runs of the folder did; None: none did."""
        where = self._elsewhere.get(kind_of(config).compiled)
        if where is None:
            return None
        version, gpus = kind_of(config).compiled
        on = "" if gpus == 1 else f" on {gpus} GPUs"
        return f"the kernels of {version}{on} were compiled {where}; counted as to be compiled again"

    def seconds(self, kind: Kind, cold: bool) -> float | None:
        """Of the newest such start; None: none was seen."""
        return self._seconds.get((kind, cold))

    def _learn(self, kind: Kind, seconds: float, *, first: bool) -> None:
        """The first start on a machine compiled kernels when it took as long as those do: they may have been there."""
        if kind.on_cpu:
            self._seconds[kind, False] = seconds
            return
        halfway = (nearest(kind, True)["seconds"] + nearest(kind, False)["seconds"]) / 2
        self._seconds[kind, first and seconds > halfway] = seconds


def _cards(record: RunRecord) -> frozenset[str]:
    """Ids of the GPUs that its server could use; empty: not recorded."""
    try:
        memory = record.gpu_memory
    except RecordError:
        return frozenset()
    return frozenset() if memory is None else frozenset(use.uuid for use in memory.before if use.uuid is not None)
