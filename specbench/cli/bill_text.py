"""What a campaign will cost and what is expected of it, on a terminal and as JSON; and what is left afterwards."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from ..campaign.bill import Cost
from ..campaign.fitting import Calls
from ..campaign.outlook import Outlook
from ..campaign.resume import Standing
from ..configuration.config import RunConfig
from ..configuration.secret_names import shown as secretless
from ..diagnose.outgoing import safe
from ..engines.sglang.per_worker import requests_of_worker
from ..lifecycle.launch import server_argv
from ..lifecycle.preflight import no_interpreter, without_gpus
from ..load.foreseen import of_workload
from ..logclean import on_one_line
from ..records.listing import saved
from ..terms import Verdict
from ..units import counted
from . import calls_text

_STYLES: dict[Verdict | None, str] = {"serves": "green", "capped": "yellow", "refused": "red", None: "dim"}
_INDENT = " " * 4
#: What is spent on a rented machine before the bill begins.
_NOT_COUNTED = "Not counted: what comes before the first start (installing engines, copying models and this folder)."


def bill(campaign: str, ahead: Outlook, console: Console, price: float | None = None) -> None:
    """Before real engines start: how many, how long, what is not started, and what of it is not known. Of a campaign of
    replays only what is not started. `price`: of a GPU hour, in whatever currency."""
    if not ahead.bill.starts:
        _say_skipped(ahead, console)
        return
    console.print(_sum(campaign, ahead, price), highlight=False, soft_wrap=True, markup=False)
    _say_fitting(ahead.calls, console)
    _say_skipped(ahead, console)
    for doubt in ahead.doubts:
        console.print(Text(f"{_INDENT}{doubt}", style="yellow"), soft_wrap=True, highlight=False)
    for cost in ahead.bill.costs:
        if cost.fault is not None:
            told = f"{_INDENT}{cost.config.name}: {_expected(cost)}. {cost.fault}"
            console.print(Text(told, style="yellow"), soft_wrap=True, highlight=False)
        if cost.out_of_memory is not None:
            told = f"{_INDENT}{cost.config.name}: {cost.out_of_memory}"
            console.print(Text(told, style="yellow"), soft_wrap=True, highlight=False)
    for note in ahead.bill.notes:
        console.print(Text(f"{_INDENT}{note}", style="dim"), soft_wrap=True, highlight=False)


def expectations(campaign: str, ahead: Outlook, price: float | None = None) -> None:
    """The bill, then each configuration: what it takes, what is expected of it, and its server's command line."""
    console = Console()
    bill_line = _sum(campaign, ahead, price)
    console.print(bill_line, highlight=False, soft_wrap=True, markup=False)
    if ahead.bill.starts:
        _say(console, f"Results go to {ahead.root}. {_NOT_COUNTED}")
    _say_fitting(ahead.calls, console)
    _say_skipped(ahead, console)
    for doubt in (*_refused(ahead), *ahead.doubts):
        _say(console, doubt, "yellow")
    for note in ahead.bill.notes:
        _say(console, note, "dim")
    costs = {cost.config.name: cost for cost in ahead.bill.costs}
    for standing in ahead.standings:
        cost = costs.get(standing.config.name)
        console.print()
        if cost is None:
            console.print(Text(standing.why), soft_wrap=True, highlight=False)
            continue
        head = Text.assemble(
            (standing.config.name, "bold"), f": about {cost.total_s:.0f} s, ", (_expected(cost), _style(cost))
        )
        console.print(head, soft_wrap=True, highlight=False)
        if standing.why:
            _say(console, standing.why)
        _say(console, _why(cost))
        for warning in _warnings(cost):
            _say(console, warning, "yellow")
        if cost.config.engine.attach is None:
            console.print(Text(_shell(cost.config), style="dim"), soft_wrap=True, highlight=False)


