"""Which error an exception is: SGLang's own texts (and torch's for memory), by kind, phase and figures.

Texts of all examined versions. Consequences (SIGQUIT, kill_process_tree, killed children) are not in the list: the
cause stands above them. A text that is not in the list is a `runtime_error`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .form import Form

#: A module that SGLang needs, or SGLang itself, cannot be imported.
BAD_ENVIRONMENT = "bad_environment"

#: kind, phase (None: the frames or the log's progress tell), template. The first that fits wins.
_KNOWN: tuple[tuple[str, str | None, str], ...] = (
    ("cuda_oom", "graphs", "Capture cuda graph failed: CUDA out of memory"),
    ("graph_capture_failed", "graphs", "Capture cuda graph failed"),
    ("graph_capture_failed", "graphs", "Fail when using backend: {backend:word} for prefill runner"),
    (
        "not_enough_memory",
        "pools",
        (
            "Not enough memory. Please try to increase --mem-fraction-static."
            "[[ Current value: [[self.server_args.]][[mem_fraction_static=]]{mem_fraction_static:float}]]"
        ),
    ),
    (
        "weights_leave_no_room",
        "pools",
        (
            "Loaded weights leave no GPU memory for the KV cache under"
            "[[ --mem-fraction-static={mem_fraction_static:float}]]"
            "[[. Raise --mem-fraction-static above {raise_above:float}"
            "[[ (minimum viable = 1 - available/pre = {minimum:float})]]]]"
        ),
    ),
    (
        "state_pool_too_small",
        "pools",
        (
            "Not enough GPU memory for hybrid (mamba/linear-attention) state cache."
            "[[ Computed max_mamba_cache_size={state_slots:int} "
            "(total_rest_memory={rest:gib} GB, mamba_cache_per_req={slot:mib} MB)]]"
        ),
    ),
    (
        "state_pool_too_small",
        "pools",
        (
            "Hybrid (mamba/linear-attention) state cache is too small to serve any requests."
            "[[ max_mamba_cache_size={state_slots:int}, mamba_ratio={slots_per_request:int}, "
            "resulting max_num_reqs={running_requests:int}]]"
        ),
    ),
    ("zero_requests", "graphs", "capture_bs=[0]"),
    ("zero_requests", "pools", "max_running_request is zero"),
    ("memory_pool_too_small", "pools", "Memory pool size is too small"),
    (
        "memory_unbalanced",
        "load",
        (
            "The memory capacity is unbalanced. Some GPUs may be occupied by other processes."
            "[[ {name:word}={most_gib:float}, local_gpu_memory={local_gib:float}]]"
        ),
    ),
    (
        "int8_pool_too_large",
        "pools",
        "int8 mamba checkpoint pool needs ~{needed:gib}GB but only {free:gib}GB HBM is free.",
    ),
    ("kv_pool_exhausted", "serving", "Prefill out of memory."),
    ("kv_pool_exhausted", "serving", "Decode out of memory."),
    ("request_slots_exhausted", "serving", "alloc_req_slots runs out of memory."),
    ("state_slots_exhausted", "serving", "Not enough space for mamba cache, try to increase --mamba"),
    ("state_slots_exhausted", "serving", "Not enough space for mamba cache, try to increase --max-mamba"),
    ("state_slots_exhausted", "serving", "Not enough space for mamba ping pong idx"),
    ("state_slots_exhausted", "serving", "Can not alloc int8 mamba checkpoint slot"),
    ("memory_leak", "serving", "{pool:text} memory leak detected!"),
    ("process_died", "load", "Rank {rank:int} scheduler died during initialization (exit code: {exit_code:int})"),
    # arguments
    ("bad_arguments", "arguments", "Speculative decoding for {architecture:word} is not compatible with radix cache"),
    ("bad_arguments", "arguments", "mamba extra_buffer is not compatible with --disable-radix-cache"),
    ("bad_arguments", "arguments", "mamba_track_interval {interval:int} must be"),
    ("bad_arguments", "arguments", "extra_buffer is not supported for {architecture:word};"),
    ("bad_arguments", "arguments", "no_buffer do not support overlap schedule"),
    ("bad_arguments", "arguments", "--enable-linear-replayssm"),
    ("bad_arguments", "arguments", "--enable-unified-memory +"),
    ("bad_arguments", "arguments", "{architecture:word} does not support {backend:word} attention backend"),
)

_OUT_OF_MEMORY = re.compile(r"(?:CUDA|HIP|XPU|NPU) out of memory|out of memory\. Tried to allocate")
_OOM_FIGURES = {
    "requested_bytes": re.compile(r"Tried to allocate ([\d.]{1,20}) (bytes|[KMGT]i?B)"),
    "total_bytes": re.compile(r"total capacity of ([\d.]{1,20}) (bytes|[KMGT]i?B)"),
    "free_bytes": re.compile(r"of which ([\d.]{1,20}) (bytes|[KMGT]i?B) is free"),
    "in_use_bytes": re.compile(r"this process has ([\d.]{1,20}) (bytes|[KMGT]i?B) memory in use"),
}
_UNITS = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_TOKENS_WANTED = re.compile(r"Try to allocate (\d{1,15}) tokens")
_SLOTS_LEFT = re.compile(r"available_size\(\)=(\d{1,15}), num_reqs=(\d{1,15})")

_PORT = re.compile(r"\[Errno \d+\] (?:error while attempting to bind|Address already in use)|address already in use")

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
    for kind, phase, template in _KNOWN:
        values = Form(kind, template).read(flat)
        if values is not None:
            values = {name: value for name, value in values.items() if value is not None}
            return Known(kind, phase, values | _further(kind, flat))
    if _OUT_OF_MEMORY.search(flat) or (exception or "").endswith("OutOfMemoryError"):
        return Known("cuda_oom", None, _further("cuda_oom", flat))
    if _PORT.search(flat):
        return Known("port_in_use", "load", {})
    return None


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


def _further(kind: str, text: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if kind == "cuda_oom":
        for name, pattern in _OOM_FIGURES.items():
            if found := pattern.search(text):
                values[name] = _bytes(found[1], found[2])
    if kind == "kv_pool_exhausted" and (found := _TOKENS_WANTED.search(text)):
        values["tokens_wanted"] = int(found[1])
    if kind == "request_slots_exhausted" and (found := _SLOTS_LEFT.search(text)):
        values |= {"slots_left": int(found[1]), "requests": int(found[2])}
    return values


def _bytes(number: str, unit: str) -> int | None:
    try:
        return round(float(number) * _UNITS[unit[0].lower()])
    except ValueError:
        return None
