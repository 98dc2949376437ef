"""The requests of a run: which steps, and whether they can fit at all. Arithmetic only; `sending` sends them.

A step is one load (clients of a closed loop, or a rate of an open loop) at one input length. Warm-up requests are a
step of their own, sent first, in no figure.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from ..budget_types import MemoryBudget
from ..configuration.config import RunConfig, WorkloadSection
from ..terms import Limit

#: Output tokens of a warm-up request: enough to run prefill, decode and verify kernels once.
WARMUP_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    name: str
    phase: Literal["warmup", "measured"]
    concurrency: int | None
    request_rate: float | None
    input_tokens: int
    max_new_tokens: int
    requests: int


def steps_of(workload: WorkloadSection) -> tuple[Step, ...]:
    """Warm-up first, then every load at every input length. Empty when no request is asked for.

    Warm-up requests run together, as many at once as the largest load, so that kernels for batches are compiled before
    anything is measured.
    """
    if workload.load_only:
        return ()
    steps: list[Step] = []
    if workload.warmup:
        steps.append(
            Step(
                name="warmup",
                phase="warmup",
                concurrency=min(workload.warmup, max(workload.concurrency)),
                request_rate=None,
                input_tokens=max(workload.input_tokens),
                max_new_tokens=min(WARMUP_TOKENS, workload.output_tokens),
                requests=workload.warmup,
            )
        )
    loads: list[tuple[str, int | None, float | None]] = (
        [(f"conc{clients}", clients, None) for clients in workload.concurrency]
        if workload.request_rate is None
        else [(f"rate{rate:g}", None, rate) for rate in workload.request_rate]
    )
    for tokens in workload.input_tokens:
        for (name, clients, rate), requests in zip(loads, workload.requests_per_load(), strict=True):
            steps.append(
                Step(
                    name=f"{name}-in{tokens}",
                    phase="measured",
                    concurrency=clients,
                    request_rate=rate,
                    input_tokens=tokens,
                    max_new_tokens=workload.output_tokens,
                    requests=requests,
                )
            )
    return tuple(steps)


def check_fit(config: RunConfig, budget: MemoryBudget | None) -> list[str]:
    """Why steps of the workload cannot be served, with the arithmetic; empty: nothing known speaks against it.

    Checked against the context length and the predicted pool. Of a predicted interval the upper end counts: only what
    cannot fit in the best case is called impossible.
    """
    workload = config.workload
    if workload.load_only:
        return []
    limits = {limit: _upper(budget, limit) for limit in ("context_len", "kv_tokens", "max_input_tokens")}
    context = config.memory.context_length or limits["context_len"]
    problems = []
    for tokens in workload.input_tokens:
        total = tokens + workload.output_tokens
        text = f"input {tokens:,} + output {workload.output_tokens:,} = {total:,} tokens"
        pool, longest = limits["kv_tokens"], limits["max_input_tokens"]
        if context is not None and total > context:
            problems.append(f"{text}; the context holds {context:,}: {total - context:,} too many")
        elif pool is not None and total > pool:
            problems.append(f"{text}; the predicted KV pool holds at most {pool:,}: {total - pool:,} too many")
        elif longest is not None and tokens >= longest:
            problems.append(
                f"input {tokens:,} tokens; fewer than {longest:,} are accepted (predicted): "
                f"{tokens - longest + 1:,} too many"
            )
    return problems


def _upper(budget: MemoryBudget | None, limit: Limit) -> int | None:
    predicted = budget.limits.get(limit) if budget else None
    return predicted.value.high if predicted and predicted.value else None


def arrivals_s(step: Step, seed: int) -> list[float]:
    """Seconds at which an open loop sends: a Poisson process, the first request at 0. Same seed, same arrivals."""
    source = random.Random(f"{seed}/{step.name}/arrivals")
    at_s, arrivals = 0.0, []
    for _ in range(step.requests):
        arrivals.append(at_s)
        at_s += source.expovariate(step.request_rate or 1.0)
    return arrivals
