"""What a deadline has time for, foretold in a dry run by the arithmetic of the run itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from specbench.campaign.bill import Clock
from specbench.campaign.fitting import calls, least_deadline_s, needs_s
from specbench.cli import app
from specbench.cli.run import command_line
from specbench.configuration.config import RunConfig
from specbench.params import load_campaign, load_run

ROOT = Path(__file__).parent.parent
BASE = ROOT / "params" / "h200" / "0.5.16.yaml"
RECORDING = ROOT / "params" / "recordings" / "nospec_r4.yaml"


def started(name: str, version: str = "0.5.16") -> RunConfig:
    """A start that sends nothing: 44.5 s with compiled kernels (137.5 without), and 10 beside it."""
    base = load_run(BASE.with_stem(version))
    return base.replace({"name": name, "workload.requests": 0, "workload.warmup": 0})


def test_a_start_needs_its_time_and_that_of_its_end() -> None:
    """137.5 + 10 + 20 to end it."""
    assert needs_s(Clock(), started("a")) == 137.5 + 10 + 20
    assert least_deadline_s(Clock(), 167.5, 4.5, 1) == pytest.approx(1.2 * (4.5 + 167.5 + 3 * 8))


@pytest.mark.parametrize(
    ("deadline_s", "runs", "never"),
    [
        # The pages of one run take 3 × 8 s one at a time, and 8 for each more: 5 + 167.5 + 24 = 196.5.
        (196.4, (), ("a", "b", "c")),
        # Then b needs 44.5 + 10 + 20 at 5 + 147.5, and pages of two: 152.5 + 74.5 + 32 = 259.
        (196.5, (("a",), ("b", "c")), ()),
        (258.9, (("a",), ("b", "c")), ()),
        (259.0, (("a", "b"), ("c",)), ()),
        # c at 5 + 147.5 + 54.5: 207 + 74.5 + 40 = 321.5
        (321.5, (("a", "b", "c"),), ()),
    ],
)
def test_what_a_deadline_has_time_for(
    deadline_s: float, runs: tuple[tuple[str, ...], ...], never: tuple[str, ...]
) -> None:
    found = calls(Clock(), [started(name) for name in "abc"], deadline_s, page_jobs=1, before_s=5)
    assert (found.runs, found.never) == (runs, never)
    assert found.least_s == (pytest.approx(1.2 * (5 + 167.5 + 24)) if never else None)


def test_a_shorter_one_goes_before_one_that_does_not_fit() -> None:
    """0.5.16 compiles for 137.5 s, 0.5.12 for 116.1: only the second fits, with 116.1 + 30 + 24 = 170.1."""
    configs = [started("long"), started("short", "0.5.12")]
    found = calls(Clock(), configs, 171, page_jobs=1)
    assert (found.runs, found.never) == ((("short",),), ("long",))


def test_recordings_play_several_at_a_time() -> None:
    """Each takes 4 s and needs 15 + 5: two at once beside pages of two, 20 + 32 = 52, the third at 4 s: 64."""
    replay = load_run(RECORDING, ["engine.replay_speed=instant"])
    configs = [replay.replace({"name": name}) for name in "abc"]
    assert calls(Clock(), configs, 63, page_jobs=1, at_once=2).runs == (("a", "b"), ("c",))
    assert calls(Clock(), configs, 64, page_jobs=1, at_once=2).runs == (("a", "b", "c"),)
    assert calls(Clock(), configs, 64, page_jobs=1, at_once=1).runs == (("a", "b"), ("c",))


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    points = [{"name": name, "workload.requests": 0, "workload.warmup": 0} for name in ("one", "two", "three")]
    file = tmp_path / "three.yaml"
    file.write_text(yaml.safe_dump({"campaign": "three", "base": str(BASE), "points": points}))
    assert len(load_campaign(file).runs) == 3
    return file


def dry(file: Path, *more: str) -> str:
    done = CliRunner().invoke(app, ["run", str(file), "--out", str(file.parent / "out"), "--dry-run", *more])
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


def test_a_dry_run_says_what_fits(campaign: Path) -> None:
    text = dry(campaign, "--deadline", "225")
    assert "--deadline 225: by the bill it has time for 1 of 3, in this order: one." in text
    assert "For further calls are left: two, three. --deadline 225 takes 2 calls in all." in text
    assert "--deadline 1000: by the bill it has time for all." in dry(campaign, "--deadline", "1000")
    assert "Too long for any call of --deadline 90: one, two, three; --deadline 2" in dry(campaign, "--deadline", "90")
    assert "--deadline" not in dry(campaign)
    said: dict[str, Any] = json.loads(dry(campaign, "--deadline", "225", "--json"))
    assert said["deadline"] == {"seconds": 225.0, "calls": [["one"], ["two", "three"]], "too_long": []}
    assert json.loads(dry(campaign, "--json"))["deadline"] is None


def test_the_bill_says_what_it_leaves_out_and_what_its_minutes_cost(campaign: Path) -> None:
    """137.5 + 2 × 44.5 + 3 × 10 = 256.5 s of one GPU: 4.3 minutes, 0.07125 h × 3.5 = 0.249."""
    told = f"Results go to {campaign.parent / 'out'}. Not counted: what comes before the first start (installing"
    # a long folder is broken where the line ends
    assert told.replace(" ", "") in dry(campaign).replace(" ", "")
    assert "4.3 GPU minutes, about 0.25 at 3.50 per GPU hour" in dry(campaign, "--price-per-gpu-hour", "3.5")
    said = json.loads(dry(campaign, "--price-per-gpu-hour", "3.5", "--json"))
    assert said["bill"]["price"] == {"per_gpu_hour": 3.5, "total": 0.25}
    assert "per GPU hour" not in dry(campaign)
    assert "--price-per-gpu-hour 3.5" in command_line(
        campaign, [], None, None, 225, skip=None, price=3.5, strict=False, json_output=False
    )
    wrong = CliRunner().invoke(app, ["run", str(campaign), "--dry-run", "--price-per-gpu-hour", "0"])
    assert wrong.exit_code == 2
