"""Failures of one rank among several: who says it and who only follows, a rank that never comes, a card that is not
there, what NCCL lacks.

In: a case and its failure. Out: a fault that names the ranks. Nothing here can be predicted; what mends it rests on the
source of the engine, of torch (ProcessGroupNCCL.cpp, TCPStore.cpp) or of NCCL, or is no flag and told in the cause.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..engines.contract import Failure, Line
from ..rank_names import in_words, numbers_in_words
from ..units import GIB, format_gib
from .case import Case
from .fault import Fault, last_batch, said, sourced, while_serving
from .faults_outside import SIGNALS
from .finding import Remedy
from .rank_progress import named_ranks, progress, waiting

_LINE = "\n"
_NOT_THERE = (
    "nvidia-smi -L lists the machine's cards; CUDA_VISIBLE_DEVICES, the container (--gpus, NVIDIA_VISIBLE_DEVICES) and "
    "--base-gpu-id say which of them the ranks get."
)
#: UNBALANCED_MODEL_LOADING_TIMEOUT_S of SGLang 0.5.6.post2 to 0.5.23.
_LOADING_S = 480
#: CUDA 802, of machines with NVSwitch.
_FABRIC = (
    "The cards of a machine with NVSwitch cannot be used before its fabric manager runs, in the driver's very version "
    "(systemctl status nvidia-fabricmanager), or in a container that does not get all of them."
)
#: More than graphs and a full prefill took in any recording: with so much beside the pools it is not they.
_MUCH_LEFT_BYTES = 8 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lack:
    """What NCCL says, and what is behind it."""

    says: re.Pattern[str]
    words: str
    serving: str = ""  # in its place once the server serves
    change: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


_LACKS = (
    _Lack(
        says=re.compile(r"peer access is not supported|P2P.{0,40}not supported", re.IGNORECASE),
        words="The cards cannot reach each other's memory (no peer access: nvidia-smi topo -p2p r shows between which; "
        "IOMMU or ACS of the host can be in the way).",
        change={"engine.args.disable-custom-all-reduce": True},
        env={"NCCL_P2P_DISABLE": "1"},
        note="ranks then exchange over host memory, slower",
    ),
    _Lack(
        says=re.compile(r"/dev/shm|shared memory segment|posix_fallocate", re.IGNORECASE),
        words="NCCL found no room in /dev/shm, of which a container has 64 MiB unless it is told otherwise: start it "
        "with --shm-size 16g or --ipc=host (Kubernetes: an emptyDir of medium Memory at /dev/shm).",
        env={"NCCL_SHM_DISABLE": "1"},
        note="without shared memory, slower",
    ),
    _Lack(
        says=re.compile(r"Duplicate GPU detected"),
        words="Two ranks were given one card. CUDA_VISIBLE_DEVICES may name it twice, or --base-gpu-id and "
        "--gpu-id-step, or a launcher that starts one server per card, send both there.",
    ),
    _Lack(
        says=re.compile(r"connectFullMesh|Unable to find address for"),
        words="Gloo, by which ranks exchange what is on the host, could not connect them: it takes the interface that "
        "the host's own name leads to. GLOO_SOCKET_IFNAME names another (one name, no list of NCCL's kind), on every "
        "node that by which the nodes reach each other (ip route get ADDRESS).",
    ),
    _Lack(says=re.compile(r"\b802\b|system not yet initialized"), words=_FABRIC),
    _Lack(
        says=re.compile(r"CUDA calloc|out of memory", re.IGNORECASE),
        words="NCCL found no memory on the card for its own buffers, which it takes before anything is loaded: another "
        "program fills it (nvidia-smi names it).",
        serving="NCCL found no memory on the card for buffers of an operation that ran for the first time: it sets "
        "them up when they are needed, beside the pools.",
    ),
)


def of_ranks(case: Case, failure: Failure) -> str:
    """Of a server of several ranks: which of them say so, and which fail of what followed; with a space before it."""
    every = named_ranks(case)
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


def communication(case: Case, failure: Failure) -> Fault:
    """Ranks could not speak to each other, and no rank says why; or NCCL does."""
    warnings = [notice for notice in case.log.notices if notice.kind == "nccl_warning"]
    heard = [str(failure.values.get("last_error", "")), failure.text, *(str(one.values["said"]) for one in warnings)]
    lack = next((lack for text in heard for lack in _LACKS if lack.says.search(text)), None)
    told = next((one for one in warnings if lack is not None and lack.says.search(str(one.values["said"]))), None)
    evidence = () if (shown := told or next(iter(warnings), None)) is None else case.line(shown.line)
    if lack is None and (silent := _silent(case, failure)):
        who, one = in_words(silent), len(silent) == 1
        return Fault(
            id="communication-failed",
            cause=(
                f"{who} ended while the others were at work, or {'hangs' if one else 'hang'}: {said(failure)}"
                f"{_last_error(failure)} {who} alone {'says' if one else 'say'} no error. Mostly such a process was "
                f"killed. {SIGNALS[9]}."
            ),
            evidence=evidence,
        )
    if lack is None:
        return Fault(
            id="communication-failed",
            cause=(
                f"The ranks could not communicate: {said(failure)}{_last_error(failure)} No rank names another cause "
                "in this log. Mostly another rank ended first (its log tells), or NCCL lacks shared memory (/dev/shm: "
                "--shm-size of the container), peer access or the right network interface."
            ),
            remedies=sourced(case, {}, "NCCL then says what it lacks", env={"NCCL_DEBUG": "INFO"}),
            evidence=evidence,
        )
    words = _last_error(failure) or (f" NCCL says: {told.values['said']}." if told is not None else "")
    if lack.serving and while_serving(case.log, failure):
        return _full_card(case, failure, f"The ranks could not communicate. {lack.serving}{words}", evidence)
    return Fault(
        id="communication-failed",
        cause=f"The ranks could not communicate. {lack.words}{words}",
        remedies=_remedy(case, lack),
        evidence=evidence,
    )


def _full_card(case: Case, failure: Failure, cause: str, evidence: tuple[Line, ...]) -> Fault:
    """NCCL without memory while serving: what the pools left tells whether they or another program fill the card."""
    left = [own.available for own in case.pools.ranks if own.rank == failure.rank and own.available is not None]
    if left and (least := min(left, key=lambda free: free.bytes)).bytes >= _MUCH_LEFT_BYTES:
        whose = (
            f" {failure.rank} had {format_gib(least.bytes)} left when its pools stood: another program fills its card "
            "(nvidia-smi names it), or activations far above their estimate."
        )
        return Fault(id="communication-failed", cause=cause + whose, evidence=(*evidence, *case.pool_lines()))
    return Fault(
        id="communication-failed",
        cause=f"{cause} The static fraction leaves too little beside the pools, or another program takes it.",
        remedies=case.less_memory(),
        evidence=evidence,
        lost=1.0,
    )


def _silent(case: Case, failure: Failure) -> set[str]:
    """The ranks without an error of their own, where most have one, or where one of two lost the other; empty: too many
    of them, or none."""
    every = set(named_ranks(case))
    silent = every - {one.rank for one in case.log.failures}
    most = 2 * len(silent) < len(every)
    return silent if most or (len(every) == 2 and failure.values.get("remote")) else set()


def _last_error(failure: Failure) -> str:
    last = str(failure.values.get("last_error", "")).rstrip(".")
    return f" NCCL's last error: {last}." if last else ""


def _remedy(case: Case, lack: _Lack) -> tuple[Remedy, ...]:
    return sourced(case, lack.change, lack.note, env=lack.env) if lack.change or lack.env else ()


def gpu_missing(case: Case, failure: Failure) -> Fault:
    """A rank that has no card, or one that cannot be used."""
    if re.search(r"\b802\b|system not yet initialized", failure.text):
        return Fault(id="gpu-missing", cause=f"CUDA cannot use the cards: {said(failure)} {_FABRIC}")
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
        return sourced(case, {"parallel.tp_size": 1}, note, dropped="--tp-size")
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
    every = set(named_ranks(case))
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
    last = waiting(progress(case))
    return Behind(words=f" {last.words}" if last.words else "", lines=last.lines(case))


def unbalanced_ranks(case: Case) -> tuple[str, ...]:
    """Ranks that do not complain of the balance, where others do: theirs are the cards with least."""
    complain = {one.rank for one in case.log.failures if one.kind == "memory_unbalanced"}
    silent = [rank for rank in named_ranks(case) if rank not in complain]
    return tuple(silent) if complain and len(silent) <= len(complain) else ()
