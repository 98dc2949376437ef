"""SGLang 0.5.16: graph lines count per request; sizing after capture; DSPARK."""

from __future__ import annotations

from ..form import Form

FORMS: dict[str, Form] = {
    "graph_begin": Form(
        "graph_begin",
        "Capture {role:role} {what:what} {device:word} graph begin. backend={backend:word}, "
        "num_tokens_per_req={tokens_per_request:int}, bs={batch_sizes:ints}, avail mem={available:gib} GB",
    ),
    "prefill_graph_skipped": Form(
        "notice:prefill_graph_skipped",
        "Disabling auto-selected prefill CUDA graph: only {available:gib} GiB is free after model/KV/eager-buffer "
        "allocation; at least {required:gib} GiB is required for capture",
    ),
    "post_capture_sized": Form(
        "notice:post_capture_sized",
        "Post-capture KV sizing: max_total_num_tokens={kv_tokens:int}, free memory={available:gib} GB",
    ),
    "post_capture_requests": Form(
        "notice:requests_reduced",
        "Post-capture KV sizing: max_running_requests {requested:int} -> {resolved:int}",
    ),
    "post_capture_headroom": Form(
        "notice:post_capture_headroom",
        "Post-capture KV sizing: decode CUDA graph max_bs={graph_batch:int} < "
        "max_running_requests={running_requests:int}; reserving activation headroom",
    ),
    "dspark_runner": Form(
        "notice:draft_runner",
        "Initialized {algorithm:word} draft runner. attention_backend={attention_backend:word}, "
        "model={model_class:word}, gamma={gamma:word}, verify_num_draft_tokens={block_size:word}",
    ),
}

GONE: tuple[str, ...] = ("kv_dtype",)
