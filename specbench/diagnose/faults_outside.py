"""What ended a server from outside its pools: environment, model files, libraries, ports, signals, other processes.

In: a case and its failure. Out: a fault. Nothing here can be predicted; what mends it rests on the engine's source, or
is no flag and told in the cause.
"""

from __future__ import annotations

import re

from ..engines.contract import Failure
from ..reading.lost_rank import number_of
from .case import Case
from .fault import Fault, said, sourced
from .finding import Remedy

#: What ends a process by that number.
SIGNALS = {
    1: "SIGHUP: the terminal that it was started from was closed",
    2: "SIGINT: somebody interrupted it",
    4: "SIGILL: a library was built for another processor",
    6: "SIGABRT: a library ended it (NCCL after a timeout, or glibc), its words stand above",
    7: "SIGBUS: shared memory or a file that it maps ran out (/dev/shm of the container, a full disk)",
    9: "SIGKILL: the kernel when the host has no memory left (dmesg -T | grep -i oom), a container's memory limit, or "
    "somebody",
    11: "SIGSEGV: a fault in native code of a library or kernel",
    15: "SIGTERM: it was asked to end",
}
_HOST_MEMORY = (
    "Host memory is taken by loading workers, pinned buffers and --enable-hierarchical-cache: give the container more, "
    "or a smaller --hicache-size."
)


def environment(case: Case, failure: Failure) -> Fault:
    """The engine's environment lacks a module, or has the wrong one."""
    return Fault(
        id="bad-environment",
        cause=(
            f"The engine's Python environment lacks something: {said(failure)} (Nothing about memory: repair that "
            "environment, or name another interpreter in engine.python; specbench doctor --python PATH tells what it "
            "has.)"
        ),
        remedies=_other_backends(case) if "layers/attention/" in str(failure.values.get("where")) else (),
    )


def kernel_missing(case: Case, failure: Failure) -> Fault:
    """A library without kernels for this card."""
    return Fault(
        id="bad-environment",
        cause=(
            f"A library of the engine's environment has no kernels for this GPU: {said(failure)} (Nothing about "
            "memory: it was built for other compute capabilities; install the build for this card and its CUDA "
            "version.)"
        ),
    )


def model_missing(case: Case, failure: Failure) -> Fault:
    """Files of the model or its tokenizer are not where they were looked for."""
    asked = (case.log.server_args or {}).get("model_path")
    named = f" ({asked})" if isinstance(asked, str) and asked not in failure.text else ""
    return Fault(
        id="refused-model",
        cause=(
            f"The model's files were not found{named}: {said(failure)} A path has to hold config.json, the weights "
            "and the tokenizer, as the server's own user and container see it; a name is looked up at Hugging Face, "
            "which needs the network, and for gated models a token."
        ),
    )


def model_unsupported(case: Case, failure: Failure) -> Fault:
    """The release does not know the architecture."""
    return Fault(
        id="refused-model",
        cause=(
            f"This release has no implementation of the model: {said(failure)} Architectures come with releases of "
            "SGLang, and their configurations with releases of transformers: a newer one of both, or "
            "--trust-remote-code where the checkpoint brings its own code."
        ),
    )


def backend_unsupported(case: Case, failure: Failure) -> Fault:
    """An attention backend that this card does not run."""
    return Fault(
        id="refused-arguments",
        cause=f"The attention backend does not run on this GPU: {said(failure)}",
        remedies=_other_backends(case),
    )


def _other_backends(case: Case) -> tuple[Remedy, ...]:
    """Those of every installation and card, without the one that is asked for."""
    asked = str((case.log.server_args or {}).get("attention_backend"))
    return tuple(
        remedy
        for backend in ("flashinfer", "triton")
        if backend not in asked
        for remedy in sourced(
            case, {"engine.args.attention-backend": backend}, "another attention backend; left out, the engine chooses"
        )
    )


