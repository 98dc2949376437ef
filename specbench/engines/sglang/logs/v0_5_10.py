"""SGLang 0.5.10: a request that no retraction saves is named."""

from __future__ import annotations

from ..form import Form

FORMS: dict[str, Form] = {
    "request_aborted": Form(
        "notice:request_aborted_oom", "retract_decode: aborted last request {request:word} due to OOM"
    ),
}

GONE: tuple[str, ...] = ()
