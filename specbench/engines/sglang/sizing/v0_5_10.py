"""0.5.10: the state's type comes from the model's config, more is kept for drafts in the default fraction."""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_8

RULE = replace(
    v0_5_8.RULE,
    version="0.5.10",
    radix_off_default_slots=None,
    state_dtype_default="config",
    extra_buffer_always_four=False,
    speculative_reserve_mib=4096,
    raw_on_blackwell=True,
    request_limit="estimate",
    requests_of_fitting=False,
)
