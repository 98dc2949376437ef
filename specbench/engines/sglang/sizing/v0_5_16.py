"""0.5.16: KDA keeps whole convolution windows again. (Prefill graphs of multimodal models: `prefill_graphs`.)"""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_15

RULE = replace(v0_5_15.RULE, version="0.5.16", dedup_any_layout=False)
