"""--enable-linear-replayssm-spec: rings of inputs instead of a recurrent state per verified token, charged and kept."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.budget.predict import predict
from specbench.configuration.config import RunConfig
from specbench.engines.sglang.arguments import notes
from specbench.engines.sglang.checks import check
from specbench.engines.sglang.demand import demand, units
from specbench.engines.sglang.resolve import settings
from specbench.engines.sglang.sizing.rings import Rings, rings
from specbench.specs import load_model
from specbench.units import GIB, Interval

KIMI, QWEN, LING = "moonshotai/Kimi-Linear-48B-A3B-Instruct", "Qwen/Qwen3.6-27B", "inclusionAI/Ling-3.0-flash"
NEXTN = {"algorithm": "NEXTN", "num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
DFLASH = {"algorithm": "DFLASH", "draft_model_path": "z-lab/Qwen3.6-27B-DFlash"}  # its size does not matter here
FLAG = {"enable-linear-replayssm-spec": True}


def config(model: str, version: str, speculative: dict[str, Any], args: dict[str, Any], **memory: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "rings",
            "engine": {"version": version, "args": args, "env": {"SGLANG_VLM_CACHE_SIZE_MB": "0"}},
            "model": model,
            "gpu": {"name": "h200", "count": 8},
            "speculative": speculative,
            "memory": {"mem_fraction_static": 0.5, "max_running_requests": 4, **memory},
        }
    )


@pytest.mark.parametrize(
    ("model", "version", "speculative", "args", "expected"),
    [
        # 20 layers × (4 × 32 heads × 16 × 128 × 2 B + 32 × 16 × 4 B × (1 + 128)) = 20 × (524,288 + 264,192)
        (KIMI, "0.5.18", DFLASH, FLAG, Rings(slot_bytes=15_769_600, row_bytes=0)),
        (KIMI, "0.5.23", DFLASH, FLAG, Rings(slot_bytes=15_769_600, row_bytes=0)),
        (KIMI, "0.5.23", DFLASH, FLAG | {"linear-replayssm-cache-len": 32}, Rings(slot_bytes=31_539_200, row_bytes=0)),
        # 48 layers × 4 tokens × ((48 + 16) × 128 × 2 B + 2 × 48 × 4 B) = 192 × (16,384 + 384)
        (QWEN, "0.5.17", NEXTN, FLAG, Rings(slot_bytes=3_219_456, row_bytes=0)),
        (QWEN, "0.5.18", NEXTN, FLAG, Rings(slot_bytes=3_219_456, row_bytes=0)),
        # 48 layers × 16 × ((48 + 16) × 128 × 2 B × 2 parts + 48 × 4 B) = 768 × (32,768 + 192)
        (QWEN, "0.5.20", NEXTN, FLAG, Rings(slot_bytes=0, row_bytes=25_313_280)),
        (QWEN, "0.5.23", NEXTN, FLAG, Rings(slot_bytes=0, row_bytes=25_313_280)),
        (QWEN, "0.5.16", NEXTN, FLAG, None),  # another flag then
        (QWEN, "0.5.23", NEXTN, {}, None),
        (LING, "0.5.20", NEXTN, FLAG, None),  # its KDA layers from 0.5.21 on
        # 35 layers of 32 heads
        (LING, "0.5.21", NEXTN, FLAG, Rings(slot_bytes=27_596_800, row_bytes=0)),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "0.5.23", NEXTN, FLAG, None),
    ],
)
def test_bytes_of_rings(
    model: str, version: str, speculative: dict[str, Any], args: dict[str, Any], expected: Rings | None
) -> None:
    found = settings(config(model, version, speculative, args))
    assert rings(found, load_model(model).state_layers) == expected


def test_with_rings_the_states_share_goes_into_slots() -> None:
    """Kimi-Linear, 10 GiB left, ratio 0.9: 10 × 0.9 / 1.9 GiB = 5,086,066,971 B are 85.9 slots of 59,187,200 B (ring
    included), less a padding one: 84. Without the flag 43,417,600 × (1 + 16 / 5) and 17 slots of padding: 23."""
    case = config(KIMI, "0.5.23", DFLASH, FLAG)
    free = {"pre_bytes": Interval.exact(1000 * GIB), "post_bytes": Interval.exact(510 * GIB)}
    found = predict(case, **free)
    slots = found.limits["state_slots"].value
    assert slots is not None and slots.point == 84
    tokens = found.limits["kv_tokens"].value
    charged = found.details["charged_cell_bytes"].point
    assert tokens is not None and tokens.point == (10 * GIB - 85 * 59_187_200) // charged
    assert found.details["ring_bytes"].point == 85 * 15_769_600
    scratch = found.terms["scratch_ssm"].bytes
    assert scratch is not None and scratch.point == 0
    windows = found.terms["scratch_conv"].bytes
    assert windows is not None and windows.point == 5 * 16 * 20 * 73_728  # kept as ever
    without = predict(config(KIMI, "0.5.23", DFLASH, {}), **free).limits["state_slots"].value
    assert without is not None and without.point == 23


def test_rings_of_running_requests_are_a_fixed_charge() -> None:
    """Qwen3.6-27B on 0.5.23, 10 GiB left: (5,086,066,971 - 5 × 25,313,280 - 153,944,064) // 153,944,064 = 31."""
    case = config(QWEN, "0.5.23", NEXTN, FLAG)
    found = settings(case)
    wanted = demand(found, *units(found))
    assert (wanted.scratch_tokens, wanted.draft_tokens, wanted.ring_row_bytes) == (0, 4, 25_313_280)
    budget = predict(case, pre_bytes=Interval.exact(1000 * GIB), post_bytes=Interval.exact(510 * GIB))
    slots = budget.limits["state_slots"].value
    assert slots is not None and slots.point == 31
    assert budget.details["ring_bytes"].point == 5 * 25_313_280
    tokens = budget.limits["kv_tokens"].value
    left = 10 * GIB - 32 * 153_944_064 - 5 * 25_313_280
    assert tokens is not None and tokens.point == left // budget.details["charged_cell_bytes"].point


