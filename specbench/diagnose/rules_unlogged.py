"""Rules about memory that the log does not show where one would look for it: a state pool that is in no line, and a
draft that loads the target's embedding and head a second time.

In: a case. Out: findings that keep a missing figure from being read as none, and a loaded one from being taken for the
draft's own.
"""

from __future__ import annotations

from ..engines.contract import WeightsLoaded
from ..units import format_gib
from ..versions import at_least
from .case import Case
from .finding import Finding
from .rules_limits import stands
from .rules_pools import tokens_short

#: A draft of the target's own checkpoint, by its class (Qwen3_5ForCausalLMMTP, DeepseekV3ForCausalLMNextN).
_OWN_DRAFT = ("MTP", "NextN")
#: It is one layer of a model with dozens: from this share of the target's weights on it has more than its layer.
_ONE_LAYER = 0.10
#: What the second copy takes of the memory that the pools got, from which on it is told.
_OF_THE_POOLS = 0.10
#: Drafts load before the pools are sized (eagle_worker_v2.py: alloc_memory_pool, and only then init_lm_head).
_LOADS_FIRST_SINCE = "0.5.14"


def state_pool_not_logged(case: Case) -> tuple[Finding, ...]:
    """A model that keeps state, in a log that has pools but no state pool."""
    why = _keeps_state(case)
    elastic = next((notice for notice in case.log.notices if notice.kind == "elastic_state_cell"), None)
    if why is None or case.log.state_pools or case.pools.state_slots is not None or not stands(case):
        return ()
    if any(
        notice.kind == "unified_memory_pool" for notice in case.log.notices
    ):  # one pool for all, and its line is there
        return ()
    if elastic is None and not case.log.kv_pools:
        return ()
    first = min((pool.line for pool in case.log.kv_pools), default=None)
    reason = (
        "kvcached allocates state on demand, and replaces the engine's pools and their lines"
        if elastic is not None
        else f"the first pool line is line {first}, a KV pool: the log begins after the state pool, or was cut"
    )
    return (
        Finding(
            id="state-pool-not-logged",
            cause=(
                f"The model keeps state ({why}), and no line tells its pool: slots, their size and speculative scratch "
                f"are not logged, which is not zero ({reason})."
            ),
            severity="notice",
            evidence=case.line(first if elastic is None else elastic.line),
        ),
    )


def _keeps_state(case: Case) -> str | None:
    """What says that the model keeps state; None: nothing."""
    kinds = {notice.kind for notice in case.log.notices}
    if "elastic_state_cell" in kinds:
        return "kvcached sizes its cells"
    if "hybrid_backend" in kinds:
        return "it runs on the hybrid linear attention backend"
    if any(usage is not None for usage in case.column("state_usage")):
        return "its decode lines tell how much is used"
    slot = case.budget.details.get("slot_bytes") if case.budget is not None else None
    return f"{format_gib(slot.point)} per slot, by its configuration" if slot is not None and slot.point else None


def draft_weights_duplicated(case: Case) -> tuple[Finding, ...]:
    """A draft of the target's own checkpoint that builds an embedding and a head of its own, and drops them for the
    target's only when the pools are sized already.
    """
    draft = next((load for load in case.log.weights if load.role == "draft" and _is_own(load)), None)
    target = next((load for load in case.log.weights if load.role == "target" and load.used is not None), None)
    if draft is None or draft.used is None or target is None or target.used is None or not _sized_after(case, draft):
        return ()
    if draft.used.bytes <= 0 or target.used.bytes <= 0:  # no figure of weights
        return ()
    copies = _copies(case)
    taken = copies if copies is not None else draft.used.bytes
    if draft.used.bytes < (copies or _ONE_LAYER * target.used.bytes) or taken < _OF_THE_POOLS * _pools(case):
        return ()
    what = (
        f"{format_gib(copies)} of it are a copy of the target's embedding and head, in 2 B an element"
        if copies is not None
        else f"{draft.used.bytes / target.used.bytes:.0%} of the target's for one layer: the rest is an embedding and "
        "a head of its own"
    )
    cell = case.budget.details.get("charged_cell_bytes") if case.budget is not None else None
    room = ""
    if copies is not None and cell is not None and cell.point:
        room = f", the room of {copies // cell.point:,} KV tokens,"
    return (
        Finding(
            id="draft-weights-duplicated",
            cause=(
                f"The draft ({draft.model_class}) loads {format_gib(draft.used.bytes)}; {what}. SGLang drops them for "
                f"the target's own, but after the pools are sized: that memory{room} is free later and in no pool."
            ),
            severity="costly" if tokens_short(case) else "notice",
            evidence=tuple(line for load in (target, draft) for line in case.line(load.line)),
            lost=taken / (taken + _pools(case)) if tokens_short(case) and _pools(case) else None,
        ),
    )


def _is_own(load: WeightsLoaded) -> bool:
    return load.model_class is not None and load.model_class.endswith(_OWN_DRAFT)


def _sized_after(case: Case, draft: WeightsLoaded) -> bool:
    """Whether the pools are sized when the draft is loaded; where the release is not known, by the order of lines."""
    if case.rules_version is not None and (not case.bare or case.log.version or case.config):
        return at_least(case.rules_version, _LOADS_FIRST_SINCE)
    pools = [pool.line for pool in case.log.kv_pools] + [pool.line for pool in case.log.state_pools]
    return all(line > draft.line for line in pools)


def _copies(case: Case) -> int | None:
    """Bytes of embedding and head on a rank, in two bytes an element; None: the model is not known."""
    details = {} if case.budget is None else case.budget.details
    embedding, head = details.get("parameters_embedding"), details.get("parameters_head")
    if embedding is None or head is None or case.config is None:
        return None
    return (embedding.point + head.point) * 2 // case.config.parallel.tp_size


def _pools(case: Case) -> int:
    """Bytes of all pools of the first rank with any; 0: none is logged."""
    ranks = [one.rank for one in case.pools.ranks if one.kv is not None or one.state_ssm is not None]
    sizes = (
        size.bytes
        for one in case.pools.ranks
        if ranks and one.rank == ranks[0]
        for size in (one.kv, one.state_ssm, one.state_conv, one.scratch_ssm, one.scratch_conv)
        if size is not None
    )
    return sum(sizes)
