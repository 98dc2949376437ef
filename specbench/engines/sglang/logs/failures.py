"""Which error an exception is, by kind, phase and figures, and which of several is the cause.

The texts are those of `failure_texts.py`; one that is not there is a `runtime_error`. Signals (SIGQUIT,
kill_process_tree) are no failures: the cause stands above them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...contract import Failure
from ..form import Form
from .failure_texts import KNOWN, RANK_MISSING

_OUT_OF_MEMORY = re.compile(r"(?:CUDA|HIP|XPU|NPU) out of memory|out of memory\. Tried to allocate")
_OOM_FIGURES = {
    "requested_bytes": re.compile(r"Tried to allocate ([\d.]{1,20}) (bytes|[KMGT]i?B)"),
    "total_bytes": re.compile(r"total capacity of ([\d.]{1,20}) (bytes|[KMGT]i?B)"),
    "free_bytes": re.compile(r"of which ([\d.]{1,20}) (bytes|[KMGT]i?B) is free"),
    "in_use_bytes": re.compile(r"this process has ([\d.]{1,20}) (bytes|[KMGT]i?B) memory in use"),
}
_OOM_GPU = re.compile(r"GPU (\d{1,3}) has a total capacity")
_UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_TOKENS_WANTED = re.compile(r"Try to allocate (\d{1,15}) tokens")
_SLOTS_LEFT = re.compile(r"available_size\(\)=(\d{1,15}), num_reqs=(\d{1,15})")

_PORT = re.compile(r"\[Errno \d{1,5}\] error while attempting to bind|[Aa]ddress already in use")
_PORT_NUMBER = re.compile(r"(?:'[^']{0,100}', |tcp://[^: ]{1,100}:|port: )(\d{1,5})\b")
#: Of a pool in the engine's own words: "available_size=12", "(full_available_size=0 + …", "[full] total=87061, …".
_POOL_STATE = re.compile(r"(?:self\.)?([a-z_.()]{1,60}?)_?=(\d{1,15})(?=[ ,+)]|\Z)")
_POOL_WORDS = {
    **dict.fromkeys(("available",), "free_entries"),
    **dict.fromkeys(("evictable", "component_evictable"), "cached_entries"),
    **dict.fromkeys(("protected", "tree_cache.full_protected_size()", "tree_cache.protected_size()"), "locked_entries"),
    **dict.fromkeys(("total", "max_total_num_tokens", "token_to_kv_pool_allocator.size"), "all_entries"),
}
_NCCL = {
    "failed": re.compile(r"NCCL [Ee]rror(?: in: [^,]{1,200})?[,:] ([a-z ]{3,80}?)(?= \(run|, NCCL|\Z)"),
    "code": re.compile(r"\b(nccl[A-Z]\w{2,40}): "),
    "last_error": re.compile(r"Last error: (.{1,300}?)(?= Exception raised from|\Z)"),
}
#: Of a rank whose peer is gone, in NCCL's words and in gloo's.
_REMOTE = re.compile(
    r"ncclRemoteError|remote process exited|Connection (?:refused|closed|reset|timed out)|Broken pipe|"
    r"Application timeout|"
    r"socket(?:Poll|Progress|Recv)"
)
_GPU_ERROR = re.compile(r"CUDA error: (.{1,120}?)(?= CUDA kernel| Search for|\.? Compile with|\Z)")

#: What stands in a traceback's frames -> phase. In this order: a graph is also replayed while serving.
_PHASES = (
    ("serving", re.compile(r"in (?:event_loop\w*|run_event_loop|dispatch_event_loop)\b")),
    ("arguments", re.compile(r"server_args\.py|arg_groups/|argparse\.py")),
    ("graphs", re.compile(r"graph_runner|cuda_graph|in init_device_graphs|in capture\b")),
    ("pools", re.compile(r"mem_cache/|memory_pool|kv_cache|pool_configurator")),
    ("load", re.compile(r"model_loader/|in load_model|weight_utils")),
)

#: The first frame of a traceback that nobody caught: the process ended with it.
UNCAUGHT = re.compile(r"in (?:<module>|_run_module_as_main|_bootstrap)\s*\Z")


@dataclass(frozen=True, slots=True)
class Known:
    kind: str
    phase: str | None
    values: dict[str, Any]


def classify(exception: str | None, text: str) -> Known | None:
    """The error that `text` (an exception's message, line breaks allowed) is; None when it is not in the list."""
    flat = " ".join(text.split())
    for kind, phase, template in KNOWN:
        values = Form(kind, template).read(flat)
        if values is not None:
            values = {name: value for name, value in values.items() if value is not None}
            return Known(kind, phase, values | _further(kind, flat))
    if _OUT_OF_MEMORY.search(flat) or (exception or "").endswith("OutOfMemoryError"):
        return Known("cuda_oom", None, _further("cuda_oom", flat))
    if _PORT.search(flat):
        return Known("port_in_use", "load", _further("port_in_use", flat))
    return None


#: Kinds that follow from another failure wherever one is known, the least telling last. A rank that was killed has no
#: words of its own, but those that lost it are no cause beside it; torch's time-outs come last of all.
_KILLED, _LOST = 1, 3
_CONSEQUENCES = {
    "communication_failed": 2,
    RANK_MISSING: _LOST,
    "collective_timeout": _LOST,
    "warmup_failed": 4,
    "process_died": 4,
    "child_failed": 5,
}
#: Exit codes of signals that no library sends itself: SIGILL, SIGBUS, SIGKILL, SIGSEGV.
KILLED = frozenset((-4, -7, -9, -11))
#: Where other ranks wait for the one that died.
_WAITS_FOR_OTHERS = "sglang/srt/distributed/"


def causes_first(failures: Sequence[Failure]) -> list[Failure]:
    """By line, and what follows from another failure after it: ranks print in any order."""
    return sorted(failures, key=lambda failure: (_follows(failure), failure.line))


def only_lost_others(failure: Failure) -> bool:
    """Whether it says that another rank is gone, or does not come, and nothing of itself."""
    return _follows(failure) == _LOST


def _follows(failure: Failure) -> int:
    if failure.kind == "runtime_error" and str(failure.values.get("where", "")).startswith(_WAITS_FOR_OTHERS):
        return _CONSEQUENCES["communication_failed"]
    if failure.kind == "process_died" and failure.values.get("exit_code") in KILLED:
        return _KILLED
    if failure.kind == "communication_failed" and failure.values.get("remote"):
        return _LOST
    return _CONSEQUENCES.get(failure.kind, 0)


def phase_of(frames: Iterable[str]) -> str | None:
    """The phase that a traceback's frames tell."""
    together = "\n".join(frames)
    return next((phase for phase, pattern in _PHASES if pattern.search(together)), None)


def where(frames: Iterable[str]) -> str | None:
    """The innermost frame in SGLang's own code as 'sglang/srt/…/x.py:123 in f'."""
    found = None
    for frame in frames:
        match = re.match(r'File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,9})(?:, in (?P<name>.{1,200}))?', frame)
        if match and "sglang/" in match["file"].replace("\\", "/"):
            path = match["file"].replace("\\", "/")
            found = f"sglang/{path.rpartition('sglang/')[2]}:{match['line']} in {match['name'] or '?'}"
    return found


def _nccl(text: str) -> dict[str, Any]:
    """What NCCL names, and whether it is only that another rank is gone."""
    values = {name: found[1].strip() for name, pattern in _NCCL.items() if (found := pattern.search(text))}
    return values | ({"remote": True} if _REMOTE.search(text) else {})


def _further(kind: str, text: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if kind == "communication_failed":
        return _nccl(text)
    if kind == "cuda_oom":
        for name, pattern in _OOM_FIGURES.items():
            if found := pattern.search(text):
                values[name] = _bytes(found[1], found[2])
        if found := _OOM_GPU.search(text):
            values["gpu"] = int(found[1])
    if kind == "kv_pool_exhausted" and (found := _TOKENS_WANTED.search(text)):
        values["tokens_wanted"] = int(found[1])
    if kind in ("kv_pool_exhausted", "memory_leak"):
        values |= _pool_state(text)
    if kind == "gpu_fault" and (found := _GPU_ERROR.search(text)):
        values["error"] = found[1]
    if kind == "port_in_use" and (found := _PORT_NUMBER.search(text)):
        values["port"] = int(found[1])
    if kind == "request_slots_exhausted" and (found := _SLOTS_LEFT.search(text)):
        values |= {"slots_left": int(found[1]), "requests": int(found[2])}
    return values


def _bytes(number: str, unit: str) -> int | None:
    try:
        return round(float(number) * _UNITS[unit[0].lower()])
    except ValueError:
        return None


def _pool_state(text: str) -> dict[str, Any]:
    """Entries free, held by the prefix cache and in all, as an exhausted or leaking pool was printed; first mention."""
    found: dict[str, Any] = {}
    for name, number in _POOL_STATE.findall(text[:4000]):
        name = name.lstrip("(").removeprefix("self.").removeprefix("full_").removesuffix("_size")
        meaning = _POOL_WORDS.get(name)
        if meaning is not None:
            found.setdefault(meaning, int(number))
    return found
