"""Memory that others hold before a start: which GPUs count, and when the predicted free memory cannot be had."""

from __future__ import annotations

from typing import Any

import pytest

from specbench.configuration.config import RunConfig
from specbench.host.gpu_use import Holder, InUse
from specbench.lifecycle.headroom import gpus_of_server, headroom, why_impossible
from specbench.units import MIB


def config(count: int = 1, **engine: Any) -> RunConfig:
    return RunConfig.model_validate(
        {
            "name": "h",
            "engine": {"version": "0.5.16", **engine},
            "model": "Qwen/Qwen3.6-27B",
            "gpu": {"name": "h200", "count": count},
            "parallel": {"tp_size": count},
        }
    )


def card(gpu: int = 0, used_mib: int = 618, *holders: Holder, total_mib: int = 143_771) -> InUse:
    return InUse(
        gpu=gpu,
        used_bytes=used_mib * MIB,
        free_bytes=(total_mib - used_mib) * MIB,
        total_bytes=total_mib * MIB,
        uuid=f"GPU-{gpu}a0b",
        holders=holders,
    )


@pytest.fixture(autouse=True)
def every_gpu_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)


FOUR = tuple(card(gpu) for gpu in range(4))
MIXED = (card(0), card(1, total_mib=23_034))


@pytest.mark.parametrize(
    ("asked", "seen", "environ", "expected"),
    [
        (config(), FOUR, {}, (0,)),
        (config(2), FOUR, {}, (0, 1)),
        (config(2, args={"base_gpu_id": 2}), FOUR, {}, (2, 3)),
        (config(2, args={"base-gpu-id": 0, "gpu-id-step": 2}), FOUR, {}, (0, 2)),
        (config(2, args={"nnodes": 2, "--base-gpu-id": 3}), FOUR, {}, (3,)),
        (config(2, args={"--nnodes": 2, "base_gpu_id": 3}), FOUR, {}, (3,)),
        (config(), FOUR, {"CUDA_VISIBLE_DEVICES": "3"}, (3,)),
        (config(2), FOUR, {"CUDA_VISIBLE_DEVICES": "3, 1"}, (3, 1)),
        (config(), FOUR, {"CUDA_VISIBLE_DEVICES": "GPU-2a"}, (2,)),
        # more GPUs than ranks: the others are not the server's
        (config(4).replace({"parallel.tp_size": 2}), FOUR, {}, (0, 1)),
        (config(4).replace({"parallel.tp_size": 2, "parallel.dp_size": 2}), FOUR, {}, (0, 1, 2, 3)),
        # what cannot be told: all of them count
        (config(2), FOUR, {"CUDA_VISIBLE_DEVICES": "1"}, None),
        (config(2), FOUR, {"CUDA_VISIBLE_DEVICES": "1,-1,2"}, None),
        (config(), FOUR, {"CUDA_VISIBLE_DEVICES": ""}, None),
        (config(), FOUR, {"CUDA_VISIBLE_DEVICES": "MIG-1"}, None),
        (config(), FOUR, {"CUDA_VISIBLE_DEVICES": "GPU-"}, None),
        (config(2, args={"base_gpu_id": 3}), FOUR, {}, None),
        # CUDA numbers cards of several kinds by speed, unless it is told otherwise
        (config(), MIXED, {}, None),
        (config(), MIXED, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, (0,)),
        (config(), MIXED, {"CUDA_VISIBLE_DEVICES": "GPU-1a"}, (1,)),
    ],
)
def test_the_gpus_of_a_server(
    asked: RunConfig, seen: tuple[InUse, ...], environ: dict[str, str], expected: tuple[int, ...] | None
) -> None:
    assert gpus_of_server(asked, seen, environ) == expected


def test_a_clean_card_can_have_its_predicted_free_memory() -> None:
    # As recorded: 618 MiB are the driver's, 139.80 GiB are free; 139.13 are what the engine saw with its context.
    assert why_impossible(config(), card()) is None


def test_a_card_that_others_use_cannot_and_the_arithmetic_says_why() -> None:
    # 143,771 - 48,618 MiB = 92.92 GiB; 139.10 - (92.92 - 0.25) = 46.43 GiB
    told = why_impossible(config(), card(0, 48_618, Holder(pid=123, name="python3 -m x", used_bytes=48_000 * MIB)))
    assert told == (
        "THIS START CANNOT HAVE ITS PREDICTED FREE MEMORY on GPU 0: 92.92 GiB are free now, of which the engine's own "
        "context takes at least 0.25 GiB; predicted before loading: 139.10 GiB or more, so 46.43 GiB are missing; "
        "held by pid 123 (python3 -m x) 48,000 MiB"
    )


def test_a_little_more_than_the_driver_is_enough_to_be_said() -> None:
    # 139.10 + 0.25 GiB = 142,694.4 MiB must be free; the whole card has 143,771: 1,076.6 MiB may be used.
    assert why_impossible(config(), card(0, 1_076)) is None
    assert why_impossible(config(), card(0, 1_077)) is not None


def test_cards_that_are_in_use_alike_are_said_together() -> None:
    other = Holder(pid=123, name="python3", used_bytes=48_000 * MIB)
    notes = headroom(config(2), lambda: (card(0, 48_618, other), card(1, 48_618, other))).notes
    assert [note.partition(": ")[0] for note in notes] == [
        "THIS START CANNOT HAVE ITS PREDICTED FREE MEMORY on each of GPU 0 and 1",
        "GPU memory in use before the start",
    ]


def test_another_card_is_not_held_against_the_table() -> None:
    assert why_impossible(config(), card(total_mib=23_034)) is None


def test_only_the_servers_gpus_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    seen = (card(0, 90_000, Holder(pid=5, name="other")), card(1))
    found = headroom(config(), lambda: seen)
    assert (found.gpus, found.notes, found.warnings) == ((1,), (), ())
    found = headroom(config(env={"CUDA_VISIBLE_DEVICES": "0"}), lambda: seen)
    assert found.gpus == (0,)
    assert [note.partition(":")[0] for note in found.notes] == [
        "THIS START CANNOT HAVE ITS PREDICTED FREE MEMORY on GPU 0",
        "GPU memory in use before the start",
    ]
    assert found.warnings == found.notes[:1]


def test_use_that_does_not_matter_is_noted_and_said_too() -> None:
    found = headroom(config(), lambda: (card(0, 900, Holder(pid=5, name="Xorg", used_bytes=280 * MIB)),))
    assert found.notes == (
        "GPU memory in use before the start: GPU 0: 139.52 GiB free of 140.40 GiB, held by pid 5 (Xorg) 280 MiB",
    )
    assert found.warnings == found.notes


def test_without_a_gpu_of_its_own_there_is_nothing_to_look_at() -> None:
    def read() -> tuple[InUse, ...]:
        raise AssertionError("not to be read")

    for spelling in ("device", "--device"):
        assert headroom(config(args={spelling: "cpu"}), read).gpus == ()
    assert headroom(config(replay="somewhere"), read).gpus == ()
    assert headroom(config(), "no NVML on this machine: no driver").gpus is None


def test_a_gpu_that_cannot_be_read_does_not_stop_the_start() -> None:
    def read() -> tuple[InUse, ...]:
        raise RuntimeError("GPU is lost")

    found = headroom(config(), read)
    assert found.warnings == ("GPU memory in use before the start could not be read: GPU is lost",)
