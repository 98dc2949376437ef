"""Crashes for which no pool is to blame, in words. In: a case and its failure. Out: a known fault, or one to report."""

from __future__ import annotations

from ..engines.contract import Failure
from ..engines.sglang.verify_mask import full_mask
from .case import Case

#: Recordings h200-tp2_nextn-8 and h200-tp2_nextn-8-no-graphs: the request of step conc1-in1024, no draft accepted.
_WITHOUT_GRAPHS = (
    "recorded with SGLang 0.5.16, the triton backend and two H200s: batches of 8 were served, a single request took "
    "105 instead of 13 ms per token"
)


def engine_fault(case: Case, failure: Failure) -> str:
    mask = full_mask(failure, case.log.server_args or {}, case.pools.context_len)
    if mask is None:
        return (
            "No pool was exhausted: a fault of the engine, to be reported to its maintainers with these lines; another "
            "attention backend may avoid it."
        )
    requests, draft = mask.requests, mask.draft_tokens
    return (
        f"No pool was exhausted, it is a fault of the engine: its CUDA graphs have {requests} requests × {draft} draft "
        f"tokens × {mask.context:,} context tokens = {mask.buffer:,} entries for the attention mask, and a batch of "
        f"{requests}, the largest graph's, needs {requests} × {draft} × {draft} = {mask.missing:,} more for the draft "
        f"tokens themselves. --disable-cuda-graph avoids it ({_WITHOUT_GRAPHS}). SGLang 0.5.17 allocates both parts, "
        "by its source."
    )
