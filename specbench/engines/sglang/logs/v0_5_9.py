"""SGLang 0.5.9: times of loading are printed; the quantization replaces the dtype of the weight line."""

from __future__ import annotations

from ..form import Form

FORMS: dict[str, Form] = {
    "distributed_end": Form(
        "notice:distributed_ready",
        "Init torch distributed ends. elapsed={elapsed_s:float} s, mem usage={used:gib} GB",
    ),
    "weights_end": Form(
        "weights_end",
        "Load weight end. elapsed={elapsed_s:float} s, type={model_class:word}, [[{quantization:text}, ]]"
        "avail mem={available:gib} GB, mem usage={used:gib} GB",
    ),
    "swa_sizes_all": Form(
        "notice:swa_sizes", "Use sliding window memory pool (all SWA). swa_layer_tokens={swa_tokens:int}"
    ),
}

GONE: tuple[str, ...] = ()
