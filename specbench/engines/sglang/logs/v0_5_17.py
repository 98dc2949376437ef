"""SGLang 0.5.17: labelled pools, pools that are sized after capture, the cap by state slots said in words."""

from __future__ import annotations

from ..form import Form

LABELLED = ("KV Cache is allocated", "Full KV Cache", "SWA KV Cache", "MiniMax MSA")
_CAPPED = (
    "max_running_requests is capped to {resolved:int} by the mamba state cache "
    "(max_mamba_cache_size={state_slots:int}, {slots_per_request:int} state slots per request)"
)

FORMS: dict[str, Form] = {
    "kv_pool": Form(
        "kv_pool",
        "[[{label:text} ]]KV Cache is allocated. dtype: {dtype:word}, #tokens: {tokens:int}, "
        "K size: {k:gib} GB, V size: {v:gib} GB",
        LABELLED,
    ),
    "kv_pool_mla": Form(
        "kv_pool",
        "[[{label:text} ]]KV Cache is allocated. dtype: {dtype:word}, #tokens: {tokens:int}, KV size: {kv:gib} GB",
        LABELLED,
    ),
    "post_capture_sized": Form(
        "kv_pool_final",
        "Post-capture KV sizing: KV cache allocated. dtype: {dtype:word}, #tokens: {tokens:int}, "
        "KV size: {kv:gib} GB, avail mem={available:gib} GB",
    ),
    "post_capture_layers": Form(
        "notice:swa_sizes",
        "Post-capture KV sizing: full_layer_tokens={full_tokens:int}, swa_layer_tokens={swa_tokens:int}",
    ),
    "requests_capped_by_state": Form("notice:requests_capped_by_state", _CAPPED),
    "replayssm": Form(
        "notice:replayssm_buffers",
        "GDN ReplaySSM ring buffers allocated (record_len={length:int}, fold={fold:bool}): d={d:gib}GB, k={k:gib}GB, "
        "g={g:gib}GB[[ rawv={rawv:gib}GB, rawk={rawk:gib}GB[[, beta={beta:gib}GB]]]]",
    ),
}

GONE: tuple[str, ...] = ()
