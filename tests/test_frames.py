"""Frames of real recordings. The expected figures are those that SGLang logged (and nvidia-smi showed)."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pandas as pd
import pytest

from specbench import frames
from specbench.budget.grid import predict_grid
from specbench.budget.predict import predict
from specbench.diagnose.diagnosis import of_path
from specbench.frames.columns import COLUMNS, build
from specbench.frames.curves import around
from specbench.judging.accounting import ledgers
from specbench.judging.ledger import Card
from specbench.params import load_run
from specbench.reading.latency import load_name
from specbench.studies.study import Collection, Study, collect, siblings, study
from specbench.units import GIB

RECORDS = Path(__file__).parent / "records"
LIVE = Path(__file__).parent / "live" / "records"
#: half of SGLang's last printed digit (0.01 GiB)
ROUNDING = 0.005 * GIB


@pytest.fixture(scope="module")
def capped() -> Study:
    return study(RECORDS / "dflash_r8")


@pytest.fixture(scope="module")
def refused() -> Study:
    return study(RECORDS / "0512_dflash_r8")


@pytest.fixture(scope="module")
def everything() -> Collection:
    return collect(RECORDS)


def test_every_column_is_declared_with_a_meaning() -> None:
    assert all(column.meaning and column.dtype for columns in COLUMNS.values() for column in columns)


def test_a_frame_has_exactly_the_declared_columns(capped: Study, refused: Study) -> None:
    studies = [capped, refused]
    made = {
        "runs": frames.runs(studies),
        "memory": frames.memory(studies),
        "limits": frames.limits(studies),
        "waterfall": frames.waterfall(capped),
        "grid": frames.grid(predict_grid(capped.record.config, {"memory.max_running_requests": [4, 8]})),
        "requests": frames.requests(studies),
        "latency": frames.latency(studies),
        "timeline": frames.timeline(studies),
        "phases": frames.phases(studies),
        "gpu": frames.gpu(studies),
    }
    assert made.keys() == COLUMNS.keys()
    for name, frame in made.items():
        assert [(column, str(dtype)) for column, dtype in frame.dtypes.items()] == [
            (column.name, column.dtype) for column in COLUMNS[name]
        ], name


def test_a_row_with_another_column_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="not as declared"):
        build("waterfall", [{"term": "kv"}])


def test_runs_tell_asked_resolved_and_served_apart(capped: Study, refused: Study) -> None:
    rows = frames.runs([capped, refused]).set_index("run")
    one = rows.loc["dflash_r8"]
    assert (one["asked_requests"], one["resolved_requests"], one["served_requests"]) == (8, 1, 1)
    assert (one["state_slots"], one["kv_tokens"]) == (8, 158177)
    assert (one["status"], one["outcome"], one["origin"]) == ("served", "capped", "recorded")
    two = rows.loc["0512_dflash_r8"]
    assert (two["asked_requests"], two["status"]) == (8, "refused")
    assert (two["state_slots"], two["kv_tokens"]) == (2, 11866)
    assert pd.isna(two["served_requests"])  # nothing ran: not 0


def test_memory_holds_what_the_log_printed(capped: Study) -> None:
    rows = frames.memory([capped])
    logged = rows[rows["basis"] == "measured"].set_index("term")["observed"]
    assert logged["weights"] == pytest.approx(51.05 * GIB, abs=ROUNDING)
    assert logged["draft_weights"] == pytest.approx(3.38 * GIB, abs=ROUNDING)
    assert logged["state_ssm"] == pytest.approx(1.27 * GIB, abs=ROUNDING)
    assert logged["scratch_ssm"] == pytest.approx(4.50 * GIB, abs=ROUNDING)
    assert logged["kv"] == pytest.approx((4.83 + 4.83) * GIB, abs=2 * ROUNDING)
    assert logged["draft_kv"] == pytest.approx((1.51 + 1.51) * GIB, abs=2 * ROUNDING)
    assert logged["slack"] == pytest.approx(66.04 * GIB, abs=ROUNDING)


def test_a_term_that_was_not_logged_is_missing_not_zero(refused: Study) -> None:
    rows = frames.memory([refused])
    draft = rows[(rows["basis"] == "measured") & (rows["term"] == "draft_kv")]
    assert len(draft) == 1
    assert draft["observed"].isna().all()
    assert draft["verdict"].tolist() == ["not logged"]


@pytest.mark.parametrize(
    "name",
    [
        *("dflash_r8", "nospec_r8", "tp2_dflash_r8", "tp4_dflash_r8", "0512_dflash_r4", "0512_dflash_r4_exact"),
        *("nextn_r4_full", "var_maxmamba20_r4", "dflash_r8_full", "ngram_r8"),
    ],
)
def test_both_sides_of_the_waterfall_add_up_to_the_card(name: str) -> None:
    rows = frames.waterfall(study(RECORDS / name))
    stacked = rows[rows["term"] != "graphs"]  # graphs lie within slack
    assert stacked["observed_bytes"].sum() == 143_771 * 2**20
    assert stacked["predicted_bytes"].sum() == 143_771 * 2**20
    assert not stacked["observed_bytes"].isna().any()
    # what the distributed init took has a bar of its own, which the driver's and the context's is without
    assert (stacked["term"].iloc[0], stacked["term"].iloc[1]) == ("before", "communication")
    assert 1.1 * GIB < stacked["observed_bytes"].iloc[0] < 1.2 * GIB + ROUNDING
    # the total is what NVML saw
    assert set(stacked["card_bytes"]) == {150_754_820_096}


@pytest.mark.parametrize("name", sorted(folder.name for folder in RECORDS.glob("h200_*")))
def test_what_is_observed_adds_up_and_little_is_unexplained(name: str) -> None:
    """Buffers of the loaders, tables of requests and rounding: 0.05 to 0.21 GiB in these starts."""
    rows = frames.waterfall(study(RECORDS / name)).set_index("term")
    stacked = rows.drop(index="graphs")["observed_bytes"]
    if name == "h200_story-8":  # refused before its draft was loaded: it holds nothing, and is no 0 either
        assert pd.isna(stacked["draft_weights"])
        stacked = stacked.drop("draft_weights")
    assert stacked.sum() == 143_771 * 2**20
    assert 0.04 * 2**30 < stacked["unexplained"] < 0.22 * 2**30


@pytest.mark.parametrize(
    ("name", "before", "communication"),
    [
        # 140.40 GiB (143,771 MiB) less the 138.21 that are free before loading: 2.19, of which 1.07 are communication
        ("h200-tp2_dflash-32-full-card", (1.12, 1.12), (1.07, 1.07)),
        # 0.5.12: 138.28 free, 1.01
        ("tp2_0512_dflash_r8", (1.11, 1.11), (1.01, 1.01)),
        # rank TP1, which has least: 137.99 free, 1.30
        ("tp4_dflash_r8", (1.11, 1.11), (1.30, 1.30)),
        # an emulated RTX PRO 6000: 95.59 (97,887 MiB) less 93.5; what communication takes of it is not known
        ("h200-tp2_dflash-8", (2.09, 1.12), (None, 1.07)),
    ],
)
def test_communication_has_a_bar_of_its_own(
    name: str, before: tuple[float, float], communication: tuple[float | None, float]
) -> None:
    rows = frames.waterfall(study(RECORDS / name)).set_index("term")
    for term, expected in (("before", before), ("communication", communication)):
        for column, size in zip(("predicted_bytes", "observed_bytes"), expected, strict=True):
            assert pd.isna(rows.loc[term, column]) == (size is None)
            if size is not None:
                assert rows.loc[term, column] / GIB == pytest.approx(size, abs=0.01)
    stacked = rows.drop(index="graphs")
    assert stacked["observed_bytes"].sum() == 143_771 * 2**20
    assert stacked["predicted_bytes"].sum() == (97_887 if communication[0] is None else 143_771) * 2**20


def test_a_rank_alone_has_not_what_communication_of_all_takes() -> None:
    """One of four, started alone: 140.40 - 139.12 = 1.28 GiB are gone before loading, and the table's 1.30 are more
    than that: what this start took is not predicted, in the picture of what if neither; no bar is below zero."""
    file = RECORDS.parent / "logs" / "sglang" / "one_rank" / "0.5.16-tp4-dflash-32.log.gz"
    found = of_path(file)
    budget, config = found.budgets["measured"], found.config
    assert config is not None and budget.free.communication is None
    for rows in (frames.waterfall(found), frames.predicted_waterfall(budget, config)):
        own = rows.set_index("term")
        assert own.loc["before", "predicted_bytes"] / GIB == pytest.approx(1.28, abs=0.01)
        assert pd.isna(own.loc["communication", "predicted_bytes"])
        assert (own["predicted_bytes"].dropna() >= 0).all()
    # what went after the pools (0.19) is in the ledger's rest alone, so the two have names of their own
    own = frames.waterfall(found).set_index("term")
    rest, (ledger, *_) = own.loc["unexplained"], found.ledgers
    assert rest["label"] == "unexplained rest, until the pools stood"
    assert rest["observed_bytes"] / GIB == pytest.approx(0.13, abs=0.01)
    assert ledger.rest.size is not None and ledger.rest.size.bytes / GIB == pytest.approx(0.32, abs=0.01)


def test_what_if_predicts_the_communication_that_the_waterfall_predicts() -> None:
    """tp4_dflash_r8 on its own free memory: 1.11 + 1.30 GiB before loading, in both pictures."""
    found = study(RECORDS / "tp4_dflash_r8").diagnosis
    assert found.config is not None
    both = (frames.waterfall(found), frames.predicted_waterfall(found.budgets["measured"], found.config))
    for rows in both:
        own = rows.set_index("term")["predicted_bytes"]
        assert own["before"] / GIB == pytest.approx(1.11, abs=0.01)
        assert own["communication"] / GIB == pytest.approx(1.30, abs=0.01)


def test_communication_that_nobody_logged_lies_within_what_was_in_use() -> None:
    seen = study(RECORDS / "tp2_dflash_r8")
    pools = dataclasses.replace(seen.diagnosis.pools, communication={})
    card = Card(bytes=143_771 * 2**20, source="NVML")
    found = ledgers(seen.diagnosis.log, pools, sampled={"TP0": card, "TP1": card})
    rows = frames.waterfall(dataclasses.replace(seen.diagnosis, pools=pools, ledgers=found)).set_index("term")
    assert pd.isna(rows.loc["communication", "observed_bytes"])
    assert rows.loc["before", "observed_bytes"] / GIB == pytest.approx(2.19, abs=0.01)
    assert rows.drop(index="graphs")["observed_bytes"].sum() == 143_771 * 2**20


def test_the_waterfall_of_a_host_has_no_card(tmp_path: Path) -> None:
    """Of a machine that also has a GPU: the server did not run on it."""
    folder = shutil.copytree(LIVE / "dflash-4", tmp_path / "on-cpu")
    samples = next(RECORDS.glob("dflash_r8/gpu.csv*"))
    shutil.copy(samples, folder / samples.name)
    rows = frames.waterfall(study(folder))
    assert set(rows["place"]) == {"host"}
    assert rows["card_bytes"].isna().all()
    assert not {"before", "communication"} & set(rows["term"])


def test_an_emulated_waterfall_adds_up_to_both_cards(tmp_path: Path) -> None:
    """0512_dflash_r4_exact ran with 0.50814 of an H200, which is 0.75 of an RTX PRO 6000."""
    folder = shutil.copytree(RECORDS / "0512_dflash_r4_exact", tmp_path / "emulated")
    text = (folder / "config.yaml").read_text(encoding="utf-8")
    text = text.replace("emulate: null", "emulate: rtx-pro-6000").replace("0.50814", "0.75")
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    rows = frames.waterfall(study(folder))
    stacked = rows[rows["term"] != "graphs"]
    assert stacked["predicted_bytes"].sum() == 97_887 * 2**20
    assert stacked["observed_bytes"].sum() == 143_771 * 2**20
    assert (rows["predicted_card_bytes"].iloc[0], rows["card_bytes"].iloc[0]) == (97_887 * 2**20, 143_771 * 2**20)
    # the pools are the same on both
    kv = rows.set_index("term").loc["kv"]
    assert kv["predicted_bytes"] == pytest.approx(kv["observed_bytes"], abs=2 * ROUNDING)


@pytest.mark.parametrize("emulate", [None, "rtx-pro-6000"])
def test_a_prediction_alone_adds_up_to_the_card_whose_budget_it_is(emulate: str | None) -> None:
    recorded = study(RECORDS / "0512_dflash_r4_exact").record.config
    config = recorded.replace({"gpu.emulate": emulate, "memory.mem_fraction_static": 0.75})
    rows = frames.predicted_waterfall(predict(config), config)
    total = rows[rows["term"] != "graphs"]["predicted_bytes"].sum()
    assert total == (143_771 if emulate is None else 97_887) * 2**20
    assert rows["card_bytes"].isna().all()


def test_little_memory_is_unexplained(capped: Study) -> None:
    rows = frames.waterfall(capped).set_index("term")
    assert abs(rows.loc["unexplained", "observed_bytes"]) < 0.2 * GIB
    assert rows.loc["unexplained", "label"] == "unexplained rest, until the pools stood"


def test_the_curve_falls_off_where_the_story_does(refused: Study) -> None:
    free = refused.diagnosis.budgets["measured"].free
    curve = frames.requests_curve(refused.record.config, free=free)
    points = curve[curve["bound"] == "point"].set_index("asked_requests")
    assert list(points.index) == list(range(1, 17))  # 4 are served, so up to twice the 8 that were asked
    assert abs(points.loc[4, "kv_tokens"] - 87034) <= 3  # logged by 0512_dflash_r4
    assert abs(points.loc[8, "kv_tokens"] - 11866) <= 3  # logged by this run
    assert (points.loc[4, "verdict"], points.loc[8, "verdict"]) == ("serves", "refused")


def test_the_curve_of_the_configuration_has_the_predicted_intervals() -> None:
    config = study(RECORDS / "0512_dflash_r4").record.config
    predicted = predict(config).limits["kv_tokens"].value
    assert predicted is not None
    at = frames.requests_curve(config).set_index(["asked_requests", "bound"]).loc[4]["kv_tokens"]
    assert (at["low"], at["point"], at["high"]) == (predicted.low, predicted.point, predicted.high)


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("tp4-8-0516", 30),  # 123 slots // 5 = 24 are served: 24 × 5 / 4
        ("tp8-8-0516", 69),  # 277 // 5 = 55: 68.75
        ("tp1-8", 16),  # fewer than the 8 that are asked: twice as many as are asked
    ],
)
def test_the_curve_reaches_beyond_the_most_that_are_served(name: str, last: int) -> None:
    found = frames.requests_curve(load_run(f"params/story/{name}.yaml"))
    points = found[found["bound"] == "point"]
    assert list(points["asked_requests"]) == list(range(1, last + 1))
    verdicts = points["verdict"].tolist()
    served = verdicts.count("serves")
    assert verdicts == ["serves"] * served + verdicts[served:] and {"serves"} < set(verdicts)
    assert served * 5 / 4 <= last


def test_a_curve_of_many_requests_is_evenly_thinned() -> None:
    assert around(8) == list(range(1, 17))
    assert around(3) == list(range(1, 13))
    assert around(8, 30) == list(range(1, 31)) and around(8, 10) == around(8)
    many = around(1000)  # 2,000 in at most 400 steps: every fifth, and the 1,000 itself
    assert (many[:3], 1000 in many, len(many)) == ([1, 6, 11], True, 401)


def test_requests_leave_the_warm_up_out(capped: Study) -> None:
    rows = frames.requests([capped])
    assert set(rows["load"]) == {"1 client", "8 clients"}
    assert len(frames.requests([capped], warmup=True)) > len(rows)
    eight = rows[rows["load"] == "8 clients"]
    assert eight["ttft_s"].median() == pytest.approx(20.444, abs=0.0005)
    assert eight["tpot_s"].median() == pytest.approx(0.02227, abs=0.000005)
    assert eight["accept_length"].median() == pytest.approx(1.004, abs=0.0005)


def test_latency_has_one_row_per_step_and_metric(capped: Study) -> None:
    rows = frames.latency([capped])
    eight = rows[rows["load"] == "8 clients"].set_index("metric")
    assert eight.loc["ttft_s", "p50"] == pytest.approx(20.444, abs=0.0005)
    assert eight.loc["output_throughput", "mean"] == pytest.approx(44.1, abs=0.05)
    assert pd.isna(eight.loc["output_throughput", "p50"])
    assert rows["random_weights"].all()  # --load-format dummy is in the recorded command
    # the eighth of 8 clients waits for seven requests of 5.80 s each, and then 0.12 s
    assert (eight.loc["ttft_s", "count"], eight.loc["ttft_s", "maximum"]) == (8, pytest.approx(40.7, abs=0.5))
    assert eight.loc["ttft_s", "minimum"] < eight.loc["ttft_s", "p50"] < eight.loc["ttft_s", "maximum"]


def test_without_speculation_there_is_no_acceptance_length() -> None:
    rows = frames.latency([study(RECORDS / "nospec_r8")])
    assert rows.loc[rows["metric"] == "accept_length", "mean"].isna().all()


def test_failed_requests_have_their_text_and_no_figure() -> None:
    rows = frames.requests([study(RECORDS / "nextn_r4_full")])
    failed = rows[~rows["ok"]]
    assert len(failed) > 0
    assert failed["ttft_s"].isna().all()
    assert failed["error"].notna().all()


def test_a_load_only_run_has_no_latency_rows(refused: Study) -> None:
    assert frames.latency([refused]).empty
    assert frames.requests([refused]).empty
    assert frames.timeline([refused]).empty


def test_the_timeline_holds_the_decode_lines(capped: Study) -> None:
    rows = frames.timeline([capped])
    assert len(rows) == 67  # decode lines in that log
    assert rows["running_requests"].max() == 1
    assert rows["queued_requests"].max() == 7
    assert rows["time_s"].iloc[0] == 2  # 13:03:18; the first prefill line is of 13:03:16
    assert rows["line"].iloc[0] == 79
    assert rows["time_s"].is_monotonic_increasing
    assert rows["state_usage"].max() == 0.5


def test_gpu_samples_are_bytes(capped: Study) -> None:
    rows = frames.gpu([capped])
    assert rows["total_bytes"].unique().tolist() == [143_771 * 2**20]
    assert rows["used_bytes"].iloc[0] == 618 * 2**20


def test_all_recordings_are_collected(everything: Collection) -> None:
    assert len(everything.studies) == 75
    assert everything.missing == ()
    outcomes = frames.runs(everything.studies).set_index("run")["outcome"]
    assert outcomes["dflash_r8_full"] == "capped"  # 7 of 8
    assert outcomes["nospec_r8"] == "served"
    assert outcomes["nextn_r4_full"] == "crashed"
    assert outcomes["var_noradix_r8"] == "refused"


def test_a_record_outside_a_campaign_has_no_siblings(capped: Study) -> None:
    assert siblings(capped) == ()


def test_load_names() -> None:
    assert load_name(1, None) == "1 client"
    assert load_name(8, None) == "8 clients"
    assert load_name(None, 2.5) == "2.5 requests/s"
