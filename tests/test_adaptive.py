"""--speculative-adaptive: the solver charges the first width, the pools have room for the widest candidate."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.budget.predict import predict
from specbench.configuration.config import RunConfig
from specbench.engines.sglang.arguments import notes
from specbench.engines.sglang.checks import check
from specbench.engines.sglang.resolve import settings
from specbench.specs import load_model

QWEN = "Qwen/Qwen3.6-27B"
GIVEN = {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
STATE = 48 * 48 * 128 * 128 * 4  # recurrent states of a slot, in float32
NOT_LISTED = (
    "ValueError: --speculative-num-steps=5 is not in the adaptive config candidate_steps {}. Pass one of those values."
)
WINDOW = 48 * 10240 * 2  # a column of the convolution windows of a slot


def config(version: str, speculative: dict[str, Any], args: dict[str, Any] | None = None, **parallel: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "adaptive",
            "engine": {"version": version, "args": {"speculative-adaptive": True} if args is None else args},
            "model": QWEN,
            "gpu": {"name": "h200", "count": parallel.get("tp_size", 1)},
            "parallel": parallel,
            "speculative": {"algorithm": "NEXTN", **speculative},
            "memory": {"mem_fraction_static": 0.8, "max_running_requests": 8},
        }
    )


@pytest.mark.parametrize(
    ("version", "speculative", "widths"),
    [
        ("0.5.12", GIVEN, (4, 4, 8)),  # the pools of 0.5.12 know nothing of it
        ("0.5.13", GIVEN, (4, 8, 8)),
        ("0.5.13", {}, (4, 8, 8)),  # 3, 1, 4 before it looks at the candidates
        ("0.5.14", {}, (4, 8, 8)),  # the middle of 0, 1, 3, 7
        ("0.5.16", {"num_steps": 7}, (8, 8, 8)),
        ("0.5.18", {"num_steps": 1, "num_draft_tokens": 4}, (2, 8, 8)),
        ("0.5.20", {}, (4, 8, 8)),  # the middle of 0, 1, 3, 5, 7
        ("0.5.23", {"num_steps": 5, "eagle_topk": 1, "num_draft_tokens": 6}, (6, 8, 8)),
        ("0.5.23", {"num_steps": 3, "eagle_topk": 2, "num_draft_tokens": 5}, (5, 5, 4)),  # a tree: dropped
    ],
)
def test_widths(version: str, speculative: dict[str, Any], widths: tuple[int, int, int]) -> None:
    shape = settings(config(version, speculative)).shape
    assert (shape.verify_width, shape.pool_width, shape.longest_accept) == widths


def test_dropped_with_data_parallel_attention() -> None:
    shape = settings(config("0.5.23", GIVEN, tp_size=2, dp_size=2, enable_dp_attention=True)).shape
    assert (shape.verify_width, shape.pool_width) == (4, 4)


@pytest.mark.parametrize("version", ["0.5.14", "0.5.16", "0.5.23"])
def test_only_the_scratch_is_wider(version: str) -> None:
    plain, wide = predict(config(version, GIVEN, {})), predict(config(version, GIVEN))
    assert {limit: found.value for limit, found in plain.limits.items()} == {
        limit: found.value for limit, found in wide.limits.items()
    }

    def scratch(of: Any, term: Any) -> float:
        value = of.terms[term].bytes
        assert value is not None
        return float(value.low)

    requests = plain.limits["running_requests"].value
    assert requests is not None and requests.low == requests.high
    rows = int(requests.low) + 1
    assert scratch(wide, "scratch_ssm") - scratch(plain, "scratch_ssm") == rows * 4 * STATE
    # 10 columns rather than 6: D + kernel - 2
    assert scratch(wide, "scratch_conv") - scratch(plain, "scratch_conv") == rows * 4 * WINDOW


@pytest.mark.parametrize(
    ("version", "speculative", "expected"),
    [
        ("0.5.12", {"num_steps": 5, "eagle_topk": 1, "num_draft_tokens": 6}, None),
        (
            "0.5.13",
            {"num_steps": 5, "eagle_topk": 1, "num_draft_tokens": 6},
            NOT_LISTED.format("[1, 3, 7]"),
        ),
        (
            "0.5.16",
            {"num_steps": 5},
            NOT_LISTED.format("[0, 1, 3, 7]"),
        ),
        ("0.5.20", {"num_steps": 5}, None),
        ("0.5.23", {"eagle_topk": 1}, None),
        ("0.5.23", {}, None),
    ],
)
def test_first_steps(version: str, speculative: dict[str, Any], expected: str | None) -> None:
    found = check(config(version, speculative), load_model(QWEN))
    assert [refusal.engine_error for refusal in found if refusal.key.startswith("speculative.")] == (
        [] if expected is None else [expected]
    )


def test_notes() -> None:
    adaptive = {"speculative-adaptive": True}
    target = load_model(QWEN)
    assert notes(config("0.5.23", GIVEN), target) == (
        "engine.args.speculative-adaptive changes what is left outside the pools: not taken into account.",
    )
    given = config("0.5.23", GIVEN, adaptive | {"speculative-adaptive-config": "/srv/steps.json"})
    assert any("scratch" in note and "adaptive-config" in note for note in notes(given, target))
    assert settings(given).shape.pool_width == 4
