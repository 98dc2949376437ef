"""`specbench plan` as a user runs it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from specbench import show
from specbench.budget.predict import predict
from specbench.budget.to_json import to_document as to_budget_document
from specbench.cli import app
from specbench.errors import SpecbenchError
from specbench.gpus import gpu_by_usual_name, load_gpu
from specbench.params import load_run
from specbench.planning.begin import from_scratch
from specbench.planning.document import to_document
from specbench.planning.screen import estimated_outside
from specbench.planning.search import plan as search
from specbench.planning.wishes import parse
from specbench.planning.words import bases, cautions, certainty, rests_on
from specbench.specs import by_usual_name

ROOT = Path(__file__).parent.parent
ONE_STEP = (
    "--model Qwen/Qwen3.6-27B --gpu rtx-pro-6000 --gpus 2 --algorithm DFLASH --version 0.5.16 "
    "--want running_requests=8 --want context=32768"
)


def plan(arguments: str) -> str:
    done = CliRunner().invoke(app, ["plan", *shlex.split(arguments)], env={"COLUMNS": "160"}, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def document(arguments: str) -> dict[str, Any]:
    return dict(json.loads(plan(f"{arguments} --json")))


def test_from_two_cards_and_a_wish_to_a_command_line_in_one_step(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    text = plan(f"{ONE_STEP} --write {file}")
    lines = text.splitlines()
    assert lines[1] == (
        "Yes: 8 requests at once, each of 32,768 tokens (262,144 KV tokens together); DFLASH, on 2 × RTX PRO 6000 "
        "(TP2): set max_running_requests 8."
    )
    # 749,416 tokens, and 22 GiB of each card beside the pools: the most by estimate is less.
    assert lines[2].startswith("requests, slots and tokens sure: so over the whole interval of free memory; memory")
    assert "predicted from the configuration alone; free memory inferred, not measured on 2 × RTX PRO 6000" in text
    command = next(line for line in lines if line.startswith("python -m sglang.launch_server"))
    for flag in (
        "--tp-size 2",
        "--speculative-algorithm DFLASH",
        "--speculative-draft-model-path z-lab/Qwen3.6-27B-DFlash",
        "--max-running-requests 8",
        "--context-length 32768",
    ):
        assert flag in command
    assert "8 × 32,768 = 262,144 tokens at once" in text
    assert "the shipped one of Qwen/Qwen3.6-27B" in " ".join(text.split())
    written = load_run(file)
    budget = predict(written)
    assert (written.parallel.tp_size, written.gpu.count, budget.verdict) == (2, 2, "serves")
    tokens = budget.limits["kv_tokens"].value
    assert tokens is not None and tokens.low >= 262_144


def test_the_document_holds_what_predict_says_of_each_plan() -> None:
    found = document("params/story/tp1-8.yaml --want running_requests=8")
    assert (found["schema"], found["reached"], found["plan"]["certainty"]) == (1, True, "sure")
    assert found["plan"]["set"] == {"memory.mem_fraction_static": 0.89}
    assert found["plan"]["flags_added"] == ["--mem-fraction-static 0.89"]
    for plan_ in (found["plan"], *found["sizes"][0]["plans"]):
        changes = [f"{key}={json.dumps(value)}" for key, value in plan_["set"].items()]
        budget = predict(load_run("params/story/tp1-8.yaml", changes))
        for name in ("state_slots", "running_requests", "kv_tokens"):
            value = budget.limits[name].value  # type: ignore[index]
            assert value is not None and plan_["predicted"][name] == value.point
            assert plan_["predicted"]["intervals"][name] == [value.low, value.high]
    assert [size["tp_size"] for size in found["sizes"]] == [1, 2, 4, 8]
    assert found["sizes"][0]["most_at_once"][0]["running_requests"] == 4
    assert found["with_more_gpus"]["set"] == {"parallel.tp_size": 2, "gpu.count": 2}


def test_none_is_an_answer_with_its_proof_and_the_nearest() -> None:
    wish = "--want running_requests=8 --want context=32768 --want state_dtype=float32 --want kv_dtype=auto "
    wish += "--want draft_tokens=16 --want prefix_cache=true"
    text = " ".join(plan(f"params/story/tp2-8-0516.yaml --set parallel.tp_size=1 --gpus 1 {wish}").split())
    assert "No. None of 1,223 candidates reaches 8 requests at once" in text
    assert "on 1 × RTX PRO 6000; 2 × RTX PRO 6000 do." in text
    assert "nearest: 5 instead of 8 requests, with max_running_requests 5, " in text
    assert "or 8 requests of at most 10,419 tokens each." in text
    assert "max_mamba_cache_size 40: refused: Nothing remains for KV tokens: 16.21 GiB left for pools" in text


def test_a_record_is_planned_like_its_params(tmp_path: Path) -> None:
    file = tmp_path / "more.yaml"
    found = document(f"tests/records/dflash_r8_full --want running_requests=8 --write {file}")
    written = load_run(file)
    assert (written.memory.max_mamba_cache_size, written.engine.replay, written.name) == (
        40,
        None,
        "dflash_r8_full-plan",
    )
    assert found["plan"]["flags_added"] == ["--max-mamba-cache-size 40"]
    assert found["plan"]["predicted"]["state_slots"] == 40


def test_one_request_is_singular_and_estimates_are_called_so() -> None:
    kept = " ".join(f"--keep {kind}" for kind in ("ratio", "fraction", "state_dtype", "kv_dtype", "strategy", "radix"))
    text = " ".join(plan(f"params/story/tp1-8.yaml --want running_requests=1 --keep draft_tokens {kept}").split())
    assert ", 1 request, " in text and "1 requests" not in text
    assert re.search(r"outside the pools \(by estimate \d+\.\d\d GiB, .* of it for graphs and a full prefill\)", text)


def test_files_are_written_into_folders_that_are_not_there_yet(tmp_path: Path) -> None:
    file = tmp_path / "runs" / "mine.yaml"
    plan(f"params/story/tp2-8.yaml --want running_requests=8 --write {file}")
    assert predict(load_run(file)).verdict == "serves"


def test_a_page_does_not_take_the_place_of_the_params_file(tmp_path: Path) -> None:
    with pytest.raises(SpecbenchError) as told:
        plan(f"params/story/tp2-8.yaml --write {tmp_path}/x.yaml --html {tmp_path}/../{tmp_path.name}/x.yaml")
    assert str(told.value).endswith("x.yaml: --html names the same file.\nGive each a file of its own.")
    assert not any(tmp_path.iterdir())


def test_a_params_file_that_is_there_is_replaced_only_by_force(tmp_path: Path) -> None:
    """It may be the one that the plan is made of, written by hand. Told before the search."""
    mine = tmp_path / "mine.yaml"
    mine.write_text("# my notes\n")
    with pytest.raises(SpecbenchError) as told:
        plan(f"params/story/tp2-8.yaml --want running_requests=8 --write {mine}")
    assert str(told.value).splitlines() == [
        f"--write {mine}: is there already.",
        "Give another file, or --force to replace it.",
    ]
    assert mine.read_text() == "# my notes\n"
    plan(f"params/story/tp2-8.yaml --want running_requests=8 --force --write {mine}")
    assert load_run(mine).memory.max_running_requests == 8
    plan("params/story/tp2-8.yaml --want running_requests=8 --write /dev/null")


@pytest.mark.parametrize("option", ["--write", "--html"])
def test_where_nothing_can_be_written_is_told_before_the_search(option: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place, first, second in (
        (tmp_path, "is a folder", "Give a file in it"),
        (tmp_path / "file" / "x.html", "its folder cannot be made", "Give a file in a folder that can be written"),
    ):
        with pytest.raises(SpecbenchError) as told:
            plan(f"{ONE_STEP} {option} {place}")
        lines = str(told.value).splitlines()
        assert first in lines[0] and second in lines[1] and option in lines[0]


def test_where_the_search_for_the_most_ends_more_may_fit() -> None:
    """A model without state on a large card: 4,097 or 4,098 would be the search's end, not the card's."""
    kept = " ".join(f"--keep {kind}" for kind in ("ratio", "state_dtype", "kv_dtype", "strategy", "radix"))
    text = " ".join(plan(f"--model gpt-oss-20b --gpu h200 {kept}").split())
    assert "4,096 requests or more (no more were tried) at once on 1 × H200" in text
    assert "4,096+" in text and "4,097" not in text and "4,098" not in text


def test_weights_that_do_not_fit_are_one_reason_told_once() -> None:
    """Qwen3.6-27B in bf16 takes about 51 GiB: on a card of 24 nothing is left, whatever else is set."""
    kept = " ".join(f"--keep {kind}" for kind in ("slots", "ratio", "fraction", "state_dtype", "strategy"))
    text = " ".join(plan(f"--model Qwen/Qwen3.6-27B --gpu rtx-4090 --want running_requests=1 {kept}").split())
    first = text.partition("TP1 on 1 ×")[2].partition("TP2 on")[0]
    assert "nothing changed beside what is asked; kv_cache_dtype fp8_e4m3; disable_radix_cache true: refused" in first
    assert first.count("Nothing is left for pools: loading the weights takes") == 1
    assert "more than the static fraction allows" in first and "GiB left for pools" not in first
    assert " 0 further combinations" not in text


def test_usual_names_of_model_and_card_do() -> None:
    """And the draft of a quantized checkpoint is its original's."""
    kept = " ".join(f"--keep {kind}" for kind in ("slots", "ratio", "state_dtype", "kv_dtype", "draft_tokens"))
    found = document(
        f"--model qwen3.6-27b-fp8 --gpu 'RTX PRO 6000' --algorithm DFLASH --want running_requests=1 {kept}"
    )
    command = found["plan"]["shell"]
    assert "--model-path Qwen/Qwen3.6-27B-FP8 " in command
    assert "--speculative-draft-model-path z-lab/Qwen3.6-27B-DFlash" in command
    assert any("Qwen/Qwen3.6-27B-FP8, the shipped one of that name" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("given", "model"),
    [
        ("DeepSeek-V3", "deepseek-ai/DeepSeek-V3"),  # not V3.2
        ("deepseek_v3.2", "deepseek-ai/DeepSeek-V3.2"),
        ("gpt-oss-20b", "openai/gpt-oss-20b"),
        ("gpt-oss", "gpt-oss"),  # two have it in their names: told, not guessed
        ("somebody/DeepSeek-V3", "somebody/DeepSeek-V3"),  # another's checkpoint of that name is another
    ],
)
def test_a_model_without_its_organisation(given: str, model: str) -> None:
    assert by_usual_name(given) == model