def document(campaign: str, ahead: Outlook, price: float | None = None) -> dict[str, Any]:
    """The same for programs. Unknown is null."""
    costs = {cost.config.name: cost for cost in (*ahead.bill.costs, *ahead.bill.skipped)}
    return {
        "schema": 1,
        "campaign": campaign,
        "folder": str(ahead.root),
        "bill": {
            "starts": ahead.bill.starts,
            "seconds": round(ahead.bill.total_s, 1),
            "pages_s": round(ahead.bill.pages_s, 1),
            "gpu_held_minutes": round(ahead.bill.held_s / 60, 2),
            "gpu_minutes": round(ahead.bill.gpu_s / 60, 2),
            "price": None if price is None else {"per_gpu_hour": price, "total": _money(ahead.bill.gpu_s, price)},
            "skipped": len(ahead.bill.skipped),
            "gpu_minutes_saved": round(ahead.bill.saved_gpu_s / 60, 2),
            "notes": list(ahead.bill.notes),
        },
        "deadline": calls_text.document(ahead.calls),
        "doubts": [*_refused(ahead), *ahead.doubts],
        "runs": [_run(standing, costs.get(standing.config.name), ahead) for standing in ahead.standings],
    }


def _refused(ahead: Outlook) -> list[str]:
    """For a dry run, which starts nothing: what this machine has too few GPUs for."""
    short = without_gpus([cost.config for cost in ahead.bill.costs])
    every = len(short) == len(ahead.bill.costs)
    return [
        f"run refuses {'this' if every else ', '.join(name for name in short if short[name] == why)}: "
        + why.partition("\n")[0].removesuffix(".")
        for why in dict.fromkeys(short.values())
    ]


def _say_fitting(calls: Calls | None, console: Console) -> None:
    for text in () if calls is None else calls_text.sentences(calls):
        _say(console, text)


def _say_skipped(ahead: Outlook, console: Console) -> None:
    """'2 configurations are not started, by prediction: a, b. About 3.1 GPU minutes saved.'"""
    skipped = ahead.skipped
    if skipped:
        names = ", ".join(skipped)
        are = "is" if len(skipped) == 1 else "are"
        told = f"{counted(len(skipped), 'configuration')} {are} not started, by prediction: {names}."
        _say(console, f"{told} {saved(ahead.bill.saved_gpu_s)}".rstrip())


def left(what: Mapping[str, str], command: str, longer_s: int | None = None) -> None:
    """Which configurations did not come to their turn, why, and how to go on. `longer_s`: with which deadline."""
    if not what:
        return
    console = Console()
    console.print(Text(f"{counted(len(what), 'configuration')} left:", style="bold"), highlight=False)
    for name, why in what.items():
        _say(console, f"{name}: {safe(why)}")
    if longer_s is not None:
        _say(console, f"This deadline is too short for any of them: {longer_s} s is the smallest that makes progress.")
    console.print(Text(f"go on: {command}"), soft_wrap=True, highlight=False)


def _run(standing: Standing, cost: Cost | None, ahead: Outlook) -> dict[str, Any]:
    config = ahead.placed[standing.config.name]
    told: dict[str, Any] = {"name": config.name, "state": standing.state, "why": standing.why or None}
    if cost is None:
        return told
    limits = {} if cost.budget is None else cost.budget.limits
    return told | {
        "expected": cost.verdict,
        "known_fault": cost.fault,
        "reason": None if cost.budget is None else cost.budget.reason,
        "rests_on": None if cost.budget is None else cost.budget.basis_words,
        "emulation": None if cost.budget is None or cost.budget.emulation is None else asdict(cost.budget.emulation),
        "limits": {
            name: None
            if limit.value is None
            else {part: getattr(limit.value, part) for part in ("low", "point", "high")}
            for name, limit in limits.items()
        },
        "start_s": round(cost.start_s, 1),
        "workload_s": round(cost.workload_s, 1),
        "beside_s": round(cost.beside_s, 1),
        "gpus": cost.gpus,
        "warnings": list(_warnings(cost)),
        "environment": secretless(config.engine.env),
        "command": _command(config),
    }


def _money(gpu_s: float, price: float) -> float:
    return round(gpu_s / 3600 * price, 2)


