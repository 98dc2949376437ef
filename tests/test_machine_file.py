"""What is where on a machine: filled into configurations, never into what params files state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specbench.cli import app
from specbench.errors import ConfigError
from specbench.lifecycle.launch import server_argv
from specbench.machine_file import doubts, placed, read_places, unready
from specbench.params import Campaign, load_campaign, load_run

PARAMS = Path(__file__).parent.parent / "params"
TARGET, DRAFT = "Qwen/Qwen3.6-27B", "z-lab/Qwen3.6-27B-DFlash"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    (tmp_path / "draft").mkdir()
    file = tmp_path / "machine.yaml"
    file.write_text(f"""
engines:
  "0.5.12": {{python: /opt/old/python, env: {{PYTHONPATH: "/opt/old:/opt/new", SGLANG_ENABLE_JIT_DEEPGEMM: "true"}}}}
  "0.5.16": {{env: {{PYTHONPATH: /opt/new}}}}
models: {{{TARGET}: target, {DRAFT}: {tmp_path / "draft"}, Qwen/Qwen3-8B: target}}
""")
    return file


def test_engines_and_models_are_found_by_version_and_name(machine: Path, tmp_path: Path) -> None:
    runs = {run.name: run for run in placed(load_campaign(PARAMS / "h200.yaml"), machine).runs}
    old, new = runs["story-8"], runs["dflash-8"]
    assert old.engine.python == "/opt/old/python"
    # what the params file states stays; what it does not is filled in
    assert old.engine.env["SGLANG_ENABLE_JIT_DEEPGEMM"] == "false"
    assert old.engine.env["PYTHONPATH"] == "/opt/old:/opt/new"
    assert (new.engine.python, new.engine.env["PYTHONPATH"]) == (None, "/opt/new")
    assert new.engine.model_paths == {TARGET: str(tmp_path / "target"), DRAFT: str(tmp_path / "draft")}
    assert runs["no-speculation-4"].engine.model_paths == {TARGET: str(tmp_path / "target")}
    # the name stays: the prediction and the pages know the model by it
    assert (new.model, new.speculative.draft_model_path) == (TARGET, DRAFT)
    argv = server_argv(old, "127.0.0.1", 30000)
    assert argv[:5] == ["/opt/old/python", "-m", "sglang.launch_server", "--model-path", str(tmp_path / "target")]
    assert argv[argv.index("--speculative-draft-model-path") + 1] == str(tmp_path / "draft")


def test_a_misspelt_model_is_told_with_the_one_that_lacks_a_folder(machine: Path, tmp_path: Path) -> None:
    runs = load_campaign(PARAMS / "h200.yaml").runs
    assert doubts(runs, read_places(machine)) == ()  # an unused model is none, where every used one has its folder
    machine.write_text(f"models: {{Qwen/Qwen3.6-27b: target, {DRAFT}: draft}}")
    (told,) = doubts(runs, read_places(machine))
    assert told == (
        f"--machine: models: Qwen/Qwen3.6-27b: no configuration uses it (did you mean '{TARGET}'?); without a folder, "
        f"so that the server would ask the Hub: {TARGET}"
    )


def test_a_stated_interpreter_and_folder_win(machine: Path, tmp_path: Path) -> None:
    stated = [f"engine.model_paths={{{TARGET}: /mine}}", "engine.python=/mine/python"]
    run = load_run(PARAMS / "h200" / "0.5.12.yaml", stated)
    found = placed(Campaign(name="x", runs=(run,), source=tmp_path), machine).runs[0]
    assert found.engine.python == "/mine/python"
    assert found.engine.model_paths == {TARGET: "/mine", DRAFT: str(tmp_path / "draft")}


def test_a_replay_and_a_campaign_without_a_file_stay_as_they_are(machine: Path) -> None:
    demo = load_campaign(PARAMS / "demo.yaml")
    assert placed(demo, machine).runs == demo.runs
    assert placed(demo, None) is demo


def test_a_version_that_is_nowhere_is_told_before_anything_starts(machine: Path) -> None:
    machine.write_text('engines: {"0.5.16": {}}')
    with pytest.raises(ConfigError, match=r"engines: no 0\.5\.12, which story-4 needs; there is 0\.5\.16\.\nAdd where"):
        placed(load_campaign(PARAMS / "h200.yaml"), machine)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "engine: {}",
            r"machine\.yaml: engine: no such key \(did you mean 'engines'\?\)\.\nAllowed here: engines, models",
        ),
        (
            "engines: {a: {pyton: x}}",
            r"engines\.a\.pyton: no such key \(did you mean 'python'\?\)\.\nAllowed here: python, env",
        ),
        ("engines: {a: {env: {A: 1}}}", r"engines\.a\.env\.A: got 1 \(a whole number\); expected text"),
        ("engines: {a: {env: {HF_TOKEN: hf_x}}}", r"^machine\.yaml: engines\.a\.env\.HF_TOKEN: looks like a secret"),
        (
            "models: {a/b: nowhere}",
            r"models: a/b: 'nowhere' is no folder on this machine\.\nExpected .* which .*load-format: dummy does ",
        ),
        ("- x", r"Expected the keys engines and models"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=expected):
        read_places(file)


def test_the_file_of_another_machine_is_checked_but_for_its_paths(tmp_path: Path) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text(
        f'engines: {{"0.5.12": {{python: /opt/a}}, "0.5.16": {{python: /opt/b}}}}\n'
        f"models: {{{TARGET}: /data/target, {DRAFT}: here, own/model: /data/own}}\n"
    )
    (tmp_path / "here").mkdir()
    runs = load_campaign(PARAMS / "h200.yaml").runs
    with pytest.raises(ConfigError, match=r"'/data/target' is no folder on this machine\.\nExpected"):
        read_places(file)
    places = read_places(file, of_another_machine=True)
    refused = "run refuses this here: --machine: models: "
    assert unready(runs, places) == (
        f"{refused}{TARGET}: no folder /data/target on this machine; its shipped config.json stands in",
        f"--machine: models: {DRAFT}: {tmp_path / 'here'} has no config.json: the server will not start",
        f"{refused}own/model: no folder /data/own on this machine; nothing of it can be checked",
    )
    # the rest of the file is checked as ever
    file.write_text("models: {a/b: /data/x}\nengins: {}")
    with pytest.raises(ConfigError, match=r"machine\.yaml: engins: no such key"):
        read_places(file, of_another_machine=True)


def test_a_target_needs_a_tokenizer_and_a_draft_does_not(machine: Path, tmp_path: Path) -> None:
    for name in ("target", "draft"):
        (tmp_path / name / "config.json").write_text("{}")
    runs = load_campaign(PARAMS / "h200.yaml").runs
    assert unready(runs, read_places(machine)) == (
        f"--machine: models: {TARGET}: {tmp_path / 'target'} has no tokenizer: the server will not start",
    )
    (tmp_path / "target" / "tokenizer_config.json").write_text("{}")
    assert unready(runs, read_places(machine)) == ()


def test_a_dry_run_goes_on_with_the_paths_of_another_machine_and_a_run_does_not(tmp_path: Path) -> None:
    file = tmp_path / "machine.yaml"
    file.write_text(f'engines: {{"0.5.16": {{python: /opt/b}}}}\nmodels: {{{TARGET}: /data/target}}\n')
    params = str(PARAMS / "h200" / "0.5.16.yaml")
    arguments = ["run", params, "--machine", str(file), "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*arguments, "--dry-run", "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    (doubt,) = [text for text in said["doubts"] if "models" in text]
    assert f"models: {TARGET}: no folder /data/target on this machine" in doubt
    (run,) = said["runs"]
    assert run["expected"] == "capped"  # predicted from the shipped config.json
    assert run["command"][:5] == ["/opt/b", "-m", "sglang.launch_server", "--model-path", "/data/target"]
    started = CliRunner().invoke(app, arguments)
    assert isinstance(started.exception, ConfigError)
    assert not (tmp_path / "out").exists()
