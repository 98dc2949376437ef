"""A run proves a remedy when it has the remedy's values and is otherwise (nearly) the same configuration."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from specbench.configuration.config import RunConfig
from specbench.diagnose.finding import Remedy
from specbench.records.record import RunRecord
from specbench.records.types import RunStatus
from specbench.studies.proofs import proofs

BASE: dict[str, Any] = {
    "name": "failing",
    "engine": {"name": "sglang", "version": "0.5.12"},
    "model": "m",
    "gpu": {"name": "h200"},
    "memory": {"max_running_requests": 8, "mem_fraction_static": 0.508124},
}
FAILING = RunConfig.model_validate(BASE)


def record(name: str, **changes: Any) -> RunRecord:
    config = FAILING.replace({"name": name, **{key.replace("__", "."): value for key, value in changes.items()}})
    return RunRecord(Path(name), RunStatus(status="served", origin="recorded", reason="ready"), config, {})


def remedy(**changes: Any) -> Remedy:
    return Remedy(
        set={key.replace("__", "."): value for key, value in changes.items()},
        flags="",
        basis="config",
        predicted={},
        verdict="serves",
        note="",
        changes_results=False,
    )


FOUR = remedy(memory__max_running_requests=4)


def test_the_run_with_exactly_the_remedy_is_the_proof() -> None:
    four = record("four", memory__max_running_requests=4, engine__replay="tests/records/x")
    found = proofs(FOUR, FAILING, [record("same"), four])
    assert [(one.record.name, one.other) for one in found] == [("four", {})]


def test_a_near_miss_counts_with_its_difference_named() -> None:
    near = record("near", memory__max_running_requests=4, memory__mem_fraction_static=0.51)
    (found,) = proofs(FOUR, FAILING, [near])
    assert found.other == {"memory.mem_fraction_static": (0.508124, 0.51)}


def test_the_closest_run_comes_first() -> None:
    near = record("near", memory__max_running_requests=4, memory__mem_fraction_static=0.51)
    exact = record("exact", memory__max_running_requests=4)
    assert [one.record.name for one in proofs(FOUR, FAILING, [near, exact])] == ["exact", "near"]


def test_anything_else_that_differs_proves_nothing() -> None:
    others = [
        record("version", memory__max_running_requests=4, engine__version="0.5.16"),
        record("model", memory__max_running_requests=4, model="n"),
        record("card", memory__max_running_requests=4, gpu__name="rtx-pro-6000"),
        record("key", memory__max_running_requests=4, memory__page_size=64),
        record("fraction", memory__max_running_requests=4, memory__mem_fraction_static=0.52),
        record("wrong-value", memory__max_running_requests=2),
    ]
    assert proofs(FOUR, FAILING, others) == ()


def test_fewer_requests_are_no_proof_of_another_remedy() -> None:
    no_radix = remedy(memory__disable_radix_cache=True)
    tried = record("four", memory__disable_radix_cache=True, memory__max_running_requests=4)
    assert proofs(no_radix, FAILING, [tried]) == ()


def test_a_remedy_may_change_the_version() -> None:
    newer = remedy(engine__version="0.5.16")
    assert len(proofs(newer, FAILING, [record("newer", engine__version="0.5.16")])) == 1


def test_a_remedy_of_the_workload_alone_is_proved_by_no_server() -> None:
    assert proofs(remedy(workload__output_tokens=16), FAILING, [record("same")]) == ()


EMULATING = FAILING.replace(
    {"model": "Qwen/Qwen3.6-27B", "gpu.emulate": "rtx-pro-6000", "memory.mem_fraction_static": 0.75}
)
#: What 0.75 of an RTX PRO 6000 is of an H200: 0.75 × 94.3063 GiB / 139.1933 GiB, as recorded.
PASSED = 0.5081403


def plain_card(name: str, fraction: float, **changes: Any) -> RunRecord:
    return record(name, model="Qwen/Qwen3.6-27B", memory__mem_fraction_static=fraction, **changes)


def test_where_one_run_emulates_the_passed_fractions_are_compared_and_named() -> None:
    near = plain_card("near", 0.5088, memory__max_running_requests=4)
    far = plain_card("far", 0.52, memory__max_running_requests=4)
    asked_alike = plain_card("asked-alike", 0.75, memory__max_running_requests=4)
    (found,) = proofs(FOUR, EMULATING, [far, asked_alike, near])
    assert (found.record.name, list(found.other)) == ("near", ["memory.mem_fraction_static as passed"])
    here, there = found.other["memory.mem_fraction_static as passed"]
    assert (round(here, 5), there) == (round(PASSED, 5), 0.5088)


def test_the_recorded_passed_fraction_of_a_run_that_emulates_is_taken() -> None:
    config = EMULATING.replace({"name": "emulated", "memory.max_running_requests": 4})
    status = RunStatus(status="served", origin="recorded", reason="ready")
    tried = RunRecord(Path("emulated"), status, config, {"emulation": {"passed": 0.5099}})
    failing = plain_card("failing", 0.508124).config
    (found,) = proofs(FOUR, failing, [tried])
    assert found.other == {"memory.mem_fraction_static as passed": (0.508124, 0.5099)}
    same = RunRecord(Path("emulated"), status, config, {"emulation": {"passed": 0.508124}})
    assert [one.other for one in proofs(FOUR, failing, [same])] == [{}]


def test_a_remedy_of_the_fraction_is_compared_as_it_would_be_passed() -> None:
    larger = remedy(memory__mem_fraction_static=0.8)  # of the RTX PRO 6000: 0.8 / 0.75 × 0.50814 = 0.54202 of the H200
    names = [one.record.name for one in proofs(larger, EMULATING, [plain_card("a", 0.542), plain_card("b", 0.8)])]
    assert names == ["a"]


def test_the_drafts_own_width_is_that_width() -> None:
    records = Path(__file__).parent / "records"
    failing, tried = (RunRecord.open(records / name) for name in ("h200_dflash-8", "tp2_dflash_r8"))
    assert failing.config.speculative.num_draft_tokens == 16
    assert tried.config.speculative.num_draft_tokens is None  # the draft's block of 16
    two_gpus = remedy(parallel__tp_size=2, gpu__count=2)
    (found,) = proofs(two_gpus, failing.config, [tried])
    assert list(found.other) == ["memory.mem_fraction_static as passed"]
    assert found.other["memory.mem_fraction_static as passed"][1] == 0.5088


def without_graphs(**changes: Any) -> Remedy:
    flag = {"engine.args.disable-cuda-graph": True}
    return dataclasses.replace(
        remedy(**changes),
        set=flag,
        basis="recording",
        verdict=None,
        decided_by=("engine.version", "engine.args.attention-backend", "speculative.algorithm"),
    )


TRITON = FAILING.replace({"engine.args": {"attention-backend": "triton"}})


def of_triton(name: str, **changes: Any) -> RunRecord:
    flags = {"engine__args": {"attention_backend": "triton", "disable_cuda_graph": True}}
    return record(name, **(flags | changes))


def test_a_remedy_that_is_not_about_memory_may_differ_in_memory_and_names_it() -> None:
    more = of_triton("more", memory__max_running_requests=16, parallel__tp_size=2, gpu__count=2)
    (found,) = proofs(without_graphs(), TRITON, [more])
    assert found.other == {"parallel.tp_size": (1, 2), "memory.max_running_requests": (8, 16)}


def test_what_decides_whether_the_engine_has_the_fault_may_not_differ() -> None:
    others = [
        of_triton("version", engine__version="0.5.16"),
        of_triton("algorithm", speculative={"algorithm": "NGRAM"}),
        of_triton("backend", engine__args={"attention-backend": "fa3", "disable-cuda-graph": True}),
        of_triton("graphs", engine__args={"attention-backend": "triton"}),
    ]
    assert proofs(without_graphs(), TRITON, others) == ()
