"""The README is true: its commands run, its paths exist, its tree is the tree."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

#: `make` does all set-up and calls this very test: CI runs both targets itself (.ci/run).
NOT_HERE = ("make ",)


def commands() -> list[str]:
    """Every line of every sh block. A bash block is for a GPU host, which no test has."""
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(NOT_HERE)]


def test_the_readme_has_commands_of_every_kind():
    verbs = {tuple(shlex.split(line)[:2])[-1] for line in commands() if line.startswith("specbench")}
    assert verbs >= {"predict", "diagnose", "run", "report", "doctor"}
    assert any(line.startswith("papermill notebooks/") for line in commands())


@pytest.fixture(scope="module")
def workbook(tmp_path_factory):
    """A copy of the workbook, so that what commands write stays out of the tree; a shorter campaign is its demo."""
    copy = tmp_path_factory.mktemp("readme")
    for name in ("notebooks", "params"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tests").mkdir()
    (copy / "tests" / "records").symlink_to(ROOT / "tests" / "records")
    (copy / "params" / "demo.yaml").write_text(
        "campaign: demo\n"
        "points:\n"
        "  - {params: recordings/h200_story-8.yaml, name: story-8, engine.replay_speed: instant}\n",
        encoding="utf-8",
    )
    return copy


@pytest.mark.slow
def test_every_command_runs_in_the_order_of_the_readme(workbook):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for line in commands():
        done = subprocess.run(
            shlex.split(line),
            cwd=workbook,
            env={**os.environ, "PATH": path, "COLUMNS": "100"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert (workbook / "runs" / "demo" / "index.html").stat().st_size > 10_000
    assert (workbook / "out.ipynb").exists()


@pytest.mark.parametrize("page", ["README.md", "docs/h200.md", "oracle/README.md"])
def test_paths_in_the_text_exist(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for path in set(re.findall(r"`((?:specbench|params|notebooks|tests|benchmarks|live|docs)/[\w./<>-]*)`", text)):
        if "<" not in path:
            assert (ROOT / path).exists(), path
    for path in re.findall(r"\]\(([^):#]+)\)", text):
        assert ((ROOT / page).parent / path).exists(), path


def test_the_cards_and_models_that_the_readme_names_are_known():
    from specbench.gpus import gpu_by_usual_name, known_gpus
    from specbench.specs import by_usual_name, known_models

    asked = re.findall(r"--model ([\w./-]+)", README)
    cards = re.findall(r"--gpu ([\w-]+)", README)
    assert asked and all(by_usual_name(name) in known_models() for name in asked)
    assert cards and all(gpu_by_usual_name(name) in known_gpus() for name in cards)


def test_the_tree_names_what_is_there():
    (tree,) = re.findall(r"^```text\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    package = {file.stem if file.suffix == ".py" else file.name for file in (ROOT / "specbench").iterdir()}
    for line in tree.splitlines():
        names = re.split(r"\s{2,}", line.strip())[0]
        folder = ROOT / "specbench" if line.startswith("  ") else ROOT
        for name in re.split(r"[,\s]+", names):
            found = (folder / name).exists() or name.rstrip("/") in package
            assert found, f"README's tree names {name!r}"
    notebooks = {file.stem for file in (ROOT / "notebooks").glob("*.ipynb")}
    assert notebooks == set(re.findall(r"^\| `(\d_\w+)` \|", README, re.MULTILINE))


def test_every_command_has_help_with_an_example():
    from typer.main import get_command

    from specbench.cli import app

    group = get_command(app)
    assert set(group.commands) == {
        "predict",
        "plan",
        "run",
        "diagnose",
        "report",
        "notebooks",
        "import",
        "offsets",
        "doctor",
    }
    for name, command in group.commands.items():
        assert f"specbench {name}" in (command.help or ""), f"{name}: no example in its help"


def test_the_reference_of_params_keys_is_current():
    from specbench.configuration.reference import markdown

    assert (ROOT / "docs" / "params.md").read_text(encoding="utf-8") == markdown(), "run `make docs`"
