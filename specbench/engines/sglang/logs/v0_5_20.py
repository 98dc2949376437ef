"""SGLang 0.5.20: the UNO tree draft captures a graph of its own."""

from __future__ import annotations

from ..form import Form

FORMS: dict[str, Form] = {
    "uno_begin": Form(
        "graph_begin",
        "Capture UNO tree {role:role} {device:word} graph begin. num_tokens_per_req={tokens_per_request:int}, "
        "avail mem={available:gib} GB",
    ),
    "uno_end": Form(
        "graph_end",
        "Capture UNO tree {role:role} {device:word} graph end. elapsed={elapsed_s:float} s, "
        "mem usage={used:gib} GB, avail mem={available:gib} GB",
    ),
}

GONE: tuple[str, ...] = ()
