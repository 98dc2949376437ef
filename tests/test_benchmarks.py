"""What the benchmarks conclude from their figures: a target that is missed is said, and none is missed unseen."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def client_cost(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("client_cost")


@pytest.fixture
def overhead(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("overhead")


def cost(module: ModuleType, client: str, cpu_us: float, ttft_ms: float | None = None, streams: int = 8) -> Any:
    return module.Cost(
        client=client,
        streams=streams,
        chunks=100,
        cpu_per_chunk_us=cpu_us,
        cpu_share=0.1,
        lag_p50_ms=1.0,
        lag_p99_ms=2.0,
        lag_max_ms=3.0,
        ttft_ms=ttft_ms,
        tpot_ms=None if ttft_ms is None else 10.0,
    )


def test_each_client_counts_by_its_cheapest_round_and_times_by_their_best_agreement(client_cost: ModuleType) -> None:
    costs = [
        *(cost(client_cost, "floor", 50.0), cost(client_cost, "floor", 40.0)),
        *(cost(client_cost, "specbench", 60.0, 1000.0), cost(client_cost, "specbench", 90.0, 1100.0)),
        *(cost(client_cost, "sglang", 80.0, 1250.0), cost(client_cost, "sglang", 75.0, 1000.0)),
    ]
    found = client_cost.ratios(costs)
    assert found == {"cpu_to_floor": 1.5, "cpu_to_sglang": 0.8, "ttft": pytest.approx(1.1), "tpot": 1.0}
    assert client_cost.misses(8, found) == ["8 streams: TTFT differs by 10.0%, target 2%"]


@pytest.mark.parametrize(
    ("found", "streams", "expected"),
    [
        ({"cpu_to_floor": 1.5, "cpu_to_sglang": 1.0, "ttft": 1.019, "tpot": 0.981}, 8, 0),
        ({"cpu_to_floor": 1.51, "cpu_to_sglang": 1.0, "ttft": 1.0, "tpot": 1.0}, 8, 1),
        ({"cpu_to_floor": 1.2, "cpu_to_sglang": 1.01, "ttft": 1.0, "tpot": 0.97}, 64, 2),
        ({"cpu_to_floor": 9.0, "cpu_to_sglang": 9.0, "ttft": 1.0, "tpot": 1.0}, 1, 0),  # a single stream: the meter
        ({"cpu_to_floor": 1.2, "cpu_to_sglang": None, "ttft": None, "tpot": None}, 8, 0),  # without SGLang's client
    ],
)
def test_a_target_is_missed_when_its_ratio_is_off(
    client_cost: ModuleType, found: dict[str, float | None], streams: int, expected: int
) -> None:
    assert len(client_cost.misses(streams, found)) == expected


def test_without_sglangs_client_nothing_is_compared_with_it(client_cost: ModuleType) -> None:
    found = client_cost.ratios([cost(client_cost, "floor", 50.0), cost(client_cost, "specbench", 60.0, 1000.0)])
    assert found == {"cpu_to_floor": 1.2, "cpu_to_sglang": None, "ttft": None, "tpot": None}


def test_the_engines_time_is_not_specbenchs(overhead: ModuleType) -> None:
    split = overhead.Split(name="a", seconds={"engine": 70.0, "capture": 0.5, "pages": 1.25}, cpu_s=9.0)
    assert split.own_s == 1.75
    slower = overhead.Split(name="a", seconds={"engine": 1.0, "capture": 2.0}, cpu_s=9.0)
    assert overhead.best([[slower], [split]]) == [split]
    # Half of what it took was waiting for other work: 1 s, which is less than 1.75 s.
    loaded = overhead.Split(name="a", seconds={"engine": 1.0, "capture": 2.0}, cpu_s=9.0, waiting=2.0)
    assert (loaded.own_s, loaded.quiet_s) == (2.0, 1.0)
    assert overhead.best([[split], [loaded]]) == [loaded]


@pytest.mark.parametrize(("run_s", "code"), [(71.0, 0), (80.0, 1)])
def test_the_share_of_a_campaign_that_was_run(
    overhead: ModuleType, tmp_path: Path, run_s: float, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record's phases are 69.87 s: of 71.0 + 1.5 s of diagnosis specbench has 2.63, of 80.0 + 1.5 it has 11.63."""
    folder = tmp_path / "dflash_r4"
    shutil.copytree(Path(__file__).parent / "records" / "dflash_r4", folder / "record")
    executed(folder / "2_run.ipynb", "00:00.0", "01:30.0", run_s)
    executed(folder / "3_diagnose.ipynb", "02:00.0", "02:01.5", 1.5)
    assert overhead.of_campaign(tmp_path) == code
    assert f"analysis, 1.5 s: {(run_s + 1.5 - 69.869847) / (run_s + 1.5):.1%}; target: 5%" in capsys.readouterr().out


def test_notebooks_that_are_executed_at_the_same_time_count_once(overhead: ModuleType, tmp_path: Path) -> None:
    spans = [("00:10.0", "00:14.0"), ("00:11.0", "00:12.0"), ("00:13.5", "00:16.0"), ("05:00.0", "05:01.0")]
    for number, (begin, end) in enumerate(spans):
        executed(tmp_path / f"{number}.ipynb", begin, end, 1.0)
    assert overhead.covered_s(list(tmp_path.iterdir())) == 7.0  # 10 to 16, and one second of a later call
    assert overhead.covered_s([]) == 0.0


def executed(path: Path, begin: str, end: str, duration: float) -> None:
    """A notebook as papermill leaves it."""
    day = "2026-01-02T03:"
    noted = {"start_time": f"{day}{begin}+00:00", "end_time": f"{day}{end}+00:00", "duration": duration}
    path.write_text(json.dumps({"cells": [], "metadata": {"papermill": noted}}))