def test_a_folder_comes_before_the_shipped_model_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt-oss-20b").mkdir()
    assert by_usual_name("gpt-oss-20b") == "gpt-oss-20b"


@pytest.mark.parametrize(
    ("given", "row"),
    [
        ("RTX PRO 6000", "rtx-pro-6000"),
        ("NVIDIA GeForce RTX 5090", "rtx-5090"),
        ("5090", "rtx-5090"),
        ("H100", "h100"),  # a row's own name, though H100 NVL has it too
        ("A100 80GB", "a100-80"),
        ("NVIDIA H200 141 GB", "h200"),  # not the share of one, whose title has these words, too
        ("A100", "A100"),  # of 40 or 80 GB?
        ("6000", "6000"),  # RTX PRO 6000, RTX 6000 Ada, A6000
        ("-", "-"),
        ("h2000", "h2000"),
    ],
)
def test_a_card_by_its_usual_name(given: str, row: str) -> None:
    assert gpu_by_usual_name(given) == row


def test_strict_is_for_scripts() -> None:
    kept = " ".join(f"--keep {kind}" for kind in ("fraction", "ratio", "kv_dtype", "draft_tokens", "strategy", "radix"))
    hopeless = f"params/story/tp1-8.yaml --want running_requests=2000 {kept}"
    done = CliRunner().invoke(app, ["plan", *shlex.split(hopeless), "--strict", "--json"])
    assert done.exit_code == 1 and json.loads(done.stdout)["reached"] is False


