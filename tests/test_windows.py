"""Models of which some layers look back over a window: two pools of KV tokens."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.budget.predict import predict
from specbench.budget_types import MemoryBudget
from specbench.configuration.config import RunConfig
from specbench.errors import ConfigError
from specbench.specs import load_model
from specbench.units import GIB, Interval

OSS = "openai/gpt-oss-20b"
#: 12 layers of each kind × 8 KV heads × (64 + 64) × 2 B
CELL = 24_576


def run(version: str, model: str = OSS, **changes: Any) -> RunConfig:
    memory = {"mem_fraction_static": 0.8, "max_running_requests": 32, "context_length": 32_768}
    dp, pp = changes.pop("dp", 1), changes.pop("pp", 1)
    return RunConfig.model_validate(
        {
            "name": "windows",
            "engine": {"version": version, "args": changes.pop("args", {})},
            "model": model,
            "gpu": {"name": "h200", "count": dp * pp},
            "parallel": {"tp_size": dp, "pp_size": pp, "dp_size": dp, "enable_dp_attention": dp > 1},
            "speculative": changes.pop("speculative", {"algorithm": "none"}),
            "memory": memory | changes,
        }
    )


def measured(config: RunConfig) -> MemoryBudget:
    """100 GiB before loading, 90 when sizing: 90 - 100 × 0.2 = 70 GiB for the pools."""
    return predict(config, pre_bytes=Interval.exact(100 * GIB), post_bytes=Interval.exact(90 * GIB))


def tokens(found: MemoryBudget) -> int:
    value = found.limits["kv_tokens"].value
    assert value is not None
    return value.point


def test_the_two_kinds_of_layers() -> None:
    layers = load_model(OSS).attention_layers
    assert [layer.window for layer in layers[:4]] == [127, None, 127, None]
    assert sum(layer.bytes_per_token(1, 2) for layer in layers if layer.window is None) == CELL
    # TP8 and beyond: one KV head per rank; TP16 keeps each head twice
    assert layers[0].bytes_per_token(8, 2) == layers[0].bytes_per_token(16, 2) == 256


@pytest.mark.parametrize("version", ["0.5.11", "0.5.12", "0.5.16", "0.5.18", "0.5.23"])
def test_the_window_pool_is_a_share_of_the_tokens(version: str) -> None:
    """75,161,927,680 B (a byte less of rounding) // (24,576 + 0.8 × 24,576) = 1,699,081; 0.8 of them are 1,359,264."""
    found = measured(run(version))
    assert tokens(found) == 1_699_081
    assert found.details["window_tokens"].point == 1_359_264
    kv = found.terms["kv"].bytes
    assert kv is not None
    assert kv.point == (1_699_081 + 1) * CELL + (1_359_264 + 1) * CELL


def test_0_5_10_sizes_first_and_parts_after() -> None:
    """75,161,927,679 // 49,152 = 1,529,173 tokens of every layer; × 49,152 / 44,236.8 = 1,699,081.1."""
    assert tokens(measured(run("0.5.10"))) == 1_699_081


def test_a_version_whose_way_was_not_read() -> None:
    with pytest.raises(ConfigError, match=r"0\.5\.8 sizes sliding-window layers was not read"):
        measured(run("0.5.8"))
    whole = measured(run("0.5.8", args={"disable-hybrid-swa-memory": True}))
    assert tokens(whole) == 1_529_173  # 70 GiB // 49,152


@pytest.mark.parametrize(
    ("version", "stages", "expected"),
    [("0.5.12", 2, 3_163_806), ("0.5.20", 4, 5_919_380), ("0.5.21", 2, 3_398_162), ("0.5.22", 4, 6_796_325)],
)
def test_a_stage_counts_the_first_layer_of_the_next(version: str, stages: int, expected: int) -> None:
    """A layer: 8 KV heads × 128 × 2 B = 2,048 B. Two stages of 12 layers, 6 of each kind: up to 0.5.20 the first counts
    layer 12, with a window, too: 75,161,927,679 // (6 × 2,048 + 0.8 × 7 × 2,048) = 3,163,806; four stages:
    (3 + 0.8 × 4) × 2,048 = 12,697.6 B. From 0.5.21 10.8 and 5.4 layers' bytes."""
    assert tokens(measured(run(version, pp=stages))) == expected


def test_the_ratio_is_followed() -> None:
    """75,161,927,679 // (24,576 + 0.1 × 24,576) = 2,780,315."""
    assert tokens(measured(run("0.5.16", args={"swa-full-tokens-ratio": 0.1}))) == 2_780_315
    with pytest.raises(ConfigError, match="swa-full-tokens-ratio: got 2"):
        measured(run("0.5.16", args={"swa-full-tokens-ratio": 2}))


