"""0.5.12: one row more in the request table."""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_11

RULE = replace(v0_5_11.RULE, version="0.5.12", request_table_padding=1)