@pytest.mark.parametrize(
    ("arguments", "first", "second"),
    [
        ("", "no params file, and no --model", "Give PARAMS, or --model and --gpu"),
        ("--model Qwen/Qwen3.6-27B", "no params file, and no --gpu", "--gpus 2"),
        ("--model Qwen/Qwen3.6-28B --gpu h200", "Did you mean 'Qwen/Qwen3.6-27B'", "hipped"),
        ("--model Qwen/Qwen3.6-27B --gpu h2000", "--gpu: 'h2000' is not in the GPU table. Did you mean", "Known:"),
        ("--model Kimi-Linear --gpu h200", "mean 'moonshotai/Kimi-Linear-48B-A3B-Instruct'", "Instruct, and 67 more"),
        ("--model LFM2 --gpu h200", "Did you mean 'LiquidAI/LFM2-1.2B'", "LiquidAI/LFM2-8B-A1B, and 65 more"),
        ("--model Qwen/Qwen3.6-27B --gpu A100", "Did you mean 'a100-40' or 'a100-80'?", "total_mib"),
        (
            "--model nvidia/Qwen3.8-27B-NVFP4 --gpu h200 --algorithm DFLASH",
            "--algorithm DFLASH: it needs a draft model, and none is shipped for nvidia/Qwen3.8-27B-NVFP4.",
            "Give --draft: a folder with config.json, z-lab/Qwen3.5-DFlash-b16, ",
        ),
        (
            "--model Qwen/Qwen3.6-27B --gpu h200 --algorithm EAGLE3",
            "EAGLE3: it needs a draft model",
            "Give --draft: a f",
        ),
        (f"{ONE_STEP.replace('32768', '32k')}", "got '32k' (text). Did you mean 32768?", "a whole number from 1"),
        ("--model Qwen/Qwen3.6-27B --gpu h200 --gpus 0", "--gpus: got 0", "1 to 1,024"),
        (f"{ONE_STEP} --want context=1", "given twice", "Keep one"),
        (f"{ONE_STEP} --keep fractoin", "no such kind (did you mean 'fraction'?)", "Kinds: slots, ratio"),
        (f"{ONE_STEP} --set parallel.tp_size=3 --set gpu.count=3", "do not divide over 3 ranks", "Allowed: 1, 2, 4"),
        ("--model Qwen/Qwen3.6-27B --gpu h200 --algorithm DFLASHY", "DFLASHY", "ized are"),
        ("params/story/tp1-8.yaml --want draft=4", "no such wish", "Wishes: running_requests"),
    ],
)
def test_bad_input_is_two_lines(arguments: str, first: str, second: str) -> None:
    with pytest.raises(SpecbenchError) as told:
        plan(arguments)
    lines = str(told.value).splitlines()
    assert len(lines) == 2 and first in lines[0] and second in lines[1], lines


