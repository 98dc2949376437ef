"""What is said, in two lines, about a text that is no log of a server: what came, what was expected, what to do."""

from __future__ import annotations

import shlex
from pathlib import Path

from ..engines.contract import ServerLog
from ..engines.foreign import binary, foreign, is_packed
from ..units import counted
from .rules_benchmark import waits

_GIVE = "Give the whole output of an SGLang server (stdout and stderr), from its start"
_CAPTURE = f"{_GIVE}: python -m sglang.launch_server … 2>&1 | tee server.log"
_LONGEST_QUOTE = 100


def refusal(label: str, log: ServerLog, size: int | None = None) -> str:
    """Why nothing can be said about a log in which nothing was recognised. `size`: of the file, in bytes."""
    if not log.beginning.strip(b"\0\r\n\t "):
        packed = size and log.lines_total == 0
        came = f"{size:,} bytes of which no line can be unpacked" if packed else "empty"
        return f"{label}: {came}; expected an SGLang server's log.\n{_CAPTURE}"
    reports = [notice for notice in log.notices if notice.kind == "benchmark_result"]
    if reports:
        share = max((waits(notice.values) or 0.0 for notice in reports), default=0.0)
        queue = (
            f" Its requests waited {share:.0%} of their time for a first token: it measured a queue." if share else ""
        )
        return (
            f"{label}: a client's report (a benchmark of SGLang), which tells nothing of the server's memory.{queue}\n"
            f"{_GIVE}; a record holds what its clients measured, too."
        )
    what = binary(log.beginning)
    if what is not None:
        do = f"Unpack it first (.gz and .zst are read as they are). {_GIVE}." if is_packed(what) else f"{_GIVE}."
        came = "a binary file" if what == "binary" else f"{what}, a binary file"
        return f"{label}: {came}; expected text, an SGLang server's log.\n{do}"
    other = foreign(log.beginning)
    if other is not None:
        quote = other.text if len(other.text) <= _LONGEST_QUOTE else other.text[: _LONGEST_QUOTE - 1] + "…"
        return (
            f"{label}: {other.what}, by line {other.line} ({quote}); expected one of an SGLang server.\n"
            f"{_GIVE}; about other text specbench can say nothing."
        )
    return f"{label}: {counted(log.lines_total, 'line')}, and none is a known line of an SGLang server.\n{_GIVE}."


def folder_refusal(folder: Path) -> str | None:
    """What is said about a folder without a record; None when it may be one."""
    found = sorted(path for path in folder.iterdir() if path.is_file() and _is_log(path.name))
    if not found:
        return None
    asked = " ".join(shlex.quote(str(path)) for path in found[:4]) + (" …" if len(found) > 4 else "")
    return (
        f"{folder}: a folder, and no record in it; it holds {counted(len(found), 'log')}.\n"
        f"Name one, or all that are of one server: specbench diagnose {asked}"
    )


def _is_log(name: str) -> bool:
    plain = name.removesuffix(".gz").removesuffix(".zst")
    return plain.endswith((".log", ".out", ".err"))
