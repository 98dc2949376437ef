"""Latency figures: the recorded medians, the definitions on hand-made requests, failures outside of every figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.reading import latency
from specbench.records.record import RunRecord
from specbench.records.types import RequestTrace

RECORDS = Path(__file__).parent / "records"

#: record, step, n, medians of TTFT s, TPOT ms, end-to-end s; tokens/s of the step; mean acceptance length.
#: Written down by the engineers who recorded, computed by another program from the same chunk times.
RECORDED = [
    ("0512_dflash_r4", "warmup2", 4, 1.086, 39.29, 1.676, 38.2, 1.067),
    ("0512_dflash_r4", "seq1", 2, 0.111, 26.37, 6.834, 37.5, 1.004),
    ("0512_dflash_r4", "conc4", 4, 0.399, 29.76, 7.988, 128.2, 1.004),
    ("0512_dflash_r4", "conc8_queue", 8, 2.498, 29.25, 6.211, 123.2, 1.008),
    ("dflash_r4", "conc4", 4, 8.898, 22.27, 14.577, 44.0, 1.004),
    ("dflash_r4", "conc8_queue", 8, 10.411, 22.14, 13.224, 43.6, 1.008),
    ("dflash_r8", "seq1", 2, 0.123, 22.27, 5.802, 44.1, 1.004),
    ("dflash_r8", "conc8", 8, 20.444, 22.27, 26.123, 44.1, 1.004),
    ("dflash_r8_full", "seq1", 2, 0.162, 22.30, 5.848, 43.8, 1.004),
    ("dflash_r8_full", "conc8", 8, 0.674, 33.00, 9.090, 137.1, 1.004),
    ("dflash_r8_full", "long_8k", 1, 0.819, 34.52, 2.994, 21.4, 1.016),
    ("dflash_r8_full_sim", "seq1", 2, 0.143, 3.62, 1.067, 239.8, 6.170),
    ("dflash_r8_full_sim", "conc8", 8, 0.675, 5.34, 2.036, 670.8, 6.246),
    ("dflash_r8_full_sim", "long_8k", 1, 0.825, 5.50, 1.172, 54.6, 6.400),
    ("nextn_r4_full", "warmup", 1, 0.707, 6.59, 0.806, 19.9, 2.667),
    ("nospec_r4", "conc4", 4, 0.376, 15.80, 4.405, 232.4, None),
    ("nospec_r8", "conc8", 8, 0.732, 16.40, 4.915, 416.5, None),
    ("smoke_dflash_r4", "conc2", 2, 0.226, 22.66, 1.654, 77.4, 1.016),
    ("var_noradix_r4", "conc4", 4, 0.374, 25.51, 6.878, 148.8, 1.004),
    ("var_noradix_r4", "conc8_queue", 8, 2.181, 25.37, 5.404, 142.0, 1.008),
]


def row_of(record: str, step: str) -> latency.StepLatency:
    (row,) = [row for row in latency.table(RunRecord.open(RECORDS / record)).rows if row.step == step]
    return row


@pytest.mark.parametrize(("record", "step", "n", "ttft", "tpot_ms", "e2e", "throughput", "accept"), RECORDED)
def test_recorded_medians(
    record: str,
    step: str,
    n: int,
    ttft: float,
    tpot_ms: float,
    e2e: float,
    throughput: float,
    accept: float | None,
) -> None:
    row = row_of(record, step)
    assert (row.ok, row.failed) == (n, 0)
    assert row.ttft_s and row.tpot_s and row.e2e_s
    # Printed with three decimals.
    assert row.ttft_s.p50 == pytest.approx(ttft, abs=0.00051)
    assert row.e2e_s.p50 == pytest.approx(e2e, abs=0.00051)
    # Theirs ends at the last chunk, SGLang's definition at the end of the stream: below 0.3 ms apart, over 15 tokens.
    assert row.tpot_s.p50 * 1000 == pytest.approx(tpot_ms, abs=0.03)
    assert row.output_throughput == pytest.approx(throughput, abs=0.051)
    if accept is None:
        assert row.accept_length is None
        assert row.accept_length_overall is None
    else:
        assert row.accept_length and row.accept_length.mean == pytest.approx(accept, abs=0.00051)


def test_failed_requests_are_counted_with_their_text_and_enter_no_figure() -> None:
    crash = row_of("nextn_r4_full", "warmup2")
    assert (crash.ok, crash.failed) == (0, 4)
    assert crash.errors == (("the stream ended without a token", 4),)
    assert crash.ttft_s is crash.tpot_s is crash.itl_s is crash.e2e_s is None
    assert crash.output_throughput is None
    refused = row_of("nextn_r4_full", "conc4")
    assert refused.errors == (("ConnectionRefusedError(111, 'Connection refused')", 4),)


def test_a_load_only_record_has_no_rows_and_says_why() -> None:
    table = latency.table(RunRecord.open(RECORDS / "ngram_r8"))
    assert table.rows == ()
    assert any("load only" in note for note in table.notes)


def trace(index: int, *, sent_s: float, chunks: tuple[tuple[float, int], ...], **more: object) -> RequestTrace:
    fields = {
        "step": "s",
        "phase": "measured",
        "index": index,
        "concurrency": 2,
        "input_tokens": 8,
        "max_new_tokens": 9,
        "sent_s": sent_s,
        "chunks": chunks,
        "output_tokens": sum(tokens for _, tokens in chunks),
        **more,
    }
    return RequestTrace.model_validate(fields)


def test_definitions_on_two_requests_worked_by_hand() -> None:
    row = latency._row(
        [
            trace(0, sent_s=0.0, chunks=((1.0, 1), (2.0, 4), (4.0, 4)), end_s=5.0, meta_info={"spec_verify_ct": 2}),
            trace(1, sent_s=1.0, chunks=((2.0, 1), (2.5, 1)), end_s=3.0, meta_info={"spec_verify_ct": 1}),
            trace(2, sent_s=9.0, chunks=(), end_s=90.0, error="HTTP 400: too long"),
        ]
    )
    assert (row.ok, row.failed, row.errors) == (2, 1, (("HTTP 400: too long", 1),))
    assert row.ttft_s and (row.ttft_s.mean, row.ttft_s.p50, row.ttft_s.p99) == (1.5, 1.5, pytest.approx(1.99))
    assert row.tpot_s and row.tpot_s.mean == pytest.approx((4 / 8 + 1 / 1) / 2)
    assert row.itl_s and row.itl_s.count == 3  # gaps 1.0, 2.0 and 0.5: between chunks, not tokens
    assert row.itl_s.p50 == 1.0
    assert row.span_s == 5.0  # from 0.0 to 5.0; the failed request does not stretch it
    assert row.output_throughput == 11 / 5.0
    assert row.accept_length and row.accept_length.mean == (9 / 2 + 2 / 1) / 2
    assert row.accept_length_overall == 11 / 3
    assert row.inexact is None  # no replay


@pytest.mark.parametrize(
    ("values", "p50", "p90", "p95", "p99"),
    [([7.0], 7.0, 7.0, 7.0, 7.0), ([1.0, 2.0, 3.0, 4.0], 2.5, 3.7, 3.85, 3.97), (list(range(101)), 50, 90, 95, 99)],
)
def test_percentiles_interpolate_between_ranks(
    values: list[float], p50: float, p90: float, p95: float, p99: float
) -> None:
    found = latency.distribution(reversed(values))
    assert found and (found.p50, found.p90, found.p95, found.p99) == pytest.approx((p50, p90, p95, p99))
    assert (found.minimum, found.maximum, found.count) == (min(values), max(values), len(values))


def test_below_ten_values_high_percentiles_mean_nothing() -> None:
    nine, ten = latency.distribution([1.0] * 9), latency.distribution([1.0] * 10)
    assert nine and ten
    assert (nine.few, ten.few) == (True, False)


def test_no_value_is_no_distribution() -> None:
    assert latency.distribution([]) is None


def test_every_figure_of_a_row_is_described() -> None:
    fields = set(latency.StepLatency.__slots__) - {"errors"}
    assert fields == set(latency.METRICS) | set(latency.COLUMNS)
