"""Eight real ranks of one server, four on each of two H200s: what the formulas say of TP8 is what all eight allocated.

How they were started, and what they cannot show, is in live/quarters/README.md. Figures are literals that the engine
logged, or read: the rig noted each free memory that the engine asked for.
"""

from __future__ import annotations

import re
import statistics
from dataclasses import replace

import pytest

from specbench.budget.predict import predict
from specbench.campaign.bill import bill
from specbench.cli.ledger_text import other_ranks
from specbench.gpus import load_gpu
from specbench.judging.judge import budgets
from specbench.judging.reconcile import reconcile
from specbench.params import load_campaign
from specbench.records.caveats import marks, marks_of
from specbench.show.campaign import short_marks
from specbench.terms import Limit
from specbench.units import GIB, MIB, Interval
from tests.recorded_campaign import ROOT, Recorded, share_of

STARTS = Recorded("tp8-quarters", "live/quarters/quarters.yaml")
RANKS = tuple(f"TP{rank}" for rank in range(8))

#: name -> outcome, asked, resolved, served, state slots, tokens
LOGGED = {
    "story-4": ("served", 4, 4, 4, 323, 578_587),
    "story-8": ("served", 8, 8, 8, 301, 541_003),
    "story-8-fraction-88": ("served", 8, 8, 8, 383, 686_716),
    "dflash-4": ("served", 4, 4, 4, 78, 759_720),
    "dflash-8": ("served", 8, 8, 8, 78, 702_619),
    "dflash-8-fraction-88": ("served", 8, 8, 8, 98, 903_813),
    "dflash-32": ("capped", 32, 15, 15, 78, 602_395),
    "no-speculation-8": ("served", 8, 8, 8, 344, 809_899),
    "no-speculation-8-fraction-88": ("served", 8, 8, 8, 426, 1_001_147),
    "nextn-8": ("crashed", 8, 8, 5, 183, 909_314),
}
STORY = ("story-4", "story-8", "story-8-fraction-88")  # SGLang 0.5.12

#: What ranks 0 to 7 had free before loading in every start, bytes: 33.7755, 33.7521 and 33.8693 GiB.
BEFORE = (*(36_266_213_376,) * 2, *(36_241_047_552,) * 4, *(36_366_876_672,) * 2)
#: … and when the pools were sized, without a draft (SGLang 0.5.12 loads it later): 26.9845, 26.9611, 27.0783 GiB.
SIZED = (*(28_974_415_872,) * 2, *(28_949_250_048,) * 4, *(29_075_079_168,) * 2)
#: … on the smallest rank, where a draft stands: dflash-4 read a little less. Noted in six of the starts; dflash-8,
#: dflash-32, story-8 and no-speculation-8, where it was not, are taken to have read as the others.
SMALLEST = dict.fromkeys(LOGGED, min(SIZED)) | {
    "dflash-4": 28_129_787_904,
    "dflash-8": 28_133_457_920,
    "dflash-8-fraction-88": 28_133_457_920,
    "dflash-32": 28_133_457_920,
    "nextn-8": 28_095_709_184,
}


def log_of(name: str) -> str:
    return STARTS.opened(name).log_bytes().decode("utf-8", "replace")


def from_reads(name: str, sized: int, limit: Limit) -> Interval | None:
    budget = predict(
        STARTS.opened(name).config, pre_bytes=Interval.exact(min(BEFORE)), post_bytes=Interval.exact(sized)
    )
    return budget.limits[limit].value


def test_every_point_of_the_campaign_is_shipped_as_it_was_asked() -> None:
    STARTS.holds_what_was_asked(set(LOGGED))


@pytest.mark.parametrize("name", LOGGED)
def test_what_came_out(name: str) -> None:
    STARTS.came_out(name, LOGGED[name])


