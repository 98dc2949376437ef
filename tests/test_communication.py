"""What the distributed init takes of several H200s, from the sizes of its buffers, as data/gpus.yaml says there.

Literals are MiB per rank. Sizes are of NCCL 2.28 (transport/p2p.cc, include/comm.h) and of SGLang's custom all-reduce
(custom_all_reduce_v2.py with its configs, 0.5.16; custom_all_reduce.cuh, 0.5.12); they are compared with what the logs
of all ranks print, and with what NVML saw.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from specbench.engines.sglang.logs import read as read_log
from specbench.gpus import load_gpu
from specbench.reading.pools import distributed_inits
from specbench.records.record import RunRecord
from specbench.units import GIB, MIB

RECORDS = Path(__file__).parent / "records"
#: With NVSwitch, whatever the number of ranks.
CHANNELS = 24
#: What NCCL and the engine take beside the buffers below, found on two ranks: 1,098 - 288 - 102, and 1,030 - 288 - 34.
REST = 708
#: Of the newer all-reduce: MiB that one rank pushes to another at most, by ranks.
PUSH = {"0.5.16": {2: 16.0, 4: 0.875, 8: 0.125}, "0.5.12": {2: 2.0, 4: 0.375, 8: 0.15625}}


def whole(size_mib: float) -> int:
    """The driver hands out 2 MiB at a time."""
    return 2 * math.ceil(size_mib / 2)


def connections(rank: int, ranks: int) -> int:
    """A ring in one direction, and from three ranks on the way back of a chain 0–1–…–last, in every channel."""
    # 4 MiB, 8 steps × 640 threads × 120 elements of 8 B, and 8 steps × 512 threads × 8 lines of 16 B; one page each
    receives = whole(4 + (8 * 640 * 120 * 8 + 8 * 512 * 8 * 16) / MIB)
    sends = whole(4096 / MIB)
    assert (receives, sends) == (10, 2)
    ring = receives + sends
    back = 0 if ranks == 2 else (rank < ranks - 1) * receives + (rank > 0) * sends
    return CHANNELS * (ring + back)


def all_reduce(version: str, ranks: int) -> int:
    push = PUSH[version][ranks]
    if version == "0.5.16":
        signals = 64 * 128 / MIB
        return whole(16 + 2 * ranks * push + signals) + 20  # pointers, in a block of PyTorch's
    pointers = 131_072 * 8 * 8 / MIB
    assert pointers == 8
    return whole(pointers + 16 + 2 * ranks * push + 0.1)


def taken(version: str, ranks: int) -> list[int]:
    return [REST + all_reduce(version, ranks) + connections(rank, ranks) for rank in range(ranks)]


@pytest.mark.parametrize(
    ("version", "ranks", "expected"),
    [
        ("0.5.16", 2, [1_098, 1_098]),
        ("0.5.12", 2, [1_030, 1_030]),
        ("0.5.16", 4, [1_280, 1_328, 1_328, 1_088]),
        ("0.5.12", 4, [1_264, 1_312, 1_312, 1_072]),
        ("0.5.16", 8, [1_276, *[1_324] * 6, 1_084]),
        ("0.5.12", 8, [1_264, *[1_312] * 6, 1_072]),
    ],
)
def test_buffers_make_what_a_rank_takes(version: str, ranks: int, expected: list[int]) -> None:
    assert taken(version, ranks) == expected
    table = load_gpu("h200").free_before_load(ranks, version)
    assert table.communication is not None
    assert table.communication.bytes.point == pytest.approx(max(expected) * MIB, abs=0.0051 * GIB)
    assert all(table.communication.bytes.low <= size * MIB <= table.communication.bytes.high for size in expected)
    # What two ranks have free, with what they take, is what is there before: the least of any number of ranks follows.
    two = {"0.5.16": 148_405_288_960, "0.5.12": 148_476_592_128}[version] + taken(version, 2)[0] * MIB
    assert table.bytes.point == pytest.approx(two - max(expected) * MIB, abs=0.0051 * GIB)


@pytest.mark.parametrize(("version", "size"), [("0.5.16", 708 + 288 + 40), ("0.5.12", 708 + 288 + 28)])
def test_eight_without_trees_are_within_what_is_possible(version: str, size: int) -> None:
    """1,036 and 1,024 MiB of 139.2855 GiB: 138.27 and 138.29 stay free, on every rank."""
    table = load_gpu("h200").free_before_load(8, version)
    assert table.communication is not None
    assert table.communication.bytes.low <= size * MIB <= table.communication.bytes.high
    assert table.bytes.low <= 139.2855 * GIB - size * MIB <= table.bytes.high


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        *[("h200-tp2_dflash-8", 2), ("h200-tp2_story-8", 2)],
        *[("tp4_dflash_r8", 4), ("tp4_nospec_r8", 4), ("tp4_0512_dflash_r8", 4)],
    ],
)
def test_every_rank_logs_what_its_buffers_take(name: str, ranks: int) -> None:
    record = RunRecord.open(RECORDS / name)
    version = record.config.engine.version
    inits = distributed_inits(read_log(record.log_path, name=name, version=version))
    logged = [round(inits[f"TP{rank}"].values["used"].bytes / GIB, 2) for rank in range(ranks)]
    # On two ranks NVML shows 2 MiB more until just before the figure is read.
    assert logged == [pytest.approx(size / 1024, abs=0.0051) for size in taken(version, ranks)]
    if ranks == 4:
        assert logged == ([1.23, 1.28, 1.28, 1.05] if version == "0.5.12" else [1.25, 1.30, 1.30, 1.06])


def levels(name: str) -> list[int]:
    """What was in use of the first GPU, each level once, in whole MiB above the first."""
    used = [sample.used_bytes for sample in RunRecord.open(RECORDS / name).gpu_samples() if sample.gpu == 0]
    return list(dict.fromkeys(round((size - used[0]) / MIB) for size in used))


@pytest.mark.parametrize(
    ("name", "version", "reduce"), [("h200-tp2_dflash-8", "0.5.16", 102), ("h200-tp2_story-8", "0.5.12", 34)]
)
def test_nvml_saw_the_ring_and_the_all_reduce_come_on_two(name: str, version: str, reduce: int) -> None:
    """The ring in some steps within 0.05 s, the all-reduce's in one step, the last before the weights."""
    seen = levels(name)
    assert (connections(0, 2), all_reduce(version, 2)) == (288, reduce)
    ring, before = seen.index(724), seen.index(1_526)
    assert 724 + 288 in seen[ring:before]
    assert seen[before + 1] == 1_526 + reduce


@pytest.mark.parametrize(
    ("name", "version"), [("tp4_dflash_r8", "0.5.16"), ("tp4_nospec_r8", "0.5.16"), ("tp4_0512_dflash_r8", "0.5.12")]
)
def test_nvml_saw_what_the_first_of_four_ranks_takes(name: str, version: str) -> None:
    """Its context stands at 1,145 MiB in use; the first sample of loading less that is rank 0's."""
    samples = RunRecord.open(RECORDS / name).gpu_samples()
    before = next(sample.used_bytes / MIB for sample in samples if sample.phase == "load_begin")
    assert before - 1_145 == taken(version, 4)[0]


def test_nvml_saw_the_older_all_reduce_come_on_four() -> None:
    """The last step before the weights: 1,238 MiB above the context before it."""
    samples = RunRecord.open(RECORDS / "tp4_0512_dflash_r8").gpu_samples()
    used = list(dict.fromkeys(round(sample.used_bytes / MIB) - 1_145 for sample in samples))
    assert used[used.index(1_238) + 1] - 1_238 == all_reduce("0.5.12", 4) == 28
