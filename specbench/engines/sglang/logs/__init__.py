"""SGLang's server logs: `read(source)` gives a `contract.ServerLog`.

In: a path (plain, gzip), an open binary stream, or an iterable of lines; or several, of the ranks or nodes of one
server. Out: everything the log says about memory, limits, batches and failures, each figure with its line. The reader
never raises on account of the text: what looks like a line that it reads and is none is in `unread`, and a text of
something else gives a log in which nothing is recognised. Memory stays flat however long the log is (see `batches.py`
and `reading.py` for what is kept).

The way of a line: `scan` finds it, `several` puts files together, `message` makes it text, `records` gives it a form of
`v0_5_*.py`, `roles` says whose it is, `assemble` pairs it with others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....errors import ConfigError
from ....logsources import Share
from ....logtext import Source, as_text, clean
from ....units import counted
from ....versions import is_development, nearest_earlier
from ...contract import Failure, Line, Notice, ServerLog
from . import assemble, formats
from .argument_names import POST_RELEASES, Release, release_of
from .batches import UNREAD_LIMIT
from .benchmark_text import benchmark_notice
from .beside import beside
from .evidence import Evidence
from .failure_texts import ANYBODYS
from .failures import KILLED, causes_first, only_lost_others
from .formats import VersionRange
from .http_text import request_notice
from .message import MOST_WRAPS, Message
from .partial import FRAGMENTS
from .reading import collect
from .records import Record, record_of
from .server_args import arguments_of, is_dict
from .several import Found, alone, together
from .tracebacks import Tracebacks

__all__ = ["read", "read_several", "recognised"]

_MOST_NOTICES = 500  # of one kind
_MOST_RANKS = 512  # of one server; text that names more is none of a server

#: Beginnings that no other engine's lines have, even when the rest of the line is missing.
_SURELY_OURS = re.compile(r"(?:\A|\] )(?:Mamba Cache is all|KV Cache is all|Load weight end|max_total_num_tokens=)")

#: Notices that any Python program, or a client, could have.
_NOT_OF_A_SERVER = frozenset(("logged_error", "benchmark_result"))

#: The phase that a log has reached with a line of this kind.
_REACHES = {
    "weights_begin": "load",
    "weights_end": "pools",
    "state_pool": "pools",
    "kv_pool": "pools",
    "pool_end": "graphs",
    "graph_begin": "graphs",
    "graph_end": "graphs",
    "resolved": "graphs",
    "ready": "serving",
}
_PHASES = ("unknown", "load", "pools", "graphs", "serving")


def read(source: Source, name: str | None = None, *, version: str | None = None) -> ServerLog:
    """Read a server's log.

    `name` is what the log is called in messages (its path, when not given). `version` is the engine's version when it
    is known otherwise (a record knows it): its wordings go first, and `seen["other_wording"]` counts the lines that
    only other versions print. A bare log with its whole `server_args=` tells the release, another a range. OSError when
    a file cannot be read.
    """
    raw = collect(source)
    places = source.places if isinstance(source, Share) else {}
    label = name or (str(source) if isinstance(source, (str, Path)) else "log")
    log = _Understanding(alone(raw, places), version).log(label)
    if raw.previous is None:
        return log
    before = replace(raw, start=raw.previous, previous=None)
    return replace(log, previous=_Understanding(alone(before, places), version).log(label))


def read_several(sources: Mapping[str, Source], name: str) -> ServerLog:
    """Read the logs of one server's ranks or nodes, by the names that they are called in messages, as one log.

    Their order does not matter. OSError when a file cannot be read.
    """
    found = together({label: collect(source) for label, source in sources.items()})
    return _Understanding(found, None).log(name)


def recognised(log: ServerLog) -> bool:
    """Whether anything in the log is of an SGLang server. A traceback alone is not, unless its frames are in SGLang's
    code; nor is what its benchmarks print.
    """
    structure = (
        log.server_args, log.weights, log.state_pools, log.kv_pools, log.pool_ends, log.graphs, log.resolved,
        log.ready_line, log.decode["line"], log.prefill["line"],
    )  # fmt: skip
    looks_ours = any(_SURELY_OURS.search(line.text) for line in log.unread)
    own_notice = any(notice.kind not in _NOT_OF_A_SERVER or "where" in notice.values for notice in log.notices)
    own = (failure.kind not in ANYBODYS or _is_ours(failure.values) for failure in log.failures)
    return any(structure) or looks_ours or own_notice or any(own)


def _is_ours(values: Mapping[str, Any]) -> bool:
    """Raised in SGLang's code, or because SGLang is not there."""
    return "where" in values or str(values.get("module", "")).partition(".")[0] == "sglang"


