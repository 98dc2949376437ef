"""A run proves a remedy when it has the remedy's values and is otherwise (nearly) the same configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specbench.config import RunConfig
from specbench.diagnose import Remedy
from specbench.proofs import proof
from specbench.record import RunRecord
from specbench.record_types import RunStatus

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
    found = proof(FOUR, FAILING, [record("same"), four])
    assert found is not None
    assert (found.record.name, found.other) == ("four", {})


def test_a_near_miss_counts_with_its_difference_named() -> None:
    near = record("near", memory__max_running_requests=4, memory__mem_fraction_static=0.51)
    found = proof(FOUR, FAILING, [near])
    assert found is not None
    assert found.other == {"memory.mem_fraction_static": (0.508124, 0.51)}


def test_the_closest_run_wins() -> None:
    near = record("near", memory__max_running_requests=4, memory__mem_fraction_static=0.51)
    exact = record("exact", memory__max_running_requests=4)
    found = proof(FOUR, FAILING, [near, exact])
    assert found is not None
    assert found.record.name == "exact"


def test_another_version_model_or_three_other_keys_prove_nothing() -> None:
    others = [
        record("version", memory__max_running_requests=4, engine__version="0.5.16"),
        record("model", memory__max_running_requests=4, model="n"),
        record(
            "far",
            memory__max_running_requests=4,
            parallel__tp_size=2,
            memory__page_size=64,
            memory__context_length=1024,
        ),
        record("wrong-value", memory__max_running_requests=2),
    ]
    assert proof(FOUR, FAILING, others) is None


def test_a_remedy_may_change_the_version() -> None:
    newer = remedy(engine__version="0.5.16")
    found = proof(newer, FAILING, [record("newer", engine__version="0.5.16")])
    assert found is not None


def test_a_remedy_of_the_workload_alone_is_proved_by_no_server() -> None:
    assert proof(remedy(workload__output_tokens=16), FAILING, [record("same")]) is None
