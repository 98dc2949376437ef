"""Ranks that could not speak to each other: what NCCL or gloo lacks, a rank that ended while the others were at work.

In: a case and its failure. Out: a fault that names the ranks. Nothing here can be predicted; what mends it rests on the
source of the engine, of torch (ProcessGroupNCCL.cpp) or of NCCL, or is no flag and told in the cause.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..engines.contract import Failure, Line
from ..rank_names import in_words
from ..reading.lost_rank import silent_ranks
from ..units import GIB, format_gib
from .case import Case
from .fault import Fault, said, sourced, while_serving
from .faults_outside import SIGNALS
from .finding import Remedy

#: CUDA 802, of machines with NVSwitch.
NO_FABRIC = re.compile(r"\b802\b|system not yet initialized")
FABRIC = (
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
        "the host's own name leads to. GLOO_SOCKET_IFNAME names others, on every node that by which the nodes reach "
        "each other (ip route get ADDRESS): whole names with commas between, not NCCL's ^lo or beginnings of names.",
    ),
    _Lack(says=NO_FABRIC, words=FABRIC),
    _Lack(
        says=re.compile(r"CUDA calloc|out of memory", re.IGNORECASE),
        words="NCCL found no memory on the card for its own buffers, which it takes before anything is loaded: another "
        "program fills it (nvidia-smi names it).",
        serving="NCCL found no memory on the card for buffers of an operation that ran for the first time: it sets "
        "them up when they are needed, beside the pools.",
    ),
)


def communication(case: Case, failure: Failure) -> Fault:
    """Ranks could not speak to each other, and no rank says why; or NCCL does."""
    warnings = [notice for notice in case.log.notices if notice.kind == "nccl_warning"]
    heard = [str(failure.values.get("last_error", "")), failure.text, *(str(one.values["said"]) for one in warnings)]
    lack = next((lack for text in heard for lack in _LACKS if lack.says.search(text)), None)
    told = next((one for one in warnings if lack is not None and lack.says.search(str(one.values["said"]))), None)
    evidence = () if (shown := told or next(iter(warnings), None)) is None else case.line(shown.line)
    if lack is None and (silent := silent_ranks(case.log, failure)):
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


def _last_error(failure: Failure) -> str:
    last = str(failure.values.get("last_error", "")).rstrip(".")
    return f" NCCL's last error: {last}." if last else ""


def _remedy(case: Case, lack: _Lack) -> tuple[Remedy, ...]:
    return sourced(case, lack.change, lack.note, env=lack.env) if lack.change or lack.env else ()
