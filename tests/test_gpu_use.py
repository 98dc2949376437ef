"""Who holds GPU memory: what counts as back, and the sentences, on readings made by hand."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from specbench.host.gpu_use import (
    IN_USE_BEFORE,
    GpuMemory,
    Holder,
    InUse,
    above,
    holders_words,
    in_use_words,
    marked,
    only,
    regrouped,
    verdict,
)
from specbench.units import MIB

TOTAL = 143_771 * MIB


def use(used_mib: int, *holders: Holder, gpu: int = 0, told: bool = True) -> InUse:
    used = used_mib * MIB
    return InUse(
        gpu=gpu,
        used_bytes=used,
        free_bytes=TOTAL - used,
        total_bytes=TOTAL,
        holders=holders if told else None,
    )


def held(pid: int, mib: int | None, ours: bool | None = None, name: str | None = "python3") -> Holder:
    return Holder(pid=pid, name=name, used_bytes=None if mib is None else mib * MIB, ours=ours)


def memory(before: InUse, after: InUse, is_back: bool | None, **more: Any) -> GpuMemory:
    return GpuMemory(before=(before,), after=(after,), is_back=is_back, tolerance_bytes=256 * MIB, **more)


@pytest.mark.parametrize(
    ("before", "after", "expected_mib"),
    [
        (use(618), use(618), 0),
        (use(618), use(3690, held(7, 3000, True)), 3072),
        # another process came in the meantime: its share is not the server's
        (use(618), use(3690, held(9, 3000, False)), 72),
        # it was there before, and grew
        (use(1618, held(9, 1000)), use(3690, held(9, 3000, False)), 72),
        # it shrank: that frees nothing that the server owes
        (use(3690, held(9, 3000)), use(1690, held(9, 1000, False)), -2000),
        # nobody can say whose it is: it counts
        (use(618), use(3690, held(9, 3000, None)), 3072),
        (use(618), use(3690, told=False), 3072),
    ],
)
def test_what_is_above_the_baseline(before: InUse, after: InUse, expected_mib: int) -> None:
    assert above((before,), (after,)) == {0: expected_mib * MIB}


def test_a_gpu_that_was_not_read_before_is_not_compared() -> None:
    assert above((use(1),), (use(1), use(500, gpu=1))) == {0: 0}


def test_holders_are_marked_and_gpus_chosen() -> None:
    (one,) = marked((use(10, held(7, 1), held(8, 2), held(9, 3)),), {7: True, 8: False}.get)
    assert one.holders is not None
    assert [holder.ours for holder in one.holders] == [True, False, None]
    assert marked((use(10, told=False),), lambda pid: True)[0].holders is None
    both = (use(1), use(2, gpu=1))
    assert only(both, None) == both
    assert only(both, [1]) == both[1:]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (memory(use(618), use(700), True), "back at baseline"),
        (
            memory(use(618), use(3690, held(9, 3072, False)), True),
            (
                "back at baseline; 3,072 MiB on GPU 0 were taken by others meanwhile: "
                "held by pid 9 (python3, not of this server) 3,072 MiB"
            ),
        ),
        (
            memory(use(618), use(3690, held(7, 3000, True, "sglang::scheduler")), False, waited_s=30.04),
            (
                "still 3,072 MiB above baseline on GPU 0 after 30 s "
                "(GPU 0: held by pid 7 (sglang::scheduler, of this server) 3,000 MiB)"
            ),
        ),
        (
            memory(use(618), use(3690), False, waited_s=30.0),
            "still 3,072 MiB above baseline on GPU 0 after 30 s (GPU 0: 3,690 MiB in use, NVML names no process)",
        ),
        (memory(use(618), use(618), None, reason="no driver"), "not checked: no driver"),
    ],
)
def test_the_verdict_in_words(found: GpuMemory, expected: str) -> None:
    assert verdict(found) == expected


def test_who_holds_memory_in_words() -> None:
    assert holders_words(use(5, told=False)) == "5 MiB in use, NVML does not tell by whom"
    assert holders_words(use(9, held(3, None, name=None))) == "held by pid 3 (no such process here) size not told"
    many = holders_words(use(9, *(held(pid, pid) for pid in range(1, 8))))
    assert many.startswith("held by pid 7 (python3) 7 MiB, pid 6 ")
    assert many.endswith("pid 4 (python3) 4 MiB and 3 more")


def test_memory_that_nobody_is_named_for_is_the_drivers_and_not_worth_a_note() -> None:
    assert in_use_words((use(618),)) is None
    assert in_use_words((use(618, told=False),)) is None
    assert in_use_words((use(1642, held(9, 1024)),)) == (
        "GPU 0: 138.80 GiB free of 140.40 GiB, held by pid 9 (python3) 1,024 MiB"
    )


def test_gpus_with_the_same_figures_and_holders_are_said_once() -> None:
    # 143,771 - 1,642 MiB = 138.80 GiB, 143,771 - 2,666 = 137.80 GiB
    every = [use(1642, held(9, 1024), gpu=gpu) for gpu in range(8)]
    every[6] = use(2666, held(9, 1024), held(12, 1024), gpu=6)
    told = (
        "GPU 0 to 5 and 7: each 138.80 GiB free of 140.40 GiB, held by pid 9 (python3) 1,024 MiB; "
        "GPU 6: 137.80 GiB free of 140.40 GiB, held by pid 9 (python3) 1,024 MiB, pid 12 (python3) 1,024 MiB"
    )
    assert in_use_words(every) == told
    one_by_one = "; ".join(in_use_words([one]) or "" for one in every)
    assert one_by_one.count("GPU ") == 8
    assert regrouped(f"{IN_USE_BEFORE}{one_by_one}") == f"{IN_USE_BEFORE}{told}"
    assert regrouped(f"{IN_USE_BEFORE}{told}") == f"{IN_USE_BEFORE}{told}"
    assert regrouped("GPU 0: A; GPU 1: A") == "GPU 0: A; GPU 1: A"  # another note
    taken = [replace(one, holders=(*(one.holders or ()), held(20, 3072, False))) for one in every[:3]]
    found = replace(memory(every[0], taken[0], True), before=tuple(every[:3]), after=tuple(taken))
    assert verdict(found) == (
        "back at baseline; 3,072 MiB on each of GPU 0 to 2 were taken by others meanwhile: "
        "held by pid 20 (python3, not of this server) 3,072 MiB, pid 9 (python3) 1,024 MiB"
    )
    more = [replace(one, used_bytes=one.used_bytes + 3072 * MIB) for one in every[:2]]
    assert verdict(replace(found, after=tuple(more), is_back=False, waited_s=12.0)) == (
        "still 3,072 MiB above baseline on each of GPU 0 and 1 after 12 s "
        "(GPU 0 and 1: each held by pid 9 (python3) 1,024 MiB)"
    )


def test_it_goes_through_json_and_back() -> None:
    found = memory(use(618), use(3690, held(7, None, True)), False, waited_s=1.5)
    adapter = TypeAdapter(GpuMemory)
    assert adapter.validate_json(adapter.dump_json(found)) == found
    assert adapter.validate_python({**asdict(found), "before": [asdict(use(618))]}) == found