@pytest.mark.parametrize("name", LOGGED)
def test_from_what_the_smallest_rank_read_everything_is_exact(name: str) -> None:
    _, _, resolved, _, slots, tokens = LOGGED[name]
    assert from_reads(name, SMALLEST[name], "running_requests") == Interval.exact(resolved)
    assert from_reads(name, SMALLEST[name], "state_slots") == Interval.exact(slots)
    assert from_reads(name, SMALLEST[name], "kv_tokens") == Interval.exact(tokens)


@pytest.mark.parametrize("name", ["story-4", "no-speculation-8-fraction-88"])
def test_another_rank_than_the_smallest_would_make_other_pools(name: str) -> None:
    """What the four larger ranks have more, 24 and 120 MiB, is in no pool."""
    *_, tokens = LOGGED[name]
    for larger in {*SIZED} - {min(SIZED)}:
        found = from_reads(name, larger, "kv_tokens")
        assert found is not None and found.point > tokens


@pytest.mark.parametrize("name", LOGGED)
def test_from_the_logged_memory_requests_are_exact_and_the_rest_is_inside(name: str) -> None:
    _, _, resolved, _, slots, tokens = LOGGED[name]
    assert STARTS.predicted(name, "measured", "running_requests") == Interval.exact(resolved)
    for limit, logged, most in (("state_slots", slots, 0.01), ("kv_tokens", tokens, 0.015)):
        found = STARTS.predicted(name, "measured", limit)
        assert found.contains(logged)
        assert found.high - found.low <= max(3, most * logged)


@pytest.mark.parametrize("name", LOGGED)
def test_from_the_configuration_alone_requests_are_exact_and_the_rest_is_close(name: str) -> None:
    _, _, resolved, _, slots, tokens = LOGGED[name]
    assert STARTS.predicted(name, "config", "running_requests") == Interval.exact(resolved)
    assert STARTS.predicted(name, "config", "state_slots").point == slots
    assert STARTS.predicted(name, "config", "kv_tokens").contains(tokens)
    assert abs(STARTS.predicted(name, "config", "kv_tokens").point - tokens) <= 200


@pytest.mark.parametrize("name", LOGGED)
def test_a_rank_has_an_eighth_of_the_state_and_one_of_the_four_kv_heads(name: str) -> None:
    """Of state and convolution an eighth; 16 layers × 1 head × 256 × 2 B of K, as on four ranks; a draft has 5 layers
    with one of 8 heads of 128, or one layer with one of 4 heads of 256."""
    share = share_of(8)
    assert (share.ssm, share.conv, share.k) == (18_874_368, 368_640, 8_192)
    assert (share.k_dflash, share.k_nextn) == (1_280, 512)
    _, _, resolved, _, slots, tokens = LOGGED[name]
    STARTS.every_rank_holds_its_share(name, slots=slots, tokens=tokens, requests=resolved)


@pytest.mark.parametrize("name", LOGGED)
def test_every_rank_loads_an_eighth_of_the_weights(name: str) -> None:
    """7,291,797,504 B is 6.79 GiB."""
    log = log_of(name)
    loaded = re.findall(
        r"TP(\d)\] Load weight end\..*?type=Qwen3_5ForConditionalGeneration,.*?mem usage=([\d.]+) GB", log
    )
    assert sorted(rank for rank, _ in loaded) == [*"01234567"]
    assert {size for _, size in loaded} <= {"6.79", "6.80", "6.81"}
    assert [size for _, size in loaded].count("6.79") >= 5
    drafts = [
        float(size)
        for size in re.findall(
            r"Load weight end\..*?type=(?:DFlashDraftModel|\w+MTP),.*?mem usage=([\d.]+) GB", log_of(name)
        )
    ]
    if drafts:  # 824,180,736 B are 0.77 GiB, NEXTN's 0.80; a rank is charged what others load at that moment
        assert len(drafts) == 8
        assert statistics.median(drafts) == pytest.approx(0.80 if name == "nextn-8" else 0.77, abs=0.035)


