"""0.5.10: more is kept for drafts in the default fraction; tokens of the pool cap the requests."""

from __future__ import annotations

from dataclasses import replace

from . import v0_5_9

RULE = replace(
    v0_5_9.RULE,
    version="0.5.10",
    extra_buffer_always_four=False,
    speculative_reserve_mib=4096,
    raw_on_blackwell=True,
    request_limit="estimate",
    requests_of_fitting=False,
)
