"""The stored notebooks obey the house rules, and the rules catch what they are for."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from specbench.cli import app
from specbench.configuration.config import SECTIONS
from specbench.errors import ConfigError, SpecbenchError
from specbench.params import load_run, load_sections
from specbench.paths import RUNS
from specbench.records.record import RunRecord
from specbench.workbook.cells import reject_unknown, sections
from specbench.workbook.hygiene import parameter_names, problems
from specbench.workbook.notebooks import NAMES, execute, refresh, stored

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_notebook_breaks_no_rule(name: str) -> None:
    assert problems(NOTEBOOKS / name) == []


def test_there_are_exactly_the_shipped_notebooks() -> None:
    assert sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")) == list(NAMES)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("1_predict.ipynb", ["params", *SECTIONS]),
        ("2_run.ipynb", ["params", *SECTIONS, "out"]),
        ("3_diagnose.ipynb", ["record", "told", "against", "recordings"]),
        ("4_analysis.ipynb", ["records"]),
        ("5_plan.ipynb", ["params", "want", "gpus", "keep", "draft", *SECTIONS]),
    ],
)
def test_the_parameters_cell_has_the_names_of_a_params_file(name: str, expected: list[str]) -> None:
    assert parameter_names(NOTEBOOKS / name) == expected


@pytest.mark.parametrize("name", ["1_predict.ipynb", "2_run.ipynb"])
def test_the_default_parameters_are_a_valid_instant_replay(name: str) -> None:
    config = load_sections(**sections(defaults(name)))
    assert config.engine.replay is not None
    assert config.engine.replay_speed == "instant"


def test_papermill_sees_every_parameter_with_its_comment() -> None:
    import papermill

    found = papermill.inspect_notebook(str(NOTEBOOKS / "2_run.ipynb"))
    assert list(found) == ["params", *SECTIONS, "out"]
    assert found["out"]["help"].startswith("folder of the run")
    assert found["model"]["help"].startswith("a config.json")


def defaults(name: str) -> dict[str, Any]:
    cells = json.loads((NOTEBOOKS / name).read_text("utf-8"))["cells"]
    source = next("".join(cell["source"]) for cell in cells if "parameters" in cell["metadata"].get("tags", []))
    values: dict[str, Any] = {}
    exec(source, values)  # our own file, literals only (problems() says so)
    del values["__builtins__"]
    return values


# ── the rules ────────────────────────────────────────────────────────────────────────────────────────────────────────


def markdown(identifier: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": identifier, "metadata": {}, "source": ["Words."]}


def code(
    identifier: str, source: str, *tags: str, outputs: tuple[Any, ...] = (), count: int | None = None
) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": identifier,
        "metadata": {"tags": list(tags)} if tags else {},
        "source": source.splitlines(keepends=True),
        "outputs": list(outputs),
        "execution_count": count,
    }


def printed(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": [text]}


PARAMETERS = code("p", "a = 1  # a number", "parameters")
VERDICT = code("v", "print(a + 1)", "nbval-check-output", outputs=(printed("2\n"),), count=1)


def notebook(
    path: Path, *cells: dict[str, Any], first: dict[str, Any] = PARAMETERS, last: dict[str, Any] = VERDICT
) -> Path:
    document = {
        "cells": [markdown("m1"), first, *cells, markdown("m2"), last],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_a_clean_notebook_has_no_problem(tmp_path: Path) -> None:
    assert problems(notebook(tmp_path / "n.ipynb")) == []


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (code("c", "def f():\n    return 1"), "'def' belongs in the package"),
        (code("c", "class A:\n    pass"), "'class' belongs in the package"),
        (code("c", "for x in y:\n    x"), "'for' belongs in the package"),
        (code("c", "%matplotlib inline"), "a magic or a shell line"),
        (code("c", "!ls"), "a magic or a shell line"),
        (code("c", "f();"), "a trailing ';'"),
        (code("c", "import sys\nsys.path.append('x')"), "sys.path"),
        (code("c", "a\n" * 9), "9 lines; at most 8"),
        (code("c", "a = ("), "no valid Python"),
        (code("c", "a", outputs=(printed("1\n"),), count=1), "stored output or execution count"),
        (code("c", "a", "nbval-skip"), "tagged nbval-skip"),
        (code("p", "a"), "two with the same"),
    ],
)
def test_what_a_cell_must_not_have(tmp_path: Path, cell: dict[str, Any], expected: str) -> None:
    found = problems(notebook(tmp_path / "n.ipynb", markdown("m3"), cell))
    assert len(found) == 1
    assert expected in found[0]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (code("p", "a = 1", "parameters"), VERDICT, "a: no trailing comment"),
        (code("p", "a = f(1)  # x", "parameters"), VERDICT, "a: no plain literal"),
        (code("p", "a = 1  # x\nimport os", "parameters"), VERDICT, "more than 'name = literal'"),
        (code("p", "a = 1  # x"), VERDICT, "exactly one cell tagged parameters"),
        (PARAMETERS, code("v", "print(a)"), "nbval would compare nothing"),
        (PARAMETERS, code("v", "print(a)", "nbval-check-output"), "without a stored output"),
        (
            PARAMETERS,
            code("v", "print(a)", "nbval-check-output", outputs=(printed("at 12:30:01\n"),), count=1),
            "'12:30:01', which differs",
        ),
        (
            PARAMETERS,
            code("v", "print(a)", "nbval-check-output", outputs=(printed("/home/x/y\n"),), count=1),
            "'/home/', which differs",
        ),
    ],
)
def test_what_the_first_and_the_last_cell_need(
    tmp_path: Path, first: dict[str, Any], last: dict[str, Any], expected: str
) -> None:
    found = problems(notebook(tmp_path / "n.ipynb", first=first, last=last))
    assert len(found) == 1
    assert expected in found[0]


def test_prose_stands_before_every_code_cell(tmp_path: Path) -> None:
    found = problems(notebook(tmp_path / "n.ipynb", code("c", "a")))
    assert found == ["n.ipynb: cell c: no markdown before it"]


def test_too_many_cells(tmp_path: Path) -> None:
    cells = [cell for number in range(11) for cell in (markdown(f"x{number}"), code(f"c{number}", "a"))]
    assert problems(notebook(tmp_path / "n.ipynb", *cells)) == ["n.ipynb: 13 code cells; at most 12"]


def test_a_file_that_is_no_notebook(tmp_path: Path) -> None:
    (tmp_path / "n.ipynb").write_text("{", encoding="utf-8")
    assert "no readable notebook" in problems(tmp_path / "n.ipynb")[0]


# ── refresh and execute ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_refresh_stores_only_the_checked_output_and_is_idempotent(tmp_path: Path) -> None:
    path = notebook(
        tmp_path / "n.ipynb", markdown("m3"), code("c", "a", outputs=(printed("old\n"),), count=7), last=VERDICT
    )
    first = refresh(path)
    path.write_bytes(first)
    assert refresh(path) == first
    cells = {cell["id"]: cell for cell in json.loads(first)["cells"]}
    assert (cells["c"]["outputs"], cells["c"]["execution_count"]) == ([], None)
    assert (cells["v"]["outputs"], cells["v"]["execution_count"]) == ([printed("2\n")], 1)
    assert cells["p"]["metadata"] == {"tags": ["parameters"]}
    assert problems(path) == []


@pytest.mark.slow
def test_runs_of_a_check_do_not_stay(tmp_path: Path) -> None:
    """What a notebook runs while it is checked goes to a folder that is gone afterwards."""
    before = os.environ.get(RUNS)
    told = tmp_path / "told"
    run = f"from specbench.paths import runs_root\n_ = open({str(told)!r}, 'w').write(str(runs_root()))\n"
    refresh(notebook(tmp_path / "n.ipynb", markdown("m3"), code("c", run + "runs_root().joinpath('x').mkdir()")))
    used = Path(told.read_text())
    # as every folder that the next process removes when this one was killed
    assert used.parent.name.startswith(f"specbench-{os.getpid()}-")
    assert not used.parent.exists()
    assert os.environ.get(RUNS) == before


@pytest.mark.slow
def test_refresh_of_a_notebook_that_fails_says_which_and_why(tmp_path: Path) -> None:
    path = notebook(tmp_path / "n.ipynb", markdown("m3"), code("c", "1 / 0"))
    with pytest.raises(SpecbenchError, match=r"n\.ipynb: a cell fails.*\n.*ZeroDivisionError"):
        refresh(path)


def test_a_verdict_that_is_not_printed_cannot_be_stored() -> None:
    cell = code("v", "a", "nbval-check-output", outputs=({"output_type": "execute_result", "data": {}},))
    document = {"cells": [cell], "metadata": {"kernelspec": {"name": "x"}, "language_info": {"name": "python"}}}
    with pytest.raises(SpecbenchError, match=r"must print plain text.*\nUse print"):
        stored(document)


@pytest.mark.slow
def test_execute_writes_the_notebook_and_returns_the_error(tmp_path: Path) -> None:
    path = notebook(tmp_path / "n.ipynb", markdown("m3"), code("c", "1 / (a - 2)"))
    assert execute(path, tmp_path / "fine.ipynb", {"a": 1}) is None
    assert execute(path, tmp_path / "failed.ipynb", {"a": 2}) == "ZeroDivisionError: division by zero"
    cells = json.loads((tmp_path / "failed.ipynb").read_text("utf-8"))["cells"]
    assert any(output["output_type"] == "error" for cell in cells for output in cell.get("outputs", ()))


HOSTILE_START = "raise SystemExit('a start-up file of the person who runs it')\n"


@pytest.mark.slow
def test_settings_of_the_person_do_not_reach_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    startup = home / "ipython" / "profile_default" / "startup" / "00.py"
    kernel = home / "data" / "kernels" / "python3" / "kernel.json"
    for file, text in (
        (startup, HOSTILE_START),
        (home / "ipython" / "profile_default" / "ipython_config.py", HOSTILE_START),
        (home / "jupyter" / "jupyter_config.py", HOSTILE_START),
        (home / "start.py", "1 / 0\n"),
        (kernel, '{"argv": ["/bin/false"], "display_name": "python3", "language": "python"}'),
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setenv("IPYTHONDIR", str(home / "ipython"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(home / "jupyter"))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(home / "data"))
    monkeypatch.setenv("PYTHONSTARTUP", str(home / "start.py"))
    monkeypatch.setenv("MPLBACKEND", "bogus")
    monkeypatch.setenv("HOME", "/proc")  # nothing can be written there
    plotting = "import matplotlib.pyplot as plt\nplt.plot([1, 2])"
    path = notebook(tmp_path / "n.ipynb", markdown("m3"), code("c", plotting))
    assert execute(path, tmp_path / "out.ipynb", {"a": 1}) is None
    cells = json.loads((tmp_path / "out.ipynb").read_text("utf-8"))["cells"]
    assert any("image/png" in output.get("data", {}) for cell in cells for output in cell.get("outputs", ()))
    assert os.environ["MPLBACKEND"] == "bogus"
    assert os.environ["IPYTHONDIR"] == str(home / "ipython")


@pytest.mark.slow
def test_a_notebook_that_could_not_be_written_whole_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fills_the_disk(source: str, output: str, **_: Any) -> None:
        Path(output).write_text('{"cells": [')
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("papermill.execute_notebook", fills_the_disk)
    told = execute(notebook(tmp_path / "n.ipynb"), tmp_path / "out.ipynb", {})
    assert told == "OSError: [Errno 28] No space left on device"
    assert not (tmp_path / "out.ipynb").exists()


# ── parameters in the kernel ─────────────────────────────────────────────────────────────────────────────────────────


def test_an_injected_name_that_the_notebook_does_not_know_is_an_error() -> None:
    history = ["", "record = 1", "# Parameters\nrecords = 'x'\n"]
    with pytest.raises(
        ConfigError, match=r"parameters: records: no such key \(did you mean 'record'\?\)\.\nAllowed here"
    ):
        reject_unknown({"In": history}, ["record"])


def test_names_that_a_person_defines_are_their_own_business() -> None:
    reject_unknown({"In": ["", "anything = 1"], "anything": 1}, ["record"])
    reject_unknown({}, ["record"])


def test_sections_returns_the_form_of_a_run() -> None:
    values: dict[str, Any] = dict.fromkeys(SECTIONS, 0) | {"out": "x", "other": 1}
    assert list(sections(values | {"params": "x"}, "out")) == ["params", *SECTIONS]


STORY = "params/story/tp1-8.yaml"


def test_a_params_file_without_further_parameters_is_that_file() -> None:
    assert load_sections(STORY, **dict.fromkeys(SECTIONS)) == load_run(STORY)


def test_given_keys_are_laid_over_the_params_file() -> None:
    changed = load_sections(STORY, name="x", memory={"max_running_requests": 4})
    expected = load_run(STORY, ["name=x", "memory.max_running_requests=4"])
    assert (changed, changed.memory.mem_fraction_static) == (expected, 0.75)


def test_with_a_model_only_the_given_sections_count() -> None:
    given = {"name": "n", "engine": {"version": "0.5.16"}, "model": "Qwen/Qwen3.6-27B", "gpu": {"name": "h200"}}
    run = load_sections(STORY, **given, memory=None, speculative=None)
    assert (run.speculative.algorithm, run.memory.max_running_requests, run.engine.replay) == ("none", None, None)
    assert load_sections("no/such/file.yaml", **given) == run  # it is not even read


@pytest.mark.parametrize(
    ("params", "sections", "expected"),
    [
        ("params/demo.yaml", {}, "this is a campaign"),
        ("no/such.yaml", {}, "does not exist"),
        (STORY, {"memory": {"max_runing_requests": 4}}, r"parameters over tp1-8.yaml: memory.max_runing_requests: no"),
        (STORY, {"memory": 3}, "memory"),
    ],
)
def test_parameters_that_make_no_run(params: str, sections: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        load_sections(params, **sections)


# ── papermill as papermill documents it ──────────────────────────────────────────────────────────────────────────────


def papermill_command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`papermill notebooks/2_run.ipynb out.ipynb …` from a folder that has nothing to do with the workbook."""
    command = [sys.executable, "-m", "papermill", str(NOTEBOOKS / "2_run.ipynb"), "out.ipynb", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(NOTEBOOKS.parent)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
def test_papermill_runs_a_params_file_from_any_folder(tmp_path: Path) -> None:
    params = NOTEBOOKS.parent / "params" / "recordings" / "0512_dflash_r8.yaml"
    done = papermill_command(tmp_path, "-f", str(params), "-p", "out", "here")
    assert done.returncode == 0, done.stderr
    assert RunRecord.open(tmp_path / "here").status.status == "refused"
    executed = json.loads((tmp_path / "out.ipynb").read_text("utf-8"))
    assert executed["metadata"]["papermill"]["parameters"]["engine"]["version"] == "0.5.12"


MINIMAL = "name: minimal\nengine: {version: 0.5.16}\nmodel: Qwen/Qwen3.6-27B\ngpu: {name: h200}\n"
WITHOUT_MEMORY = MINIMAL.replace("minimal", "drafting") + (
    "speculative: {algorithm: DFLASH, draft_model_path: z-lab/Qwen3.6-27B-DFlash, num_draft_tokens: 16}\n"
)


LITTLE = {"minimal": MINIMAL, "drafting": WITHOUT_MEMORY, "asked": MINIMAL + "memory: {max_running_requests: 6}\n"}


@pytest.mark.parametrize("text", LITTLE.values(), ids=LITTLE)
def test_the_notebook_and_the_command_read_the_same_of_a_file_that_lacks_sections(text: str, tmp_path: Path) -> None:
    """As papermill injects it: over the defaults of the parameters cell."""
    file = tmp_path / "my.yaml"
    file.write_text(text, encoding="utf-8")
    injected = defaults("1_predict.ipynb") | yaml.safe_load(text)
    assert load_sections(**sections(injected)) == load_run(file)


@pytest.mark.slow
def test_the_notebook_and_the_command_predict_the_same_of_a_file_that_lacks_sections(tmp_path: Path) -> None:
    text, file = WITHOUT_MEMORY, tmp_path / "my.yaml"
    file.write_text(text, encoding="utf-8")
    assert execute(NOTEBOOKS / "1_predict.ipynb", tmp_path / "out.ipynb", yaml.safe_load(text)) is None
    cells = json.loads((tmp_path / "out.ipynb").read_text("utf-8"))["cells"]
    printed = next("".join(cell["outputs"][0]["text"]) for cell in cells if "nbval-check-output" in tags(cell))
    words = [line.split() for line in printed.splitlines()]
    done = CliRunner().invoke(app, ["predict", str(file), "--json"], catch_exceptions=False)
    limits = {name: str(value) for name, value in json.loads(done.stdout)["limits"].items()}
    assert len(limits) >= 5 and {line[0]: line[1] for line in words if line[0] in limits} == limits


def tags(cell: dict[str, Any]) -> list[str]:
    return list(cell["metadata"].get("tags", []))


@pytest.mark.slow
def test_papermill_with_an_unknown_key_fails_and_names_it(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("memmory: {max_running_requests: 4}\n", encoding="utf-8")
    done = papermill_command(tmp_path, "-f", "wrong.yaml")
    assert done.returncode == 1
    assert "ConfigError: parameters: memmory: no such key (did you mean 'memory'?)" in done.stderr
