"""A run proves a remedy when it has the remedy's values and is otherwise (nearly) the same configuration."""

from __future__ import annotations

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