@pytest.mark.parametrize("name", LOGGED)
def test_what_each_rank_had_free_before_loading_is_what_it_logs(name: str) -> None:
    first: dict[str, float] = {}
    for rank, size in re.findall(r"(TP\d)\] Load weight begin\. avail mem=([\d.]+) GB", log_of(name)):
        first.setdefault(rank, float(size))
    assert [first[rank] for rank in RANKS] == pytest.approx([size / GIB for size in BEFORE], abs=0.01)


@pytest.mark.parametrize("name", LOGGED)
def test_what_communication_takes_differs_by_halves_of_a_chain(name: str) -> None:
    """24 channels, of which each half has its own chain through the ranks: two ranks are first in one half and two are
    last in it. A rank that is first sends nothing back (24 / 2 × 2 MiB less), one that is last receives nothing (24 / 2
    × 10 MiB less): data/gpus.yaml, above h200."""
    first, between, last = sorted({*BEFORE}, key=BEFORE.index)
    assert (first - between, last - between) == (24 // 2 * 2 * MIB, 24 // 2 * 10 * MIB)
    taken = dict.fromkeys(RANKS, 0.0)
    for rank, size in re.findall(r"(TP\d)\] Init torch distributed ends\..*?mem usage=([\d.]+) GB", log_of(name)):
        taken[rank] = max(taken[rank], float(size))
    assert [*taken.values()] == [1.03, 1.03, 1.05, 1.05, 1.05, 1.05, 0.94, 0.94]
    assert (between - first) / GIB == pytest.approx(1.03 - 1.05, abs=0.01)


@pytest.mark.parametrize("name", LOGGED)
def test_before_the_starts_it_was_known_nearly_as_well(name: str) -> None:
    """From the total of such a share alone, as of a card that no row of the tables measured."""
    _, _, resolved, _, slots, tokens = LOGGED[name]
    bare = replace(load_gpu("h200-quarter"), name="not-measured", listed={})
    found = {limit: one.value for limit, one in predict(STARTS.opened(name).config, gpu=bare).limits.items()}
    running, state, kv = found["running_requests"], found["state_slots"], found["kv_tokens"]
    assert running is not None and state is not None and kv is not None
    assert running.point == resolved
    assert state.contains(slots) and abs(state.point - slots) <= 2
    assert kv.contains(tokens) and abs(kv.point - tokens) <= 0.006 * tokens


def test_a_share_is_told_from_a_card_wherever_it_is_predicted() -> None:
    budget = predict(STARTS.opened("dflash-32").config)
    assert budget.reason.endswith("(17.76 GiB left for pools per rank).")  # of a card it would be four times as much
    (said,) = [text for text in budget.warnings if "H200 QUARTER" in text]
    assert said == (
        "H200 QUARTER is no card: it is a share of one H200, shown to a process as the whole. That many ranks are not "
        "that many cards."
    )


def test_a_share_does_not_excuse_what_is_really_off() -> None:
    """As if there were four ranks: a quarter of the weights, 13.05 GiB, is no 6.79 that was counted a moment late."""
    found = STARTS.studied("no-speculation-8").diagnosis
    assert found.config is not None
    four = budgets(found.config.replace({"parallel.tp_size": 4, "gpu.count": 4}), found.pools)
    off = [row for row in reconcile(four, found.pools).off if row.term == "weights"]
    assert {row.attribution for row in off} == {
        "weights: the shapes of the config give another size than the engine loaded"
    }


def test_the_bill_is_of_the_cards_that_are_held() -> None:
    (cost,) = bill([load_campaign(ROOT / "live" / "quarters" / "quarters.yaml").runs[0]]).costs
    assert (cost.config.gpu.count, cost.gpus, cost.gpu_s) == (8, 2, 2 * cost.total_s)


#: What two such cards do, predicted, with a fraction of 0.88; with 0.75 nothing: running requests, state slots.
TWO = {
    "story-8-fraction-88": (0, 0),
    "dflash-8-fraction-88": (0, 2),
    "no-speculation-8-fraction-88": (3, 18),
}


@pytest.mark.parametrize("name", LOGGED)
def test_one_and_two_such_cards_do_not_hold_the_model(name: str) -> None:
    """A half of the weights, 27,531,411,456 B, is 25.64 GiB; 0.75 of the likely 33.66 GiB are 25.24, 0.88 are 29.62."""
    for ranks, expected in ((1, (0, 0)), (2, TWO.get(name, (0, 0)))):
        limits = predict(STARTS.opened(name).config.replace({"parallel.tp_size": ranks, "gpu.count": ranks})).limits
        found = [limits[limit].value for limit in ("running_requests", "state_slots")]
        assert tuple(value.point for value in found if value is not None) == expected


#: What four such cards do, predicted: running requests, state slots. SGLang's own sizing code resolves the same of the
#: same free memory (oracle.compare.campaigns of this campaign with four cards). By hand, no-speculation-8: 12.1739 GiB
#: for the pools, 13,071,618,048 B × 0.5 / 1.5 / 38,486,016 B of a slot on one of four ranks = 113.2.
FOUR = {
    "story-4": (4, 91),
    "story-8": (8, 70),
    "story-8-fraction-88": (8, 111),
    "dflash-4": (4, 24),
    "dflash-8": (4, 24),
    "dflash-8-fraction-88": (6, 34),
    "dflash-32": (4, 24),
    "no-speculation-8": (8, 113),
    "no-speculation-8-fraction-88": (8, 153),
    "nextn-8": (8, 55),
}


@pytest.mark.parametrize("name", LOGGED)
def test_what_four_such_cards_would_do(name: str) -> None:
    four = predict(STARTS.opened(name).config.replace({"parallel.tp_size": 4, "gpu.count": 4})).limits
    found = [four[limit].value for limit in ("running_requests", "state_slots")]
    assert tuple(value.point for value in found if value is not None) == FOUR[name]


def test_the_table_of_the_document_is_of_these_starts() -> None:
    text = (ROOT / "docs" / "h200.md").read_text(encoding="utf-8").partition("### Eight ranks of one server")[2]
    told = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in text.splitlines()
        if re.match(r"\| (DFLASH|NEXTN|no speculation) ", line)
    ]
    expected = []
    for name, (outcome, asked, resolved, served, slots, tokens) in LOGGED.items():
        config = STARTS.opened(name).config
        algorithm = "no speculation" if config.speculative.algorithm == "none" else config.speculative.algorithm
        ended = "crashed at its first full batch" if outcome == "crashed" else f"{resolved} → {served}"
        expected.append(
            (
                f"{algorithm} {asked} ({config.engine.version}), {config.memory.mem_fraction_static}",
                "{} ({})".format(*FOUR[name]),
                f"{asked} → {ended}",
                str(slots),
                f"{tokens:,}",
            )
        )
    assert told == expected


