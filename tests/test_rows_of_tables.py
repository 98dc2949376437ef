"""Rows that records of real starts propose for the tables of GPUs and of durations: those that were written by hand."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from specbench.cli import app
from specbench.gpu_table import check_table
from specbench.paths import DATA
from specbench.reading import duration_rows, gpu_rows
from specbench.records.record import RunRecord

RECORDS = Path(__file__).parent / "records"
GPUS = yaml.safe_load((DATA / "gpus.yaml").read_text(encoding="utf-8"))
STARTS = yaml.safe_load((DATA / "durations.yaml").read_text(encoding="utf-8"))["starts"]


def opened(*patterns: str) -> list[RunRecord]:
    return [
        RunRecord.open(folder) for pattern in patterns for folder in sorted(RECORDS.glob(pattern)) if folder.is_dir()
    ]


def sizes(row: Mapping[str, Any]) -> dict[str, Any]:
    """Without the words."""
    figures = {key: row[key] for key in ("versions", "low", "point", "high") if key in row}
    return figures | ({"taken": sizes(row["communication_gib"])} if "communication_gib" in row else {})


@pytest.mark.parametrize(
    ("ranks", "patterns", "words"),
    [
        (
            *(2, ("h200-tp2_*", "tp2_*")),
            (
                "measured: 13 starts log 138.21 on every rank; NVML shows 138.2132 when the solver read in 10 of them",
                (
                    "measured: 13 starts log 1.07 on every rank; NVML saw 1.0723 to 1.0742 go in 10 of them; in 10 of "
                    "13 NCCL's NVLink multicast was off (NCCL_NVLS_ENABLE=0)"
                ),
                "measured: 4 starts log 138.28 on every rank; NVML shows 138.2796 when the solver read in 3 of them",
                (
                    "measured: 4 starts log 1.01 on every rank; NVML saw 1.0059 to 1.0078 go in 3 of them; in 3 of 4 "
                    "NCCL's NVLink multicast was off (NCCL_NVLS_ENABLE=0)"
                ),
            ),
        ),
        (
            *(4, ("tp4_*",)),
            (
                "measured: 2 starts log 137.99 on the smallest rank (138.22 on the largest)",
                (
                    "measured: 2 starts log 1.25, 1.30, 1.30 and 1.06 on ranks 0 to 3; the records do not say whether "
                    "NCCL's NVLink multicast was off (NCCL_NVLS_ENABLE=0)"
                ),
                "measured: 1 start logs 138.00 on the smallest rank (138.24 on the largest)",
                (
                    "measured: 1 start logs 1.23, 1.28, 1.28 and 1.05 on ranks 0 to 3; the records do not say whether "
                    "NCCL's NVLink multicast was off (NCCL_NVLS_ENABLE=0)"
                ),
            ),
        ),
    ],
)
def test_starts_propose_the_rows_of_the_gpu_table(
    ranks: int, patterns: tuple[str, ...], words: tuple[str, ...]
) -> None:
    found = gpu_rows.gpu_rows(opened(*patterns))
    assert found.without == ()
    rows = found.rows["h200"][ranks]
    assert [*found.rows] == ["h200"] and [*found.rows["h200"]] == [ranks]
    assert [sizes(row) for row in rows] == [sizes(row) for row in GPUS["h200"]["free_gib"][ranks]]
    assert tuple(text for row in rows for text in (row["source"], row["communication_gib"]["source"])) == words
    proposed = yaml.safe_load(gpu_rows.as_yaml(found))
    check_table({"h200": {"title": "a card", "total_mib": 143_771} | proposed["h200"]})


def test_one_gpu_has_no_other_rank() -> None:
    """q35b_nextn_r16 has 0.02 GiB less than all others."""
    (row,) = gpu_rows.gpu_rows(opened("h200_dflash-*", "q35b_nextn_r16")).rows["h200"][1]
    assert sizes(row) == {
        "versions": ["0.5.16"],
        "low": 139.10,
        "point": 139.13,
        "high": 139.14,
        "taken": {"low": 0.08, "point": 0.09, "high": 0.10},
    }
    assert row["source"].startswith("measured: 7 starts log 139.13 (1 of them 139.11); NVML shows 139.1937 when the ")
    assert row["communication_gib"]["source"] == "measured: 7 starts log 0.09; NVML saw 0.0918 go in 6 of them"


def changed(tmp_path: Path, file: str, before: str, after: str) -> RunRecord:
    """tp4_nospec_r8 with another text in one of its files."""
    shutil.copytree(RECORDS / "tp4_nospec_r8", tmp_path / "changed")
    path = tmp_path / "changed" / file
    text = path.read_text(encoding="utf-8")
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")
    return RunRecord.open(tmp_path / "changed")


@pytest.mark.parametrize(
    ("file", "before", "after", "reason"),
    [
        # 150,105,751,552 free of an idle card, 1 GiB less
        (
            "gpu.csv",
            "0.0,before,0,648019968,150105751552",
            "0.0,before,0,1721761792,149032009728",
            "others held 1.00 GiB",
        ),
        ("config.yaml", "pp_size: 1", "pp_size: 2", "the table is by tensor-parallel ranks"),
        ("config.yaml", "replay: null", "replay: some/record", "a replay"),
        # An H200 has 143,771 MiB (nvidia-smi), 140.40 GiB.
        ("server.log", "TP3] Load weight begin. avail mem=", "TP3] Load weight begin. avail mem=-", "its log has -13"),
        (
            "server.log",
            "TP3] Load weight begin. avail mem=",
            "TP3] Load weight begin. avail mem=9",
            "its log has 913",
        ),
        ("server.log", "TP3] Load weight begin", "TP3] Load weights", "the log does not print the free memory"),
        ("status.json", '"notes": [', '"notes": ["ANOTHER CARD: this machine has a T4", ', "it ran on another card"),
    ],
)
def test_a_start_that_tells_nothing_of_its_card_is_left_out(
    tmp_path: Path, file: str, before: str, after: str, reason: str
) -> None:
    found = gpu_rows.gpu_rows([changed(tmp_path, file, before, after)])
    assert found.rows == {}
    ((name, why),) = found.without
    assert name == "tp4_nospec_r8" and why.startswith(reason)
    assert gpu_rows.as_yaml(found).startswith(f"# {name}: no row: {reason}")


def test_of_a_card_whose_idle_memory_is_not_known_the_row_says_so(tmp_path: Path) -> None:
    (row,) = gpu_rows.gpu_rows([changed(tmp_path, "config.yaml", "name: h200", "name: b200")]).rows["b200"][4]
    assert row["source"] == (
        "measured: 1 start logs 137.99 on the smallest rank (138.22 on the largest); what an idle card has free is "
        "not known (idle_free_mib): other programs may have held some of it"
    )


def test_starts_propose_the_rows_of_the_durations() -> None:
    """Of one GPU no start was long for its kernels; of two the first of each version was. An older recording of a first
    start of 0.5.16 on two took longer, and stays."""
    one = duration_rows.duration_rows(opened("h200_*"))
    two = duration_rows.duration_rows(opened("h200-tp2_*"))
    cold = {"version": "0.5.16", "gpus": 2, "cuda_graphs": True, "cold": True, "seconds": 85.7}
    new = [cold | {"source": "h200-tp2_dflash-8"}]
    assert [row for row in (*one.rows, *two.rows) if row not in STARTS] == new
    assert (len(one.rows), len(two.rows)) == (2, 5)
    assert one.without == (("h200_story-8", "it was never ready"),)
    assert yaml.safe_load("starts:\n" + duration_rows.as_yaml(one))["starts"] == [*one.rows]
    older = duration_rows.duration_rows(opened("tp4_nospec_r8"))
    assert older.without == (("tp4_nospec_r8", "its time counts from the first use of the GPU"),)


def test_neither_table_has_rows_of_a_host() -> None:
    """Its memory is whatever else runs there; its times would be taken for those of an H200."""
    record = RunRecord.open(RECORDS.parent / "live" / "records" / "tp4-dflash-from-memory")
    free, times = gpu_rows.gpu_rows([record]), duration_rows.duration_rows([record])
    assert free.rows == {} and times.rows == ()
    assert free.without == (
        (record.name, "it ran on the CPU, whose free memory is the host's, and no figure of a card"),
    )
    assert times.without == (
        (record.name, "live/models/tiny-hybrid-tp on cpu: the table is of Qwen/Qwen3.6-27B on h200"),
    )


def test_weights_that_were_read_take_a_time_of_their_own(tmp_path: Path) -> None:
    record = changed(tmp_path, "config.yaml", "load-format: dummy", "load-format: auto")
    assert duration_rows.duration_rows([record]).without == (
        (record.name, "it read its weights from a disk, which the table leaves out"),
    )


def test_a_lone_start_may_have_compiled_its_kernels() -> None:
    (row,) = duration_rows.duration_rows(opened("h200-tp2_dflash-4")).rows
    assert (row["cold"], row["seconds"]) == (True, 32.3)


def test_the_command_prints_them() -> None:
    story = str(RECORDS / "h200-tp2_story-8")
    shown = CliRunner().invoke(app, ["offsets", story, "--table", "gpus"])
    assert shown.exit_code == 0
    assert yaml.safe_load(shown.stdout)["h200"]["free_gib"][2][0]["point"] == 138.28
    told = json.loads(CliRunner().invoke(app, ["offsets", story, "--table", "durations", "--json"]).stdout)
    assert [row["seconds"] for row in told["rows"]] == [113.0]
    none = CliRunner().invoke(app, ["offsets", str(RECORDS / "h200_story-8"), "--table", "durations"])
    assert (none.exit_code, none.stdout) == (1, "  # h200_story-8: no row: it was never ready\n")


def test_a_record_of_a_card_without_a_row_and_a_damaged_one_do_not_hide_the_others(tmp_path: Path) -> None:
    """A folder's name may hold newlines and escapes: it becomes a comment of the table that is printed."""
    for name in ("good", "far", "x\nh200: evil\x1b[31m\u202e"):
        shutil.copytree(RECORDS / "h200-tp2_story-8", tmp_path / name)
    config = tmp_path / "far" / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("name: h200\n", "name: mi300x\n"), encoding="utf-8")
    (tmp_path / "x\nh200: evil\x1b[31m\u202e" / "env.json").unlink()
    for table in ("offsets", "gpus", "durations"):
        shown = CliRunner().invoke(app, ["offsets", str(tmp_path), "--table", table])
        assert shown.exit_code == 0
        comments = [line.strip() for line in shown.stdout.splitlines() if line.strip().startswith("#")]
        assert comments[0].startswith("# far: no row: gpu.name: 'mi300x' is not in the GPU table")
        assert comments[1].startswith("# x h200: evil[31m: no row: ")
        assert yaml.safe_load(shown.stdout)
        assert "\x1b" not in shown.stdout and "\u202e" not in shown.stdout
