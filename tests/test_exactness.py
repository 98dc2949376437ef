"""How exact predictions are, against every recording and public case: shares, reasons, a page that is up to date."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.diagnose.diagnosis import of_record
from specbench.diagnose.types import Diagnosis
from specbench.errors import SpecError
from specbench.records.record import RunRecord
from specbench.show.exactness import exactness
from specbench.studies.cases import of_case, read_cases, read_not_compared
from specbench.studies.compared import Compared, farthest, missed_by, shares
from specbench.studies.exactness import compared
from specbench.studies.exactness_page import page
from specbench.studies.study import study
from specbench.units import GIB, Interval

HERE = Path(__file__).parent
FILES = (HERE / "starts.yaml", HERE / "cases.yaml")
CASES = [case for file in FILES for case in read_cases(file)]
NOT_COMPARED = {name: why for file in FILES for name, why in read_not_compared(file).items()}


@pytest.fixture(scope="module")
def recordings() -> tuple[Diagnosis, ...]:
    folders = sorted(folder for folder in (HERE / "records").iterdir() if folder.is_dir())
    return tuple(of_record(RunRecord.open(folder)) for folder in folders)


@pytest.fixture(scope="module")
def rows(recordings: tuple[Diagnosis, ...]) -> tuple[Compared, ...]:
    return compared(recordings, CASES)


def test_the_page_is_up_to_date(rows: tuple[Compared, ...]) -> None:
    """After a change that is right: make docs."""
    text = (HERE.parent / "docs" / "exactness.md").read_text(encoding="utf-8")
    assert text == page(rows, CASES, NOT_COMPARED)


#: source, basis, figure -> rows, exact, inside the interval, off. What falls here is a regression.
SHARES = {
    ("recording", "configuration", "state_slots"): (71, 71, 0, 0),
    ("recording", "configuration", "running_requests"): (65, 65, 0, 0),
    ("recording", "configuration", "kv_tokens"): (71, 23, 48, 0),
    ("recording", "configuration", "weights"): (78, 58, 20, 0),
    ("recording", "configuration", "draft_weights"): (61, 34, 24, 3),  # off: ranks that share a card
    ("recording", "configuration", "refusal"): (75, 75, 0, 0),
    ("recording", "measured", "state_slots"): (71, 71, 0, 0),
    ("recording", "measured", "running_requests"): (65, 65, 0, 0),
    ("recording", "measured", "kv_tokens"): (71, 46, 25, 0),
    ("recording", "measured", "refusal"): (73, 73, 0, 0),
    ("measured start", "configuration", "state_slots"): (21, 20, 1, 0),
    ("measured start", "configuration", "running_requests"): (25, 25, 0, 0),
    ("measured start", "configuration", "kv_tokens"): (25, 2, 23, 0),
    ("measured start", "configuration", "weights"): (13, 8, 5, 0),
    ("measured start", "configuration", "draft_weights"): (1, 1, 0, 0),
    ("measured start", "measured", "state_slots"): (11, 9, 2, 0),
    ("measured start", "measured", "running_requests"): (13, 13, 0, 0),
    ("measured start", "measured", "kv_tokens"): (13, 1, 12, 0),
    ("public case", "configuration", "slots_per_request"): (4, 4, 0, 0),
    ("public case", "configuration", "weights"): (8, 3, 2, 3),
    ("public case", "configuration", "draft_weights"): (3, 1, 1, 1),
    ("public case", "configuration", "refusal"): (1, 1, 0, 0),
    ("public case", "measured", "state_slots"): (3, 2, 1, 0),
    ("public case", "measured", "kv_tokens"): (3, 0, 3, 0),
    ("public case", "formula", "running_requests"): (13, 13, 0, 0),
    ("public case", "formula", "pool_size"): (54, 52, 0, 2),
    ("public case", "back-solved", "state_slots"): (2, 1, 0, 1),
    ("public case", "back-solved", "pool_size"): (3, 3, 0, 0),
}


def test_the_short_table_sums_the_sources(rows: tuple[Compared, ...]) -> None:
    """By hand from SHARES, configuration: slots 71 + 20 of 71 + 21; tokens 23 + 2 of 71 + 25; 5,251 of 1,383,571."""
    text = page(rows, CASES, NOT_COMPARED)
    assert "| state slots | 91 of 92 | 1 | 0 | 0.43 % |" in text
    assert "| KV tokens | 25 of 96 | 71 | 0 | 0.38 % |" in text
    assert "| refused or not | 76 of 76 | 0 | 0 |  |" in text
    assert "| weights (exact: within the rounding of the log) | 69 of 99 | 27 | 3 | 13 % |" in text


def test_the_shares(rows: tuple[Compared, ...]) -> None:
    assert shares(rows) == SHARES


def test_what_is_not_exact_says_why(rows: tuple[Compared, ...]) -> None:
    silent = [(row.name, row.what, row.basis) for row in rows if row.verdict != "exact" and not row.why]
    assert silent == []


def test_how_far_the_points_of_recordings_are_off(rows: tuple[Compared, ...]) -> None:
    """Tokens: 3 from the free memory of the start; 4 from the configuration, but 42 of two emulated ones (a passed
    fraction), 104 of a model that was measured once and 170 (3.5 MiB) of one whose ranks shared a card. Weights:
    0.02 GiB, of 6.8 to 51."""

    def most(figure: str, basis: str) -> list[int]:
        mine = [row for row in rows if row.source == "recording" and (row.figure, row.basis) == (figure, basis)]
        return sorted({abs(row.predicted.point - row.logged) for row in mine if row.predicted is not None})

    assert most("kv_tokens", "measured") == [0, 1, 2, 3]
    assert most("kv_tokens", "configuration") == [0, 1, 2, 3, 4, 42, 104, 170]
    assert max(most("weights", "configuration")) < 0.03 * GIB


def test_the_farthest_point_by_both_measures(rows: tuple[Compared, ...]) -> None:
    """Of tokens 170 of 759,720 (0.022 %); before it 104 of 1,701,906, and 2 of 11,895 (0.017 %)."""
    mine = [
        row for row in rows if row.source == "recording" and (row.figure, row.basis) == ("kv_tokens", "configuration")
    ]
    found = farthest(mine)
    assert found is not None
    assert [(row.name, missed_by(row), row.logged) for row in found] == [("tp8-quarters_dflash-4", 170, 759_720)] * 2
    others = farthest(row for row in mine if row.name != "tp8-quarters_dflash-4")
    assert others is not None
    assert [(row.name, missed_by(row), row.logged) for row in others] == [
        ("q35b_nextn_r16", 104, 1_701_906),
        ("h200_story-8", 2, 11_895),
    ]
    assert farthest(row for row in mine if row.verdict == "exact") is None


def test_of_all_recordings_only_the_one_that_ran_out_of_memory_is_foreseen_to(
    recordings: tuple[Diagnosis, ...],
) -> None:
    """Its pools overrun the card. No other is warned of, and what graphs took lies within their estimate."""
    foreseen, captures = [], 0
    for found in recordings:
        ran_out = any(failure.kind == "cuda_oom" for failure in found.log.failures)
        for budget in found.budgets.values():
            assert budget.out_of_memory is None
            if "overrun the card" in budget.reason:
                foreseen.append((found.name, ran_out))
        ranks = [graph.rank for graph in found.log.graphs]
        most = max((ranks.count(rank) for rank in ranks), default=0)
        for row in found.reconciliation.rows:
            if row.term == "graphs" and row.observed is not None and row.predicted is not None:
                assert row.verdict == "estimated"
                # One rank logs the multi-token head's captures, and one start crashed between two of them.
                if ranks.count(row.rank) == most and found.log.ready_line is not None:
                    assert row.delta is not None and abs(row.delta) <= row.tolerance
                    captures += 1
    assert foreseen == [("oom_r8", True)] * 2
    assert captures == 256


def test_every_public_log_with_pools_is_compared_or_says_why_not() -> None:
    logged = {file.stem for file in (HERE / "logs" / "sglang" / "cases").glob("*.log")}
    no_pools = {name for name in logged if name.startswith("bench-")} | {"eagle3-speedup-below-paper"}
    named = {case.name for case in CASES} | set(NOT_COMPARED)
    assert logged - no_pools - named == set()


def row_of(name: str, what: str) -> Compared:
    (case,) = (case for case in CASES if case.name == name)
    return next(row for row in of_case(case) if row.what == what)


@pytest.mark.parametrize(
    ("name", "what", "predicted"),
    [
        # 48 layers × 48 heads × 128 × 128 × 4 B = 150,994,944 B a slot, 191 slots and one of padding
        ("qwen38-cookbook-191slots", "state_ssm", 192 * 150_994_944),
        # 24 × (32 × 128 × 128 × 4) = 50,331,648 B a slot; 64 requests and a row of padding, 16 tokens each
        ("dflash-b16-oom-48gb-intermediate", "scratch_ssm", 65 * 16 * 50_331_648),
        # windows of a chain share columns: 24 layers × 8,192 channels × (16 + 4 - 2 - 1 = 17 + 1) columns × 2 B
        ("dflash-b16-oom-48gb-intermediate", "scratch_conv", 65 * 24 * 8_192 * 18 * 2),
        # 61 layers × (512 + 64) × 1 B
        ("deepseekv3-class-8rank", "kv", (2_659_072 + 1) * 61 * 576),
        # 10 layers × 1,536 channels × 2 columns × 2 B
        ("lfm2-700m-conv-only", "state_conv", 85_293 * 61_440),
        ("qwen36-27b-ada48-cap9", "running_requests", 47 // 5),
    ],
)
def test_figures_by_hand(name: str, what: str, predicted: int) -> None:
    found = row_of(name, what)
    assert found.predicted == Interval.exact(predicted)
    assert found.verdict == "exact"


def test_a_case_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text("source: public case\ncompared: [{case: one, flags: {}}]\nnot_compared: {}\n", encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        read_cases(file)
    assert str(caught.value).startswith("cases.yaml: one: 'flags': no such key.\nAllowed here: case, report, config,")


def test_a_campaign_says_how_exact_it_was() -> None:
    studies = [study(HERE / "records" / name) for name in ("h200_dflash-4", "dflash_r8")]
    text = exactness(studies).text
    lines = {tuple(line.split()[:3]): line.split() for line in text.splitlines()}
    assert lines["measured", "KV", "tokens"][3:8] == ["2", "1", "1", "0", "1"]  # 158,178 for 158,177: dflash_r8
    assert "(dflash_r8)" in lines["measured", "KV", "tokens"]
    assert lines["configuration", "state", "slots"][3:] == ["2", "2", "0", "0"]
    assert "not watched by NVML" in text and "graphs" in text  # that estimates are no part of it
    # The first has the budget of an RTX PRO 6000, whose free memory no start has told.
    assert "Configuration: free memory inferred, not measured on 1 × RTX PRO 6000; measured on 1 × H200." in text


def test_where_nothing_was_logged_nothing_is_said() -> None:
    assert exactness([]).text == ""
