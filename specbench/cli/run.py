"""`specbench run`: one configuration or a campaign, from params file to report."""

from __future__ import annotations

import enum
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import JsonOption, MachineOption, ParamsArgument, SetOption, StrictOption
from .output import print_json

if TYPE_CHECKING:
    from ..campaign.types import CampaignResult
    from ..terms import Verdict

#: Predictions that are not started.
_SKIPS: dict[str | None, frozenset[Verdict]] = {
    None: frozenset(),
    "refused": frozenset({"refused"}),
    "capped": frozenset({"refused", "capped"}),
}
#: Exit code of a campaign that stopped at its deadline with configurations left.
LEFT = 3


class Skip(enum.StrEnum):
    """What is not started when it is predicted with all free memory that is possible."""

    refused = "refused"
    capped = "capped"


class Retry(enum.StrEnum):
    """What `--resume` runs once more."""

    failed = "failed"


def run(
    params: ParamsArgument,
    overrides: SetOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Folder of the campaign; default runs/<campaign> (SPECBENCH_RUNS names another folder than runs).",
        ),
    ] = None,
    machine: MachineOption = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print what it would cost, what is expected and each server's command; start nothing."
        ),
    ] = False,
    deadline: Annotated[
        float | None,
        typer.Option(
            "--deadline",
            metavar="SECONDS",
            help="Be done, pages included, so many seconds after the command began; what does not fit is left.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on in the folder: skip what is done, leave failures as they are, run everything else."
        ),
    ] = False,
    retry: Annotated[Retry | None, typer.Option("--retry", help="With --resume: run failed ones once more.")] = None,
    skip: Annotated[
        Skip | None,
        typer.Option(
            "--skip",
            help="Start nothing that is predicted to be refused, whatever the card has free (capped: nor what would "
            "run fewer at once than asked). It stays as a row, with its reason and the GPU minutes saved.",
        ),
    ] = None,
    price: Annotated[
        float | None,
        typer.Option(
            "--price-per-gpu-hour",
            metavar="PRICE",
            help="Of a rented machine: the bill then says what its GPU minutes cost, in the currency of the price.",
        ),
    ] = None,
    strict: StrictOption = False,
    json_output: JsonOption = False,
) -> None:
    """Run every configuration of a params file, diagnose each, and write HTML pages.

    Example: specbench run params/demo.yaml

    A configuration that is refused or crashes is a result, not an error: exit code 0 when every configuration left a
    record (with --strict: when every one served what was asked) and every page was written, else 1; 3 when the deadline
    came first and configurations are left, which the command that is printed then goes on with.
    """
    import time

    began_s = time.monotonic()
    from ..campaign.batch import run_campaign
    from ..campaign.outlook import outlook
    from ..campaign.types import Choices
    from ..machine_file import read_places
    from ..params import load_campaign
    from . import bill_text
    from .campaign_text import Screen, document, summary

    _check(deadline, price, retry, resume=resume)
    campaign = load_campaign(params, overrides or ())
    choices = Choices(
        places=read_places(machine, of_another_machine=dry_run) if machine is not None else None,
        deadline_s=deadline,
        began_s=began_s,
        resume=resume,
        retry_failed=retry is not None,
        skip=_SKIPS[skip],
    )
    if dry_run:
        ahead = outlook(campaign, out, choices)
        if json_output:
            print_json(bill_text.document(campaign.name, ahead, price))
        else:
            bill_text.expectations(campaign.name, ahead, price)
        return
    _end_cleanly_at_sigterm()
    with Screen(campaign.name, quiet=json_output) as screen:
        result = run_campaign(
            campaign,
            out,
            screen.show,
            choices,
            lambda ahead: bill_text.bill(campaign.name, ahead, screen.console, price),
        )
    longer = _longer(deadline, result.least_s)
    again = command_line(
        params,
        overrides or [],
        out,
        machine,
        longer or deadline,
        skip=skip,
        price=price,
        strict=strict,
        json_output=json_output,
    )
    if json_output:
        print_json(document(result) | {"go_on": again if result.left else None})
    else:
        summary(result)
        bill_text.left(result.left, again, longer)
    raise typer.Exit(_code(result, strict))


def _check(deadline: float | None, price: float | None, retry: Retry | None, *, resume: bool) -> None:
    if deadline is not None and not 0 < deadline < 1e7:
        raise typer.BadParameter(f"{deadline:g} is no number of seconds to be done in.", param_hint="--deadline")
    if price is not None and not 0 < price < 1e7:
        raise typer.BadParameter(f"{price:g} is no price of a GPU hour.", param_hint="--price-per-gpu-hour")
    if retry is not None and not resume:
        raise typer.BadParameter("only what is resumed can be retried: add --resume.", param_hint="--retry")


def _end_cleanly_at_sigterm() -> None:
    """A service manager ends with SIGTERM; the same clean way out as Ctrl-C."""
    import signal
    import sys

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)


def _code(result: CampaignResult, strict: bool) -> int:
    if result.left:
        return LEFT
    return int(not result.complete or bool(result.problems) or (strict and not result.all_served))


def _longer(deadline_s: float | None, least_s: float | None) -> int | None:
    """The smallest deadline that makes progress, in whole tens, where the given one makes none; None: it does."""
    if deadline_s is None or least_s is None or least_s <= deadline_s:
        return None
    return math.ceil(least_s / 10) * 10


def command_line(
    params: Path,
    overrides: list[str],
    out: Path | None,
    machine: Path | None,
    deadline: float | None,
    *,
    skip: Skip | None,
    price: float | None,
    strict: bool,
    json_output: bool,
) -> str:
    """The command line that goes on with what is left."""
    import shlex

    words = ["specbench", "run", str(params)]
    for text in overrides:
        words += ["--set", text]
    for option, value in (("--out", out), ("--machine", machine)):
        if value is not None:
            words += [option, str(value)]
    if deadline is not None:
        words += ["--deadline", f"{deadline:g}"]
    words.append("--resume")
    words += [] if skip is None else ["--skip", skip.value]
    words += [] if price is None else ["--price-per-gpu-hour", f"{price:g}"]
    words += ["--strict"] * strict + ["--json"] * json_output
    return shlex.join(words)
