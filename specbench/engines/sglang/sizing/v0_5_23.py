"""0.5.23: a share of requests below one data-parallel rank counts as one."""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_22

RULE = replace(v0_5_22.RULE, version="0.5.23", guards_zero_division=True)
