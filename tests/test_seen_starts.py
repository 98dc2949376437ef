"""Whose kernels are compiled: those of runs on this machine, not those of records that were copied here."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from specbench.campaign.bill import Clock, bill
from specbench.campaign.seen_starts import SeenStarts
from specbench.campaign.start_rows import kind_of
from specbench.configuration.config import RunConfig
from specbench.host import machine as host
from specbench.host.gpu_use import GpuMemory, InUse
from specbench.params import load_run
from specbench.records.record import RunRecord
from specbench.records.types import RunStatus
from specbench.records.writer import RecordWriter

ROOT = Path(__file__).parent.parent
#: Of one H200, 0.5.16, from data/durations.yaml: the first start of a version compiles its kernels.
COLD_S, WARM_S = 137.5, 44.5


def config(**changes: Any) -> RunConfig:
    return load_run(ROOT / "params" / "h200" / "0.5.16.yaml").replace(
        {key.replace("__", "."): value for key, value in changes.items()}
    )


def uses(*uuids: str) -> tuple[InUse, ...]:
    return tuple(
        InUse(gpu=index, used_bytes=0, free_bytes=1, total_bytes=1, uuid=uuid) for index, uuid in enumerate(uuids)
    )


def record(root: Path, name: str, ready_s: float, *uuids: str, at_s: float = 0.0) -> RunRecord:
    """A run that was measured on the machine with these GPUs; none: an older record, which does not tell."""
    memory = GpuMemory(before=uses(*uuids), after=uses(*uuids), is_back=True, tolerance_bytes=0)
    with RecordWriter(root / name / "record") as writer:
        writer.config(config(name=name))
        writer.command(["python"])
        writer.env({"gpu_memory": dataclasses.asdict(memory)} if uuids else {})
        writer.log_path.write_text("", encoding="utf-8")
        return writer.finish(
            RunStatus(
                status="served",
                origin="measured",
                reason="test",
                ready_s=ready_s,
                started_unix_s=at_s,
                phases={"start": ready_s},
            )
        )


def here(monkeypatch: pytest.MonkeyPatch, *uuids: str) -> None:
    monkeypatch.setattr(host, "gpu_use", lambda: uses(*uuids) or "no NVML on this machine")


@pytest.mark.parametrize(
    ("theirs", "ours", "where"),
    [
        (("GPU-a",), ("GPU-a", "GPU-b"), None),
        (("GPU-a",), ("GPU-b",), "on another machine"),
        (("GPU-a",), (), "on a machine that may be another (its GPUs, or those here, are not known)"),
        ((), ("GPU-a",), "on a machine that may be another (its GPUs, or those here, are not known)"),
    ],
)
def test_kernels_of_another_machine_are_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: tuple[str, ...], ours: tuple[str, ...], where: str | None
) -> None:
    """On the machine of the record its 51.0 s count; on another the first start compiles, and the next takes 51.0 s."""
    record(tmp_path, "a", 51.0, *theirs)
    here(monkeypatch, *ours)
    told = bill([config(name="b"), config(name="c")], tmp_path)
    assert [cost.start_s for cost in told.costs] == [51.0 if where is None else COLD_S, 51.0]
    notes = () if where is None else (f"the kernels of 0.5.16 were compiled {where}; counted as to be compiled again",)
    assert told.notes == notes


def test_a_start_that_compiled_is_no_measure_of_those_that_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of a machine took 170.0 s, the second 48.0: halfway between 44.5 and 137.5 is 91.0. The list is in the
    campaign's order, not in that of time."""
    here(monkeypatch, "GPU-a")
    record(tmp_path, "z", 170.0, "GPU-a", at_s=1.0)
    assert Clock(tmp_path).cost(config()).start_s == WARM_S  # none was seen
    record(tmp_path, "b", 48.0, "GPU-a", at_s=2.0)
    assert Clock(tmp_path).cost(config()).start_s == 48.0
    here(monkeypatch, "GPU-b")
    assert [cost.start_s for cost in bill([config(), config()], tmp_path).costs] == [170.0, 48.0]
    # a later start is slow for another reason than kernels
    here(monkeypatch, "GPU-a")
    record(tmp_path, "c", 100.0, "GPU-a", at_s=3.0)
    assert Clock(tmp_path).cost(config()).start_s == 100.0


def test_a_start_of_this_call_is_the_first_though_it_was_expected(tmp_path: Path) -> None:
    """Else every further start of a deadline would be thought to take as long, and be left."""
    clock = Clock()
    first = config(name="first")
    assert clock.cost(first).start_s == COLD_S
    clock.expect(first)
    clock.saw(record(tmp_path, "first", 150.0))
    assert clock.cost(config()).start_s == WARM_S
    clock.expect(config(name="second"))
    clock.saw(record(tmp_path, "second", 46.0))
    assert clock.cost(config()).start_s == 46.0


def test_starts_on_the_cpu_teach_of_as_many_ranks_and_compile_nothing() -> None:
    """The live records of one rank, 86.598 and then 92.559 s: the newest counts; nothing of four ranks is known."""
    live = ROOT / "tests" / "live" / "records"
    records = [RunRecord.open(live / name) for name in ("dflash-4", "dflash-capped-4")]
    newest = max(records, key=lambda record: record.status.started_unix_s or 0.0)
    found = SeenStarts(here=frozenset)
    found.read(records)
    one = records[0].config
    assert found.seconds(kind_of(one), False) == newest.status.ready_s
    assert not found.compiles(one) and found.elsewhere(one) is None and found.seconds(kind_of(one), True) is None
    four = RunRecord.open(live / "tp4-dflash-from-memory").config
    assert not found.compiles(four) and found.seconds(kind_of(four), False) is None
