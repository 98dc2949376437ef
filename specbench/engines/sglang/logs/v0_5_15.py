"""SGLang 0.5.15: ReplaySSM ring buffers; unified memory pool."""

from __future__ import annotations

from ..form import Form

FORMS: dict[str, Form] = {
    "replayssm": Form(
        "notice:replayssm_buffers",
        "GDN ReplaySSM ring buffers allocated (L={length:int}): d={d:gib}GB, k={k:gib}GB, g={g:gib}GB"
        "[[ rawv={rawv:gib}GB, rawk={rawk:gib}GB, beta={beta:gib}GB]]",
    ),
    "unified_pool": Form(
        "notice:unified_memory_pool",
        "[unified-memory-pool]   total_bytes={total_bytes:int}, max_total_num_tokens={kv_tokens:int}, "
        "max_mamba_cache_size={state_slots:int}, max_num_reqs={running_requests:int}, "
        "speculative_num_draft_tokens={draft_tokens:word}",
    ),
}

GONE: tuple[str, ...] = ()
