"""Acceptance that does not pay, against the same server without speculation; and acceptance that falls."""

from __future__ import annotations

import random
import shutil
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specbench import show
from specbench.cli import app
from specbench.diagnose.against import with_other, with_siblings
from specbench.diagnose.diagnosis import of_log, of_path
from specbench.diagnose.finding import Finding
from specbench.diagnose.types import Diagnosis
from specbench.engines.sglang import logs
from specbench.errors import ConfigError
from specbench.reading.pace import paces
from specbench.records import listing
from specbench.records.record import RunRecord
from specbench.studies.study import collect, study

RECORDS = Path(__file__).parent / "records"

seen = cache(of_path)  # a diagnosis is frozen


def low(found: Diagnosis) -> list[Finding]:
    return [finding for finding in found.findings if finding.id == "acceptance-too-low"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two recordings as if their weights had been loaded."""
    folder = tmp_path_factory.mktemp("trained")
    for name in ("dflash_r8_full", "nospec_r8"):
        shutil.copytree(RECORDS / name, folder / name)
        for file in ("config.yaml", "server.log"):
            text = (folder / name / file).read_text(encoding="utf-8")
            (folder / name / file).write_text(text.replace("dummy", "auto"), encoding="utf-8")
    return folder


def test_the_pace_of_steady_lines() -> None:
    """Lines of one request: 22.38 ms at acceptance 1.00 with DFLASH, 14.93 ms without (1 / 66.98 tokens/s)."""
    found = paces(logs.read(RECORDS / "nospec_r8" / "server.log"))
    assert {running: pace.lines for running, pace in found.items()} == {1: 10, 8: 6}
    assert found[1].token_s == pytest.approx(0.01493, abs=1e-5)
    dflash = paces(logs.read(RECORDS / "dflash_r8_full" / "server.log"))
    assert {running: pace.lines for running, pace in dflash.items()} == {1: 23, 7: 5}
    assert (dflash[1].accept_length, dflash[1].token_s) == (1.0, pytest.approx(0.02238, abs=1e-5))


def test_records_are_judged_by_what_the_clients_waited(trained: Path) -> None:
    """TPOT of 8 clients 33.0 against 16.4 ms, 1 - 16.4 / 33.0 = 0.503 of the time; of one client 22.3 against 14.93 at
    1.004 tokens per round: 22.3 × 1.004 / 14.93 = 1.50. Seven of the eight ran at once, so theirs is no break-even.
    """
    found = with_other(of_path(trained / "dflash_r8_full"), trained / "nospec_r8")
    (finding,) = low(found)
    assert finding.cause == (
        "Speculation with DFLASH does not pay: an output token takes longer than in nospec_r8 without it, at 8 clients "
        "33.0 against 16.4 ms (8 and 8 requests), at 1 client 22.3 against 14.9 ms (2 and 2 requests); medians. At 1 "
        "client a round takes 22.4 ms and gives 1.00 tokens; it breaks even at 1.50."
    )
    assert (finding.severity, finding.lost) == ("costly", pytest.approx(0.503, abs=0.001))
    assert [line.line for line in finding.evidence] == [105]
    (remedy,) = finding.remedies
    assert remedy.set["speculative.algorithm"] == "none"
    assert (remedy.verdict, remedy.predicted["running_requests"]) == ("serves", 8)


def test_logs_are_judged_by_their_steady_lines(trained: Path) -> None:
    """22.38 / 14.93 = 1.50; of 7 and of 8 running requests there is no line in both."""
    plain = trained / "nospec_r8" / "server.log"
    (finding,) = low(with_other(of_path(trained / "dflash_r8_full" / "server.log"), plain))
    assert finding.cause == (
        f"Speculation with DFLASH does not pay: an output token takes longer than in {plain} without it, at 1 running "
        "request 22.4 against 14.9 ms (23 and 10 decode lines); medians. At 1 running request a round takes 22.4 ms "
        "and gives 1.00 tokens; it breaks even at 1.50."
    )
    assert (finding.severity, finding.lost) == ("costly", pytest.approx(0.333, abs=0.001))


def test_random_weights_are_the_reason() -> None:
    (finding,) = low(with_other(seen(RECORDS / "dflash_r8_full"), RECORDS / "nospec_r8"))
    assert (finding.severity, finding.remedies, finding.lost) == ("notice", (), None)
    assert "The weights are random (--load-format dummy)" in finding.cause


def test_acceptance_that_pays_is_no_finding() -> None:
    """Simulated at 6.3 tokens per round: 3.6 ms against 14.9 of one client, 5.3 against 16.4 of eight."""
    found = with_other(seen(RECORDS / "dflash_r8_full_sim"), RECORDS / "nospec_r8")
    assert low(found) == []


def test_what_differs_otherwise_is_named() -> None:
    """The server without speculation captured graphs, this one none: most of its time is that."""
    (finding,) = low(with_other(seen(RECORDS / "h200-tp2_nextn-8-no-graphs"), RECORDS / "h200-tp2_no-speculation-8"))
    assert "The two also differ in disable_cuda_graph True against False." in finding.cause


def test_in_a_campaign_the_sibling_is_found() -> None:
    others = [RunRecord.open(RECORDS / name) for name in ("h200_story-4", "h200_no-speculation-8", "h200_dflash-4")]
    (finding,) = low(with_siblings(seen(RECORDS / "h200_dflash-8"), others))
    assert "than in h200_no-speculation-8 without it" in finding.cause
    assert "breaks even at 1.50" in finding.cause  # at 1 client: 22.08 × 1.016 / 14.92
    # Without graphs it is not the same server, and a server without speculation has nothing to judge.
    tp2 = [RunRecord.open(RECORDS / "h200-tp2_no-speculation-8")]
    assert low(with_siblings(seen(RECORDS / "h200-tp2_nextn-8-no-graphs"), tp2)) == []
    assert low(with_siblings(seen(RECORDS / "h200_no-speculation-4"), others)) == []
    assert low(with_siblings(seen(RECORDS / "h200_dflash-8"), tp2)) == []  # two GPUs


def test_a_study_of_a_campaign_is_judged_against_its_sibling_wherever_it_is_shown(tmp_path: Path) -> None:
    """Alone, with the campaign's others, on its page and in the JSON: the same finding."""
    for name in ("h200_dflash-8", "h200_no-speculation-8"):
        shutil.copytree(RECORDS / name, tmp_path / name / "record")
        listing.begin(tmp_path, name, tmp_path / name, {})
    alone = study(tmp_path / "h200_dflash-8")
    (finding,) = low(alone.diagnosis)
    assert "Speculation with DFLASH does not pay" in finding.cause
    together = {one.name: one for one in collect(tmp_path).studies}
    assert low(together["h200_dflash-8"].diagnosis) == [finding]
    assert low(together["h200_no-speculation-8"].diagnosis) == []
    assert finding.cause in show.findings(alone).text
    assert low(study(RECORDS / "h200_dflash-8").diagnosis) == []  # no campaign


@pytest.mark.parametrize(
    ("own", "other", "words"),
    [
        ("nospec_r8", "nospec_r4", "this server does not speculate, so there is no acceptance to judge"),
        ("dflash_r8", "dflash_r4", "that server speculates itself (DFLASH)"),
        ("dflash_r8", "tp2_nospec_r8", "TP 2; this server: Qwen/Qwen3.6-27B, TP 1"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_two_lines(own: str, other: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_other(seen(RECORDS / own), RECORDS / other)
    assert words in str(caught.value) and str(caught.value).count("\n") == 1


def test_loads_that_never_met_are_said_to_be_not_judged() -> None:
    found = with_other(seen(RECORDS / "dflash_r8" / "server.log"), RECORDS / "h200_too-long" / "server.log")
    assert any(text.startswith("acceptance is not judged against") for text in found.assumptions)


def test_the_command_takes_what_to_compare_with() -> None:
    paths = [str(RECORDS / "dflash_r8_full"), "--against", str(RECORDS / "nospec_r8")]
    done = CliRunner().invoke(app, ["diagnose", *paths])
    assert done.exit_code == 0 and "breaks even at 1.50" in " ".join(done.output.split())


# ── from the lines alone ─────────────────────────────────────────────────────────────────────────────────────────────


def of_lines(lines: list[str]) -> dict[str, Finding]:
    return {finding.id: finding for finding in of_log([line.encode() for line in lines]).findings}


def decode(running: int, tokens: int, accepted: float) -> str:
    """As 0.5.11 to 0.5.23 word it for a model without state; 4 draft tokens."""
    return (
        f"[2026-07-10 10:00:00] Decode batch, #running-req: {running}, #token: {tokens}, token usage: 0.10, "
        f"accept len: {accepted:.2f}, accept rate: {(accepted - 1) / 3:.2f}, cuda graph: True, "
        "gen throughput (token/s): 100.00, #queue-req: 0\n"
    )


def test_rounds_that_give_hardly_a_token_more_are_a_notice() -> None:
    """(4 × 1.10 + 1 × 1.60) / 5 by lines, but the last had 16 requests: (4 × 1.10 + 16 × 1.02) / 20 = 1.036."""
    found = of_lines([decode(1, 100, 1.10)] * 4 + [decode(16, 1600, 1.02)])["acceptance-too-low"]
    assert (found.severity, found.lost) == ("notice", None)
    assert "gives 1.04 tokens per verify round (5 decode lines, weighted by running requests)" in found.cause
    assert "--against RECORD|LOG" in found.cause
    assert "acceptance-too-low" not in of_lines([decode(1, 100, 1.10)] * 4)  # too few lines
    assert "acceptance-too-low" not in of_lines([decode(1, 100, 1.30)] * 9)


def test_a_bare_log_of_random_weights_says_so_and_a_record_does_elsewhere() -> None:
    (found,) = low(seen(RECORDS / "dflash_r8" / "server.log"))
    assert found.severity == "notice" and "The weights are random" in found.cause
    assert low(seen(RECORDS / "dflash_r8")) == []


def falling(first: float, last: float, *, noise: float = 0.15, lines: int = 60) -> list[str]:
    """One request that grows from 1,000 to 60,000 tokens; beyond 32,000 it accepts `last`."""
    chance = random.Random(1)
    rows = []
    for index in range(lines):
        tokens = 1_000 + index * 59_000 // (lines - 1)
        accepted = first if tokens <= 32_000 else last
        rows.append(decode(1, tokens, max(1.0, accepted + chance.gauss(0, noise))))
    return rows


def test_acceptance_that_falls_with_the_context_is_told_with_its_figures() -> None:
    """A public report: 3 tokens per round at first, 1.57 beyond 32,000 tokens. 3.00 / 1.57 = 1.9, 1 - 1.57 / 3 = 0.477.
    The shortest third of 60 lines ends at 20,000 tokens, the longest begins at 41,000; each has its median.
    """
    found = of_lines(falling(3.0, 1.57, noise=0.0))["acceptance-decays"]
    assert found.cause == (
        "Acceptance falls as requests grow: 3.00 tokens per round at 10,500 tokens of each request (shortest third, 20 "
        "decode lines), 1.57 at 50,500 (longest third, 20; medians). The same text takes 1.9 times as many rounds. The "
        "draft follows the target less well in a long context."
    )
    assert (found.severity, found.lost) == ("costly", pytest.approx(0.477, abs=0.001))
    assert [line.line for line in found.evidence] == [1, 60]


def test_a_fall_is_seen_through_noise_and_in_any_order() -> None:
    noisy = falling(3.0, 1.57, noise=0.3)
    random.Random(2).shuffle(noisy)
    assert "as requests grow" in of_lines(noisy)["acceptance-decays"].cause


def test_a_fall_over_time_is_another() -> None:
    """Requests of one length; first 2.80, then 2.00, then 1.40."""
    lines = [decode(1, 4_000, value) for value in (2.8, 2.0, 1.4) for _ in range(12)]
    found = of_lines(lines)["acceptance-decays"]
    assert found.cause.startswith(
        "Acceptance falls over time: 2.80 tokens per round at 4,000 tokens of each request (first third, 12 decode "
        "lines), 1.40 at 4,000 (last third, 12; medians). The same text takes 2.0 times as many rounds."
    )


@pytest.mark.parametrize(
    "lines",
    [
        falling(3.0, 1.57, lines=23),  # too few lines
        falling(3.0, 2.6),  # 13 % less
        falling(2.0, 2.0, noise=0.4),  # noise alone
        falling(1.57, 3.0),  # it rises
        [decode(1, 4_000, value) for value in (2.8, 1.4, 2.6) for _ in range(12)],  # it recovers
        [decode(1, 4_000, value) for value in (2.8, 1.4) * 20],  # two kinds of text by turns
    ],
)
def test_no_fall_is_seen_where_there_is_none(lines: list[str]) -> None:
    assert "acceptance-decays" not in of_lines(lines)
