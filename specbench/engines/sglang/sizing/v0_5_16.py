"""0.5.16: prefill graphs for multimodal models, which lower the default fraction; KDA keeps whole windows again."""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_14

RULE = replace(v0_5_14.RULE, version="0.5.16", prefill_graphs_multimodal=True, dedup_any_layout=False)
