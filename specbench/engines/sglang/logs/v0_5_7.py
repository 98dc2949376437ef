"""SGLang 0.5.7: retractions say what they gained; the watchdog has a name."""

from __future__ import annotations

from ..form import Form

FORMS: dict[str, Form] = {
    "retracted": Form(
        "notice:retracted",
        "KV cache pool is full. Retract requests. #retracted_reqs: {requests:int}, "
        "#new_tokens_gained: {tokens_gained:int}, #new_token_ratio: {ratio_before:float} -> {ratio_after:float}",
    ),
    "retraction_test": Form(
        "notice:retraction_test",
        "Testing retraction. #retracted_reqs: {requests:int}, #new_tokens_gained: {tokens_gained:int}",
    ),
    "watchdog": Form(
        "failure:watchdog_timeout",
        "{name:word} watchdog timeout (self.watchdog_timeout={timeout_s:float}, self.soft={soft:bool})",
        tuple(
            f"{name} watchdog timeout"
            for name in ("Scheduler", "DetokenizerManager", "TokenizerManager", "DataParallelController")
        ),
    ),
    "overlap_no_buffer": Form(
        "notice:overlap_disabled",
        "Disabling overlap schedule since mamba no_buffer is not compatible with overlap schedule",
    ),
    "overlap_spec_v2": Form(
        "notice:overlap_disabled",
        "Overlap scheduler is disabled when spec v2 is off or using unsupported speculative algorithm.",
    ),
}

GONE: tuple[str, ...] = ()
