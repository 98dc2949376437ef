"""From resolved settings to the numbers that a sizing rule takes, and the memory that it starts from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...budget_types import FreeMemory
from ...errors import ConfigError
from ...lanes import single
from ...units import GIB
from .given import server_args
from .resolve import DEFAULT_RATIO, Settings
from .sizing import cell as cells
from .sizing.cell import Cell, Slot
from .sizing.contract import Demand
from .sizing.rings import rings
from .sizing.windows import apart, ratio, windows

_PARTITION = "SGLANG_PP_LAYER_PARTITION"
_VLM_CACHE_MIB = 100
_FEATURE_CACHE_MIB = 1024
#: Whose slots data-parallel attention divides in 0.5.6 (hybrid_gdn_config of model_executor/model_runner.py).
_DIVIDED = ("Qwen3NextForCausalLM", "JetNemotronForCausalLM", "JetVLMForConditionalGeneration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """What is left for the pools, GiB per rank, as the solver computes it."""

    low_gib: float
    point_gib: float
    high_gib: float


def units(settings: Settings) -> tuple[Slot, Cell]:
    """Bytes of a state slot and of a KV token."""
    pp, partition = settings.config.parallel.pp_size, stage_partition(settings)
    if settings.rule.stages_hold_all and settings.target.state_layers:
        pp, partition = 1, None
    slot = cells.slot(
        settings.rule,
        settings.target,
        settings.attention_tp,
        pp,
        settings.conv_itemsize,
        settings.ssm_itemsize,
        partition=partition,
    )
    cell = cells.cell(
        settings.rule,
        settings.draft_kv,
        settings.target,
        settings.draft,
        settings.attention_tp,
        pp,
        settings.kv_itemsize,
        path=settings.draft_path,
        bare_fp8=settings.bare_fp8,
        pool=settings.keeps_draft_kv,
        draft_itemsize=settings.draft_kv_itemsize,
        partition=partition,
        windows=apart(settings),
        window_ratio=ratio(settings),
    )
    return slot, cell


def stage_partition(settings: Settings) -> tuple[int, ...] | None:
    """Decoder layers of each pipeline stage by SGLANG_PP_LAYER_PARTITION; None: as even as they go.

    ConfigError when they are not as many stages, or not all layers (SGLang: get_pp_indices)."""
    value, pp = settings.config.engine.env.get(_PARTITION), settings.config.parallel.pp_size
    if value is None or pp == 1:
        return None
    total = len(settings.target.layers)
    parts = [part.strip() for part in value.split(",")]
    sizes = tuple(int(part) for part in parts if part.isdecimal())
    if len(sizes) != len(parts) or len(sizes) != pp or sum(sizes) != total:
        raise ConfigError(
            f"engine.env.{_PARTITION}: got {value[:80]!r}; expected {pp} numbers that make {total} layers.\n"
            "Correct it or leave it out."
        )
    return sizes


def demand(settings: Settings, slot: Slot, cell: Cell) -> Demand:
    """What the solver asks room for, in bytes and counts of one rank."""
    memory, kept = settings.config.memory, rings(settings, slot.mine)
    return Demand(
        slot_bytes=slot.charged_bytes,
        cell_bytes=cell.charged_bytes,
        draft_tokens=settings.shape.verify_width,
        slots_per_request=settings.slots_per_request,
        requests=settings.requests,
        attention_dp=settings.attention_dp,
        explicit_slots=memory.max_mamba_cache_size,
        radix=settings.radix,
        ratio=DEFAULT_RATIO if memory.mamba_full_memory_ratio is None else memory.mamba_full_memory_ratio,
        max_total_tokens=memory.max_total_tokens,
        page_size=settings.page_size,
        context_len=settings.context_len,
        keeps_states=kept is None,
        ring_slot_bytes=kept.slot_bytes if kept is not None else 0,
        ring_row_bytes=kept.row_bytes if kept is not None else 0,
        windows=windows(settings, cell),
        slots_divided=settings.rule.divides_all_slots or settings.target.architecture in _DIVIDED,
        tokens_beyond=_tokens_beyond(settings),
    )


def _tokens_beyond(settings: Settings) -> int:
    """Of each request those that it drafts and those that it verifies."""
    if not settings.rule.pool_beyond_fitting or settings.draft_kv != "eagle":
        return 0
    return settings.shape.steps * settings.shape.topk + settings.shape.verify_width


def multimodal_reserve_gib(settings: Settings) -> float:
    """Kept back for image features, from 0.5.18 (SGLang: mm_runtime_reservation_gb)."""
    if not (settings.rule.multimodal_reserve and settings.target.multimodal):
        return 0.0
    env = settings.config.engine.env
    reserved_mib = _mib(env, "SGLANG_VLM_CACHE_SIZE_MB", _VLM_CACHE_MIB)
    if server_args(settings.config).get("mm_feature_transport") in ("cuda_ipc", "cuda_vmm"):
        reserved_mib += _mib(env, "SGLANG_MM_FEATURE_CACHE_MB", _FEATURE_CACHE_MIB)
    return reserved_mib / 1024


def _mib(env: Mapping[str, str], name: str, default: int) -> int:
    value = env.get(name, str(default))
    if not value.isdecimal():
        raise ConfigError(
            f"engine.env.{name}: got {value!r}; expected a whole number of MiB.\nCorrect it or leave it out."
        )
    return int(value)


def rest_gib(settings: Settings, pre_bytes: int, post_bytes: int, fraction: float | None = None) -> float:
    """post - pre × (1 - f) - reserve, with SGLang's operations in SGLang's order. `fraction`: another than settled."""
    static = settings.fraction if fraction is None else fraction
    pre, post = pre_bytes / GIB, post_bytes / GIB
    if settings.config.parallel.tp_size * settings.config.parallel.pp_size > 1:
        pre, post = single(pre), single(post)  # the least of the ranks, found in a tensor of 32 bits
    return post - pre * (1 - static) - multimodal_reserve_gib(settings)


def rest(settings: Settings, free: FreeMemory) -> Rest:
    """Over independent intervals of `pre` and `post`."""
    return Rest(
        low_gib=rest_gib(settings, free.pre.high, free.post.low),
        point_gib=rest_gib(settings, free.pre.point, free.post.point),
        high_gib=rest_gib(settings, free.pre.low, free.post.high),
    )
