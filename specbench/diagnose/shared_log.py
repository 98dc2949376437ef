"""A log that several servers wrote, whose wrapping names them: which there are, and the diagnosis of one of them.

The one that is asked for by name; else the one with the gravest finding. Their figures are never put together.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..configuration.explain import shown
from ..engines.sglang.logs.servers import MOST_SOURCES, Apart, servers_in
from ..errors import ConfigError, LogFormatError
from ..logclean import on_one_line
from ..logsources import Again, Share, kept_aside, tells_sources
from ..logtext import CHUNK_BYTES, LONGEST_LINE, Pieces
from ..reading.outcome import in_words
from ..terms import Outcome
from .catalogue import title
from .finding import GRAVEST_FIRST
from .types import Diagnosis, Server

_FAILED: tuple[Outcome, ...] = ("refused", "crashed", "timed_out")
_MOST_NAMED = 12


def of_shared(
    log: Apart, label: str, asked: str | None, diagnosed: Callable[[Share, str], Diagnosis]
) -> Diagnosis | None:
    """The diagnosis of one server. None: the log is of one, or does not name them.

    `asked`: a server's name, or a part of it that no other has. `diagnosed`: of its lines, by what they are called.
    ConfigError (two lines): there is no such server in the log.
    """
    if log.sources is None or not log.servers:
        if asked is not None and log.too_many:
            raise ConfigError(
                f"--server: got {shown(asked)}, but more than {MOST_SOURCES} sources wrote {label}: no servers are "
                "told apart.\nGive the lines of that server as a file of their own."
            )
        if asked is not None:
            raise ConfigError(
                f"--server: got {shown(asked)}, but {label} is of one server, or does not name several.\n"
                "Leave it out. Lines are told apart by docker compose, kubectl logs --prefix, Ray, journald, syslog."
            )
        return None
    shares: dict[str, Share] = {}
    for sources in log.servers:
        name = on_one_line(" + ".join(sources))
        while name in shares:  # another whose name differs in what is not shown
            name += "'"
        shares[name] = log.sources.share(sources)
    if asked is not None:
        name = _named(asked, tuple(shares), label)
        return _asked(name, diagnosed(shares[name], f"{label}, {name}"), tuple(shares))
    found = {name: one for name, share in shares.items() if (one := _known(share, f"{label}, {name}", diagnosed))}
    if not found:
        raise LogFormatError(f"{label}: {len(shares)} sources, and none has a known line.\nGive the log of one alone.")
    return _gravest(found)


def marked_as_one(found: Diagnosis, log: Apart) -> Diagnosis:
    """What was read as the log of one server, with a word where so many wrote it that this is not known."""
    if not log.too_many:
        return found
    mark = f"more than {MOST_SOURCES} sources wrote this log: it is read as that of one server, whose figures these are"
    return dataclasses.replace(found, marks=(f"{mark} only if they are its workers", *found.marks))


def _asked(name: str, found: Diagnosis, names: Sequence[str]) -> Diagnosis:
    others = [other for other in names if other != name]
    mine = _server(name, found)
    told = [mine if one == name else Server(name=one, outcome=None) for one in names]
    return _marked(
        found, told, f"{name} alone, as asked; {len(names)} servers wrote this log, beside it {_few(others)}"
    )


def _gravest(every: Mapping[str, Diagnosis]) -> Diagnosis:
    name = min(every, key=lambda name: _gravity(every[name]))
    if len(every) == 1:
        return every[name]
    told = [_server(one, found) for one, found in every.items()]
    outcomes = _few([_in_words(one, beside=one.name != name) for one in told])
    why = _why(name, every)
    mark = f"{name} alone: {why} of {len(every)} servers in this log ({outcomes}); --server NAME for another"
    return _marked(every[name], told, mark)


def refuse_shared(log: Path) -> None:
    """LogFormatError (two lines): where the log of one server is expected, several wrote this one."""
    servers = servers_in(log)
    if servers:
        names = _few([on_one_line(" + ".join(sources)) for sources in servers])
        raise LogFormatError(
            f"{log}: {len(servers)} servers wrote this log: {names}.\n"
            "Give the lines of one as a file of their own (diagnose alone reads one of them: --server NAME)."
        )


@contextmanager
def again(stream: BinaryIO) -> Iterator[Again | Pieces]:
    """A stream that can be read once as one that can be read again, where its lines name who wrote them."""
    first = stream.read(LONGEST_LINE)
    if not tells_sources(io.BytesIO(first)):
        yield Pieces(iter(lambda: stream.read(CHUNK_BYTES), b""), first)
        return
    with kept_aside():
        copy = tempfile.TemporaryFile(prefix="specbench-")  # noqa: SIM115
    try:
        for piece in itertools.chain((first,), iter(lambda: stream.read(CHUNK_BYTES), b"")):
            with kept_aside():
                copy.write(piece)
        with kept_aside():
            copy.flush()
        yield copy
    finally:
        with suppress(OSError):  # what could not be written is not needed any more
            copy.close()


def _known(share: Share, label: str, diagnosed: Callable[[Share, str], Diagnosis]) -> Diagnosis | None:
    try:
        return diagnosed(share, label)
    except LogFormatError:
        return None


def _named(asked: str, names: Sequence[str], label: str) -> str:
    if asked in names:
        return asked
    fitting = [name for name in names if asked in name]
    if len(fitting) == 1:
        return fitting[0]
    what = "fits several servers" if fitting else "no such server"
    raise ConfigError(f"--server: got {shown(asked)}: {what} in {label}.\nIt has: {_few(fitting or names)}.")


def _gravity(found: Diagnosis) -> tuple[int, float]:
    if not found.findings:
        return len(GRAVEST_FIRST), 0.0
    first = found.findings[0]
    return GRAVEST_FIRST[first.severity], -(first.lost or 0.0)


def _server(name: str, found: Diagnosis) -> Server:
    main = found.main_finding
    failed = found.outcome in _FAILED and main is not None
    return Server(name=name, outcome=found.outcome, finding=main.id if failed and main is not None else None)


def _in_words(one: Server, *, beside: bool) -> str:
    """'sglang-2 refused'; of one that is not diagnosed here with what it failed of: 'sglang-2 refused: … (id)'."""
    outcome = "not looked at" if one.outcome is None else in_words(one.outcome)
    why = f": {title(one.finding)} ({one.finding})" if beside and one.finding is not None else ""
    return f"{one.name} {outcome}{why}"


def _why(name: str, every: Mapping[str, Diagnosis]) -> str:
    """What is called gravest is fatal, and what it costs is known and more; of equal ones it is the first."""
    chosen, failed = every[name], [one for one, found in every.items() if found.outcome in _FAILED]
    if chosen.outcome in _FAILED:
        if len(failed) == 1:
            return "the only one that failed"
        if [_gravity(every[one]) for one in failed].count(_gravity(chosen)) > 1:
            return f"the first of the {len(failed)} that failed, none of which is graver,"
        lost = chosen.findings[0].lost if chosen.findings else None
        costs = "" if not lost else f" (its finding costs {lost:.0%}, the others' less, or it is not known how much)"
        return f"the gravest of the {len(failed)} that failed{costs},"
    return "the one with the gravest finding" if chosen.findings else "the first"


def _marked(found: Diagnosis, servers: Sequence[Server], mark: str) -> Diagnosis:
    return dataclasses.replace(found, servers=tuple(servers), marks=(mark, *found.marks))


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"
