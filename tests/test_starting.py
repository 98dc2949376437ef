"""The parts of a start, from lines that real engines wrote."""

from __future__ import annotations

import pytest

from specbench.capture.starting import Starting

#: Seconds after the start of the process, and lines of SGLang 0.5.16 (shortened at the end).
START = (
    (50.0, b"[2026-11-29 13:01:57] Init torch distributed begin.\n"),
    (50.5, b"[2026-11-29 13:01:57] Init torch distributed ends. elapsed=0.37 s, mem usage=0.09 GB\n"),
    (51.0, b"[2026-11-29 13:01:57] Load weight begin. avail mem=139.13 GB\n"),
    (53.0, b"[2026-11-29 13:01:57] Load weight end. elapsed=0.26 s, type=Qwen3_5ForConditionalGeneration\n"),
    (56.0, b"[2026-11-29 13:02:00] Load weight begin. avail mem=88.05 GB\n"),
    (56.5, b"[2026-11-29 13:02:00] Load weight end. elapsed=0.01 s, type=DFlashDraftModel, avail mem=84.68 GB\n"),
    (57.0, b"[2026-11-29 13:02:01] Memory pool end. avail mem=66.04 GB\n"),
    (57.5, b"[2026-11-29 13:02:01] Capture target verify CUDA graph begin. backend=full, bs=[1]\n"),
    (60.0, b"[2026-11-29 13:02:04] max_total_num_tokens=158178, chunked_prefill_size=8192\n"),
    (60.5, b"[2026-11-29 13:02:04] INFO:     Application startup complete.\n"),
    (64.0, b"[2026-11-29 13:02:05] The server is fired up and ready to roll!\n"),
)


def test_each_part_has_its_seconds_and_parts_that_come_back_are_summed() -> None:
    starting = Starting(began_s=10.0)
    for t_s, line in START:
        starting.line(line, 10.0 + t_s)
    assert starting.stages(64.25) == {
        "importing": 50.0,
        "initialising the GPUs": 1.0,
        "loading weights": 2.5,  # 2.0 of the target, 0.5 of the draft
        "allocating pools": 4.0,  # 3.0 and 1.0
        "capturing graphs": 2.5,
        "starting the HTTP server": 0.5,
        "the engine's own warm-up": 3.75,
    }
    assert sum(starting.stages(64.25).values()) == pytest.approx(64.25)
    assert starting.marks == {
        "dist_begin": 50.0,
        "load_begin": 51.0,
        "load_end": 53.0,
        "pool_end": 57.0,
        "scheduler_ready": 60.0,
        "ready": 64.0,
    }


def test_what_it_does_now_is_told_with_its_seconds() -> None:
    starting = Starting(began_s=0.0)
    assert starting.now(12.0) == "importing (12 s)"
    starting.line(START[2][1], 51.0)
    assert starting.now(54.4) == "loading weights (3 s)"


def test_lines_after_ready_change_nothing() -> None:
    starting = Starting(began_s=0.0)
    starting.line(START[-1][1], 64.0)
    starting.line(START[2][1], 99.0)
    assert starting.now(100.0) == "importing (100 s)"
    assert list(starting.marks) == ["ready"]


def test_a_start_that_broke_off_has_only_the_parts_that_ended() -> None:
    starting = Starting(began_s=0.0)
    starting.line(START[0][1], 50.0)
    assert starting.stages(None) == {"importing": 50.0}


@pytest.mark.parametrize(
    "line",
    [
        b"Capture cuda graph begin. This can take up to several minutes. avail mem=67.59 GB",  # 0.5.12
        b"Capture piecewise CUDA graph begin. avail mem=0.08 GB",  # 0.5.10
        b"Capture draft extend CUDA graph begin. backend=full, num_tokens_per_req=4",  # 0.5.16
    ],
)
def test_graphs_of_every_version_are_known(line: bytes) -> None:
    starting = Starting(began_s=0.0)
    starting.line(line, 1.0)
    assert starting.now(1.0) == "capturing graphs (0 s)"