def test_graphs_in_which_ranks_differ_are_told_as_the_target_s_or_the_draft_s() -> None:
    """story-8: TP3 logs 0.62 GiB of graphs for the target, TP2 0.59; for the draft 0.15 and 0.22."""
    text = " ".join(other_ranks(STARTS.studied("story-8").diagnosis.ledgers))
    assert "CUDA graphs, target 0.62 GiB (TP2: 0.59); CUDA graphs, draft 0.15 GiB (TP2: 0.22)" in text


def test_four_ranks_serve_four_of_what_eight_serve_eight() -> None:
    """SGLang 0.5.16 with a DFLASH draft on such cards of 35 GiB: predicted on one, two and four, recorded on eight."""
    config = STARTS.opened("dflash-8").config
    served = []
    for ranks in (1, 2, 4, 8):
        value = (
            predict(config.replace({"parallel.tp_size": ranks, "gpu.count": ranks})).limits["running_requests"].value
        )
        assert value is not None
        served.append(value.point)
    assert served == [0, 0, 4, 8]  # one and two cards do not hold the weights within 0.75 of them
    assert STARTS.studied("dflash-8").resolved == 8


def test_nextn_dies_at_its_first_full_batch_on_all_ranks() -> None:
    """The mask of its CUDA graphs, 8 × 4 × 32,768 entries, is 8 × 4 × 4 too small: as on one card and on two."""
    log = log_of("nextn-8")
    said = re.findall(r"TP(\d)\] Scheduler hit an exception", log)
    assert sorted(said) == [*"01234567"]
    assert 8 * 4 * 32_768 == 1_048_576 and "size of the tensor (1048576) must match the existing size (1048704)" in log
    (finding,) = STARTS.studied("nextn-8").diagnosis.findings
    assert finding.id == "crashed-serving"
    assert "128 entries too small" in finding.cause


