"""Starts that memory beside the static fraction ended: a pool of checkpoints that does not fit, a card that others use.

In: a case and its failure. Out: a fault. Sources: mem_cache/mamba_checkpoint_pool.py, distributed/bootstrap.py
(model_executor/model_runner.py up to 0.5.15), environ.py.
"""

from __future__ import annotations

import math

from ..engines.contract import Failure
from ..planning.wishes import LEAST_SLACK_BYTES
from ..rank_names import in_words
from ..units import Quantity, format_gib
from ..versions import at_least
from .case import Case
from .fault import Fault, said, sourced
from .faults_ranks import unbalanced_ranks
from .finding import Remedy

#: Of turning the check off: what is wrong stays.
_LAST = "last, where the other process cannot be ended: all ranks are sized by the one with least, or memory runs out"


def int8_pool(case: Case, failure: Failure) -> Fault:
    """The pool of int8 checkpoints comes out of what the static fraction left over."""
    needed, free, count = (failure.values.get(name) for name in ("needed", "free", "checkpoints"))
    cause = f"The pool of int8 state checkpoints does not fit beside the others. The engine says: {said(failure)}"
    remedies: tuple[Remedy, ...] = ()
    if isinstance(needed, Quantity) and isinstance(free, Quantity):
        missing = needed.bytes - free.bytes
        cause = (
            f"The pool of int8 state checkpoints takes {format_gib(needed.bytes)}, {format_gib(free.bytes)} are free: "
            f"{format_gib(missing)} are missing. It is not part of the static fraction."
        )
        if isinstance(count, int) and count > 0 and needed.bytes > 0:
            each = needed.bytes / count
            fits = math.floor((free.bytes - LEAST_SLACK_BYTES) / each)
            cause += f" {count:,} checkpoints take {each / 2**20:.2f} MiB each."
            if fits > 0:
                remedies += sourced(
                    case,
                    {"engine.args.int8-mamba-ckpt-size": fits},
                    f"{fits:,} checkpoints take {format_gib(round(fits * each))} and leave "
                    f"{format_gib(free.bytes - round(fits * each))}; fewer prefixes are kept",
                    version="0.5.16",
                )
        remedies += case.less_memory(missing)
    return Fault(id="refused-int8-pool", cause=cause, remedies=remedies, evidence=case.pool_lines(), lost=1.0)


def unbalanced(case: Case, failure: Failure) -> Fault:
    """The ranks' free memory differs by more than a tenth."""
    least, own = failure.values.get("most_gib"), failure.values.get("local_gib")
    figures = ""
    if isinstance(least, float) and isinstance(own, float):
        figures = (
            f" The least has {least:.2f} GiB free, this one {own:.2f}; the engine wants at least 0.9 × {own:.2f} = "
            f"{0.9 * own:.2f}. {own:.2f} - {least:.2f} = {own - least:.2f} GiB are held by something else."
        )
    least_of = unbalanced_ranks(case)
    whose = f" It is that of {in_words(least_of)}, which alone does not say so." if least_of else ""
    old = case.rules_version is not None and not at_least(case.rules_version, "0.5.8")
    env = {"SGL_DISABLE_TP_MEMORY_INBALANCE_CHECK": "1"} if old else {"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"}
    return Fault(
        id="refused-unbalanced",
        cause=f"One GPU has much less free memory than another: someone else uses it.{whose}{figures} First "
        "end that process (nvidia-smi names it), or give the server another card (CUDA_VISIBLE_DEVICES); the check can "
        f"be turned off where neither can be: the least then decides all pools. The engine says: {said(failure)}",
        remedies=sourced(case, {}, _LAST, env=env),
        lost=1.0,
    )
