"""Lines that fit no form as a whole: cut off, elided with "…", or worded by hand. What is whole in them is read.

A figure counts only with what ends it (a unit, a comma), so that "#tokens: 870" of a cut line is never taken for the
count. The line is reported as unread all the same.
"""

from __future__ import annotations

import re
from typing import Any

from ....units import gib_text_to_quantity

_INT = r"([0-9]{1,18})(?=[,\s])"
_GIB = r"(-?[0-9]{1,15}(?:\.[0-9]{1,9})?) ?GB"

#: kind -> (how it begins, the figure it cannot do without, its figures)
_KINDS: dict[str, tuple[str, tuple[str, ...], dict[str, str]]] = {
    "weights_begin": ("Load weight begin", ("available",), {"available": rf"avail mem={_GIB}"}),
    "weights_end": (
        "Load weight end",
        ("available", "used"),
        {
            "model_class": r"\btype=([A-Za-z_]\w*)(?=[,\s])",
            "elapsed_s": r"elapsed=([0-9.]{1,12}) s",
            "available": rf"avail mem={_GIB}",
            "used": rf"mem usage={_GIB}",
        },
    ),
    "state_pool": (
        "Mamba Cache is allocated",
        ("slots", "ssm", "conv"),
        {
            "slots": rf"max_mamba_cache_size: {_INT}",
            "conv": rf"\bconv_state size: {_GIB}",
            "ssm": rf"(?<!\w)ssm_state size: {_GIB}",
            "scratch_ssm": rf"intermediate_ssm_state_cache size: {_GIB}",
            "scratch_conv": rf"intermediate_conv_window_cache size: {_GIB}",
        },
    ),
    "kv_pool": (
        "KV Cache is allocated",
        ("tokens",),
        {
            "dtype": r"dtype: ([\w.]+)(?=,)",
            "tokens": rf"#tokens: {_INT}",
            "k": rf"\bK (?:size: )?{_GIB}",
            "v": rf"\bV (?:size: )?{_GIB}",
            "kv": rf"\bKV (?:size: )?{_GIB}",
        },
    ),
    "pool_end": ("Memory pool end", ("available",), {"available": rf"avail mem={_GIB}"}),
    "resolved": (
        "max_total_num_tokens=",
        ("kv_tokens",),
        {
            "kv_tokens": rf"max_total_num_tokens={_INT}",
            "chunked_prefill_size": r"chunked_prefill_size=(-?[0-9]{1,18})(?=[,\s])",
            "max_prefill_tokens": rf"max_prefill_tokens={_INT}",
            "running_requests": rf"max_running_requests={_INT}",
            "context_len": rf"context_len={_INT}",
            "available": rf"available_[gc]pu_mem={_GIB}",
        },
    ),
}
#: A state pool line of which only figures were pasted begins with one of them.
FRAGMENTS = (
    "max_mamba_cache_size: ",
    "conv_state size: ",
    "ssm_state size: ",
    "intermediate_ssm_state_cache size: ",
    "intermediate_conv_window_cache size: ",
)
#: What such a fragment has to tell: a slot count alone may be anybody's setting.
_OF_A_FRAGMENT = ("ssm", "conv", "scratch_ssm", "scratch_conv")
_WHOLE_NUMBERS = frozenset(
    ("slots", "tokens", "kv_tokens", "chunked_prefill_size", "max_prefill_tokens", "running_requests", "context_len")
)


def read_partly(text: str) -> tuple[str, dict[str, Any]] | None:
    """(kind, figures) of a line of which enough is whole; None otherwise. Sizes are GiB as everywhere in these logs."""
    for kind, (head, needed, patterns) in _KINDS.items():
        if not text.startswith(head):
            continue
        figures = {name: _figure(name, pattern, text) for name, pattern in patterns.items()}
        return (kind, figures) if any(figures[name] is not None for name in needed) else None
    return None


def read_fragment(text: str) -> tuple[str, dict[str, Any]] | None:
    """The same of a text that begins amid a state pool line, cut there on purpose: its end ends a figure."""
    if not text.startswith(FRAGMENTS):
        return None
    patterns = _KINDS["state_pool"][2]
    figures = {name: _figure(name, pattern, text + "\n") for name, pattern in patterns.items()}
    return ("state_pool", figures) if any(figures[name] is not None for name in _OF_A_FRAGMENT) else None


def _figure(name: str, pattern: str, text: str) -> Any:
    found = re.search(pattern, text)
    if found is None:
        return None
    if name in _WHOLE_NUMBERS:
        return int(found[1])
    if name == "elapsed_s":
        return float(found[1]) if re.fullmatch(r"\d+(?:\.\d+)?", found[1]) else None
    return found[1] if name in ("model_class", "dtype") else gib_text_to_quantity(found[1])
