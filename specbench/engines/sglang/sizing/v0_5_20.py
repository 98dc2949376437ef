"""0.5.20: larger defaults for cards below 35 GiB; KV in fp8 for compressed-tensors checkpoints that ask for it."""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_18

RULE = replace(
    v0_5_18.RULE,
    version="0.5.20",
    small_card_generous=True,
    rings="delta_nets_per_request",
    fp8_kv_of=(*v0_5_18.RULE.fp8_kv_of, "compressed-tensors"),
)
