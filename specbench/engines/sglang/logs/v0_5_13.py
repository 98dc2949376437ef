"""SGLang 0.5.13: the KV line names its dtype."""

from __future__ import annotations

from ..form import Form

FORMS: dict[str, Form] = {
    "kv_pool": Form(
        "kv_pool",
        "KV Cache is allocated. dtype: {dtype:word}, #tokens: {tokens:int}, K size: {k:gib} GB, V size: {v:gib} GB",
    ),
    "kv_pool_mla": Form(
        "kv_pool", "KV Cache is allocated. dtype: {dtype:word}, #tokens: {tokens:int}, KV size: {kv:gib} GB"
    ),
    "requests_from_capacity": Form(
        "notice:requests_from_capacity",
        "Max concurrent requests (per dp worker) from the finalized token capacity: max_num_reqs={requests:int}",
    ),
}

GONE: tuple[str, ...] = ()
