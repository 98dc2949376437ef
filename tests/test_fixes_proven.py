"""Fixes that were carried out: of the refused start h200_story-8 the what-if started two that serve all 8, on an H200.

Predicted on the free memory of the refused start alone, then tried, then compared with what the new servers logged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specbench.diagnose.diagnosis import of_path
from specbench.records.record import RunRecord
from specbench.studies.proofs import proofs
from specbench.studies.study import Study, study
from specbench.whatif.outlook import WhatIf
from specbench.whatif.recordings import recordings

RECORDS = Path(__file__).parent / "records"

#: change -> the record that tried it; state slots and KV tokens as its server logged them.
TRIED: list[tuple[dict[str, Any], str, int, int]] = [
    ({"speculative.num_draft_tokens": 4}, "h200-drafts-4_story-8-what-if", 34, 126_436),
    ({"memory.mem_fraction_static": 0.89}, "h200-fraction-89_story-8-what-if", 33, 121_226),
]


@pytest.fixture(scope="module")
def refused() -> Study:
    found = study(RECORDS / "h200_story-8")
    assert (found.outcome, found.diagnosis.resolved["state_slots"]) == ("refused", 2)
    return found


@pytest.mark.parametrize(("change", "name", "slots", "tokens"), TRIED, ids=[name for _, name, _, _ in TRIED])
class TestAFix:
    def test_is_predicted_from_the_refused_start(
        self, refused: Study, change: dict[str, Any], name: str, slots: int, tokens: int
    ) -> None:
        after = WhatIf.of(refused.diagnosis).with_(change)
        assert (after.verdict, after.limit("running_requests"), after.limit("state_slots")) == ("serves", 8, slots)
        assert after.limit("kv_tokens") == pytest.approx(tokens, abs=1)

    def test_served_all_that_was_asked(
        self, refused: Study, change: dict[str, Any], name: str, slots: int, tokens: int
    ) -> None:
        tried = study(RECORDS / name)
        assert (tried.outcome, tried.asked, tried.resolved, tried.served) == ("served", 8, 8, 8)
        assert tried.diagnosis.resolved["state_slots"] == slots
        assert tried.diagnosis.resolved["kv_tokens"] == tokens
        assert tried.diagnosis.reconciliation.off == ()

    def test_is_one_of_the_remedies_and_its_proof_is_found(
        self, refused: Study, change: dict[str, Any], name: str, slots: int, tokens: int
    ) -> None:
        (finding,) = refused.diagnosis.findings
        (remedy,) = [remedy for remedy in finding.remedies if dict(remedy.set) == change]
        (proof, *_) = proofs(remedy, refused.record.config, [RunRecord.open(RECORDS / name)])
        assert proof.record.name == name and proof.other == {}
        config = WhatIf.of(refused.diagnosis).with_(change).config
        assert config is not None
        assert [record.name for record in recordings(config, RECORDS, from_log=False).same] == [name]


@pytest.mark.parametrize(
    ("change", "name"), [(TRIED[0][0], TRIED[0][1]), ({"memory.mem_fraction_static": 0.60299}, TRIED[1][1])]
)
def test_the_log_of_an_equal_start_leads_to_them_too(change: dict[str, Any], name: str) -> None:
    """0512_dflash_r8_exact emulated no card: its own fraction is what a server that emulates one is passed."""
    what = WhatIf.of(of_path(RECORDS / "0512_dflash_r8_exact" / "server.log"))
    config = what.with_(change).config
    assert config is not None
    assert [record.name for record in recordings(config, RECORDS, from_log=True).same] == [name]
