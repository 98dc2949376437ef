"""0.5.19: KV in fp8 for compressed-tensors checkpoints that ask for it."""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_18

RULE = replace(v0_5_18.RULE, version="0.5.19", fp8_kv_of=(*v0_5_18.RULE.fp8_kv_of, "compressed-tensors"))