@pytest.mark.parametrize(("model", "version", "noted"), [(KIMI, "0.5.23", False), (LING, "0.5.20", True)])
def test_a_flag_that_is_followed_is_not_noted(model: str, version: str, noted: bool) -> None:
    found = notes(config(model, version, {"algorithm": "none"}, FLAG), load_model(model))
    assert any("not taken into account" in note for note in found) == noted


TREE = {"algorithm": "NEXTN", "num_steps": 3, "eagle_topk": 2, "num_draft_tokens": 6}


@pytest.mark.parametrize(
    ("model", "version", "speculative", "args", "memory", "said"),
    [
        (QWEN, "0.5.23", NEXTN, {}, {}, None),
        (QWEN, "0.5.16", TREE, {}, {}, None),  # another flag then
        (QWEN, "0.5.18", TREE, {}, {}, "ValueError: --enable-linear-replayssm-spec requires a linear draft chain"),
        (QWEN, "0.5.23", TREE, {}, {}, "ValueError: --enable-linear-replayssm-spec requires a linear draft chain"),
        (KIMI, "0.5.23", DFLASH, {}, {}, None),
        (
            QWEN,
            "0.5.23",
            DFLASH,
            {},
            {},
            "ValueError: --enable-linear-replayssm-spec with DSPARK/DFLASH requires a KDA",
        ),
        (
            QWEN,
            "0.5.20",
            NEXTN,
            {"enable-linear-replayssm": True},
            {},
            "ValueError: --enable-linear-replayssm-spec and --enable-linear-replayssm are mutually exclusive",
        ),
        # without an algorithm nothing sets a number of requests; found with the engine's own code
        (
            QWEN,
            "0.5.20",
            {"algorithm": "none"},
            {},
            {"max_running_requests": None},
            "TypeError: unsupported operand type(s) for //: 'NoneType' and 'int'",
        ),
        (QWEN, "0.5.20", NEXTN, {}, {"max_running_requests": None}, None),
        (QWEN, "0.5.18", {"algorithm": "none"}, {}, {"max_running_requests": None}, None),
        (KIMI, "0.5.20", {"algorithm": "none"}, {}, {"max_running_requests": None}, None),
    ],
)
def test_refusals(model: str, version: str, speculative: Any, args: Any, memory: Any, said: str | None) -> None:
    found = check(config(model, version, speculative, FLAG | args, **memory), load_model(model))
    errors = [refusal.engine_error or "" for refusal in found if "replayssm" in refusal.key + (refusal.reason or "")]
    assert [error[: len(said or "")] for error in errors] == ([] if said is None else [said])


def test_state_is_kept_in_float32() -> None:
    """Whatever the checkpoint asks for, unless --mamba-ssm-dtype says otherwise."""
    env = {"SGLANG_MAMBA_SSM_DTYPE": "bfloat16"}
    asked = config(QWEN, "0.5.20", NEXTN, FLAG)
    asked = asked.model_copy(update={"engine": asked.engine.model_copy(update={"env": env})})
    assert settings(asked).ssm_dtype == "float32"
    plain = asked.model_copy(update={"engine": asked.engine.model_copy(update={"args": {}})})
    assert settings(plain).ssm_dtype == "bfloat16"
    assert settings(config(QWEN, "0.5.20", NEXTN, FLAG, mamba_ssm_dtype="bfloat16")).ssm_dtype == "bfloat16"
