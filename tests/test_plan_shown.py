"""What a notebook and a page show of a plan: the same figures, everything escaped; and the frames of its pictures."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest

from specbench import frames, show
from specbench.campaign import pages, plan_page
from specbench.configuration.config import SECTIONS
from specbench.errors import SpecbenchError
from specbench.params import load_run, load_sections
from specbench.planning.search import plan
from specbench.planning.types import Answer
from specbench.planning.wishes import of_mapping, parse
from specbench.planning.words import rests_on, setting
from specbench.workbook.hygiene import parameter_names
from specbench.workbook.notebooks import source

HOSTILE = "<script>alert(1)</script>"


@functools.cache
def answer(params: str = "story/tp1-8", requests: int = 8, context: int | None = None) -> Answer:
    return plan(load_run(f"params/{params}.yaml"), {"running_requests": requests, "context": context})


def test_the_verdict_has_whole_numbers_of_every_number_of_ranks() -> None:
    lines = str(show.plan_verdict(answer())).splitlines()
    assert lines[0] == "predicted for 8 requests at once"
    assert [line.split()[0] for line in lines[3:7]] == ["TP1", "TP2", "TP4", "TP8"]
    assert lines[3].startswith("TP1    sure  33 [32, 35]") and lines[3].endswith("4 / 5 / 10")


def test_no_line_of_the_verdict_is_so_long_that_a_notebook_breaks_it_within_a_word() -> None:
    """Exported notebooks break text of more than about 100 letters anywhere: each change has a line of its own."""
    found = answer("story/tp1-8", 24)
    text = str(show.plan_verdict(found))
    assert max(map(len, text.splitlines())) < 90
    changes = text.split("\n\n")[1].splitlines()
    first = found.sizes[0].plans[0].changes
    assert len(first) > 1 and changes[0].startswith("TP1: ")
    assert [line.strip().removeprefix("TP1: ") for line in changes[: len(first)]] == [setting([one]) for one in first]


def test_the_answer_names_flags_and_the_whole_command() -> None:
    shown = show.plan_answer(answer())
    assert "Yes: 8 requests at once, on 1 × RTX PRO 6000 (TP1): set mem_fraction_static 0.89." in shown.text
    assert "mem_fraction_static 0.89 (set by this plan)" in shown.text and rests_on(answer().sizes[1].plans[0]) == (
        "the configuration alone; free memory inferred, not measured on 2 × RTX PRO 6000; "
        "mem_fraction_static 0.75 (given)"
    )
    assert "- --mem-fraction-static 0.75\n+ --mem-fraction-static 0.89" in shown.text
    assert 'class="verdict served"' in shown.html and "python -m sglang.launch_server" in shown.html
    assert "--mamba-ssm-dtype bfloat16" in show.plan_alternatives(answer()).html
    assert "accuracy of the state" in show.plan_alternatives(answer()).text
    assert "2 state slots are fewer than the 4 of one request" in show.plan_failures(answer()).text
    assert "more cards than there are" in show.plan_sizes(answer()).html


def test_alternatives_begin_with_the_ranks_that_were_given() -> None:
    """Two cards: their own number of ranks needs no change; that of one, which there is as well, comes after it."""
    found = answer("story/tp2-8-0516", context=32_768)
    assert [size.tp_size for size in found.owned] == [2, 1]
    lines = show.plan_alternatives(found).text.splitlines()
    ranks = [line.split()[0] for line in lines if line.startswith("TP")]
    assert ranks[0] == "TP2" and set(ranks[1:]) == {"TP1"}


def test_what_comes_from_outside_is_escaped() -> None:
    config = load_run("params/story/tp1-4.yaml").replace({"engine.args": {"served-model-name": HOSTILE}})
    found = plan(config, {"running_requests": 4}, sizes=(1,))
    for shown in (show.plan_answer(found), show.plan_sizes(found), show.plan_alternatives(found)):
        assert "<script>" not in shown.html
    assert "&lt;script&gt;" in show.plan_answer(found).html


def test_curves_have_the_given_settings_and_the_plan() -> None:
    """As given 7 requests leave 8 slots and 8 do not start; with a fraction of 0.89 8 do."""
    rows = frames.plan_curve(answer())
    assert list(rows["setting"].unique()) == ["as given, TP1", "the plan, TP1"]
    at = rows.set_index(["setting", "asked_requests"])
    assert at.loc[("as given, TP1", 7), "state_slots"] == 8
    assert at.loc[("as given, TP1", 8), "verdict"] == "refused"
    assert (at.loc[("the plan, TP1", 8), "running_requests"], rows["asked_requests"].max()) == (8, 16)
    assert frames.asked_here(answer()) == 8


def test_the_region_is_up_to_the_models_own_context_on_every_number_of_ranks() -> None:
    found = answer("story/tp2-8-0516", context=32_768)
    rows = frames.plan_region(found)
    # 32,768 is given: the model's own context is another setting, and the picture says so.
    assert list(rows["setting"].unique()) == [f"as given but for the context, TP{size}" for size in (1, 2, 4, 8)]
    assert found.given.memory.context_length == 32_768
    assert set(rows["context_len"]) == {262_144}
    assert frames.wished_here(found) == (8, 32_768) and frames.wished_here(answer()) is None
    # 749,416 tokens // 8: what each of 8 requests can have on two cards
    two = rows[(rows["setting"] == "as given but for the context, TP2") & (rows["asked_requests"] == 8)]
    assert two["tokens_per_request"].tolist() == [93_677]


@pytest.mark.parametrize("texts", [["running_requests=8", "context=32768", "prefix_cache=true", "slack_gib=3.5"], []])
def test_wishes_as_a_mapping_read_back_equal(texts: list[str]) -> None:
    assert of_mapping(parse(texts).mapping) == parse(texts)


def test_a_page_is_the_notebook_with_the_same_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}

    def executed(notebook: Path, output: Path, parameters: dict[str, Any]) -> str | None:
        told.update(parameters)
        return None

    def written(notebook: Path, target: Path, page: pages.Page) -> Path:
        target.write_text(page.title, encoding="utf-8")
        return target

    monkeypatch.setattr(plan_page, "execute", executed)
    monkeypatch.setattr(pages, "write", written)
    config, wishes = load_run("params/story/tp2-8-0516.yaml"), parse(["running_requests=8", "context=32768"])
    page = plan_page.write_page(tmp_path / "p.html", config, wishes, gpus=2, keep=["ratio"], draft=None)
    assert page.read_text(encoding="utf-8") == "story-tp2-8-0516: what to set"
    assert set(told) <= set(parameter_names(source(plan_page.PLAN_NOTEBOOK)))
    assert load_sections(**{key: told.get(key) for key in ("params", *SECTIONS)}) == config
    assert of_mapping(told["want"]) == wishes and (told["gpus"], told["keep"]) == (2, ["ratio"])
    monkeypatch.setattr(plan_page, "execute", lambda *_: "ValueError: no")
    with pytest.raises(SpecbenchError, match=r"the notebook of the page failed: ValueError: no\.\nThe answer itself"):
        plan_page.write_page(tmp_path / "q.html", config, wishes, gpus=None, keep=[], draft=None)
    assert not (tmp_path / "q.html").exists()


def test_a_prediction_on_other_numbers_of_cards_says_which_were_measured() -> None:
    """H200s with 0.5.16: 1, 2 and 4 are in data/gpus.yaml as measured, eight as inferred; L40S: one was logged."""
    config = load_run("params/story/tp4-8-0516.yaml", ["gpu.name=h200"])
    assert show.other_cards(config).text == (
        "free memory before loading: TP1, TP2, TP4 measured; TP8 inferred, not measured. mem_fraction_static as it is: "
        "0.75 (given)."
    )
    on_l40s = show.other_cards(config.replace({"gpu.name": "l40s", "memory.mem_fraction_static": None})).text
    assert "TP1 logged by others, not measured; TP2, TP4, TP8 derived from the card's total, not measured." in on_l40s
    assert re.search(r"as it is: TP1 0\.\d+, TP2 0\.\d+, TP4 0\.\d+, TP8 0\.\d+ \(default of sglang 0\.5\.16", on_l40s)
