"""docs/json.md is true: every key that a document has on its first levels is told there, and no key that none has."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specbench.campaign.types import CampaignResult
from specbench.cli import app
from specbench.cli.campaign_text import document as of_campaign
from specbench.lifecycle.examination import examine, to_document

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
RECORDS = ROOT / "tests" / "records"

COMMANDS: dict[str, tuple[str, ...]] = {
    "predict": ("predict", str(ROOT / "params" / "story" / "tp1-8.yaml")),
    "plan": ("plan", str(ROOT / "params" / "story" / "tp1-8.yaml"), "--want", "running_requests=8"),
    "diagnose": ("diagnose", str(RECORDS / "dflash_r8")),
    "run --dry-run": ("run", str(ROOT / "params" / "recordings" / "dflash_r8.yaml"), "--dry-run", "--deadline", "900"),
}


def told(section: str) -> set[str]:
    """Keys in the first column of a section's table, and words in backticks in all of it."""
    _, _, rest = PAGE.partition(f"## {section}\n")
    return set(re.findall(r"`([\w.]+)`", rest.partition("\n## ")[0]))


def rows(section: str) -> list[str]:
    """Keys of the first column."""
    _, _, rest = PAGE.partition(f"## {section}\n")
    table = [line.split("|")[1] for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    return [key for cell in table for key in re.findall(r"`([\w.]+)`", cell)]


@cache
def document(section: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*COMMANDS[section], "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("section", COMMANDS)
def test_every_key_is_told_and_every_told_key_is_there(section: str) -> None:
    found = document(section)
    assert found["schema"] == 1
    assert {key for key in found if key != "schema"} <= {key.partition(".")[0] for key in rows(section)}
    for key in rows(section):
        inner: Any = found
        for part in key.split("."):
            if inner is None:  # null: its keys are told all the same
                break
            assert part in inner, key
            inner = inner[part]


def test_what_lies_deeper_is_told_too() -> None:
    """Remedies, plans, findings, runs: their keys stand in the words of their section."""
    (remedy, *_) = document("predict")["remedies"]
    assert set(remedy) <= told("predict")
    assert set(document("plan")["plan"]) | set(document("plan")["plan"]["predicted"]) - set(
        document("predict")["limits"]
    ) <= told("plan")
    assert set(document("plan")["sizes"][0]) <= told("plan")
    assert set(document("diagnose")["findings"][0]) <= told("diagnose")
    assert set(document("diagnose")["served"]) == {"running_requests", "source"}
    assert set(document("run --dry-run")["runs"][0]) <= told("run --dry-run")


def test_what_doctor_and_offsets_print_is_told() -> None:
    section = "report, import, offsets, doctor"
    found = to_document(examine(None, {}, thorough=False))
    assert {key.partition(".")[0] for key in rows(section)} == set(found) - {"schema"}
    assert set(found["engine"]) | set(found["default_port"]) <= told(section) | {"port", "free"}
    done = CliRunner().invoke(app, ["offsets", str(RECORDS / "h200_story-6"), "--json"], catch_exceptions=False)
    assert set(json.loads(done.stdout)) - {"schema"} == {"rows", "without"} <= told(section)


def test_the_result_of_a_campaign_is_told(tmp_path: Path) -> None:
    nothing = CampaignResult(name="x", folder=tmp_path, index=tmp_path / "index.html", points=(), problems=())
    found = of_campaign(nothing)
    assert set(found) - {"schema"} | {"go_on"} == set(rows("run"))
    assert found["index"] is None and found["runs"] == []


def test_the_fraction_that_a_plan_sets_is_not_called_given() -> None:
    plan = document("plan")["plan"]
    assert plan["set"] == {"memory.mem_fraction_static": 0.89}
    assert plan["predicted"]["mem_fraction_static"] == {"value": 0.89, "source": "set by this plan"}
