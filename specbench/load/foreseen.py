"""What of a workload would not come to its end, known before anything starts: for a dry run and a prediction.

In: a configuration as this machine would run it, and its predicted budget. Out: a sentence for each thing.
"""

from __future__ import annotations

from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig
from ..units import counted
from .workload import check_fit


def of_workload(config: RunConfig, budget: MemoryBudget | None) -> tuple[str, ...]:
    """Prompts that cannot be served: what the engine is expected to refuse, or `run` itself."""
    if budget is not None and budget.verdict == "refused":
        return ()  # nothing is sent
    problems = check_fit(config, budget)
    if not problems:
        return ()
    lengths = counted(len(config.workload.input_tokens), "prompt length")
    if config.workload.allow_overflow:
        return (f"{len(problems)} of {lengths} expected to be refused by the engine: {'; '.join(problems)}",)
    return (
        f"run refuses this workload: {'; '.join(problems)}; workload.allow_overflow: true shows the engine's own error",
    )
