"""Rings of inputs that stand for the recurrent states of a verification. In: settings. Out: bytes per slot or request.

With --enable-linear-replayssm-spec (0.5.17) the states of the verified tokens are not kept: what they would be computed
from is, and folded into the state of a slot when tokens are accepted. So the speculative scratch has no recurrent part
and the state's share goes into slots. The rings ride on every slot; those of Gated DeltaNet from 0.5.20 on the running
requests. Source: configs/mamba_utils.py (replayssm_ring_bytes_per_req), mem_cache/kv_cache_configurator.py and
memory_pool.py of 0.5.17, 0.5.18, 0.5.20 and 0.5.23. Convolution windows are kept as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....layers import GatedDeltaNet, KimiDelta, StateLayer, split, split_or_replicate
from ..families import keeps_rings
from ..given import server_args
from ..resolve import Settings

_FLAG = "enable_linear_replayssm_spec"
_LENGTH = 16  # --linear-replayssm-cache-len
_FLOAT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Rings:
    """Bytes per rank, all linear layers."""

    slot_bytes: int  # with every state slot, padding included
    row_bytes: int  # with every running request, padding included


def rings(settings: Settings, mine: Sequence[StateLayer]) -> Rings | None:
    """Of the linear layers on a rank. None: the flag is off, or it means nothing for the version or the model."""
    args = server_args(settings.config)
    if not args.get(_FLAG) or not keeps_rings(settings.target, settings.rule, settings.version):
        return None
    tp, itemsize, given = settings.attention_tp, settings.conv_itemsize, args.get("linear_replayssm_cache_len")
    length = given if isinstance(given, int) and not isinstance(given, bool) else _LENGTH
    nets = [layer for layer in mine if isinstance(layer, GatedDeltaNet)]
    slot = sum(_delta(layer, tp, length, itemsize) for layer in mine if isinstance(layer, KimiDelta))
    if settings.rule.rings == "per_slot":
        width = settings.shape.pool_width or length
        return Rings(slot_bytes=slot + sum(_raw(layer, tp, width, itemsize) for layer in nets), row_bytes=0)
    return Rings(slot_bytes=slot, row_bytes=sum(_compact(layer, tp, length, itemsize) for layer in nets))


def _delta(layer: KimiDelta, tp: int, length: int, itemsize: int) -> int:
    """Raw values and keys, beta and gate in float32, and the pair that decoding reads."""
    heads = split(layer.heads, tp, "KDA heads")
    vectors = 2 * heads * length * layer.head_dim * itemsize  # of values and of keys
    return 2 * vectors + heads * length * _FLOAT * (1 + layer.head_dim)


def _raw(layer: GatedDeltaNet, tp: int, length: int, itemsize: int) -> int:
    """Values and keys as they come, beta and gate in float32."""
    values, keys = _heads(layer, tp)
    return length * ((values * layer.v_dim + keys * layer.k_dim) * itemsize + 2 * values * _FLOAT)


def _compact(layer: GatedDeltaNet, tp: int, length: int, itemsize: int) -> int:
    """Differences and keys, each in a high and a low part unless the type is float32, and the gate in float32."""
    values, keys = _heads(layer, tp)
    parts = 1 if itemsize == _FLOAT else 2
    return length * ((values * layer.v_dim + keys * layer.k_dim) * itemsize * parts + values * _FLOAT)


def _heads(layer: GatedDeltaNet, tp: int) -> tuple[int, int]:
    """Value and key heads on a rank."""
    return split(layer.v_heads, tp, "linear value heads"), split_or_replicate(layer.k_heads, tp, "linear key heads")
