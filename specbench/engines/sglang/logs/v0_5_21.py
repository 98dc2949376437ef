"""SGLang 0.5.21: a memory baseline instead of torch's."""

from __future__ import annotations

from ..form import Form

FORMS: dict[str, Form] = {
    "parallel_end": Form("notice:parallel_ready", "Init parallel ends. elapsed={elapsed_s:float} s"),
    "memory_baseline": Form("notice:memory_baseline", "Memory baseline taken. mem usage={used:gib} GB"),
    "request_aborted_message": Form(
        "notice:request_aborted_oom", "retract_decode: aborted request {request:word}: {*}"
    ),
}

GONE: tuple[str, ...] = ("distributed_end",)
