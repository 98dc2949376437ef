"""Process groups that are not there: sizes and this rank's place, for one rank of a server.

In: tensor, pipeline and data-parallel sizes and the pipeline stage that is asked. Out: what SGLang reads of its groups.
The other ranks hold what this one holds, so a minimum over them changes nothing; only pipeline stages differ, whose
least token count is handed in (`STAGES`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(slots=True)
class Group:
    world_size: int
    rank_in_group: int = 0
    rank: int = 0
    cpu_group: Any = None
    device_group: Any = None
    first_rank: int = 0
    ranks: list[int] = field(default_factory=list)

    @property
    def is_first_rank(self) -> bool:
        return self.rank_in_group == 0

    @property
    def is_last_rank(self) -> bool:
        return self.rank_in_group == self.world_size - 1

    @property
    def local_rank(self) -> int:
        return 0

    def barrier(self) -> None:
        pass


@dataclass(slots=True)
class Stages:
    """Token counts that pipeline stages have brought to an all-reduce, and the least of them once it is known."""

    least: int | None = None
    brought: list[int] = field(default_factory=list)


STAGES = Stages()


def _all_reduce(tensor: torch.Tensor, *_: Any, **__: Any) -> None:
    """The minimum over ranks. An integer is a stage's token count; everything else (free memory) is alike on all."""
    if tensor.dtype == torch.int64 and tensor.numel() == 1:
        STAGES.brought.append(int(tensor.item()))
        if STAGES.least is not None:
            tensor.fill_(STAGES.least)


def install() -> None:
    torch.distributed.all_reduce = _all_reduce
    torch.distributed.is_initialized = lambda: False
    torch.distributed.barrier = lambda *_, **__: None


def join(*, tp: int, pp: int, dp: int, dp_attention: bool, stage: int) -> Group:
    """Place this process in its groups; returns the pipeline's."""
    import sglang.srt.distributed.parallel_state as state

    attention = tp // dp if dp_attention else tp
    pipeline = Group(pp, rank_in_group=stage)
    groups = {
        "_WORLD": Group(tp * pp),
        "_TP": Group(tp),
        "_ATTN_TP": Group(attention),
        "_PP": pipeline,
        "_ATTN_CP": Group(1),
        "_MOE_DP": Group(1),
        "_MOE_EP": Group(1),
        "_MOE_TP": Group(tp),
        "_DCP": Group(1),
    }
    for name, group in groups.items():
        if hasattr(state, name):
            setattr(state, name, group)
    _join_dp_attention(tp, dp, dp_attention)
    _join_context({"world_group": Group(tp * pp), "tp_group": Group(tp), "pp_group": pipeline})
    return pipeline


def _join_context(named: dict[str, Group]) -> None:
    """Of the versions that keep the groups in a context of the process."""
    try:
        from sglang.srt.runtime_context import get_parallel
    except ImportError:
        return
    parallel = get_parallel()
    if hasattr(parallel, "override_permanently"):
        parallel.override_permanently(**named)


def _join_dp_attention(tp: int, dp: int, enabled: bool) -> None:
    """Of the module that keeps its own copy of them."""
    try:
        import sglang.srt.layers.dp_attention as module
    except ImportError:
        return
    ranks = dp if enabled else 1
    places = {
        "_ATTN_TP_GROUP": Group(tp // ranks),
        "_ATTN_TP_SIZE": tp // ranks,
        "_ATTN_TP_RANK": 0,
        "_ATTN_DP_SIZE": ranks,
        "_ATTN_DP_RANK": 0,
        "_LOCAL_ATTN_DP_SIZE": ranks,
        "_LOCAL_ATTN_DP_RANK": 0,
        "_ENABLE_DP_ATTENTION_FLAG": enabled,
    }
    for name, value in places.items():
        if hasattr(module, name):
            setattr(module, name, value)
