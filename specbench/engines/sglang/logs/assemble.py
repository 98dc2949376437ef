"""The records of one server as the values of `contract.ServerLog`: begins and ends paired, roles and ranks given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ....terms import Role
from ....units import Quantity
from ...contract import GraphCapture, KvPool, PoolEnd, Resolved, StatePool, WeightsLoaded
from .records import Record
from .roles import assign

_Placed = Sequence[tuple[Record, Role]]


def placed(records: Sequence[Record]) -> _Placed:
    """Each record with its role."""
    return list(zip(records, assign(records), strict=True))


def weights(rows: _Placed) -> tuple[WeightsLoaded, ...]:
    """One value per load that ended; a begin without end is the last word of a start that died while loading."""
    begun: dict[str, Record] = {}
    found: list[WeightsLoaded] = []
    for record, role in rows:
        if record.kind == "weights_begin":
            if record.rank in begun:
                found.append(_load(begun[record.rank], None, "target"))
            begun[record.rank] = record
        elif record.kind == "weights_end":
            found.append(_load(begun.pop(record.rank, None), record, role))
    found.extend(_load(begin, None, _role_of_unfinished(found, begin.rank)) for begin in begun.values())
    return tuple(found)


def _load(begin: Record | None, end: Record | None, role: Role) -> WeightsLoaded:
    figures = end.figures if end else {}
    last = end or begin
    assert last is not None  # one of the two is why we are here
    return WeightsLoaded(
        rank=last.rank,
        role=role,
        model_class=figures.get("model_class"),
        before=begin.figures.get("available") if begin else None,
        available=figures.get("available"),
        used=figures.get("used"),
        elapsed_s=figures.get("elapsed_s"),
        line=last.line,
    )


def _role_of_unfinished(found: Sequence[WeightsLoaded], rank: str) -> Role:
    return "draft" if any(load.rank == rank and load.role == "target" for load in found) else "target"


def mixed_up(loads: Sequence[WeightsLoaded]) -> Iterator[str]:
    """A sentence for each rank as which two processes wrote: both began to load, and both ended the same model."""
    for rank in dict.fromkeys(load.rank for load in loads):
        own = [load for load in loads if load.rank == rank]
        ended = [load for load in own if load.available is not None]
        for one, other in pairwise(ended):
            at_once = any(load.available is None and load.line < one.line for load in own)
            if at_once and other.before is None and one.model_class == other.model_class is not None:
                yield (
                    f"two processes wrote as {rank or 'one rank, without a name'}: lines {one.line:,} and "
                    f"{other.line:,} both end a load of {one.model_class} that was begun before; its figures are mixed"
                )
                break


def memory_before(rows: _Placed) -> dict[str, Quantity]:
    """Rank -> free memory before the target's weights."""
    before: dict[str, Quantity] = {}
    for record, role in rows:
        if record.kind == "weights_begin" and role == "target":
            before.setdefault(record.rank, record.figures["available"])
    return before


def state_pools(rows: _Placed) -> tuple[StatePool, ...]:
    return tuple(
        StatePool(
            rank=record.rank,
            role=role,
            slots=record.figures.get("slots"),
            conv=record.figures.get("conv"),
            ssm=record.figures.get("ssm"),
            scratch_ssm=record.figures.get("scratch_ssm"),
            scratch_conv=record.figures.get("scratch_conv"),
            line=record.line,
        )
        for record, role in rows
        if record.kind == "state_pool"
    )


def kv_pools(rows: _Placed) -> tuple[KvPool, ...]:
    """The KV pools, with the dtype that early versions print on a line of its own, when it is the same for all."""
    dtypes = {record.figures["dtype"] for record, _ in rows if record.kind == "notice:kv_dtype"}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    windows = {record.rank: record.figures for record, _ in rows if record.kind == "notice:swa_pool"}
    return tuple(
        _kv_pool(record, role, dtype, windows.get(record.rank, {}))
        for record, role in rows
        if record.kind in ("kv_pool", "kv_pool_final")
    )


