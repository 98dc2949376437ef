"""0.5.9: the state's type comes from the model's config; without a prefix cache and a limit, slots from the ratio."""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_8

RULE = replace(v0_5_8.RULE, version="0.5.9", radix_off_default_slots=None, state_dtype_default="config")