def test_what_is_chosen_without_a_params_file_is_told() -> None:
    """And on three cards, over which the model does not divide, two are planned with."""
    found = document(ONE_STEP.replace("0.5.16", "0.5.12").replace("--gpus 2", "--gpus 3"))
    assert any("does not divide over 3 ranks: planned from TP2" in note for note in found["notes"])
    assert "--mamba-scheduler-strategy extra_buffer" in found["plan"]["shell"]
    assert any("extra_buffer only" in note for note in found["notes"])
    assert yaml.safe_load(json.dumps(found)) == found  # plain values throughout


#: Of a search that is to be quick: nothing but the asked number and the slots.
KEPT = ("fraction", "ratio", "state_dtype", "kv_dtype", "draft_tokens", "strategy", "radix")
#: Card -> what the free memory of one, two and four of them rests on, by data/gpus.yaml.
RESTS = {
    "h200": ("measured", "measured", "measured"),
    "b200": ("derived", "derived", "derived"),  # a row without free_gib
    "l40s": ("logged", "derived", "derived"),  # one card in a public note
    "5090": ("logged", "derived", "derived"),
    "rtx-pro-6000": ("inferred", "inferred", "inferred"),
}


@pytest.mark.parametrize("card", RESTS)
def test_a_plan_says_of_every_number_of_cards_whether_it_was_measured(card: str) -> None:
    """With the words of `predict`, of the plan and of every number of ranks."""
    config, notes = from_scratch(model="Qwen/Qwen3.6-27B", gpu=card, gpus=4, version="0.5.16", algorithm="DFLASH")
    found = search(config, parse(["running_requests=8"]), keep=KEPT, sizes=(1, 2), notes=notes)
    told = to_document(found)
    assert tuple(size["rests_on"]["free"]["basis"] for size in told["sizes"]) == RESTS[card]
    assert found.best is not None
    words = found.best.budget.free.rests_on
    assert words is not None and words.words in rests_on(found.best)
    assert f"4 × {load_gpu(config.gpu.name).words}" in words.words
    assert ("not measured" in words.words) == (RESTS[card][2] != "measured")
    assert told["plan"]["predicted"]["free_memory"] == {"basis": words.basis, "words": words.words}
    assert to_budget_document(found.best.budget)["free"]["rests_on"] == told["plan"]["predicted"]["free_memory"]
    assert words.words in show.plan_answer(found).html.replace("&#x27;", "'")
    assert words.words in show.budget(found.best.budget).html.replace("&#x27;", "'")


