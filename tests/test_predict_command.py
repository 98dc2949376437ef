"""`specbench predict` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STORY = ROOT / "params" / "story"


def predict(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specbench", "predict", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "COLUMNS": "120"},
    )


@pytest.mark.parametrize(
    ("arguments", "code", "limits", "verdict"),
    [
        (["tp1-4.yaml"], 0, (24, 87061, 4), "serves"),
        (["tp1-8.yaml"], 1, (2, 11893, 0), "refused"),
        (["tp1-8.yaml", "--set", "memory.max_running_requests=4"], 0, (24, 87061, 4), "serves"),
    ],
)
def test_the_story_measured(arguments: list[str], code: int, limits: tuple[int, ...], verdict: str) -> None:
    # 0.75 × 94.40 - 51.2089 = 19.5911 GiB
    measured = ["--pre-gib", "94.40", "--post-gib", "43.1911", "--strict", "--json"]
    done = predict(STORY / arguments[0], *arguments[1:], *measured)
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout)
    assert found["basis"] == "measured"
    assert tuple(found["limits"][name] for name in ("state_slots", "kv_tokens", "running_requests")) == limits
    assert found["verdict"] == verdict
    assert found["requested"]["running_requests"] in (4, 8)


def test_from_the_configuration_alone_the_story_lies_in_the_interval() -> None:
    done = predict(STORY / "tp1-8.yaml", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["basis"] == "config" and found["verdict"] == "refused"
    low, high = found["intervals"]["kv_tokens"]
    assert low <= 11893 <= high
    low, high = found["intervals"]["state_slots"]
    assert low <= 2 <= high


@pytest.mark.parametrize("name", ["tp4-8.yaml", "tp8-8.yaml"])
def test_more_gpus_serve_the_eight(name: str) -> None:
    done = predict(STORY / name, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["limits"]["running_requests"] == 8


def test_text_says_what_it_is() -> None:
    done = predict(STORY / "tp1-8.yaml")
    for words in ("predicted: refused", "GiB per rank", "the configuration alone, nothing measured", "capture_bs=[0]"):
        assert words in done.stdout
    assert "graphs" in done.stdout and "not predicted" in done.stdout


def test_bad_input_is_two_lines_and_exit_2() -> None:
    done = predict(STORY / "tp1-8.yaml", "--set", "memory.max_runing_requests=4")
    assert done.returncode == 2
    assert "did you mean" in done.stderr.lower() and "Traceback" not in done.stderr
    done = predict(STORY / "tp1-8.yaml", "--pre-gib", "94")
    assert done.returncode == 2 and "--post-gib" in done.stderr


def test_predicting_imports_nothing_heavy() -> None:
    code = (
        "import sys; from specbench.budget import predict; from specbench.engines.sglang import command; "
        "print(sorted({'pandas','matplotlib','seaborn','papermill','nbconvert','IPython','aiohttp','pynvml','numpy'} "
        "& set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"