def test_without_a_prefix_cache_the_requests_bound_the_window_pool() -> None:
    """Of each request 127 + 128 + 1 + 1 tokens, two chunks of 8,192 in flight, a page: 32 × 257 + 16,384 + 1 = 24,609.

    The others: (75,161,927,679 - 24,609 × 24,576) // 24,576 = 3,058,346 - 24,609 = 3,033,737.
    """
    found = measured(run("0.5.16", disable_radix_cache=True))
    assert found.details["window_tokens"].point == 24_609
    assert tokens(found) == 3_033_737
    # an older version does not know the cap; without a number of requests nothing bounds them
    assert tokens(measured(run("0.5.12", disable_radix_cache=True))) == 1_699_081
    assert tokens(measured(run("0.5.16", disable_radix_cache=True, max_running_requests=None))) == 1_699_081


@pytest.mark.parametrize(
    ("changes", "capped"),
    [
        # two requests for each of 32 are on their way: 32 × 257 + 64 × (127 + 1); a decode server prefills nothing
        ({"args": {"disaggregation-mode": "decode"}}, 32 * 257 + 64 * 128),
        ({"args": {"disaggregation-mode": "decode", "disaggregation-decode-extra-slots": 3}}, 32 * 257 + 3 * 128),
        ({"args": {"disaggregation-mode": "decode"}, "max_running_requests": 40}, 40 * 257),
        # NGRAM: 48 requests unless given, each verifies 12 tokens: 127 + 128 × 12 + 1, and two steps of 12
        (
            {"disable_radix_cache": True, "max_running_requests": None, "speculative": {"algorithm": "NGRAM"}},
            48 * (1_664 + 24) + 16_384 + 1,
        ),
        # without overlap one step, one chunk; pages of 16: 127 + 1,536 + 16, 16 for the step
        (
            {
                "disable_radix_cache": True,
                "speculative": {"algorithm": "NGRAM"},
                "args": {"speculative-ngram-max-bfs-breadth": 1},
                "disable_overlap_schedule": True,
                "page_size": 16,
            },
            32 * (1_679 + 16) + 8_192 + 16,
        ),
        # two ranks of data-parallel attention share the requests and the chunk: 16 × 257 + 2 × 4,096 + 1
        ({"disable_radix_cache": True, "dp": 2}, 16 * 257 + 8_192 + 1),
    ],
)
def test_what_bounds_the_window_pool(changes: dict[str, Any], capped: int) -> None:
    assert measured(run("0.5.16", **changes)).details["window_tokens"].point == capped


def test_an_unchunked_prefill_is_bounded_by_nothing() -> None:
    """From 0.5.22; before, the engine counts the -1 that asks for it: 32 × 257 - 2 + 1."""
    asked = {"disable_radix_cache": True, "chunked_prefill_size": -1}
    for version in ("0.5.20", "0.5.21"):
        assert measured(run(version, **asked)).details["window_tokens"].point == 32 * 257 - 1
    assert tokens(measured(run("0.5.22", **asked))) == 1_699_081


def test_a_pool_that_holds_no_window_is_refused() -> None:
    """160 tokens: 0.8 of them are 128, and 127 + 1 is not below that."""
    found = measured(run("0.5.16", max_total_tokens=160))
    assert found.verdict == "refused"
    assert found.engine_error is not None and "SWA pool (128 tokens) cannot hold even one request" in found.engine_error
    assert measured(run("0.5.12", max_total_tokens=160)).engine_error is None


def test_layers_of_two_geometries() -> None:
    """MiMo-V2-Flash in bf16: 9 layers of 2,560 B, 39 with a window of 5,120 B.

    75,161,927,679 // (23,040 + 0.8 × 199,680) = 75,161,927,679 // 182,784 = 411,206.
    """
    found = measured(run("0.5.16", "XiaomiMiMo/MiMo-V2-Flash", kv_cache_dtype="bfloat16"))
    assert found.details["cell_bytes"].point == 23_040
    assert found.details["window_cell_bytes"].point == 199_680
    assert tokens(found) == 411_206


def test_the_pipeline_stage_whose_tokens_cost_most_counts() -> None:
    """Of MiMo's 48 layers the second half costs more: 4 × 2,560 + 0.8 × 20 × 5,120 = 92,160 B, the first
    5 × 2,560 + 0.8 × 19 × 5,120 = 90,624. 75,161,927,679 // 92,160 = 815,559.

    Up to 0.5.20 the first counts layer 24, with a window, too: 90,624 + 0.8 × 5,120 = 94,720; // that: 793,516."""
    found = measured(run("0.5.22", "XiaomiMiMo/MiMo-V2-Flash", kv_cache_dtype="bfloat16", pp=2))
    assert (found.details["cell_bytes"].point, found.details["window_cell_bytes"].point) == (10_240, 102_400)
    assert tokens(found) == 815_559
    found = measured(run("0.5.20", "XiaomiMiMo/MiMo-V2-Flash", kv_cache_dtype="bfloat16", pp=2))
    assert (found.details["cell_bytes"].point, found.details["window_cell_bytes"].point) == (12_800, 102_400)
    assert tokens(found) == 793_516
