"""What a replay may be asked for: the server that was recorded, stated in whole or in part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specbench.configuration.config import RunConfig
from specbench.errors import ConfigError
from specbench.params import load_campaign, load_run, load_sections
from specbench.records.record import RunRecord
from specbench.running import recorded
from specbench.running.recorded import AsRecorded, as_recorded, whole

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "tests" / "records"


def played(record: str, **sections: Any) -> AsRecorded:
    """Params of a few keys on a record of Qwen3.6-27B on an H200, SGLang 0.5.16."""
    engine = {"version": "0.5.16", "replay": str(RECORDS / record), **sections.pop("engine", {})}
    base = {"name": "p", "engine": engine, "model": "Qwen/Qwen3.6-27B", "gpu": {"name": "h200"}}
    return as_recorded(RunConfig.model_validate({**base, **sections}), RunRecord.open(RECORDS / record))


def refused(record: str, **sections: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        played(record, **sections)
    assert len(str(raised.value).splitlines()) == 2
    return str(raised.value)


@pytest.mark.parametrize("file", sorted((ROOT / "params" / "recordings").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_params_of_every_recording_state_that_recording(file: Path) -> None:
    asked = load_run(file)
    assert asked.engine.replay is not None
    found = as_recorded(asked, RunRecord.open(ROOT / asked.engine.replay))
    assert (found.config, found.taken, found.differences, found.notes) == (asked, {}, {}, ())


def test_the_demo_states_its_recordings() -> None:
    runs = load_campaign(ROOT / "params" / "demo.yaml").runs
    assert len(runs) >= 15
    for asked in runs:
        found = as_recorded(asked, RunRecord.open(ROOT / str(asked.engine.replay)))
        assert (found.config, found.notes) == (asked, ())


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"engine": {"version": "0.5.12"}}, "engine.version: 0.5.12 asked, 0.5.16 recorded"),
        ({"model": "Qwen/Qwen3.5-35B-A3B"}, "model: Qwen/Qwen3.5-35B-A3B asked, Qwen/Qwen3.6-27B recorded"),
        ({"gpu": {"name": "h200", "count": 4}}, "gpu.count: 4 asked, 2 recorded"),
        ({"parallel": {"tp_size": 1}}, "parallel.tp_size: 1 asked, 2 recorded"),  # a default that is stated counts
        ({"speculative": {"algorithm": "none"}}, "speculative.algorithm: none asked, DFLASH recorded"),
        ({"memory": {"max_running_requests": 16}}, "memory.max_running_requests: 16 asked, 8 recorded"),
        ({"memory": {"disable_radix_cache": True}}, "memory.disable_radix_cache: True asked, False recorded"),
    ],
)
def test_another_server_is_refused(sections: dict[str, Any], words: str) -> None:
    text = refused("tp2_dflash_r8", **sections)
    assert text.startswith(f"{words} (engine.replay: ")
    assert text.endswith("\nA replay plays the server that was recorded: use that value, or leave engine.replay out.")


def test_what_the_params_leave_out_is_the_records() -> None:
    found = played("tp2_dflash_r8")
    recorded = RunRecord.open(RECORDS / "tp2_dflash_r8").config
    for section in ("gpu", "parallel", "speculative", "memory"):
        assert getattr(found.config, section) == getattr(recorded, section)
    assert found.config.engine.args == recorded.engine.args
    (note,) = found.notes
    assert note.startswith("not in the params, so taken from the recording: gpu.count 2, parallel.tp_size 2, ")
    assert f"engine.args ({len(recorded.engine.args)} entries)" in note


def test_where_things_lay_is_of_no_matter() -> None:
    """h200_dflash-8 ran with a PYTHONPATH of its machine: it is not taken over, and another one is no difference."""
    recorded = RunRecord.open(RECORDS / "h200_dflash-8").config.engine.env
    assert recorded["PYTHONPATH"] == "/srv/sgl/0516/site"
    without = {name: value for name, value in recorded.items() if name != "PYTHONPATH"}
    assert dict(played("h200_dflash-8").config.engine.env) == without
    found = played("h200_dflash-8", engine={"env": {"PYTHONPATH": "/mine", "SGLANG_ENABLE_JIT_DEEPGEMM": "true"}})
    assert found.config.engine.env["PYTHONPATH"] == "/mine"
    assert found.differences == {"engine.env.SGLANG_ENABLE_JIT_DEEPGEMM": ("true", "false")}


def test_what_the_recorded_engine_chose_may_be_stated() -> None:
    """The record leaves the draft width to SGLang, whose log says speculative_num_draft_tokens=16."""
    speculative = {"algorithm": "DFLASH", "num_draft_tokens": 16}
    assert played("dflash_r8", speculative=speculative).config.speculative.num_draft_tokens == 16
    text = refused("dflash_r8", speculative={**speculative, "num_draft_tokens": 8})
    assert text.startswith("speculative.num_draft_tokens: 8 asked, 16 recorded")
    text = refused("dflash_r8", memory={"max_mamba_cache_size": 20})
    assert text.startswith("memory.max_mamba_cache_size: 20 asked, not given recorded")


def test_what_it_chose_is_known_by_every_name_of_the_flag() -> None:
    for name in ("cuda_graph_max_bs", "cuda_graph_max_bs_decode"):
        assert recorded._printed({"cuda_graph_max_bs_prefill": 8, name: 64}, "memory.cuda_graph_max_bs") == 64
    for name in ("mamba_scheduler_strategy", "mamba_radix_cache_strategy"):
        assert recorded._printed({name: "no_buffer"}, "memory.mamba_radix_cache_strategy") == "no_buffer"
    assert recorded._printed({"cuda_graph_max_bs_decode": None}, "memory.cuda_graph_max_bs") is None


def test_flags_and_variables_that_differ_are_told() -> None:
    args = {"attention_backend": "fa3", "load_format": "dummy", "log-requests": True}
    found = played("dflash_r8", engine={"args": args, "env": {"SGLANG_X": "1"}})
    assert found.differences == {
        "engine.args.attention_backend": ("fa3", "triton"),
        "engine.args.log-requests": (True, None),
        "engine.env.SGLANG_X": ("1", None),
    }
    assert (
        "engine.args.attention_backend: fa3 is asked, triton was recorded; in a replay it has no effect" in found.notes
    )
    assert found.config.engine.args["attention_backend"] == "fa3"
    assert "attention-backend" not in found.config.engine.args
    assert found.config.engine.args["random-seed"] == 1234


def test_many_differences_are_cut() -> None:
    memory = {"mem_fraction_static": 0.5, "max_running_requests": 3, "context_length": 9, "disable_radix_cache": True}
    text = refused("tp2_dflash_r8", memory=memory, parallel={"tp_size": 4})
    assert "; and 1 more (engine.replay: " in text
    assert text.endswith("use those values, or leave engine.replay out.")


def test_what_is_stated_survives_the_way_through_a_notebook() -> None:
    """A campaign hands its keys to the notebook: a default that nobody stated must not become a statement."""
    data = {"name": "p", "engine": {"version": "0.5.16"}, "model": "m", "gpu": {"name": "h200"}}
    asked = RunConfig.model_validate({**data, "parallel": {"tp_size": 1}})
    assert asked.stated() == {**data, "parallel": {"tp_size": 1}, "speculative": {}, "memory": {}, "workload": {}}
    again = load_sections(**asked.replace({"memory.max_running_requests": 8}).stated())
    assert again.stated()["memory"] == {"max_running_requests": 8}
    assert again.stated()["speculative"] == {}


def test_the_whole_configuration_is_what_a_run_stores() -> None:
    asked = RunConfig.model_validate(
        {
            "name": "p",
            "engine": {"version": "0.5.16", "replay": "tests/records/tp2_dflash_r8"},
            "model": "Qwen/Qwen3.6-27B",
            "gpu": {"name": "h200"},
        }
    )
    assert whole(asked) == as_recorded(asked, RunRecord.open(RECORDS / "tp2_dflash_r8")).config
    assert whole(asked).parallel.tp_size == 2
    real = asked.replace({"engine.replay": None})
    assert whole(real) is real
