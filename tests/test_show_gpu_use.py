"""The pages on the GPUs' memory: back, not back, not checked, and of a name that would be markup."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from specbench import show
from specbench.errors import RecordError
from specbench.host.gpu_use import GpuMemory, Holder, InUse
from specbench.records.record import RunRecord
from specbench.studies.study import study
from specbench.units import MIB

RECORD = Path(__file__).parent / "records" / "nospec_r8"
TOTAL = 143_771 * MIB


def use(used_mib: int, *holders: Holder) -> InUse:
    return InUse(
        gpu=0, used_bytes=used_mib * MIB, free_bytes=TOTAL - used_mib * MIB, total_bytes=TOTAL, holders=holders
    )


HELD = GpuMemory(
    before=(use(618),),
    after=(use(3690, Holder(pid=7, name="<b>x</b>", used_bytes=3000 * MIB, ours=True)),),
    is_back=False,
    tolerance_bytes=256 * MIB,
    waited_s=30.0,
)


def record_with(folder: Path, gpu_memory: Any) -> RunRecord:
    """A real start whose env.json holds these readings."""
    shutil.copytree(RECORD, folder / "record")
    env = json.loads((folder / "record" / "env.json").read_text("utf-8"))
    (folder / "record" / "env.json").write_text(json.dumps({**env, "gpu_memory": gpu_memory}), encoding="utf-8")
    return RunRecord.open(folder)


def test_memory_that_is_still_held_is_a_banner_and_a_row_on_every_page_of_the_run(tmp_path: Path) -> None:
    record = record_with(tmp_path, asdict(HELD))
    course, notes = show.course(record), show.notes(study(tmp_path))
    told = "still 3,072 MiB above baseline on GPU 0 after 30 s"
    for shown in (course, notes):
        assert f"GPU memory was not back after this server had ended: {told}" in shown.text
        assert '<p class="caveat">GPU memory was not back' in shown.html
        assert "<b>" not in shown.html
    assert "pid 7 (&lt;b&gt;x&lt;/b&gt;, of this server) 3,000 MiB" in course.html
    assert [word for word in ("618", "3,690", "3,072") if word not in course.text] == []


def test_memory_that_is_back_is_said_without_a_banner(tmp_path: Path) -> None:
    record = record_with(tmp_path, asdict(replace(HELD, after=(use(618),), is_back=True)))
    shown = show.course(record)
    assert "GPU memory after the end: back at baseline." in shown.text
    assert "caveat" not in shown.html


def test_what_was_not_checked_says_why_and_what_was_not_recorded_says_nothing(tmp_path: Path) -> None:
    unread = GpuMemory(
        before=(), after=(), is_back=None, tolerance_bytes=0, reason="no NVML on this machine: no driver"
    )
    assert "GPU memory after the end: not checked: no NVML on this machine: no driver." in (
        show.course(record_with(tmp_path, asdict(unread))).text
    )
    assert RunRecord.open(RECORD).gpu_memory is None
    assert "GPU memory" not in show.course(RunRecord.open(RECORD)).text


def test_readings_of_a_wrong_form_are_a_record_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"env\.json: gpu_memory: "):
        _ = record_with(tmp_path, {"before": 3}).gpu_memory
