"""/metrics of SGLang (Prometheus text) -> figures. In: the text of an answer. Out: name -> value.

Kept are gauges, counters, and the sums and counts of histograms; not their buckets, which are most of the text. Labels
that say the same on every line of a server are left out of the names.
"""

from __future__ import annotations

import math
import re

#: GiB of free memory when the engine had started, not rounded (the log rounds it).
AVAILABLE_AFTER_START = "startup_available_gpu_memory_gb"

#: Requests in the running batch when it was last reported, which is with every decode and prefill line.
RUNNING = "num_running_reqs"

_OWN = "sglang:"
_LINE = re.compile(r"sglang:([A-Za-z0-9_]{1,200})(?:\{([^\n]{0,2000})\})? ([^ \n]{1,40})")
_LABEL = re.compile(r'([a-z_]{1,60})="((?:[^"\\]|\\.){0,400})"')
#: Whose value is one and the same for a server, or tells nothing that a reader of one server's figures needs.
_CONSTANT = frozenset({"engine_type", "model_name", "pid"})
#: Ranks: left out when 0, which is all there is on one GPU.
_RANKS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "dp_rank", "priority"})
#: Families of a dozen lines each that are about routing between servers.
_LEFT_OUT = ("routing_key_",)


def figures(text: str) -> dict[str, float]:
    """name{labels} -> value, in the order of the text. Of lines with one name the last counts; NaN is no figure."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith(_OWN):
            continue
        match = _LINE.match(line)
        if match is None or match[1].endswith(("_bucket", "_created")) or match[1].startswith(_LEFT_OUT):
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if math.isfinite(value):
            found[_name(match[1], match[2] or "")] = value
    return found


def _name(name: str, labels: str) -> str:
    told = [
        f"{key}={value}"
        for key, value in _LABEL.findall(labels)
        if key not in _CONSTANT and not (key in _RANKS and value in ("", "0"))
    ]
    return f"{name}{{{','.join(told)}}}" if told else name
