"""What is allocated for given pools, which is not what the solver charged. In: pools. Out: bytes per term, with words.

Every version allocates a padding slot and a padding row of the speculative scratch; only from 0.5.18 are they charged.
From 0.5.14 the convolution windows of a chain share their columns (D + kernel - 2 instead of D × (kernel - 1)), while
the solver goes on charging them whole. Source: srt/mem_cache/memory_pool.py of 0.5.12 and 0.5.16.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....terms import Term
from ....versions import at_least
from ..resolve import Settings
from .cell import Cell, Slot
from .contract import Pools
from .decode_step import allocated
from .rings import Rings, rings


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One term for one set of pools."""

    bytes: int
    formula: str
    numbers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """All pools of one rank."""

    shares: dict[Term, Share]
    padding_bytes: int  # padding slot and padding row, part of the shares
    request_table_bytes: int  # req_to_token, in no term
    side_state_bytes: int  # beside the recurrent state, in no term and in no line of the log
    ring_bytes: int  # rings of inputs that stand for scratch, in no term

    @property
    def total_bytes(self) -> int:
        beside = self.request_table_bytes + self.side_state_bytes + self.ring_bytes
        return sum(share.bytes for share in self.shares.values()) + beside


def scratch_rows(settings: Settings, pools: Pools) -> int:
    """Rows of the speculative scratch, padding included: one per resolved request (0.5.6: per slot)."""
    return (pools.slots if settings.rule.scratch_per_slot else pools.requests or 0) + 1


def dedups_conv(settings: Settings, slot: Slot) -> bool:
    """Whether the convolution windows share columns: for a chain, where each node has one ancestor, on a GPU."""
    fits = slot.windows_overlap or settings.rule.dedup_any_layout
    chain = settings.shape.topk <= 1 and not settings.shape.own_windows
    return settings.rule.dedup_conv and chain and not settings.on_cpu and fits


def scratch_conv_per_row(settings: Settings, slot: Slot) -> int:
    """Bytes of one request's convolution windows, one for each draft token that is verified, on one rank."""
    width = settings.shape.pool_width
    return slot.conv_bytes_overlapping(width) if dedups_conv(settings, slot) else slot.conv_bytes * width


def allocate(settings: Settings, slot: Slot, cell: Cell, pools: Pools) -> Allocation:
    """Bytes of pools that were allocated (`pools.allocated`)."""
    tokens = (pools.tokens or 0) + settings.page_size
    sum_text = f"({pools.tokens:,} + {settings.page_size})"
    shares: dict[Term, Share] = {
        "kv": _kv(settings, cell, pools),
        "draft_kv": Share(
            bytes=tokens * cell.draft_bytes,
            formula="(tokens + one padding page) × bytes of a token in the draft's layers",
            numbers=f"{sum_text} × {cell.draft_bytes:,} B = {tokens * cell.draft_bytes:,} B",
        ),
    }
    padding, kept = 0, rings(settings, slot.mine)
    if slot.layers:
        rows = pools.slots + 1
        shares["state_conv"] = _rows("slots", pools.slots, slot.conv_bytes, f"{slot.layers} convolution windows")
        shares["state_ssm"] = _rows(
            "slots", pools.slots, slot.ssm_bytes, f"{slot.layers} recurrent states ({settings.ssm_dtype})"
        )
        padding += slot.conv_bytes + slot.ssm_bytes
        width = settings.shape.pool_width
        if width:
            rows = scratch_rows(settings, pools)
            kind = "slots" if settings.rule.scratch_per_slot else "running requests"
            conv = scratch_conv_per_row(settings, slot)
            how = "overlapping columns" if dedups_conv(settings, slot) else "whole windows"
            states = width * slot.ssm_bytes if kept is None else 0
            shares["scratch_ssm"] = (
                _rows(kind, rows - 1, states, f"{slot.layers} recurrent states of each of {width} tokens")
                if kept is None
                else Share(bytes=0, formula="none: rings of inputs stand for the recurrent states", numbers="0 B")
            )
            shares["scratch_conv"] = _rows(
                kind, rows - 1, conv, f"{slot.layers} convolution windows of {width} tokens, {how}"
            )
            padding += states + conv
    return Allocation(
        shares=shares,
        padding_bytes=padding,
        request_table_bytes=_request_table(settings, pools),
        side_state_bytes=_side_state(settings, pools),
        ring_bytes=_ring_bytes(settings, kept, pools),
    )


def _kv(settings: Settings, cell: Cell, pools: Pools) -> Share:
    tokens, page = (pools.tokens or 0) + settings.page_size, settings.page_size
    size = tokens * cell.target_bytes
    formula = "(tokens + one padding page) × bytes of a token in the target's full-attention layers"
    numbers = f"({pools.tokens:,} + {page}) × {cell.target_bytes:,} B"
    if cell.window_bytes:
        size += (pools.window_tokens + page) * cell.window_bytes
        formula += ", and the same of the pool of its sliding-window layers"
        numbers += f" + ({pools.window_tokens:,} + {page}) × {cell.window_bytes:,} B"
    return Share(bytes=size, formula=formula, numbers=f"{numbers} = {size:,} B")


def _ring_bytes(settings: Settings, kept: Rings | None, pools: Pools) -> int:
    if kept is None:
        return 0
    return (pools.slots + 1) * kept.slot_bytes + scratch_rows(settings, pools) * kept.row_bytes


def _side_state(settings: Settings, pools: Pools) -> int:
    """Of every slot, and of every token of the speculative scratch: whole windows, padding included."""
    side = settings.target.side_state
    if side is None:
        return 0
    width = settings.shape.pool_width
    rows = pools.slots + 1 + (width * scratch_rows(settings, pools) if width else 0)
    return rows * side.bytes(settings.conv_itemsize)


def _rows(kind: str, count: int, each: int, what: str) -> Share:
    return Share(
        bytes=(count + 1) * each,
        formula=f"({kind} + 1 padding) × {what}",
        numbers=f"({count:,} + 1) × {each:,} B = {(count + 1) * each:,} B",
    )


def _request_table(settings: Settings, pools: Pools) -> int:
    """req_to_token: an int32 per request and position, with room for a step of speculation.

    Pages need more: from 0.5.13 those of trees, from 0.5.16 all (get_req_to_token_extra_context_len).
    """
    extra, version, shape = 4 + settings.shape.pool_width, settings.rule.version, settings.shape
    if shape.verify_width and settings.page_size > 1:
        if at_least(version, "0.5.16"):
            extra = max(extra, 2 * allocated(settings) + settings.page_size - 1)
        elif at_least(version, "0.5.13") and shape.topk > 1:
            extra = max(extra, 2 * allocated(settings))
    rows = (pools.requests or 0) + settings.rule.request_table_padding
    return rows * (settings.context_len + extra) * 4