def _sum(campaign: str, ahead: Outlook, price: float | None = None) -> str:
    total, runs = ahead.bill, len(ahead.bill.costs)
    kept = len(ahead.standings) - runs - len(ahead.bill.skipped)
    beside = f" ({counted(kept, 'other')} done or left as they are)" if kept else ""
    if not total.starts:
        pages = f", of which its pages {_time(total.pages_s)}" if total.pages_s else ""
        return (
            f"{campaign}: {counted(runs, 'configuration')} to run{beside}, no engine to start: "
            f"{_time(total.total_s)}{pages}"
        )
    minutes = f"{total.gpu_s / 60:.1f} GPU minutes"
    if price is not None:
        minutes += f", about {_money(total.gpu_s, price):.2f} at {price:.2f} per GPU hour"
    return (
        f"{campaign}: {counted(runs, 'configuration')} to run{beside}, {counted(total.starts, 'start')}: "
        f"{_time(total.total_s)}, " + (f"GPUs in use for {_time(total.held_s)}, {minutes}" if total.gpu_s else "no GPU")
    )


def _time(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds < 100 else f"about {seconds / 60:.1f} min"


def _expected(cost: Cost) -> str:
    asked = cost.config.memory.max_running_requests
    share = requests_of_worker(cost.config, asked)
    wanted = "" if share is None else f" of {share}" + (" per worker" if share != asked else "")
    running = None if cost.budget is None else cost.budget.limits["running_requests"].value
    match cost.verdict:
        case "serves" | "capped" if cost.fault is not None:
            return "expected to start; a known fault of the engine ends it at its first full batch"
        case "refused":
            return f"expected to be refused (0{wanted})" if wanted else "expected to be refused"
        case "capped" if running is not None:
            return f"expected to be capped at {running.point:,}{wanted}"
        case "serves" if running is not None:
            return f"expected to serve {running.point:,}{wanted}"
        case _:
            return "not predicted"


def _style(cost: Cost) -> str:
    return _STYLES[cost.verdict] if cost.fault is None else _STYLES["refused"]


def _warnings(cost: Cost) -> tuple[str, ...]:
    admission = None if cost.budget is None else cost.budget.admission
    fault = tuple(text for text in (cost.fault, cost.out_of_memory, admission) if text is not None)
    if cost.config.engine.replay is not None:
        return fault
    return (*fault, *no_interpreter(cost.config), *of_workload(cost.config, cost.budget))


def _why(cost: Cost) -> str:
    parts = f"start {cost.start_s:.0f} s, requests {cost.workload_s:.0f} s, beside {cost.beside_s:.0f} s"
    if cost.budget is None:
        return parts
    rests, emulation = cost.budget.free.rests_on, cost.budget.emulation
    unmeasured = None if rests is None or rests.basis == "measured" else f"free memory {rests.words}"
    beside = "; ".join(filter(None, (None if emulation is None else emulation.banner, unmeasured)))
    return " ".join(filter(None, (cost.budget.reason, f"{beside[:1].upper()}{beside[1:]}", f"({parts})")))


def _shell(config: RunConfig) -> str:
    """The server's command as a shell takes it, its own environment variables first."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in secretless(config.engine.env).items()]
    # A path of a params file may hold escapes; on paper it cannot be run, in a terminal it would act.
    return _INDENT + on_one_line(" ".join([*variables, shlex.join(_command(config))]))


def _command(config: RunConfig) -> list[str]:
    if config.engine.attach is not None:
        return []  # it runs already
    argv = server_argv(config, config.engine.host, config.engine.port or 0)
    if config.engine.port is None:
        argv[argv.index("--port") + 1] = "PORT"  # a free one, when it starts
    return argv


def _say(console: Console, text: str, style: str = "") -> None:
    width = max(40, console.width - 1)
    # A flag that is broken at a hyphen cannot be copied.
    lines = textwrap.wrap(text, width, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False)
    console.print(Text("\n".join(lines), style=style), soft_wrap=True, highlight=False)
