"""What a bare log tells about its configuration; what is asked by name; what a person may tell beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specbench.cli import app
from specbench.diagnose.card import card_of_log
from specbench.diagnose.diagnosis import of_log, of_path
from specbench.diagnose.fromlog import config_of_log
from specbench.diagnose.told import Told, told_by
from specbench.engines.sglang import logs
from specbench.errors import ConfigError, SpecbenchError
from specbench.gpus import load_gpu
from specbench.judging.judge import budgets
from specbench.judging.reconcile import SHARED, reconcile
from specbench.reading.pools import report
from specbench.records.record import RunRecord

RECORDS = Path(__file__).parent / "records"
#: Starts that ended before they printed arguments; a model that is not shipped.
SILENT = {"nemo_nano_r32", "var_nobuffer_r4_badargs", "q35b_nextn_r16"}
NAMES = sorted(path.name for path in RECORDS.iterdir() if path.is_dir() and path.name not in SILENT)
#: Arguments of a line that somebody shortened: what he thinks to be of interest.
KEPT = (
    *("model_path", "context_length", "mem_fraction_static", "max_running_requests", "max_total_tokens", "tp_size"),
    *("speculative_algorithm", "speculative_draft_model_path", "speculative_num_steps", "speculative_eagle_topk"),
    *("speculative_num_draft_tokens", "max_mamba_cache_size", "mamba_full_memory_ratio", "mamba_ssm_dtype"),
    *("mamba_scheduler_strategy", "mamba_radix_cache_strategy", "disable_overlap_schedule", "disable_radix_cache"),
    *("kv_cache_dtype", "page_size", "chunked_prefill_size"),
)
#: Nothing tells it from 0.5.16: the start is refused before a pool is sized, by the same arithmetic.
SAME_FIGURES = {"var_noradix_r8": "0.5.20"}


def lines(name: str, arguments: str | None = None) -> list[bytes]:
    """A recording's log; `arguments`: instead of those that were printed ("": the line is not there)."""
    found = []
    for line in (RECORDS / name / "server.log").read_bytes().splitlines(keepends=True):
        at = line.find(b"server_args=")
        if at >= 0 and arguments is not None:
            line = line[:at] + arguments.encode() + b"\n" if arguments else b""
        found.append(line)
    return found


def shortened(name: str) -> list[bytes]:
    printed = logs.read(RECORDS / name / "server.log").server_args or {}
    kept = ", ".join(f"{key}={printed[key]!r}" for key in KEPT if printed.get(key) is not None)
    return lines(name, f"server_args=ServerArgs({kept})")


@pytest.mark.parametrize("name", NAMES)
def test_a_shortened_log_is_of_the_release_that_explains_it(name: str) -> None:
    """The right release of all recordings but one, whose prediction is the same; no figure is off. That its ranks had
    shares of a card, no log tells."""
    log = logs.read(shortened(name), name=name)
    assert log.version is None
    pools = report(log)
    true = RunRecord.open(RECORDS / name).config
    share = true.gpu.name if load_gpu(true.gpu.name).share_of else None
    found = config_of_log(log, pools, name, Told(gpu=share))
    assert found.config is not None and found.questions == ()
    assert found.config.engine.version == SAME_FIGURES.get(name, true.engine.version)
    off = reconcile(budgets(found.config, pools), pools).off
    assert [(row.term, row.basis) for row in off if share is None or row.attribution != SHARED] == []
    assert any(text.startswith(f"engine version assumed {found.config.engine.version}: ") for text in found.assumptions)


def test_the_ground_is_named() -> None:
    """oom_r8: the strategy's argument has that name from 0.5.14 on; from 0.5.17 on the padding is charged."""
    log = logs.read(shortened("oom_r8"))
    assert log.version_range == ("0.5.14", "0.5.20")
    (said,) = [text for text in config_of_log(log, report(log), "x").assumptions if "engine version" in text]
    assert said == (
        "engine version assumed 0.5.16: its prediction explains 9 logged figures (0.5.17 to 0.5.20 explain fewer); "
        "the newest of 0.5.14, 0.5.15, 0.5.16, which predict the same"
    )


def test_what_a_log_does_not_tell_is_asked_for() -> None:
    found = of_log(lines("dflash_r8", ""), name="paste")
    assert [(question.missing, question.answer) for question in found.questions] == [
        ("arguments", '--launch "python -m sglang.launch_server …"'),
        ("model", "--model NAME|FOLDER (a shipped model, or a folder with its config.json)"),
    ]
    assert found.config is None and found.resolved["kv_tokens"] == 158_177


def test_told_answers_make_the_diagnosis_whole() -> None:
    """The same as with the printed arguments."""
    told = told_by(
        model=None,
        gpu="H200",
        version="0.5.16",
        launch="sglang serve --model-path qwen36-27b --load-format dummy --max-running-requests 8 "
        "--speculative-algorithm DFLASH "
        "--speculative-draft-model-path z-lab/Qwen3.6-27B-DFlash --mem-fraction-static 0.508124 "
        "--speculative-num-draft-tokens 16 --mamba-radix-cache-strategy extra_buffer "
        "--mamba-full-memory-ratio 0.5 --context-length 32768",
    )
    found, whole = of_log(lines("dflash_r8", ""), told=told), of_log(lines("dflash_r8"))
    assert found.questions == ()
    assert [finding.cause for finding in found.findings] == [finding.cause for finding in whole.findings]
    assert [dict(r.set) for r in found.findings[0].remedies] == [dict(r.set) for r in whole.findings[0].remedies]


