"""`specbench predict` as a user runs it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from specbench.budget.predict import predict as predict_budget
from specbench.cli.budget_text import render
from specbench.params import load_run

from .command_line import specbench

ROOT = Path(__file__).parent.parent
STORY = ROOT / "params" / "story"


def predict(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return specbench("predict", *arguments, columns=120)


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
    for words in (
        "predicted: refused",
        "GiB per rank",
        "the configuration alone; free memory inferred",
        "capture_bs=[0]",
    ):
        assert words in done.stdout
    assert "graphs" in done.stdout and "not predicted" in done.stdout


def test_a_model_without_state_has_none_which_is_not_unknown(tmp_path: Path) -> None:
    file = tmp_path / "plain.yaml"
    file.write_text(
        "name: plain\nengine: {version: 0.5.16}\nmodel: Qwen/Qwen3-8B\ngpu: {name: h200}\n", encoding="utf-8"
    )
    row = next(line for line in predict(file).stdout.splitlines() if line.split()[:1] == ["state_slots"])
    assert row.split(maxsplit=1)[1].strip() == "none, no state"


def test_text_names_the_version_once_and_notes_come_before_the_formulas() -> None:
    done = predict(STORY / "tp1-8.yaml", "--set", "engine.args.quantization=fp8")
    lines = done.stdout.splitlines()
    assert lines[0] == "story-tp1-8  sglang 0.5.12"
    # the rules are told in words; the package's own numbering of them is no word of the field, and is not printed
    flat = " ".join(done.stdout.split())
    assert "0.5.12: the speculative scratch of every request asked is taken first" in flat and "(era" not in flat
    assert "by tokens" not in done.stdout
    order = ("note: engine.args.quantization", "left for pools  ", "remedies, each", "how each figure")
    places = [next(n for n, line in enumerate(lines) if words in line) for words in order]
    assert places == sorted(places) and places[0] < 10


def test_text_and_json_tell_what_is_left_for_pools() -> None:
    # 43.1911 - 94.40 × (1 - 0.75) = 19.5911 GiB
    measured = ["--pre-gib", "94.40", "--post-gib", "43.1911"]
    text = predict(STORY / "tp1-4.yaml", *measured).stdout
    assert any(line.split() == ["left", "for", "pools", "19.59"] for line in text.splitlines())
    assert "43.1911 - 94.4000 × (1 - 0.75) = 19.5911 GiB" in " ".join(text.split())
    found = json.loads(predict(STORY / "tp1-4.yaml", *measured, "--json").stdout)
    assert found["left_for_pools"] == pytest.approx(19.5911 * 2**30, abs=2)
    assert found["formulas"]["left_for_pools"]["numbers"] == "43.1911 - 94.4000 × (1 - 0.75) = 19.5911 GiB"


ON_TWO_H200 = [
    *("--set", "gpu.name=h200", "--set", "gpu.count=2", "--set", "parallel.tp_size=2"),
    *("--set", "engine.version=0.5.16"),
]


def test_what_communication_takes_is_told_beside_the_free_memory() -> None:
    """1.07 GiB on both ranks, as h200-tp2_dflash-8 logged."""
    text = " ".join(predict(STORY / "tp4-8.yaml", *ON_TWO_H200).stdout.split())
    assert (
        "communication: 1.07 GiB (1.06 to 1.08) per rank are taken before that, by the distributed init once the CUDA "
        "context stands, and are not in the free memory; GPU table: measured: 13 starts log 1.07 on both ranks"
    ) in text
    found = json.loads(predict(STORY / "tp4-8.yaml", *ON_TWO_H200, "--json").stdout)["free"]["communication"]
    assert (found["bytes"], found["measured"]) == (round(1.07 * 2**30), True)
    assert found["interval"] == [round(1.06 * 2**30), round(1.08 * 2**30)]
    assert "NCCL_NVLS_ENABLE=0" in found["source"]


def test_communication_that_was_not_measured_is_said_so_and_null() -> None:
    text = " ".join(predict(STORY / "tp4-8.yaml").stdout.split())  # of an RTX PRO 6000
    assert (
        "communication: what the distributed init takes before that was not measured on 4 × RTX PRO 6000; on 4 × H200 "
        "it was 1.28 GiB per card (0.5.12). The free memory before loading is inferred: as one GPU, less up to 1.0 "
        "GiB, likely 0.7, for NCCL: PCIe has 2 to 8 channels, NVLink 24."
    ) in text
    newer = " ".join(predict(STORY / "tp4-8.yaml", *ON_TWO_H200, "--set", "gpu.name=rtx-pro-6000").stdout.split())
    assert "not measured on 2 × RTX PRO 6000; on 2 × H200 it was 1.07 GiB per card (0.5.16). The free memory" in newer
    eight = " ".join(predict(STORY / "tp8-8.yaml").stdout.split())
    assert "not measured on 8 × RTX PRO 6000; on 4 × H200 it was 1.28 GiB per card (0.5.12)" in eight
    one = " ".join(predict(STORY / "tp1-8.yaml").stdout.split())
    assert "was not measured on 1 × RTX PRO 6000; on 1 × H200 it was 0.09 GiB. sized by" in one
    assert json.loads(predict(STORY / "tp4-8.yaml", "--json").stdout)["free"]["communication"] is None
    measured = ["--pre-gib", "94.40", "--post-gib", "80"]
    assert "communication:" not in predict(STORY / "tp4-8.yaml", *measured).stdout
    assert json.loads(predict(STORY / "tp4-8.yaml", *measured, "--json").stdout)["free"]["communication"] is None


def test_slots_and_tokens_of_several_ranks_are_said_to_be_the_servers() -> None:
    """Qwen3.6-27B has 4 KV heads."""
    text = " ".join(predict(STORY / "tp4-8.yaml").stdout.split())
    assert (
        "487 slots and 1,748,379 tokens are those of the server, not to be multiplied: each rank holds 1/4 of every "
        "slot's state and one of the 4 KV heads of every token."
    ) in text
    assert "GiB left for pools per card)" in text
    eight = " ".join(predict(STORY / "tp8-8.yaml").stdout.split())
    assert "1/8 of every slot's state and one of the 4 KV heads of every token (each head is kept twice)." in eight
    one = " ".join(predict(STORY / "tp1-4.yaml").stdout.split())
    assert "not to be multiplied" not in one and "per card" not in one


def test_json_has_the_formula_of_every_figure() -> None:
    found = json.loads(predict(STORY / "tp1-8.yaml", "--json").stdout)
    assert set(found["formulas"]) == {"left_for_pools", *found["limits"], *found["bytes"]}
    for formula in found["formulas"].values():
        assert set(formula) == {"words", "numbers", "rule"} and formula["words"] and formula["rule"]
    assert found["formulas"]["state_ssm"]["numbers"] == "(2 + 1) × 150,994,944 B = 452,984,832 B"


def test_what_falls_short_has_remedies_that_hold_when_they_are_set() -> None:
    measured = ["--pre-gib", "94.40", "--post-gib", "43.1911", "--json"]
    remedies = json.loads(predict(STORY / "tp1-8.yaml", *measured).stdout)["remedies"]
    assert len(remedies) >= 3
    first = next(remedy for remedy in remedies if remedy["basis"] == "measured")
    changes = [word for key, value in first["set"].items() for word in ("--set", f"{key}={json.dumps(value)}")]
    again = json.loads(predict(STORY / "tp1-8.yaml", *changes, *measured).stdout)
    assert again["verdict"] == "serves" and again["remedies"] == []
    for limit, value in first["predicted"].items():
        if limit != "verdict":
            assert again["limits"][limit] == value
    text = predict(STORY / "tp1-8.yaml", *measured[:-1]).stdout
    assert f"→ {first['flags']}" in text and "each predicted from the free memory given" in " ".join(text.split())


def test_without_a_wish_the_workload_is_what_remedies_reach() -> None:
    wish = ["--set", "memory.max_running_requests=null", "--set", "workload.concurrency=[6]"]
    found = json.loads(predict(STORY / "tp1-8.yaml", *wish, "--json").stdout)
    # 48 by default with speculation: 48 × 2.29 GiB of scratch come first in this version
    assert found["verdict"] == "refused" and found["remedies"]
    assert all(remedy["predicted"]["running_requests"] >= 5 for remedy in found["remedies"][:-1])


def test_no_remedy_is_said_too() -> None:
    done = predict(STORY / "tp1-8.yaml", "--set", "workload.output_tokens=2000000000")
    assert "no remedy: none of the changes tried serves 8 requests at once." in done.stdout


@pytest.mark.parametrize(
    ("pre", "post", "noted"),
    [
        ("94.40", "43.1911", False),  # 51.21 GiB: the weights
        ("94.40", "60", True),  # 34.40 GiB
        ("94.40", "39.90", True),  # 54.50 GiB: with the draft, which this version loads later
    ],
)
def test_a_measurement_that_the_weights_contradict_is_noted(pre: str, post: str, noted: bool) -> None:
    found = json.loads(predict(STORY / "tp1-4.yaml", "--pre-gib", pre, "--post-gib", post, "--json").stdout)
    fell = float(pre) - float(post)
    words = f"Free memory fell by {fell:.2f} GiB while loading, but the weights of this configuration take 50.92 GiB to"
    assert any(warning.startswith(words) for warning in found["warnings"]) == noted


@pytest.mark.parametrize("figure", ["nan", "inf", "-3", "0"])
def test_a_size_that_is_none_names_its_option(figure: str) -> None:
    done = predict(STORY / "tp1-4.yaml", "--pre-gib", figure, "--post-gib", "40")
    assert done.returncode == 2 and "--pre-gib" in done.stderr and "Traceback" not in done.stderr


def test_a_terminal_without_unicode_gets_question_marks() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "specbench", "predict", str(STORY / "tp1-8.yaml")],
        capture_output=True,
        cwd=ROOT,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "COLUMNS": "120", "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 0, done.stderr
    assert b"? --mem-fraction-static" in done.stdout


def test_absurd_figures_are_answered() -> None:
    """The remedy for such a limit would be more slots than a params file may state: it is left out."""
    most = str(2**31 - 1)
    shown = predict(STORY / "tp1-4.yaml", "--set", f"memory.max_running_requests={most}")
    assert (shown.returncode, "refused" in shown.stdout) == (0, True), shown.stderr
    ranks = ("--set", f"parallel.tp_size={most}", "--set", f"gpu.count={most}")
    shown = predict(STORY / "tp1-4.yaml", *ranks)
    assert (shown.returncode, "do not divide over 2147483647 ranks" in shown.stderr) == (2, True), shown.stderr


def test_help_asks_for_a_run_not_for_a_campaign() -> None:
    text = " ".join(predict("--help").stdout.split())
    assert "A params file of one run" in text and "campaign" not in text


def test_bad_input_is_two_lines_and_exit_2() -> None:
    done = predict(STORY / "tp1-8.yaml", "--set", "memory.max_runing_requests=4")
    assert done.returncode == 2
    assert "did you mean" in done.stderr.lower() and "Traceback" not in done.stderr
    campaign = ROOT / "params" / "h200-tp8.yaml"
    done = predict(campaign)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 2
    assert f"'specbench run {campaign} --dry-run' predicts all, starts none." in done.stderr
    done = predict(STORY / "tp1-8.yaml", "--pre-gib", "94")
    assert done.returncode == 2 and "--post-gib" in done.stderr


def test_predicting_imports_nothing_heavy() -> None:
    code = (
        "import sys; from specbench.budget.predict import predict; from specbench.engines.sglang import command; "
        "print(sorted({'pandas','matplotlib','seaborn','papermill','nbconvert','IPython','aiohttp','pynvml','numpy'} "
        "& set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_what_a_known_fault_ends_is_warned_of() -> None:
    params = ROOT / "params" / "recordings" / "h200_nextn-4-full-card.yaml"
    fault = (
        "Memory suffices, but SGLang 0.5.16 ends at its first full batch (of 4), as recorded: the attention mask of "
        "its CUDA graphs is too small. --disable-cuda-graph avoids it."
    )
    done = predict(params, "--json")
    found = json.loads(done.stdout)
    assert (found["verdict"], found["known_fault"], found["warnings"][0]) == ("serves", fault, fault)
    text = predict(params, "--strict")
    assert text.returncode == 1  # not everything that was asked is served
    assert f"warning: {fault}" in " ".join(text.stdout.split())
    for change in ("engine.args.disable-cuda-graph=true", "engine.args.attention-backend=fa3"):
        other = predict(params, "--strict", "--json", "--set", change)
        assert (other.returncode, json.loads(other.stdout)["known_fault"]) == (0, None)


@pytest.mark.parametrize(
    ("card", "gpus", "version", "low", "high"),
    [
        # the table's 137.20 to 138.29; several ranks read 0 to 0.08 GiB more than the log prints
        ("h200", 8, "0.5.16", 137.20, 138.37),
        # 44.9883 - 1.9 - 0.012 × 44.9883 = 42.5484 and 44.9883 - 0.9 = 44.0883, and the same 0 to 0.08
        ("l40s", 4, "0.5.16", 42.55, 44.17),
        # 138.21 ± 0.01 measured, 0.0032 ± 0.005 more
        ("h200", 2, "0.5.16", 138.20, 138.23),
    ],
)
def test_free_before_loading_is_what_the_solver_reads_over_its_whole_interval(
    card: str, gpus: int, version: str, low: float, high: float
) -> None:
    """Its low end is the table's with the least offset: not the one at which least is left, with the greatest."""
    given = ("--set", f"gpu.name={card}", "--set", f"gpu.count={gpus}", "--set", f"parallel.tp_size={gpus}")
    done = predict(STORY / "tp8-8.yaml", *given, "--set", f"engine.version={version}", "--json")
    found = json.loads(done.stdout)["free"]["pre"]
    assert [round(size / 2**30, 2) for size in found] == [low, high]


@pytest.mark.parametrize("width", [44, 60, 80, 200])
def test_no_figure_is_cut_on_a_narrow_terminal(width: int) -> None:
    """Rich ends what does not fit with '…': 2,810,6… is another figure. Each figure and name of the tables is whole."""
    budget = predict_budget(load_run(STORY / "tp8-8-0516.yaml"))
    console = Console(width=width, file=io.StringIO(), color_system=None)
    render(budget, (), 8, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "…" not in text.partition("how each figure")[0]
    for name in ("slots_per_request", "running_requests", "left for pools", "scratch_conv"):
        assert f" {name} " in text
    for bound in ("2,734,754", "2,810,640", "GiB per rank", "(estimated)"):
        assert bound in text
