"""0.5.12: one row more in the request table; algorithms of plug-ins."""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_11

RULE = replace(
    v0_5_11.RULE,
    version="0.5.12",
    request_table_padding=1,
    overlap_with=("none", "eagle", "custom"),
)
