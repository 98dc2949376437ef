"""A diagnosis as JSON-safe values, schema 1. Unknown is null; sizes are bytes per rank; counts are integers.

In the reconciliation `predicted` is an interval in the row's `unit`; `delta` is the distance from it (0 inside), and a
row matches when that is at most `tolerance`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from ..engines.contract import Line, RankPools, ServerLog
from ..judging.ledger import Entry, Ledger
from ..judging.reconcile import Row
from ..judging.side import Sides, Told
from ..units import Interval, Quantity
from .catalogue import KNOWN
from .finding import Finding
from .maintainer import Report, report
from .outgoing import without_secrets
from .remedy_document import remedy_document
from .types import Diagnosis

SCHEMA = 1


def to_document(diagnosis: Diagnosis) -> dict[str, Any]:
    """The document that `specbench diagnose --json` prints: lines of the log without secrets and home folders."""
    diagnosis = without_secrets(diagnosis)
    return {
        "schema": SCHEMA,
        "name": diagnosis.name,
        "source": diagnosis.source,
        "origin": diagnosis.origin,
        "engine": {
            "name": diagnosis.engine,
            "version": diagnosis.version,
            "version_range": list(diagnosis.version_range),
        },
        "status": diagnosis.status,
        "outcome": diagnosis.outcome,
        "requested": dict(diagnosis.requested),
        "emulation": None if diagnosis.emulation is None else asdict(diagnosis.emulation),
        "resolved": dict(diagnosis.resolved),
        "served": {"running_requests": diagnosis.served, "source": diagnosis.served_source},
        "serving": asdict(diagnosis.serving) if diagnosis.serving is not None else None,
        "pools": [_pool(pools) for pools in diagnosis.pools.ranks],
        "free": {
            "communication_bytes": {rank: size.bytes for rank, size in diagnosis.pools.communication.items()},
            "before_loading_bytes": {rank: size.bytes for rank, size in diagnosis.pools.pre.items()},
            "when_sized_bytes": {rank: size.bytes for rank, size in diagnosis.pools.post.items()},
            "deciding_rank": diagnosis.pools.deciding_rank,
        },
        "own_figures": [asdict(figure) for figure in diagnosis.own_figures],
        "ledgers": [_ledger(ledger, diagnosis.log) for ledger in diagnosis.ledgers],
        "disagreements": list(diagnosis.pools.disagreements),
        "reconciliation": [_row(row, diagnosis.log) for row in diagnosis.reconciliation.rows],
        "sides": None if diagnosis.sides is None else _sides(diagnosis.sides),
        "findings": [_finding(finding) for finding in diagnosis.findings],
        "report": _report(report(diagnosis)),
        "unread": _lines(diagnosis.unread),
        "marks": list(diagnosis.marks),
        "servers": [asdict(server) for server in diagnosis.servers],
        "assumptions": list(diagnosis.assumptions),
        "questions": [asdict(question) for question in diagnosis.questions],
    }


def _pool(pools: RankPools) -> dict[str, Any]:
    sizes = {
        "weights_bytes": pools.weights,
        "conv_bytes": pools.state_conv,
        "ssm_bytes": pools.state_ssm,
        "scratch_ssm_bytes": pools.scratch_ssm,
        "scratch_conv_bytes": pools.scratch_conv,
        "k_bytes": pools.k,
        "v_bytes": pools.v,
        "kv_bytes": pools.kv,
        "graphs_bytes": pools.graphs,
        "available_bytes": pools.available,
    }
    return {
        "rank": pools.rank,
        "role": pools.role,
        "state_slots": pools.state_slots,
        "kv_tokens": pools.kv_tokens,
        "dtype": pools.dtype,
        "label": pools.label,
        **{name: quantity.bytes if quantity else None for name, quantity in sizes.items()},
        "resolution_bytes": _resolution(sizes.values()),
    }


def _ledger(ledger: Ledger, log: ServerLog) -> dict[str, Any]:
    """The sizes of `entries` that are not null add up to `total_bytes`; the true sizes may be off by `rounding_bytes`
    each. An entry whose size is null lies in the one named by `lies_in`, or in none."""
    return {
        "rank": ledger.rank,
        "total_bytes": ledger.total.bytes,
        "total_of": ledger.total_of,
        "total_source": ledger.total_source,
        "on_host": ledger.on_host,
        "entries": [_entry(entry, log) for entry in ledger.entries],
        "beside_the_card": [_entry(entry, log) for entry in ledger.beside],
        "stretches": [
            {
                "lines": [log.at(one.first_line, "").line, log.at(one.last_line, "").line],
                "free_before_bytes": one.before.bytes,
                "free_after_bytes": one.after.bytes,
                "named": list(one.named),
                "rest_bytes": one.rest.bytes,
                "rounding_bytes": one.rest.resolution_bytes,
            }
            for one in ledger.stretches
        ],
    }


def _entry(entry: Entry, log: ServerLog) -> dict[str, Any]:
    return {
        "term": entry.term,
        "role": entry.role,
        "label": entry.label,
        "bytes": None if entry.size is None else entry.size.bytes,
        "rounding_bytes": None if entry.size is None else entry.size.resolution_bytes,
        "line": None if entry.line is None else log.at(entry.line, "").line,
        "source": entry.source,
        "lies_in": entry.lies_in,
    }


def _resolution(quantities: Iterable[Quantity | None]) -> int | None:
    """How far the coarsest figure of the row may be from the truth: half of a last digit, for sums of each part."""
    return max((quantity.resolution_bytes for quantity in quantities if quantity), default=None)


def _row(row: Row, log: ServerLog) -> dict[str, Any]:
    place = None if row.line is None else log.at(row.line, "")
    return {
        "term": row.term,
        "rank": row.rank,
        "role": row.role,
        "basis": row.basis,
        "unit": row.unit,
        "predicted": _interval(row.predicted),
        "observed": row.observed,
        "tolerance": row.tolerance,
        "delta": row.delta,
        "verdict": row.verdict,
        "attribution": row.attribution,
        "line": None if place is None else place.line,
    } | ({"file": place.file} if place is not None and place.file else {})


def _sides(found: Sides) -> dict[str, Any]:
    """Memory from four sides; a side that tells nothing is null."""
    return {
        "rows": [
            {
                "name": side.name,
                "rank": side.rank,
                "unit": side.unit,
                "predicted": _interval(side.predicted),
                "predicted_from": side.predicted_from,
                **{name: _told(getattr(side, name)) for name in ("log", "server_info", "nvml")},
            }
            for side in found.rows
        ],
        "disagreements": list(found.disagreements),
    }


def _told(told: Told | None) -> dict[str, Any] | None:
    return None if told is None else asdict(told)


def _interval(interval: Interval | None) -> dict[str, int] | None:
    return None if interval is None else {"low": interval.low, "point": interval.point, "high": interval.high}


def _report(found: Report) -> dict[str, Any]:
    """Whom it concerns; the text is what `diagnose --report` writes."""
    return {"concerns": found.concerns, "project": found.project, "title": found.title, "why": found.why}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "title": KNOWN[finding.id].title,
        "cause": finding.cause,
        "severity": finding.severity,
        "lost": finding.lost,
        "lost_of": None if finding.lost is None else KNOWN[finding.id].lost,
        "evidence": _lines(finding.evidence),
        "remedies": [remedy_document(remedy) for remedy in finding.remedies],
    }


def _lines(lines: Iterable[Line]) -> list[dict[str, Any]]:
    """`file` is there when the log was read from several, `about` where the text does not say what the line is."""
    return [
        {"line": line.line, "text": line.text}
        | ({"file": line.file} if line.file else {})
        | ({"about": line.about} if line.about else {})
        for line in lines
    ]
