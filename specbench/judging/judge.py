"""Budgets on both bases for one configuration and what it logged. The only caller of `predict` with logged memory.

"config": nothing measured. "measured": the same solver with the free memory that NVML showed when the engine read it,
else with the log's own (minimum over ranks, as the engine takes it), and with the fraction the engine resolved; absent
when the log has no free memory.
"""

from __future__ import annotations

from dataclasses import replace

from ..budget.predict import predict
from ..budget_types import FreeMemory, MemoryBudget
from ..configuration.config import RunConfig
from ..engines.contract import PoolReport
from ..engines.sglang.offsets import measured_free
from ..reading.freeread import MeasuredOffsets
from ..terms import Basis
from ..units import Interval


def budgets(config: RunConfig, report: PoolReport, read: MeasuredOffsets | None = None) -> dict[Basis, MemoryBudget]:
    """basis -> budget. ConfigError or SpecError when the configuration cannot be sized at all."""
    found: dict[Basis, MemoryBudget] = {"config": predict(config)}
    free = logged_free(config, report, read)
    if free is not None:
        found["measured"] = predict(as_resolved(config, report), free=free, passed_fraction=passed(config, report))
    return found


def logged_free(config: RunConfig, report: PoolReport, read: MeasuredOffsets | None = None) -> FreeMemory | None:
    """Free memory as this very start had it (`read`), else as logged, narrowed by the known offsets. None when the log
    has no such lines.

    Where NVML leaves an interval, the log's figure says where in it the likely point lies.
    """
    if read is not None and read.exact:
        return read.free
    logged = _as_logged(config, report)
    if read is None or logged is None:
        return logged if read is None else read.free
    return replace(read.free, pre=_towards(read.pre, logged.pre), post=_towards(read.post, logged.post))


def _towards(seen: Interval, logged: Interval) -> Interval:
    return replace(seen, point=logged.point) if seen.low <= logged.point <= seen.high else seen


def _as_logged(config: RunConfig, report: PoolReport) -> FreeMemory | None:
    pre, post = report.least(report.pre), report.least(report.post)
    if pre is None or post is None:
        return None
    return measured_free(
        config.engine.sizing or config.engine.version,
        config.speculative.algorithm,
        config.parallel.tp_size,
        config.gpu.name,
        pre,
        post,
    )


def as_resolved(config: RunConfig, report: PoolReport) -> RunConfig:
    """The configuration with the static fraction that the engine resolved, when none was given.

    With `gpu.emulate` the engine tells the fraction that it was passed, which is not that of the emulated card.
    """
    fraction = report.requested.get("mem_fraction_static")
    told = config.memory.mem_fraction_static is not None or config.gpu.emulate is not None
    return (
        config.replace({"memory.mem_fraction_static": fraction}) if isinstance(fraction, float) and not told else config
    )


def passed(config: RunConfig, report: PoolReport) -> float | None:
    """The fraction on the command line of a server that emulates a smaller card, as its log shows it; else None."""
    fraction = report.requested.get("mem_fraction_static")
    return fraction if config.gpu.emulate is not None and isinstance(fraction, float) else None