class _Understanding:
    """Works through the messages of one start, in order."""

    def __init__(self, found: Found, version: str | None) -> None:
        self._found = found
        self._arguments = arguments_of(found.arguments)
        self._release: Release | None = None
        if self._arguments is not None and version is None:
            self._release = release_of(self._arguments, whole=self._arguments.whole)
        exact = self._release.exact if self._release else None
        is_post = found.version is not None and found.version == POST_RELEASES.get(exact or "")
        version = version or (found.version if is_post else exact) or found.version
        self._said_version = version
        self._version = version if version and _has_wordings(version) else None
        self._records: list[Record] = []
        self._unread: list[tuple[int, str]] = []
        self._notices: list[Notice] = []
        self._failures: list[Failure] = []
        self._tracebacks = Tracebacks()
        self._progress = "unknown"
        self._seen: Counter[str] = Counter()
        self._evidence: dict[int, str] = {}
        self._ready: int | None = None
        self._ranks: set[str] = set()
        self._first_batch = found.batches.first_line
        for message in found.messages:
            self._take(message)
        self._tracebacks.end(self._progress)

    def _take(self, message: Message) -> None:
        if self._first_batch is not None and message.line > self._first_batch:
            self._progress = "serving"
        notice = benchmark_notice(message) or request_notice(message)
        if notice is not None:
            self._note(notice)
            return
        if self._tracebacks.take(message, self._progress):
            return
        record = record_of(message, self._version)
        if record is None or self._is_of_the_last_pool(record):
            return
        if not record.whole:
            self._unread.append((record.line, message.shown(record.text)))
        self._evidence[record.line] = message.shown(record.text)
        self._seen[record.kind.partition(":")[2] or record.kind] += 1
        self._seen["other_wording"] += record.foreign
        if _PHASES.index(reached := _REACHES.get(record.kind, "unknown")) > _PHASES.index(self._progress):
            self._progress = reached
        match record.kind.partition(":"):
            case ("notice", _, kind):
                self._note(_notice(kind, record), counted=True)
            case ("failure", _, kind):
                self._watchdog(kind, record)
            case ("ready", _, _):
                self._ready = self._ready or record.line
            case ("unread", _, _):
                pass
        if len(self._ranks) < _MOST_RANKS:
            self._ranks.add(record.rank)
        if record.rank in self._ranks:
            self._records.append(record)

    def _is_of_the_last_pool(self, record: Record) -> bool:
        """Whether figures of a state pool that begin a line are what a line just above it wrapped to."""
        return record.text.startswith(FRAGMENTS) and any(
            above.kind == "state_pool" and 0 < record.line - above.line <= MOST_WRAPS for above in self._records[-2:]
        )

    def _note(self, notice: Notice, *, counted: bool = False) -> None:
        self._evidence.setdefault(notice.line, notice.text)
        if not counted:
            self._seen[notice.kind] += 1
        if self._seen[notice.kind] <= _MOST_NOTICES:
            self._notices.append(notice)

    def _watchdog(self, kind: str, record: Record) -> None:
        """An error that is a line of its own. A soft watchdog only reports; a hard one ends the server."""
        if record.figures.get("soft"):
            self._note(_notice("soft_" + kind, record))
            return
        self._failures.append(
            Failure(
                kind=kind,
                phase=self._progress,
                exception=None,
                text=record.text,
                rank=record.rank,
                line=record.line,
                values=dict(record.figures),
            )
        )

    def log(self, source: str) -> ServerLog:
        found = self._found
        rows = assemble.placed(self._records)
        args = self._arguments
        args_line = found.arguments.line if found.arguments else None
        if found.arguments is not None:
            text = as_text(found.arguments.raw.partition(b"\n")[0])
            self._evidence[found.arguments.line] = text
        weights = assemble.weights(rows)
        speculative = any(load.role == "draft" for load in weights) or bool(args and args.get("speculative_algorithm"))
        failures = causes_first((*self._failures, *self._tracebacks.failures))
        survived = [failure for failure in failures if self._survived(failure)]
        failures = [failure for failure in failures if failure not in survived]
        notices = [*self._notices, *self._tracebacks.notices, *map(_logged_error, survived)]
        notices.sort(key=lambda notice: notice.line)
        if not failures or only_lost_others(failures[0]):
            failures = causes_first((*failures, *_died(notices, self._progress, alone=not failures)))
        return ServerLog(
            source=source,
            engine="sglang",
            version=self._said_version,
            version_range=self._version_range(),
            server_args=args,
            server_args_line=args_line,
            memory_before=assemble.memory_before(rows),
            weights=weights,
            state_pools=assemble.state_pools(rows),
            kv_pools=assemble.kv_pools(rows),
            pool_ends=assemble.pool_ends(rows),
            graphs=assemble.graphs(rows, speculative=speculative),
            resolved=assemble.resolved(rows),
            notices=tuple(notices),
            failures=tuple(failures),
            ready_line=self._ready,
            decode=found.batches.decode,
            prefill=found.batches.prefill,
            unread=self._all_unread(),
            evidence=self._all_evidence(),
            lines_total=found.lines,
            seen=self._counts(),
            places=found.places,
            beginning=found.beginning,
            assumptions=(*found.assumptions, *assemble.mixed_up(weights)),
            two_servers=found.two_servers,
            beside=beside(clean(found.beginning)),
            version_from=tuple(self._of_release()),
        )

    def _of_release(self) -> Iterator[str]:
        """Where the release is known from, when it is by the arguments' names; what speaks against it."""
        told, release = self._found.version, self._release
        if release is None:
            return
        if release.exact is not None:
            post = POST_RELEASES.get(release.exact)
            if told is not None and told == post:
                yield f"engine version {told}, as the text says: the names of its arguments are its own"
                return
            others = f"of others {post} alone, which sizes alike," if post else "no other release"
            yield f"engine version {release.exact}, by the names of its arguments: {others} has exactly these"
            if told is not None and told != release.exact:
                yield f"the text names version {told} beside them: the arguments' names count"
        elif release.nearest is not None:
            yield (
                f"{counted(release.different, 'argument name')} differ from those of {release.nearest}, the most "
                "similar release: a development build or a fork"
            )

    def _survived(self, failure: Failure) -> bool:
        """An error that was caught and logged, after which the server became ready or went on serving."""
        last_sign = max(self._ready or 0, self._found.batches.last_line or 0)
        # An address that is in use may be tried again, or be another than that of the server.
        may = failure.line in self._tracebacks.survivable or failure.kind == "port_in_use"
        return may and failure.line < last_sign

    def _version_range(self) -> VersionRange:
        ranges = [*(record.versions for record in self._records), *self._found.batches.versions]
        arguments = self._found.arguments
        if arguments is not None:
            dict_since = formats.EXAMINED[-1]
            before = formats.EXAMINED[-2]
            ranges.append((dict_since, None) if is_dict(as_text(arguments.raw[:64])) else (None, before))
        if self._release is not None and self._release.exact is not None:
            return self._release.exact, self._release.exact
        if self._release is not None and self._release.fitting:
            first, last = self._release.fitting[0], self._release.fitting[-1]
            ranges.append((nearest_earlier(first, formats.EXAMINED), last))  # ranges of lines are in releases examined
        return formats.intersection(ranges)

    def _all_unread(self) -> tuple[Line, ...]:
        batches = ((number, as_text(text)) for number, text in self._found.batches.unread)
        places = self._found.places
        lines = sorted((*self._unread[:UNREAD_LIMIT], *batches), key=lambda line: line[0])
        located = ((*places.get(number, (None, number)), text) for number, text in lines)
        return tuple(Line(line=line, text=text, file=file) for file, line, text in located)

    def _all_evidence(self) -> Mapping[int, str]:
        return Evidence({**self._found.batches.lines, **self._evidence, **self._tracebacks.evidence})

    def _counts(self) -> dict[str, int]:
        batches = self._found.batches.counts
        counts = {
            "starts": self._found.starts,
            "decode": batches["decode"],
            "prefill": batches["prefill"],
            "unread": len(self._unread) + batches["unread"],
            "failures": len(self._failures) + len(self._tracebacks.failures),
        }
        return counts | {kind: number for kind, number in self._seen.items() if number and kind not in counts}


