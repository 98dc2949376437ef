"""Real starts on H200s with the engine's own defaults (2026-11-30, random weights, CUDA graphs for decoding).

Server arguments: --context-length 32768 and no prefill graphs; no fraction, and no requests unless `memory` says so.
Expected are the figures of the log: "server_args", pools, "Capture … CUDA graph begin" and "end".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from specbench.budget.predict import predict
from specbench.budget_types import MemoryBudget
from specbench.configuration.config import RunConfig
from specbench.units import GIB, Interval

QWEN, MOE = "Qwen/Qwen3.6-27B", "Qwen/Qwen3.5-35B-A3B"
NO_PREFILL_GRAPHS = {"0.5.12": "disable-piecewise-cuda-graph", "0.5.16": "disable-prefill-cuda-graph"}
TENS = [*range(1, 9), *range(10, 33, 2)]  # of speculation: 1 to 8, then even numbers


def dflash(width: int) -> dict[str, Any]:
    return {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash", "num_draft_tokens": width}


class Start(NamedTuple):
    model: str
    fraction: float
    slots: int | None
    tokens: int
    running: int
    graphs: float  # GiB, all captures of a rank
    captured: list[int] | None  # batch sizes; None: the log does not list them
    speculative: dict[str, Any]
    memory: dict[str, Any]
    tp: int = 1
    version: str = "0.5.16"


NONE: dict[str, Any] = {"algorithm": "none"}
NEXTN = {"algorithm": "NEXTN", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
EIGHT = {"max_running_requests": 8}
EXTRA = {"mamba_radix_cache_strategy": "extra_buffer"}
TO_256 = [1, 2, 4, 8, 12, 16, *range(24, 257, 8)]

#: One card: (143,771 - 512 - 1.5 × 8,192 - 2 × 256 - 128) MiB, of 143,771: 0.907; with images × 0.92477.
STARTS = {
    "none": Start(QWEN, 0.838762, 216, 567_593, 43, 0.23, [1, 2, 4, 8, 12, 16, 24, 32, 40, 43], NONE, {}),
    "none-0.5.12": Start(QWEN, 0.838762, 216, 567_596, 72, 0.27, None, NONE, {}, version="0.5.12"),
    "none-tp2": Start(
        QWEN, 0.837838, 595, 1_556_746, 119, 0.46, [1, 2, 4, 8, 12, 16, *range(24, 113, 8), 119], NONE, {}, tp=2
    ),
    "dflash-48-asked-9-run": Start(QWEN, 0.838762, 48, 432_007, 9, 0.61, list(range(1, 10)), dflash(16), {}),
    "dflash-0.5.12": Start(QWEN, 0.811944, 143, 287_419, 8, 0.95, None, dflash(16), EIGHT | EXTRA, version="0.5.12"),
    "dflash-tp2": Start(QWEN, 0.837838, 224, 1_343_148, 32, 1.17, TENS, dflash(8), {"max_running_requests": 32}, tp=2),
    "nextn": Start(QWEN, 0.838762, 110, 650_826, 8, 0.31, list(range(1, 9)), NEXTN, EIGHT),
    "ngram": Start(QWEN, 0.838762, 63, 588_735, 12, 0.41, [*range(1, 9), 10, 12], {"algorithm": "NGRAM"}, {}),
    "experts": Start(
        MOE, 0.838762, 404, 1_411_580, 80, 0.29, [1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64, 72, 80], NONE, {}
    ),
    "fp8": Start(
        "Qwen/Qwen3.6-27B-FP8",
        *(0.838762, 291, 761_433, 58, 0.24),
        [1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 58],
        NONE,
        {},
    ),
    "llama": Start("meta-llama/Meta-Llama-3.1-8B", 0.907, None, 910_625, 4096, 0.42, TO_256, NONE, {}),
    "fp8-experts": Start("Qwen/Qwen3-30B-A3B-FP8", 0.907, None, 1_059_629, 4096, 0.47, TO_256, NONE, {}),
}


def budget(start: Start) -> MemoryBudget:
    return predict(
        RunConfig.model_validate(
            {
                "name": "defaults",
                "engine": {"version": start.version, "args": {NO_PREFILL_GRAPHS[start.version]: True}},
                "model": start.model,
                "gpu": {"name": "h200", "count": start.tp},
                "parallel": {"tp_size": start.tp},
                "speculative": start.speculative,
                "memory": {"context_length": 32_768, **start.memory},
            }
        )
    )


def limit(found: MemoryBudget, name: str) -> Interval:
    value = found.limits[name].value
    assert value is not None
    return value


@pytest.mark.parametrize("name", STARTS)
def test_the_pools_with_the_engines_own_defaults(name: str) -> None:
    start = STARTS[name]
    found = budget(start)
    resolved = {argument.name: argument.value for argument in found.resolved}
    assert resolved["mem_fraction_static"] == pytest.approx(start.fraction, abs=1e-6)
    if start.slots is not None:
        assert limit(found, "state_slots").point == start.slots
    tokens = limit(found, "kv_tokens")
    assert tokens.low <= start.tokens <= tokens.high
    assert tokens.point == pytest.approx(start.tokens, rel=0.001)
    assert limit(found, "running_requests").point == start.running
    if start.captured is not None:
        assert resolved["cuda_graph_bs"] == tuple(start.captured)


@pytest.mark.parametrize("name", STARTS)
def test_the_estimate_of_graphs_holds(name: str) -> None:
    """Of batches and models that its data do not have: each capture is printed to 0.01 GiB."""
    start, size = STARTS[name], budget(STARTS[name]).terms["graphs"].bytes
    assert size is not None
    assert size.low - 0.01 * GIB <= start.graphs * GIB <= size.high + 0.01 * GIB
