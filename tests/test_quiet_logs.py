"""A log without any fault gets no finding at all, not even a notice: bare logs of servers that served what was asked,
and public excerpts in which nothing is wrong. What is no fault of the server is named beside it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.diagnose.diagnosis import of_path

HERE = Path(__file__).parent

#: Recordings whose server log, alone, shows no fault.
RECORDED = (
    "0512_dflash_r4_exact",  # load only
    "0512_nospec_r8",
    "h200_dflash-4-20-slots",  # 2 decode lines: too few to judge acceptance, and all after idle time
    "h200_dflash-4-no-radix",
    "h200_dflash-8-full-card-40-slots",
    "h200_no-speculation-4",
    "h200_no-speculation-8",
    "h200_no-speculation-8-full-card",
    "h200_story-4",
    "ngram_r8",
    "nospec_defaults",  # neither fraction nor requests asked
    "nospec_r4",  # 8 clients for a short while: 3 of 26 decode lines with a queue
    "nospec_r8",
    "q35b_nextn_r16",
    "tp2_0512_dflash_r8",
    "tp2_nospec_r8",
    "var_maxmamba20_r4",
)
#: Of these the weights are random, and nothing else is to be said: a draft accepts nothing.
RANDOM = ("0512_dflash_r4", "tp2_dflash_r8", "var_noradix_r4")


@pytest.mark.parametrize("name", RECORDED)
def test_a_server_that_served_what_was_asked_is_quiet(name: str) -> None:
    found = of_path(HERE / "records" / name / "server.log")
    assert [finding.id for finding in found.findings] == []
    assert found.judged and found.unread == ()


@pytest.mark.parametrize("name", RANDOM)
def test_random_weights_are_all_that_is_told(name: str) -> None:
    (finding,) = of_path(HERE / "records" / name / "server.log").findings
    assert (finding.id, finding.severity) == ("acceptance-too-low", "notice")
    assert "The weights are random (--load-format dummy)" in finding.cause


def test_a_server_that_was_asked_less_than_its_pools_allow_is_quiet() -> None:
    """nospec_r8: 45 slots and 215,239 tokens for 8 requests of 1,280; 32 slots and 5 % of the tokens at most."""
    found = of_path(HERE / "records" / "nospec_r8" / "server.log")
    assert found.serving is not None and found.findings == ()
    assert (found.serving.token_usage_max, found.serving.state_usage_max) == (0.05, 0.71)