def _has_wordings(version: str) -> bool:
    """A development build, or text that is no version, tells nothing about the wording."""
    try:
        return not is_development(version)
    except ConfigError:
        return False


def _notice(kind: str, record: Record) -> Notice:
    values: dict[str, Any] = {name: value for name, value in record.figures.items() if value is not None}
    return Notice(kind=kind, values=values, rank=record.rank, line=record.line, text=record.text)


def _logged_error(failure: Failure) -> Notice:
    text = f"{failure.exception}: {failure.text}" if failure.exception else failure.text
    return Notice(kind="logged_error", values=failure.values, rank=failure.rank, line=failure.line, text=text)


def _died(notices: Sequence[Notice], progress: str, *, alone: bool) -> list[Failure]:
    """A child that ended without a word of its own, as the last resort; beside other failures one that was killed
    before anything was ended because of them. -9: mostly the kernel's memory killer."""
    ended = ("ended_by_signal", "process_tree_killed")
    first = next((notice.line for notice in notices if notice.kind in ended), None)
    return [
        Failure(
            kind="process_died",
            phase=progress,
            exception=None,
            text=notice.text,
            rank=notice.rank,
            line=notice.line,
            values=dict(notice.values),
        )
        for notice in notices
        if notice.kind == "process_died"
        and (code := notice.values.get("exit_code")) not in (0, -15, -2)
        and (alone or (code in KILLED and (first is None or notice.line < first)))
    ]