def test_a_version_that_was_not_measured_is_inferred() -> None:
    """Four H200s were measured with 0.5.12 and 0.5.16."""
    words = load_gpu("h200").rests_on(4, "0.5.20")
    assert (words.basis, words.words) == (
        "inferred",
        "inferred, measured on 4 × H200 with other versions, not with 0.5.20",
    )
    assert load_gpu("cpu").rests_on(4, "0.5.23").words == "assumed, not measured on this host"


def test_sure_is_of_the_pools_and_says_so_of_what_is_beside_them() -> None:
    """Four RTX PRO 6000, 32 asked: 19.5 to 19.7 GiB beside the pools; graphs and a full prefill take 11.40 by
    estimate, at most 24.01. So slots are sure, and that memory suffices is likely."""
    config, notes = from_scratch(
        model="Qwen/Qwen3.6-27B", gpu="rtx-pro-6000", gpus=4, version="0.5.16", algorithm="DFLASH"
    )
    found = search(config, parse(["running_requests=32"]), keep=KEPT, sizes=(4,), notes=notes)
    best = found.best
    assert best is not None and best.certainty == "sure"
    assert certainty(best) == (
        "requests, slots and tokens sure: so over the whole interval of free memory; memory beside the pools "
        "estimated: enough for what graphs and a full prefill likely take, not for the most"
    )
    slack, taken = best.budget.terms["slack"].bytes, estimated_outside(best.budget)
    assert slack is not None and taken is not None and taken.point < slack.low < taken.high
    assert any(text.startswith("graphs and a full prefill may take up to") for text in cautions(best))
    assert "TP4" not in bases(found)  # one number of ranks: none needs to be named
    assert bases(found) == (
        "free memory before loading: inferred, not measured. mem_fraction_static as it is: 0.7851 (default of sglang "
        "0.5.16)"
    )
    # With a quarter of the card outside, the most by estimate fits as well.
    given = search(config.replace({"memory.mem_fraction_static": 0.6}), parse(["running_requests=8"]), sizes=(4,))
    assert given.best is not None and certainty(given.best).endswith(
        "enough, even if graphs and a full prefill take the most"
    )
    assert bases(given).endswith("mem_fraction_static as it is: 0.6 (given)")
