"""Crashes for which no pool is to blame, in words. In: a case and its failure. Out: a known fault with what avoids it;
None: one to report.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..engines.contract import Failure
from ..engines.sglang.command import flags_for
from ..engines.sglang.given import spelled
from ..engines.sglang.verify_mask import AVOIDED_BY, KNOWN_IN, MENDED_IN, FullMask, full_mask
from .case import Case
from .finding import Remedy

TO_REPORT = (
    "No pool was exhausted: a fault of the engine, to be reported to its maintainers with these lines; another "
    "attention backend may avoid it."
)
#: Recordings h200-tp2_nextn-8 and h200-tp2_nextn-8-no-graphs: the request of step conc1-in1024, no draft accepted.
_WITHOUT_GRAPHS = (
    "decoding without CUDA graphs is slower: a single request took 105 instead of 13 ms per token, and batches of 8 "
    f"were served (recorded with SGLang {KNOWN_IN}, the triton backend and two H200s)"
)
#: What decides whether a server has the fault: memory does not.
_DECIDED_BY = (
    *("model", "engine.version", "engine.args.attention-backend", "speculative.algorithm", "speculative.eagle_topk"),
    "memory.disable_overlap_schedule",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFault:
    cause: str
    remedies: tuple[Remedy, ...]


def known_fault(case: Case, failure: Failure) -> KnownFault | None:
    mask = full_mask(failure, case.log.server_args or {}, case.pools.context_len)
    return None if mask is None else of_mask(case, mask)


def of_mask(case: Case, mask: FullMask) -> KnownFault:
    requests, draft = mask.requests, mask.draft_tokens
    return KnownFault(
        cause=(
            f"A fault of the engine: the attention mask of its CUDA graphs is {mask.missing:,} entries too small for a "
            f"full batch of {requests}. No pool was exhausted. The mask has {requests} requests × {draft} draft tokens "
            f"× {mask.context:,} context tokens = {mask.buffer:,} entries, and a batch of {requests}, the largest "
            f"graph's, needs {requests} × {draft} × {draft} = {mask.missing:,} more for the draft tokens themselves. "
            f"Known in SGLang {KNOWN_IN}, as recorded; {MENDED_IN} allocates both parts, by its source; others were "
            f"not read for this{_lines_fit(case)}."
        ),
        remedies=(_without_graphs(case),),
    )


def _without_graphs(case: Case) -> Remedy:
    change = {spelled(case.config, AVOIDED_BY): True}
    return Remedy(
        set=change,
        flags=flags_for(change, KNOWN_IN),
        basis="recording",
        predicted={},
        verdict=None,
        note=_WITHOUT_GRAPHS,
        changes_results=False,
        decided_by=_DECIDED_BY,
    )


def _lines_fit(case: Case) -> str:
    """Of a log that does not name its version, and whose lines leave several."""
    low, high = case.log.version_range
    known = case.log.version if case.bare or case.config is None else case.config.engine.version
    return (
        ""
        if known is not None or low is None or high in (None, low)
        else f" (the lines of this log fit {low} to {high})"
    )
