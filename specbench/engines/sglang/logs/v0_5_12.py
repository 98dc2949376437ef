"""SGLang 0.5.12: models without attention layers print a pool that holds nothing."""

from __future__ import annotations

from ..form import Form

FORMS: dict[str, Form] = {
    "kv_skipped": Form(
        "notice:kv_pool_skipped",
        "KV Cache skipped (no-op pool). Logical #tokens: {tokens:int}, physical K/V size: ~{kilobytes:float} KB",
    ),
}

GONE: tuple[str, ...] = ()
