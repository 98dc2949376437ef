"""Ends for which no pool is to blame: graphs that could not be captured, kernels that failed, errors of no known text.

In: a case and its failure. Out: a fault in the engine's own words, with what is known to avoid it.
"""

from __future__ import annotations

from ..engines.contract import Failure, Line
from ..units import counted
from ..versions import at_least
from .case import Case
from .engine_fault import TO_REPORT, known_fault
from .fault import Fault, flags_version, last_batch, said, sourced, while_serving
from .finding import Remedy


def graphs(case: Case, failure: Failure) -> Fault:
    """CUDA graphs could not be captured, and not for lack of memory."""
    prefill = "prefill" in failure.text or "iecewise" in failure.text
    free = _free_at_capture(case)
    if failure.kind == "cut_off":
        why = "the log ends inside the traceback, before it says why. Give the lines below it"
    else:
        why = said(failure)
    return Fault(
        id="graph-capture-failed",
        cause=(
            f"The server ended while it captured CUDA graphs{free}: {why}"
            + ("." if failure.kind == "cut_off" else " Memory is not what it names; the frames above tell the kernel.")
        ),
        remedies=_without_graphs(case, prefill),
        evidence=_graph_lines(case),
    )


def _free_at_capture(case: Case) -> str:
    known = [graph for graph in case.log.graphs if graph.used is None and graph.available is not None]
    ends = case.log.pool_ends
    if known and known[-1].available is not None:
        return f" ({known[-1].available.bytes / 2**30:.2f} GiB were free)"
    return f" ({ends[-1].available.bytes / 2**30:.2f} GiB were free after the pools)" if ends else ""


def _without_graphs(case: Case, prefill: bool) -> tuple[Remedy, ...]:
    new = at_least(flags_version(case), "0.5.14")
    note = "prefill runs without graphs" if prefill else "decoding without CUDA graphs is slower"
    if new:
        phase = "prefill" if prefill else "decode"
        return sourced(case, {f"engine.args.cuda-graph-backend-{phase}": "disabled"}, note)
    if prefill:
        return sourced(case, {"engine.args.disable-piecewise-cuda-graph": True}, note)
    return sourced(case, {"engine.args.disable-cuda-graph": True}, note)


def crashed(case: Case, failure: Failure) -> Fault:
    """Of no known text: in the engine's own words, with what is known of faults that avoid it."""
    serving = while_serving(case.log, failure)
    fault = known_fault(case, failure)
    before = f"{fault.cause} " if fault is not None else ""
    if failure.kind == "cut_off":
        cause = (
            f"The server ended by an exception while {'serving' if serving else 'starting'}, and the log ends inside "
            "the traceback, before it says why: give the lines below it."
        )
    elif serving:
        died = f"The server died while serving{_batch(case)}: {said(failure)}"
        cause = f"{before}{died}" if fault is not None else f"{died} ({TO_REPORT})"
    else:
        cause = f"{before}The server died while starting: {said(failure)}"
    return Fault(
        id="crashed-serving" if serving else "crashed-start",
        cause=cause,
        remedies=fault.remedies if fault is not None else (),
    )


def gpu_fault(case: Case, failure: Failure) -> Fault:
    """A kernel failed on the GPU; the frame that is shown need not be its."""
    serving = while_serving(case.log, failure)
    if "ECC" in failure.text:
        return Fault(
            id="crashed-serving" if serving else "crashed-start",
            cause=(
                f"The memory of a card is faulty: {failure.values.get('error', failure.text)}. No setting mends that: "
                "nvidia-smi -q -d ECC,ROW_REMAPPER tells the card, which needs a reset (nvidia-smi --gpu-reset) or to "
                "be replaced."
            ),
            evidence=last_batch(case),
        )
    return Fault(
        id="crashed-serving" if serving else "crashed-start",
        cause=(
            f"A kernel failed on the GPU while {'serving' if serving else 'starting'}{_batch(case)}: "
            f"{failure.values.get('error', failure.text)}. Kernels run behind the program, so the frames above need "
            "not be its: with CUDA_LAUNCH_BLOCKING=1 they are. No pool was exhausted: a fault of the engine, a "
            "library or the card (dmesg names Xid errors)."
        ),
        remedies=sourced(
            case, {}, "slower; the traceback then names the kernel, for a report", env={"CUDA_LAUNCH_BLOCKING": "1"}
        ),
        evidence=last_batch(case),
    )


def _batch(case: Case) -> str:
    """What ran when it died: the last prefill or the requests that never got a token."""
    silent = [request for request in case.requests if request.error is not None and not request.chunks]
    if not silent:
        return ""
    first = silent[0]
    together = f"{first.concurrency} at once" if first.concurrency is not None else "open loop"
    answered = [request for request in case.requests if request.ok]
    ours = " (warm-up included)" if any(request.phase == "warmup" for request in answered) else ""
    return f" after {counted(len(answered), 'request')}{ours}, at the first batch of step {first.step} ({together})"


def _graph_lines(case: Case) -> tuple[Line, ...]:
    numbers = [end.line for end in case.log.pool_ends[-1:]] + [graph.line for graph in case.log.graphs[-1:]]
    return tuple(line for number in numbers for line in case.line(number))
