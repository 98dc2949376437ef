"""`specbench doctor --engine`: what an installed engine has, without and with asking the engine itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specbench.cli import app
from specbench.engines.sglang.sizing import assumed_sizing
from specbench.host import nvml
from specbench.host.gpu_use import Holder, InUse

#: Argument definitions that are run by --help and read as text: an engine without a flag for the state's type.
DEFINITIONS = """
def add_cli_args(parser):
    parser.add_argument("--model-path", help="Weights.")
    parser.add_argument("--port", type=int)
    parser.add_argument("--speculative-algorithm", help="Builtins: EAGLE, DFLASH. Or a plug-in's.")
    parser.add_argument("--attention-backend", choices=["triton", "fa3"])
"""
LACKED = "memory.mamba_ssm_dtype"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    from specbench.engines.sglang.flags import FLAGS, spellings_of

    package = tmp_path / "sglang"
    (package / "srt" / "speculative").mkdir(parents=True)
    flags = [spellings_of(key)[0] for key in FLAGS if key not in (LACKED, "speculative.algorithm")]
    more = "".join(f"    parser.add_argument('--{flag}')\n" for flag in flags)
    (package / "srt" / "server_args.py").write_text(DEFINITIONS + more)
    (package / "srt" / "speculative" / "spec_info.py").write_text(
        "class SpeculativeAlgorithm(Enum):\n    DFLASH = auto()\n    EAGLE = auto()\n    NONE = auto()\n"
    )
    (package / "__init__.py").touch()
    (package / "_version.py").write_text("__version__ = version = '0.5.16'\n")
    (package / "launch_server.py").write_text(
        "import argparse\n"
        "from sglang.srt.server_args import add_cli_args\n"
        "parser = argparse.ArgumentParser()\n"
        "add_cli_args(parser)\n"
        "parser.parse_args()\n"
    )
    return tmp_path


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specbench", "doctor", *arguments], capture_output=True, text=True, timeout=300
    )


def engine(site: Path, *arguments: str) -> dict[str, Any]:
    done = doctor("--engine", sys.executable, "--env", f"PYTHONPATH={site}", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)["engine"]
    return told


def test_what_its_files_say(site: Path) -> None:
    told = engine(site)
    assert (told["version"], told["folder"]) == ("0.5.16", str(site / "sglang"))
    assert told["algorithms"] == ["DFLASH", "EAGLE"]
    assert told["lacks"] == {LACKED: "--mamba-ssm-dtype"}
    assert told["known_from"] == f"the source files in {site}/sglang"
    assert told["help"] is None
    assert told["sizing"] is None


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.5.24", "sglang 0.5.24 is later than any whose sizing was read; the sizing rules of 0.5.23 are assumed."),
        ("0.5.16.post1", "sglang 0.5.16.post1: its sizing was not read; the sizing rules of 0.5.16 are assumed."),
        ("0.5.5", "sglang 0.5.5 is older than 0.5.6, the oldest whose sizing is known: nothing is predicted."),
        (
            "0.0.0.dev1+g977830e91",
            (
                "sglang 0.0.0.dev1+g977830e91 is a development build: engine.sizing names the release whose sizing it "
                "follows."
            ),
        ),
        ("mine", "sglang mine: no version by which a sizing rule could be chosen; engine.sizing names a release."),
        ("0.5.12.post1", None),
    ],
)
def test_whose_sizing_is_assumed(version: str, said: str | None) -> None:
    assert assumed_sizing(version) == said


def test_doctor_says_whose_sizing_is_assumed(site: Path) -> None:
    (site / "sglang" / "_version.py").write_text("__version__ = version = '0.5.24'\n")
    done = doctor("--engine", sys.executable, "--env", f"PYTHONPATH={site}")
    assert "the sizing rules of 0.5.23 are assumed" in " ".join(done.stdout.split())


def test_what_it_says_itself(site: Path) -> None:
    told = engine(site, "--thorough")
    assert told["help"] == {"algorithms": ["EAGLE", "DFLASH"], "flags": told["flags"] + 1, "reason": None}  # --help
    (site / "sglang" / "srt" / "speculative" / "spec_info.py").unlink()
    (site / "sglang" / "srt" / "arg_groups" / "fields").mkdir(parents=True)
    (site / "sglang" / "srt" / "arg_groups" / "fields" / "x.py").write_text("def (:\n")
    unread = engine(site)
    assert (unread["flags"], unread["algorithms"], unread["lacks"]) == (None, None, None)
    asked = engine(site, "--thorough")
    assert (asked["flags"], asked["algorithms"]) == (told["flags"] + 1, ["EAGLE", "DFLASH"])
    assert asked["known_from"] == "the engine's own --help"


def test_an_engine_that_cannot_be_imported_says_why(site: Path) -> None:
    (site / "sglang" / "launch_server.py").write_text("import torch_that_is_not_there\n")
    told = engine(site, "--thorough")
    assert told["help"]["reason"] == "ModuleNotFoundError: No module named 'torch_that_is_not_there'"
    assert told["algorithms"] == ["DFLASH", "EAGLE"]


def test_for_people(site: Path) -> None:
    done = doctor("--engine", sys.executable, "--env", f"PYTHONPATH={site}")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "algorithms DFLASH, EAGLE" in said
    assert f"keys without flag {LACKED} (--mamba-ssm-dtype)" in said


def test_a_gpu_that_cannot_be_read_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> tuple[nvml.MemoryReading, ...]:
        raise RuntimeError("GPU is lost")

    monkeypatch.setattr(nvml, "memory_reader", lambda: lost)
    monkeypatch.setattr(nvml, "names", lambda: nvml.GpuNames(names=("NVIDIA H200",), driver="580.1"))
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["gpus"], told["driver"]) == ([], "580.1")
    assert told["gpu_reason"] == "the GPUs' memory could not be read: GPU is lost"
    assert told["can"]["start real servers"] is False


def test_names_that_cannot_be_read_are_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class LostError(Exception):
        pass

    class Library:
        NVMLError = LostError

        @staticmethod
        def nvmlDeviceGetName(handle: int) -> str:  # noqa: N802  (as the library has it)
            raise LostError("GPU is lost")

    monkeypatch.setattr(nvml, "_connect", lambda: (Library, [0]))
    assert nvml.names() == "the GPUs' names could not be read: GPU is lost"


def test_a_variable_without_a_name() -> None:
    done = doctor("--env", "=x")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: --env: got '=x'.",
        "Expected NAME=VALUE, e.g. --env PYTHONPATH=/opt/sglang/site.",
    ]


def test_eight_cards_are_told_by_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven are idle; who holds the memory of the other stands under that one."""
    total, idle = 143_771 * 2**20, 618 * 2**20
    used = [idle + 70_000 * 2**20 * (gpu == 5) for gpu in range(8)]
    held = (Holder(pid=1234, name="other", used_bytes=70_000 * 2**20),)
    uses = [
        InUse(gpu=gpu, used_bytes=mine, free_bytes=total - mine, total_bytes=total, holders=held if gpu == 5 else ())
        for gpu, mine in enumerate(used)
    ]
    readings = [nvml.MemoryReading(gpu, mine, total - mine, total) for gpu, mine in enumerate(used)]
    monkeypatch.setattr(nvml, "memory_reader", lambda: lambda: readings)
    monkeypatch.setattr(nvml, "use_reader", lambda: lambda: tuple(uses))
    monkeypatch.setattr(nvml, "names", lambda: nvml.GpuNames(names=("NVIDIA H200",) * 8, driver="580.1"))
    lines = [line.strip() for line in CliRunner().invoke(app, ["doctor"]).output.splitlines()]
    place = next(number for number, line in enumerate(lines) if line.startswith("GPU 0 to 4, 6 and 7"))
    assert [line.split("  ")[0] for line in lines[place : place + 4 : 2]] == ["GPU 0 to 4, 6 and 7", "GPU 5"]
    assert "71.44 GiB free of 140.40 GiB" in lines[place + 2]
    assert "held by pid 1234 (other) 70,000 MiB" in lines[place + 3]


def test_what_a_killed_run_left_is_named_and_cleaned_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("specbench.lifecycle.leftovers.left_over", dict)
    folder = tmp_path / "sb-0123abcd"
    folder.mkdir()
    (folder / ".specbench-mark").write_text(f"a-mark\n{os.uname().nodename}\n")

    def told(*arguments: str) -> list[str]:
        done = CliRunner().invoke(app, ["doctor", "--json", *arguments])
        return [path for path in json.loads(done.stdout)["left_over_folders"] if path.startswith(str(tmp_path))]

    shown = " ".join(CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "300"}).stdout.split())
    assert f"left behind temporary folder of a server whose run was killed: {folder}; the next start" in shown
    assert told() == [str(folder)]
    assert told("--clean") == []
    assert not folder.exists()
