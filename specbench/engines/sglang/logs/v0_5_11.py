"""SGLang 0.5.11: DFLASH; retractions of hybrid models name the state slots they freed."""

from __future__ import annotations

from ..form import Form

FORMS: dict[str, Form] = {
    "dflash_runner": Form(
        "notice:draft_runner",
        "Initialized {algorithm:word} draft runner. attention_backend={attention_backend:word}, "
        "model={model_class:word}, block_size={block_size:word}, draft_window_size={window:word}, "
        "compact_cache={compact_cache:word}",
    ),
    "overlap_dflash": Form(
        "notice:overlap_disabled", "Overlap scheduler is disabled when using DFLASH speculative decoding"
    ),
    "extra_buffer_disabled": Form(
        "notice:extra_buffer_disabled",
        "Mamba extra_buffer is disabled because decode disaggregation currently forces chunk cache.",
    ),
    "retracted": Form(
        "notice:retracted",
        "KV cache pool is full. Retract requests. #retracted_reqs: {requests:int}, "
        "#new_tokens_gained: {tokens_gained:int}[[, #mamba_num_gained: {slots_gained:int}]], "
        "#new_token_ratio: {ratio_before:float} -> {ratio_after:float}",
    ),
    "retraction_test": Form(
        "notice:retraction_test",
        "Testing retraction. #retracted_reqs: {requests:int}, #new_tokens_gained: {tokens_gained:int}"
        "[[, #mamba_num_gained: {slots_gained:int}]]",
    ),
}

GONE: tuple[str, ...] = ("overlap_spec_v2",)
