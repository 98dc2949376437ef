"""SGLang 0.5.18: address space is reserved before capture; room for images."""

from __future__ import annotations

from ..form import Form
from .v0_5_17 import LABELLED

FORMS: dict[str, Form] = {
    "kv_upper_bound": Form(
        "notice:kv_upper_bound",
        "[[{label:text} ]]KV Cache VA upper bound. dtype: {dtype:word}, #tokens: {tokens:int}, "
        "[[K size: {k:gib} GB, V size: {v:gib} GB]][[KV size: {kv:gib} GB]]",
        ("KV Cache VA", *LABELLED[1:]),
    ),
    "weights_committed": Form(
        "notice:weights_committed",
        "Load weight end. Committed real weights after CUDA graph capture in {elapsed_s:float} s",
    ),
    "multimodal_reserve": Form(
        "notice:multimodal_reserve",
        "Reserving {size:gib} GB of the KV budget for post-sizing multimodal allocations",
    ),
}

GONE: tuple[str, ...] = ()
