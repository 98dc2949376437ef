"""An SGLang command line as sections of a configuration, and back."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from specbench.configuration.config import RunConfig
from specbench.engines.sglang.command import command
from specbench.engines.sglang.command_line import sections_of
from specbench.records.record import RunRecord

RECORDS = [folder for folder in sorted((Path(__file__).parent / "records").iterdir()) if folder.is_dir()]


def test_flags_with_a_key_go_to_their_section_and_others_stay_verbatim() -> None:
    found = sections_of(
        shlex.split(
            "/usr/bin/python3 -m sglang.launch_server --model-path a/b --tp 2 --mem-fraction-static 0.88 "
            "--mamba-scheduler-strategy extra_buffer --disable-radix-cache --speculative-algorithm DFLASH "
            "--speculative-draft-model-path=a/draft --port 30000 --host 0.0.0.0 --nccl-port 41000 "
            "--random-seed 1234 --enable-metrics --cuda-graph-bs 1 2 4 --served-model-name 007"
        )
    )
    assert found == {
        "model": "a/b",
        "parallel": {"tp_size": 2},
        "speculative": {"algorithm": "DFLASH", "draft_model_path": "a/draft"},
        "memory": {
            "mem_fraction_static": 0.88,
            "mamba_radix_cache_strategy": "extra_buffer",
            "disable_radix_cache": True,
        },
        "engine": {
            "enable_metrics": True,
            "args": {
                "random-seed": 1234,
                "cuda-graph-bs": [1, 2, 4],
                "served-model-name": "007",
            },
        },
    }


def test_of_a_flag_given_twice_the_last_counts() -> None:
    assert sections_of(["--model-path", "first", "--model-path", "second"])["model"] == "second"


def test_a_value_of_another_type_names_the_flag() -> None:
    with pytest.raises(ValueError, match="--max-running-requests: got 'many', expected a number"):
        sections_of(["--max-running-requests", "many"])


#: tensor-parallel size and version -> share. On two cards 0.75 × 93.503 GiB of 138.2132, with 0.5.12 of 138.2796: of
#: the larger card as its offsets were measured, of the smaller one with the 0.003 GiB of cards that were not.
PASSED = {
    (1, "0.5.12", 0.75): 0.50814012,
    (1, "0.5.16", 0.75): 0.50814012,
    (2, "0.5.12", 0.75): 0.50714097,
    (2, "0.5.16", 0.75): 0.50738461,
    (1, "0.5.12", 0.89): 0.60299294,  # 0.89 × 94.3065 / 139.1937
}


@pytest.mark.parametrize("folder", RECORDS, ids=lambda folder: folder.name)
def test_a_recorded_configuration_writes_a_command_line_that_reads_back_equal(folder: Path) -> None:
    config = RunRecord.open(folder).config
    draft = config.speculative.draft_model_path
    argv = command(config, model_path=config.model, draft_path=draft, host="127.0.0.1", port=1)
    found = sections_of(argv)
    again = RunConfig.model_validate(
        {
            **config.to_sections(),
            **{key: found[key] for key in ("model", "parallel", "memory", "speculative")},
        }
    )
    # The command passes the share of the card that is there: 0.75 of an RTX PRO 6000 is 70.7299 of 139.1937 GiB.
    passed = config
    if config.gpu.emulate:
        share = PASSED[config.parallel.tp_size, config.engine.version, config.memory.mem_fraction_static]
        passed = config.replace({"memory.mem_fraction_static": share})
    assert again == passed
    assert found["engine"]["args"] == dict(config.engine.args)
    assert found["engine"]["enable_metrics"] == config.engine.enable_metrics
