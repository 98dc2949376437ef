"""Failures of one rank among several: who says it and who only follows, a rank that never comes, a card that is not
there. What ranks lack to communicate: `faults_communication`.

In: a case and its failure. Out: a fault that names the ranks. Nothing here can be predicted; what mends it rests on the
source of the engine or of torch (ProcessGroupNCCL.cpp, TCPStore.cpp), or is no flag and told in the cause.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..engines.contract import Failure, Line
from ..rank_names import in_words, numbers_in_words
from ..reading.rank_progress import named_ranks, progress, waiting
from .case import Case
from .fault import Fault, last_batch, said, sourced, while_serving
from .faults_communication import FABRIC, NO_FABRIC
from .faults_outside import SIGNALS
from .finding import Remedy
from .rank_lines import labelled

_LINE = "\n"
_NOT_THERE = (
    "nvidia-smi -L lists the machine's cards; CUDA_VISIBLE_DEVICES, the container (--gpus, NVIDIA_VISIBLE_DEVICES) and "
    "--base-gpu-id say which of them the ranks get."
)
#: UNBALANCED_MODEL_LOADING_TIMEOUT_S of SGLang 0.5.6.post2 to 0.5.23.
_LOADING_S = 480


def of_ranks(case: Case, failure: Failure) -> str:
    """Of a server of several ranks: which of them say so, and which fail of what followed; with a space before it."""
    every = named_ranks(case.log)
    mine = {one.rank for one in case.log.failures if _same(one, failure)} & set(every)
    if len(every) < 2 or not mine:
        return ""
    if mine == set(every):
        return f" All {len(every)} ranks say so."
    others = {one.rank for one in case.log.failures if one.rank in every} - mine
    then = f"; the errors of {in_words(others)} are others, mostly of what followed" if others else ""
    return f" Of {len(every)} ranks {in_words(mine)} {'says' if len(mine) == 1 else 'say'} so{then}."


def _same(one: Failure, other: Failure) -> bool:
    """Numbers may differ, of addresses and of bytes."""
    if one.kind != other.kind or one.exception != other.exception:
        return False
    remote = bool(one.values.get("remote"))
    alike = all(one.values.get(name) == other.values.get(name) for name in ("code", "error"))
    return alike and remote == bool(other.values.get("remote"))


def gpu_missing(case: Case, failure: Failure) -> Fault:
    """A rank that has no card, or one that cannot be used."""
    if NO_FABRIC.search(failure.text):
        return Fault(id="gpu-missing", cause=f"CUDA cannot use the cards: {said(failure)} {FABRIC}")
    if "busy or unavailable" in failure.text:
        return Fault(
            id="gpu-missing",
            cause=(
                f"A card cannot be used: {said(failure)} Another program has it for itself (nvidia-smi -q -d COMPUTE "
                "tells the compute mode), or it needs a reset (dmesg names Xid errors)."
            ),
        )
    if "ordinal" not in failure.text:
        return Fault(id="gpu-missing", cause=f"CUDA shows the server no GPU: {said(failure)} {_NOT_THERE}")
    ranks = {one.rank for one in case.log.failures if one.kind == failure.kind}
    numbers = [int(rank.removeprefix("TP")) for rank in ranks if re.fullmatch(r"TP\d{1,5}", rank)]
    args = case.log.server_args or {}
    size = args.get("tp_size")
    usual = {"base_gpu_id": 0, "gpu_id_step": 1, "nnodes": 1}
    there = min(numbers, default=0) if all(args.get(key, value) == value for key, value in usual.items()) else 0
    seen = "" if not there else f" The first rank without one is TP{there}: CUDA shows the server {there}."
    wanted = f" A server of tp_size {size} needs {size} cards." if isinstance(size, int) else ""
    return Fault(
        id="gpu-missing",
        cause=f"There are fewer GPUs than ranks ({failure.text.partition(_LINE)[0]}).{wanted}{seen} {_NOT_THERE}",
        remedies=_on_fewer(case, there) if there and there & (there - 1) == 0 else (),
    )


def _on_fewer(case: Case, cards: int) -> tuple[Remedy, ...]:
    if cards == 1:
        note = "on the one card that is there, which then holds all"
        return sourced(case, {"parallel.tp_size": 1}, note, flags="--tp-size 1")
    note = f"on the {cards} cards that are there, each of which then holds more"
    return sourced(case, {"parallel.tp_size": cards}, note)


def rank_missing(case: Case, failure: Failure) -> Fault:
    """Ranks that waited in vain, before they could communicate or in a collective operation."""
    if failure.kind == "collective_timeout":
        return _collective(case, failure)
    behind = _behind(case)
    if "rank" in failure.values:  # model_executor/model_runner.py, of all versions
        return Fault(
            id="rank-missing",
            cause=(
                f"A rank did not finish loading: {said(failure)}{behind.words} It ended before, mostly killed and so "
                f"without a word ({SIGNALS[9]}), or needs {_LOADING_S} s more than the others (a slow disk)."
            ),
            evidence=behind.lines,
        )
    if "waited_ms" in failure.values:
        return Fault(
            id="rank-missing",
            cause=(
                f"A rank was waited for in vain while the ranks exchanged over the host: {said(failure)} Gloo does not "
                "say which; the one that is silent hangs, was stopped or has ended (its last lines tell)."
            ),
            evidence=last_batch(case),
        )
    joined, expected = failure.values.get("joined"), failure.values.get("expected")
    count = "" if joined is None else f" {joined} of {expected} processes came to the start of communication."
    return Fault(
        id="rank-missing",
        cause=(
            f"A rank never came: {said(failure)}{count}{behind.words} It hangs or has ended before (its last lines "
            "tell), its node cannot reach the address of the first (--dist-init-addr, firewall, network interface), or "
            "was not started."
        ),
        evidence=behind.lines,
    )


def _collective(case: Case, failure: Failure) -> Fault:
    """torch's watchdog speaks in every rank that waits; the one that does not come is silent."""
    told = {one.values.get("rank") for one in case.log.failures if one.kind == failure.kind}
    numbers = {number for number in told if isinstance(number, int)}
    waited = {f"TP{number}" for number in numbers}
    every = set(named_ranks(case.log))
    plain = bool(every) and all(re.fullmatch(r"TP\d{1,5}", rank) for rank in every)
    silent = every - waited if plain and waited <= every else set()
    operation, milliseconds = failure.values.get("operation"), failure.values.get("timeout_ms")
    seconds = f" {milliseconds / 1000:g} s" if isinstance(milliseconds, int) else " its time"
    if silent and len(silent) < len(every):
        which = (
            f" {in_words(silent)} {'does' if len(silent) == 1 else 'do'} not say so: the others waited for "
            f"{'it' if len(silent) == 1 else 'them'} (a step that hangs, a process that was stopped or ended), or the "
            "log lacks those lines."
        )
    elif silent or not plain:
        which = " What they waited for is a rank that does not say so, or the operation itself hung."
    else:
        which = " No rank is silent: the operation itself hung (a link between cards, the network, NCCL), or they came "
        which += "to different ones."
    during = "while serving" if while_serving(case.log, failure) else "while starting"
    return Fault(
        id="rank-missing",
        cause=(
            f"A collective operation ({operation}) was not over after{seconds} {during}: torch's watchdog ended "
            f"{in_words(waited) if plain else f'ranks {numbers_in_words(numbers)}'}.{which}"
        ),
        remedies=sourced(
            case,
            {"engine.args.dist-timeout": 3 * milliseconds // 1000 if isinstance(milliseconds, int) else 1800},
            "waits longer: right only where a rank is slow (weights from a slow disk, kernels compiled on first use)",
        ),
        evidence=last_batch(case),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Behind:
    """How far each rank of a start came."""

    words: str  # with a space before it; "": all alike, or one rank
    lines: tuple[Line, ...] = ()


def _behind(case: Case) -> Behind:
    last = waiting(progress(case.log))
    return Behind(words=f" {last.words}" if last.words else "", lines=labelled(case, last.last))


def unbalanced_ranks(case: Case) -> tuple[str, ...]:
    """Ranks that do not complain of the balance, where others do: theirs are the cards with least."""
    complain = {one.rank for one in case.log.failures if one.kind == "memory_unbalanced"}
    silent = [rank for rank in named_ranks(case.log) if rank not in complain]
    return tuple(silent) if complain and len(silent) <= len(complain) else ()
