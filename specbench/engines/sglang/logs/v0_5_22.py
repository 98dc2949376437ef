"""SGLang 0.5.22: batch sizes move to the end of a capture."""

from __future__ import annotations

from ..form import Form

FORMS: dict[str, Form] = {
    "graph_begin": Form(
        "graph_begin",
        "Capture {role:role} {what:what} {device:word} graph begin. backend={backend:word}, "
        "num_tokens_per_req={tokens_per_request:int}, avail mem={available:gib} GB",
    ),
    "graph_end": Form(
        "graph_end",
        "Capture {role:role} {what:what} {device:word} graph end. bs={batch_sizes:ints}, elapsed={elapsed_s:float} s, "
        "mem usage={used:gib} GB, avail mem={available:gib} GB",
    ),
    # The draft of the EAGLE family went on printing as 0.5.16 did.
    "graph_draft_begin": Form(
        "graph_begin",
        "Capture {role:draft} {what:what} {device:word} graph begin. backend={backend:word}, "
        "num_tokens_per_req={tokens_per_request:int}, bs={batch_sizes:ints}, avail mem={available:gib} GB",
    ),
    "graph_draft_end": Form(
        "graph_end",
        "Capture {role:draft} {what:what} {device:word} graph end. elapsed={elapsed_s:float} s, "
        "mem usage={used:gib} GB, avail mem={available:gib} GB",
    ),
    "graph_prefill_end": Form(
        "graph_end",
        "Capture {role:role} {what:prefill} {device:word} graph end. elapsed={elapsed_s:float} s, "
        "mem usage={used:gib} GB, avail mem={available:gib} GB",
    ),
    "post_capture_draft": Form(
        "kv_pool_final",
        "Post-capture KV sizing: {role:draft} KV cache allocated. dtype: {dtype:word}, #tokens: {tokens:int}, "
        "KV size: {kv:gib} GB",
    ),
}

GONE: tuple[str, ...] = ()
