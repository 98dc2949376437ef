"""How many token ids a run's model knows, by the config.json that the engine reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specbench.configuration.config import RunConfig
from specbench.errors import ConfigError
from specbench.load.prompts import SMALLEST_VOCABULARY
from specbench.load.sending import _Sender
from specbench.load.workload import steps_of
from specbench.running.run import run
from specbench.vocabulary import vocabulary


def asked(model: str, **changes: Any) -> RunConfig:
    data = {"name": "v", "engine": {"version": "0.5.16"}, "model": model, "gpu": {"name": "h200"}}
    small = {"workload.requests": 2, "workload.input_tokens": [3000], "workload.concurrency": [1]}
    return RunConfig.model_validate(data).replace({**small, **changes})


def folder(place: Path, config: object) -> str:
    place.mkdir()
    (place / "config.json").write_text(json.dumps(config))
    return str(place)


def test_of_a_shipped_model() -> None:
    assert vocabulary(asked("Qwen/Qwen3.6-27B")) == 248_320  # in its text_config
    assert vocabulary(asked("Qwen/Qwen3-8B")) == 151_936


def test_of_a_folder_also_of_a_family_that_nothing_else_can_compute(tmp_path: Path) -> None:
    assert vocabulary(asked(folder(tmp_path / "bert", {"architectures": ["X"], "vocab_size": 30_522}))) == 30_522


def test_what_the_engine_reads_counts_not_what_the_name_means(tmp_path: Path) -> None:
    there = folder(tmp_path / "there", {"text_config": {"vocab_size": 1_024}})
    found = asked("Qwen/Qwen3.6-27B", **{"engine.model_paths": {"Qwen/Qwen3.6-27B": there}})
    assert vocabulary(found) == 1_024


@pytest.mark.parametrize("config", [[], {}, {"vocab_size": "many"}, {"vocab_size": 0}, {"text_config": 7}])
def test_a_config_that_does_not_say(tmp_path: Path, config: object) -> None:
    assert vocabulary(asked(folder(tmp_path / "odd", config))) is None


def test_of_a_name_that_is_not_here() -> None:
    assert vocabulary(asked("somebody/else")) is None


def test_the_requests_of_a_small_model_hold_no_id_that_it_has_not(tmp_path: Path) -> None:
    config = asked(folder(tmp_path / "small", {"vocab_size": 1_024}))
    (step,) = [step for step in steps_of(config.workload) if step.phase == "measured"]
    sent = _Sender(config, "http://127.0.0.1:1", None, None, None, None)._asked(step)
    assert max(max(request.input_ids) for request in sent) == 1_023


def test_too_few_ids_are_refused_before_the_launch(tmp_path: Path) -> None:
    config = asked(folder(tmp_path / "tiny", {"vocab_size": SMALLEST_VOCABULARY - 1}))
    with pytest.raises(ConfigError) as raised:
        run(config, tmp_path / "run")
    assert str(raised.value).startswith(
        f"model: {tmp_path / 'tiny'} knows 255 token ids; prompts are drawn from at least"
    )
    assert len(str(raised.value).splitlines()) == 2
    assert not (tmp_path / "run").exists()