def _kv_pool(record: Record, role: Role, dtype: str | None, window: Mapping[str, Any]) -> KvPool:
    figures = record.figures
    k, v, kv = figures.get("k"), figures.get("v"), figures.get("kv")
    if kv is None and k is not None and v is not None:
        kv = Quantity(k.bytes + v.bytes, k.resolution_bytes + v.resolution_bytes)
    label = figures.get("label")
    if label is None and role == "target":  # up to 0.5.16 the two pools of a sliding-window model have no name
        label = {window.get("full_tokens"): "Full", window.get("swa_tokens"): "SWA"}.get(figures["tokens"])
    return KvPool(
        rank=record.rank,
        role=role,
        label=label,
        tokens=figures["tokens"],
        k=k,
        v=v,
        kv=kv,
        dtype=figures.get("dtype") or dtype,
        line=record.line,
    )


def pool_ends(rows: _Placed) -> tuple[PoolEnd, ...]:
    return tuple(
        PoolEnd(rank=record.rank, role=role, available=record.figures["available"], line=record.line)
        for record, role in rows
        if record.kind == "pool_end" or (record.kind == "kv_pool_final" and record.figures.get("available") is not None)
    )


def graphs(rows: _Placed, *, speculative: bool) -> tuple[GraphCapture, ...]:
    """Captures, ends paired with begins. `speculative` names what up to 0.5.13 is printed as "cuda graph" alone."""
    open_captures: dict[tuple[str, Role, str], GraphCapture] = {}
    found: list[GraphCapture] = []
    for record, role in rows:
        if not record.kind.startswith("graph_"):
            continue
        kind = _capture_kind(record.figures, role, speculative)
        key = (record.rank, role, kind)
        begun = open_captures.get(key)
        sizes = record.figures.get("batch_sizes")
        match record.kind:
            case "graph_begin":
                if begun is not None:
                    found.append(begun)
                open_captures[key] = GraphCapture(
                    rank=record.rank,
                    role=role,
                    kind=kind,
                    batch_sizes=sizes,
                    used=None,
                    available=record.figures.get("available"),
                    elapsed_s=None,
                    line=record.line,
                )
            case "graph_sizes":
                if begun is not None:
                    open_captures[key] = replace(begun, batch_sizes=sizes)
            case _:
                open_captures.pop(key, None)
                found.append(
                    GraphCapture(
                        rank=record.rank,
                        role=role,
                        kind=kind,
                        batch_sizes=sizes or (begun.batch_sizes if begun else None),
                        used=record.figures.get("used"),
                        available=record.figures.get("available"),
                        elapsed_s=record.figures.get("elapsed_s"),
                        line=record.line,
                    )
                )
    return tuple(sorted((*found, *open_captures.values()), key=lambda capture: capture.line))


def _capture_kind(figures: Mapping[str, Any], role: Role, speculative: bool) -> str:
    what = figures.get("what")
    if what == "piecewise":
        return "prefill"
    if what is not None:
        return str(what)
    if figures.get("role") == "draft":  # the EAGLE family up to 0.5.13: "Capture draft cuda graph"
        return "decode"
    return "verify" if speculative or role == "draft" else "decode"


def resolved(rows: _Placed) -> tuple[Resolved, ...]:
    fields = ("kv_tokens", "running_requests", "context_len", "chunked_prefill_size", "max_prefill_tokens", "available")
    return tuple(
        Resolved(rank=record.rank, line=record.line, **{name: record.figures.get(name) for name in fields})
        for record, _ in rows
        if record.kind == "resolved"
    )


def notices(rows: _Placed) -> Iterator[tuple[str, Record]]:
    """(kind, record) of the infos and warnings."""
    for record, _ in rows:
        if record.kind.startswith("notice:"):
            yield record.kind.removeprefix("notice:"), record
