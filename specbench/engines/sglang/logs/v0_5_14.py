"""SGLang 0.5.14: graph lines say whose graph and which; draft weights load before the pools are sized."""

from __future__ import annotations

from ..form import Form

_GIB = "{used:gib} GB, avail mem={available:gib} GB"

FORMS: dict[str, Form] = {
    "graph_begin": Form(
        "graph_begin",
        "Capture {role:role} {what:what} {device:word} graph begin. backend={backend:word}, "
        "num_tokens_per_bs={tokens_per_request:int}, bs={batch_sizes:ints}, avail mem={available:gib} GB",
    ),
    "graph_end": Form(
        "graph_end",
        "Capture {role:role} {what:what} {device:word} graph end. elapsed={elapsed_s:float} s, mem usage=" + _GIB,
    ),
    "graph_prefill_begin": Form(
        "graph_begin",
        "Capture {role:role} {what:what} {device:word} graph begin. backend={backend:word}, "
        "num_tokens={prefill_sizes:ints}, avail mem={available:gib} GB",
    ),
    "graph_step_begin": Form(
        "graph_begin",
        "Capture {role:role} {what:what} {device:word} graph begin. step={step:int}, avail mem={available:gib} GB",
    ),
    "graph_step_end": Form(
        "graph_end",
        "Capture {role:role} {what:what} {device:word} graph end. step={step:int}, elapsed={elapsed_s:float} s, "
        "mem usage=" + _GIB,
    ),
    "draft_graph_skipped": Form(
        "notice:draft_graph_skipped",
        "Disable DFLASH draft cuda graph because only {available:gib} GB GPU memory is available after target backend "
        "initialization",
    ),
    "requests_reduced": Form(
        "notice:requests_reduced",
        "max_running_requests was reduced from the requested {requested:int} to {resolved:int} (per dp worker) "
        "due to the available KV cache capacity",
    ),
    "int8_pool": Form(
        "notice:int8_checkpoint_pool",
        "int8 mamba checkpoint pool: {slots:int} slots, {size:gib}GB (qdata {qdata:gib} + scale {scale:gib} + conv "
        "{conv:gib}); active mamba pool {state_slots:int} slots[[; free HBM {free:gib}GB]]",
    ),
    "int8_pool_outside": Form(
        "notice:int8_checkpoint_outside_budget",
        "int8 mamba checkpoint pool ({size:gib}GB) is allocated from --mem-fraction-static headroom",
    ),
}

GONE: tuple[str, ...] = (
    "graph_sizes",
    "graph_draft_begin",
    "graph_draft_end",
    "graph_piecewise_begin",
    "graph_piecewise_end",
    "requests_from_capacity",
    "overlap_dflash",
    "overlap_no_buffer",
    "extra_buffer_disabled",
)