def test_a_card_is_not_taken_for_the_share_of_one() -> None:
    """33.75 GiB free before loading: a quarter of an H200 in truth, which nobody buys; the guess is a card, and says
    that it may be wrong. A name that the share has in its title, too, is the card's."""
    found = of_path(RECORDS / "tp8-quarters_dflash-8" / "server.log")
    assert found.config is not None and found.config.gpu.name == "a100-40"
    assert any("or it is another card: --gpu NAME tells" in text for text in found.assumptions)
    log = logs.read(lines("dflash_r8"))
    named = replace(log, beside=replace(log.beside, cards=("NVIDIA H200",)))
    assert card_of_log(named, report(named), Told(), []) == ("h200", True)


def test_a_launch_command_in_the_paste_is_read() -> None:
    command = (
        b"$ docker run --gpus all -e SGLANG_MAMBA_CONV_DTYPE=float32 lmsysorg/sglang:v0.5.16 \\\n"
        b"  sglang serve --model-path Qwen/Qwen3.6-27B --max-running-requests 8 --mamba-full-memory-ratio 0.5\n"
        b"|   0  NVIDIA H200                    On  |   00000000:5D:00.0 Off |\n"
    )
    found = of_log([command, *lines("nospec_r8", "")])
    assert found.config is not None
    assert (found.config.model, found.config.gpu.name) == ("Qwen/Qwen3.6-27B", "h200")
    assert found.config.engine.env == {"SGLANG_MAMBA_CONV_DTYPE": "float32"}
    assert found.requested["running_requests"] == 8
    assert "no server_args line: arguments are those of the launch command in line 1" in found.assumptions
    assert "GPU h200, as the log names it (H200)" in found.assumptions


def test_what_is_told_against_the_log_is_said_and_not_used() -> None:
    told = told_by(
        model="deepseek-v3",
        gpu="a6000",
        version="0.5.12",
        launch="sglang serve --model-path x --max-running-requests 4 --enable-metrics",
    )
    found = of_log(lines("dflash_r8"), told=told)
    assert found.config is not None
    assert (found.config.model, found.config.gpu.name) == ("Qwen/Qwen3.6-27B", "h200")
    assert (found.config.engine.version, found.requested["running_requests"]) == ("0.5.16", 8)
    for said in (
        "told model deepseek-ai/DeepSeek-V3, but the log's path names Qwen/Qwen3.6-27B: the log counts",
        "told version 0.5.12, but it is of 0.5.16: the log counts",
        "told GPU a6000, but 139.13 GiB were free before loading: the log counts",
        "told max_running_requests=4 (a whole number), but the log prints 8 (a whole number): the log's counts",
    ):
        assert said in found.assumptions


def test_a_told_model_of_another_class_is_not_used() -> None:
    """The log's path names nothing known, but the class that it loads is another family's."""
    other = [line.replace(b"/srv/sgl/models/qwen36-27b'", b"/models/mine'") for line in lines("nospec_r8")]
    found = of_log(other, told=Told(model="deepseek-ai/DeepSeek-V3"))
    assert found.config is None
    said = "but the log loads Qwen3_5ForConditionalGeneration: the log counts"
    assert any(said in text for text in found.assumptions)
    known = of_log(other, told=Told(model="Qwen/Qwen3.6-27B"))
    assert known.config is not None and known.questions == () and known.reconciliation.off == ()


def test_arguments_that_could_not_have_started_are_not_all() -> None:
    """0.5.12 takes extra_buffer with speculation only without overlap: the argument is missing in this paste."""
    printed = "server_args=ServerArgs(model_path='q/qwen36-27b', speculative_algorithm='DFLASH', tp_size=1, "
    printed += "speculative_draft_model_path='q/qwen36-27b-dflash', speculative_num_draft_tokens=16)"
    found = of_log(lines("0512_dflash_r4", printed), told=Told(version="0.5.12"))
    assert "arguments" in [question.missing for question in found.questions]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"launch": "python train.py"}, "there is no launch command"),
        ({"gpu": "h900"}, "is not in the GPU table"),
        ({"model": "no-such-model"}, "neither shipped nor a folder"),
        ({"version": "latest"}, "is no version"),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused_in_two_lines(given: dict[str, str], words: str) -> None:
    with pytest.raises(SpecbenchError) as caught:
        told_by(**{"model": None, "gpu": None, "version": None, "launch": None, **given})
    assert words in str(caught.value) and len(str(caught.value).splitlines()) == 2


def test_options_reach_the_diagnosis_and_questions_the_document(tmp_path: Path) -> None:
    paste = tmp_path / "paste.log"
    paste.write_bytes(b"".join(lines("nospec_r8", "")))
    run = CliRunner().invoke(app, ["diagnose", str(paste), "--json"])
    document = json.loads(run.stdout)
    assert [question["missing"] for question in document["questions"]] == ["arguments", "model"]
    launch = "sglang serve --model-path Qwen/Qwen3.6-27B --max-running-requests 8"
    options = ["--launch", launch, "--engine-version", "0.5.16", "--json"]
    answered = json.loads(CliRunner().invoke(app, ["diagnose", str(paste), *options]).stdout)
    assert answered["questions"] == [] and answered["requested"]["running_requests"] == 8


def test_a_record_knows_itself() -> None:
    with pytest.raises(ConfigError, match="a record, which knows its model"):
        of_path(RECORDS / "nospec_r8", told=Told(gpu="h200"))


def test_a_later_release_says_whose_rules_are_used() -> None:
    """A text that names it; its arguments are shortened, so that no names contradict it."""
    log = logs.read([b"image: lmsysorg/sglang:v0.5.24\n", *shortened("dflash_r4")])
    assert log.version == "0.5.24"
    assumptions = config_of_log(log, report(log), "x").assumptions
    assert (
        "sglang 0.5.24 is later than any whose sizing was read; the sizing rules of 0.5.23 are assumed." in assumptions
    )
