"""0.5.22: graphs for no larger batch than the server runs, which raises the default fraction; pooled index keys."""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_21

RULE = replace(v0_5_21.RULE, version="0.5.22", graph_batch_capped=True, eagle_scale="add", index_pooled=True)