def port(case: Case, failure: Failure) -> Fault:
    """Somebody listens where the server was told to."""
    number = failure.values.get("port")
    if not isinstance(number, int):
        found = re.search(r"(\d{1,5})\s*\Z", str(failure.values.get("address", "")))
        number = int(found[1]) if found else None
    where = "an address" if number is None else f"port {number}"
    inner = "" if "name" not in failure.values else f" (its own {failure.values['name']}, derived from --port)"
    ready = " The server says that it is ready all the same, and then ends." if case.log.ready_line is not None else ""
    free = None if number is None or number >= 65_000 else number + 100
    return Fault(
        id="port-in-use",
        cause=(
            f"Another process listens on {where}{inner}: often an earlier server that still runs, or that ends slowly "
            f"(ss -ltnp names it).{ready} The engine says: {said(failure)}"
        ),
        remedies=() if free is None else sourced(case, {"engine.port": free}, "or any other that nobody listens on"),
    )


def host_memory(case: Case, failure: Failure) -> Fault:
    """No memory left in the host, not in the GPU."""
    return Fault(
        id="out-of-host-memory",
        cause=f"The host (not the GPU) has no memory left: {said(failure)} {_HOST_MEMORY}",
    )


def disk_full(case: Case, failure: Failure) -> Fault:
    """No room on a disk, or in shared memory."""
    return Fault(
        id="disk-full",
        cause=(
            f"No space is left where the server writes: {said(failure)} It may be the cache of models (HF_HOME), of "
            "compiled kernels (~/.cache, /tmp), or /dev/shm of the container (df -h tells)."
        ),
    )


def process_died(case: Case, failure: Failure) -> Fault:
    """A process of the engine ended without a word of its own."""
    code = failure.values.get("exit_code")
    name = failure.values.get("name")
    number = number_of(failure)
    of_rank = f" (rank {number})" if number else ""  # a server of one rank has number 0 too
    who = f"The process {name}{of_rank}" if name else f"The scheduler of rank {failure.values.get('rank', '?')}"
    during = "while serving" if failure.phase == "serving" else "while starting"
    if isinstance(code, int) and code < 0:
        why = SIGNALS.get(-code, f"signal {-code}")
        more = f" {_HOST_MEMORY}" if code == -9 else ""
        cause = f"{who} was ended by a signal {during}, without a word of its own (exit code {code}). {why}.{more}"
    else:
        cause = f"{who} ended {during} with exit code {code}; why stands in lines that are not in this log: give them."
    return Fault(id="ended-by-signal", cause=cause, lost=1.0)


def child_failed(case: Case, failure: Failure) -> Fault:
    """Only what the parent says is left of the cause."""
    return Fault(id="ended-by-signal", cause=_ONLY_CONSEQUENCES.format(what=said(failure)), lost=1.0)


_ONLY_CONSEQUENCES = (
    "A process of the engine failed, and only what followed is in this log: {what} The cause stands above: give the "
    "lines before it, from the first 'Traceback' or 'hit an exception' on."
)


#: Of a start.
STOPPED_EARLY = (
    "Somebody asked the server to stop (SIGTERM) before it was ready, and it had said no error until then: a person, "
    "or what watches over it, whose patience is shorter than the start (a startup probe, a service's start timeout)."
)


def only_consequences(what: str) -> str:
    """Asks for the lines above."""
    return _ONLY_CONSEQUENCES.format(what=what)


def warmup_failed(case: Case, failure: Failure) -> Fault:
    """The server could not reach itself."""
    return Fault(
        id="crashed-start",
        cause=(
            "The server's first request to itself failed, so it ended: a proxy between it and its own address "
            "(HTTP_PROXY without NO_PROXY), an address that it cannot reach, or a first step that takes longer than it "
            f"waits. {said(failure)}"
        ),
        remedies=(
            *sourced(case, {}, "requests to itself go past a proxy", env={"NO_PROXY": "localhost,127.0.0.1"}),
            *sourced(case, {"engine.args.skip-server-warmup": True}, "no first request; the first user waits instead"),
        ),
    )