@pytest.mark.parametrize("name", LOGGED)
def test_the_record_says_what_it_is_of(name: str) -> None:
    record = STARTS.opened(name)
    STARTS.is_small_and_names_no_folder_of_a_person(name)
    if name != "nextn-8":  # which died in its second step
        STARTS.was_flushed_before_every_measured_step(name)
    assert "sglang is using nccl==2.30.4" in log_of(name)
    assert {gpu["name"] for gpu in record.env["machine"]["gpus"]} == {"a quarter of an NVIDIA H200"}
    assert len(record.env["machine"]["gpus"]) == 8


def test_it_is_marked_as_eight_ranks_on_two_cards_and_not_as_eight_cards() -> None:
    """143,771 MiB of an H200 // 35,942 = 4 to a card, so that eight ranks are on two; 35,942 MiB = 35.10 GiB."""
    study = STARTS.studied("dflash-32")
    mark = "8 RANKS ON 2 × H200, A QUARTER OF A CARD EACH"
    memory = "pools, limits and failures are those of 8 cards of 35.10 GiB"
    assert marks(study.record) == (f"{mark}: {memory}; speed is that of ranks that share 2 × H200",)
    assert study.diagnosis.marks == marks(study.record)
    assert short_marks(study) == [mark]
    four = study.record.config.replace({"gpu.count": 4, "parallel.tp_size": 4})
    assert [text.partition(",")[0] for text in marks_of(four)] == ["4 RANKS ON 1 × H200"]
    assert marks_of(four.replace({"gpu.name": "h200"})) == ()


def test_its_note_of_memory_in_use_says_eight_gpus_at_once() -> None:
    """Each held 66 MiB of the MPS server before the start; the record has the note as it was written then."""
    (note,) = [note for note in STARTS.studied("dflash-32").notes if note.startswith("GPU memory in use")]
    assert re.fullmatch(
        r"GPU memory in use before the start: GPU 0 to 7: each 34\.93 GiB free of 35\.10 GiB, "
        r"held by pid \d+ \(nvidia-cuda-mps-server\) 66 MiB",
        note,
    )


def test_the_campaign_sets_what_was_set_and_its_readme_the_rest() -> None:
    """Every variable of the recorded engines but those that only say where its source lay."""
    told = (ROOT / "live" / "quarters" / "README.md").read_text(encoding="utf-8")
    for run in load_campaign(ROOT / "live" / "quarters" / "quarters.yaml").runs:
        recorded = STARTS.opened(run.name).config.engine.env
        assert recorded.items() >= run.engine.env.items(), run.name
        beside = recorded.keys() - run.engine.env.keys()
        assert beside == {"RANKS_SHARE_GPUS", "LD_PRELOAD", "NCCL_MULTI_RANK_GPU_ENABLE", "PYTHONPATH"}
        assert all(f"      {name}: " in told for name in beside)
