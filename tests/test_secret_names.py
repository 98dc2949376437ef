"""Secrets: which names count as one, and that none gets into a record."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from specbench.cli import app
from specbench.configuration.config import RunConfig
from specbench.configuration.secret_names import HIDDEN, is_secret, is_secret_flag, shown
from specbench.errors import ConfigError
from specbench.lifecycle.preflight import Checked
from specbench.params import load_run
from specbench.running.environment import environment


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "SGLANG_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "db_password",
        "NCCL_AUTH",
        "OPENAI_APIKEY",
        "MY_KEYS_FILE",
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret(name, "hf_abc")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SGLANG_NUM_RESERVED_DECODE_TOKENS", "512"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("SGLANG_SIMULATE_ACC_TOKEN_MODE", "real-draft-token"),
        ("CUDA_VISIBLE_DEVICES", "0,1"),
        ("MONKEY", "x"),
        ("PYTHONPATH", "/opt/site"),
    ],
)
def test_names_that_only_look_alike(name: str, value: str) -> None:
    assert shown({name: value}) == {name: value}


def test_a_params_file_with_a_secret_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "name: p\nengine: {version: 0.5.16, env: {HF_TOKEN: hf_verysecret}}\nmodel: Qwen/Qwen3.6-27B\n"
        "gpu: {name: h200}\n"
    )
    with pytest.raises(ConfigError, match=r"engine\.env\.HF_TOKEN: looks like a secret") as caught:
        load_run(file)
    assert "hf_verysecret" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("api-key", "verysecret"),
        ("--api_key", 12345),
        ("api", "verysecret"),  # argparse takes the start of a flag
        ("--admin-api-key=verysecret", True),
        ("ssl-keyfile-p", "verysecret"),
        ("hub-token", ["verysecret"]),  # of a fork
    ],
)
def test_flags_that_take_secrets(flag: str, value: object) -> None:
    assert is_secret_flag(flag, value)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("api-key", None),
        ("ssl-keyfile", "/etc/key.pem"),
        ("tokenizer-path", "/models/x"),
        ("max-prefill-tokens", 16384),
        ("speculative-token-map", "thunlp/map"),
        ("kt-max-deferred-experts-per-token", 2),
        ("enable-dynamic-batch-tokenizer", True),
    ],
)
def test_flags_that_take_none(flag: str, value: object) -> None:
    assert not is_secret_flag(flag, value)


@pytest.mark.parametrize("command", ["run", "predict"])
def test_a_key_among_the_flags_is_refused_and_how_else_is_told(command: str, tmp_path: Path) -> None:
    given = ["--set", "engine.args.api-key=verysecret"] + (["--out", str(tmp_path / "out")] if command == "run" else [])
    done = CliRunner().invoke(app, [command, "params/recordings/nospec_r4.yaml", *given])
    assert isinstance(done.exception, ConfigError)
    what, instead = str(done.exception).splitlines()
    assert what.startswith("nospec_r4.yaml: engine.args.api-key: looks like a secret")
    assert instead.endswith("engine.attach, its key in SPECBENCH_API_KEY.")
    assert "verysecret" not in what + instead + done.output
    assert list(tmp_path.iterdir()) == []


def test_the_inherited_environment_is_recorded_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_API_KEY", "verysecret")
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    monkeypatch.setenv("HF_TOKEN", "verysecret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    config = RunConfig.model_validate(
        {
            "name": "e",
            "engine": {"version": "0.5.16", "env": {"CUDA_VISIBLE_DEVICES": "0"}, "args": {"random_seed": 1234}},
            "model": "m",
            "gpu": {"name": "h200"},
            "workload": {"seed": 7},
        }
    )
    told = environment(config, ["python"], "none", None, None, Checked(installed=None, notes=()))
    assert "verysecret" not in str(told)
    assert told["inherited_environment"]["SGLANG_API_KEY"] == HIDDEN
    assert told["inherited_environment"]["NCCL_NVLS_ENABLE"] == "0"
    assert "CUDA_VISIBLE_DEVICES" not in told["inherited_environment"]  # engine.env has another
    assert told["environment"] == {"CUDA_VISIBLE_DEVICES": "0"}
    assert told["seeds"] == {"workload": 7, "engine": 1234}
    assert told["machine"]["cpus"] >= 1
