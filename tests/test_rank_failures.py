# ruff: noqa: E501  (lines of logs)
"""One rank among eight: who failed by itself, who only lost it, and what of the machine is behind it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from specbench.diagnose.diagnosis import of_path
from specbench.diagnose.finding import Finding
from specbench.diagnose.types import Diagnosis
from specbench.engines.sglang import logs
from tests.many_ranks import RANKS, record
from tests.test_failure_findings import flags

SRT = "/srv/venv/lib/python3.12/site-packages/sglang/srt/"
LOADING = f'  File "{SRT}model_loader/loader.py", line 680, in load_model'
WAITING = f'  File "{SRT}distributed/bootstrap.py", line 90, in init_distributed'
LOOP = f'  File "{SRT}managers/scheduler.py", line 1210, in event_loop_overlap'
QUIT = "[2026-11-29 23:49:10] SIGQUIT received. signum=3, frame=None. It usually means one child failed."
OTHERS = "TP0 to TP4, TP6, TP7"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("eight"))


@pytest.fixture(scope="module")
def lines(recorded: Path) -> list[str]:
    return (recorded / "server.log").read_text(encoding="utf-8").split("\n")


def until(lines: list[str], words: str, ranks: int = RANKS, *, without: str = "\0") -> list[str]:
    """The log up to the line in which the last of so many ranks says that."""
    kept = [line for line in lines if without not in line]
    places = [place for place, line in enumerate(kept) if words in line]
    return kept[: places[ranks - 1] + 1]


def raised(rank: int, error: str, frame: str = WAITING) -> list[str]:
    return [
        f"[2026-11-29 23:49:05 TP{rank}] Scheduler hit an exception: Traceback (most recent call last):",
        frame,
        *error.split("\n"),
        "",
    ]


def read(tmp_path: Path, *parts: list[str] | str) -> Diagnosis:
    log = tmp_path / "server.log"
    text = [line for part in parts for line in ([part] if isinstance(part, str) else part)]
    log.write_text("\n".join(text) + "\n", encoding="utf-8")
    return of_path(log)


def fatal(found: Diagnosis) -> Finding:
    (finding,) = [one for one in found.findings if one.severity == "fatal"]
    return finding


def nccl(code: str, last: str, failed: str = "unhandled cuda error") -> str:
    """As torch 2.9 puts it (NCCLUtils.cpp)."""
    return (
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, "
        f"{failed} (run with NCCL_DEBUG=INFO for details), NCCL version 2.28.9\n{code}\nLast error:\n{last}"
    )


CUDA = "ncclUnhandledCudaError: Call to CUDA function failed."
SYSTEM = "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error."
USAGE = "ncclInvalidUsage: This usually reflects invalid usage of NCCL library."
REMOTE = nccl(
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    "socketPollConnect: connect to 127.0.0.1<42321> returned Connection refused",
    "remote process exited or there was a network error",
)
GLOO = (
    "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1"
)
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 340.00 MiB. GPU 5 has a total capacity of 139.80 GiB "
    "of which 125.56 MiB is free. Including non-PyTorch memory, this process has {own} GiB memory in use."
)


# ── one of them by itself ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("lost", [GLOO, REMOTE])
def test_one_rank_runs_out_of_memory(tmp_path: Path, lines: list[str], lost: str) -> None:
    """TP5's card is full: 139.80 - 125.56 / 1024 - 5.61 = 134.07 GiB are held by others."""
    start = until(lines, "Load weight begin")
    before = [line for rank in (0, 1) for line in raised(rank, lost)]
    after = [line for rank in (2, 3, 4, 6, 7) for line in raised(rank, lost)]
    found = read(tmp_path, start, before, raised(5, OOM.format(own="5.61"), LOADING), after)
    finding = fatal(found)
    assert (finding.id, found.log.failures[0].rank, finding.remedies) == ("out-of-memory-start", "TP5", ())
    assert "other processes hold 134.07 GiB of the card (GPU 5 of those that the process sees)" in finding.cause
    assert f"Of 8 ranks TP5 says so; the errors of {OTHERS} are others, mostly of what followed." in finding.cause


def test_a_card_that_the_server_fills_itself_is_no_card_of_others(tmp_path: Path, lines: list[str]) -> None:
    """139.80 - 0.12 - 139.05 = 0.63 GiB: what the driver keeps."""
    found = read(tmp_path, until(lines, "Load weight begin"), raised(5, OOM.format(own="139.05"), LOADING))
    assert "the static fraction leaves too little" in fatal(found).cause
    assert "Of 8 ranks TP5 says so." in fatal(found).cause


def test_one_rank_is_killed_and_the_others_lose_it(tmp_path: Path, lines: list[str]) -> None:
    """The kernel's memory killer leaves no word of its own; NCCL's in the others is not the cause."""
    parent = [
        "Traceback (most recent call last):",
        f'  File "{SRT}entrypoints/engine.py", line 1385, in _wait_for_scheduler_ready',
        "RuntimeError: Rank 3 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a common",
        "",
    ]
    found = read(tmp_path, until(lines, "Load weight begin"), raised(0, GLOO), raised(1, GLOO), parent)
    assert fatal(found).id == "ended-by-signal"
    assert "The scheduler of rank 3 was ended by a signal" in fatal(found).cause


@pytest.mark.parametrize(
    ("code", "first", "finding_id"),
    [(-9, True, "ended-by-signal"), (-6, True, "rank-missing"), (-9, False, "rank-missing")],
)
def test_one_rank_dies_while_serving(tmp_path: Path, lines: list[str], code: int, first: bool, finding_id: str) -> None:
    """A signal from outside is a cause; SIGABRT is what torch's watchdog ends with, and what comes after SIGQUIT too."""
    serving = lines[: max(place for place, line in enumerate(lines) if "Decode batch" in line) + 1]
    died = f"[2026-11-29 23:49:09] Subprocess scheduler_3 (pid=4711) crashed with exit code {code}. Triggering SIGQUIT"
    late = [line for rank in (0, 7) for line in timed_out(rank)]
    found = read(tmp_path, serving, [died, QUIT] if first else [QUIT, died], late)
    assert fatal(found).id == finding_id
    if finding_id == "ended-by-signal":
        assert "The process scheduler_3 (rank 3) was ended by a signal while serving" in fatal(found).cause


#: Of SGLang 0.5.23 with torch 2.13 on the CPU, where one of four ranks was killed: three lines, and none of its own.
RESET = (
    "RuntimeError: [/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:63725: "
    "Connection reset by peer. This is typically caused by a remote worker hanging or bugs in the application. Check the "
    "logs of the remote worker before reporting an error. GLHF! 🏖️"
)


@pytest.mark.parametrize(("lost", "said"), [(RESET, 7), (REMOTE, 7), (RESET, 4), (RESET, 8)])
def test_one_rank_is_killed_while_serving_and_only_it_says_nothing(
    tmp_path: Path, lines: list[str], lost: str, said: int
) -> None:
    """Where most have an error, whoever has none ended first; of four of eight that were ended meanwhile nobody knows."""
    serving = lines[: max(place for place, line in enumerate(lines) if "Decode batch" in line) + 1]
    ranks = [1, 3, 0, 2, 5, 6, 7, 4][:said]
    before, after = ([line for rank in some for line in raised(rank, lost, LOOP)] for some in (ranks[:2], ranks[2:]))
    finding = fatal(read(tmp_path, serving, before, QUIT, after))
    assert finding.id == "communication-failed"
    if said == 7:
        assert finding.cause.startswith("TP4 ended while the others were at work, or hangs: ")
        assert "TP4 alone says no error. Mostly such a process was killed. SIGKILL: the kernel when" in finding.cause
        assert "Of 8 ranks TP0 to TP3, TP5 to TP7 say so." in finding.cause and finding.remedies == ()
    else:
        assert finding.cause.startswith("The ranks could not communicate: ") and "TP4 alone" not in finding.cause


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("CUDA error: uncorrectable ECC error encountered", "The memory of a card is faulty"),
        ("CUDA error: unspecified launch failure", "A kernel failed on the GPU while serving"),
    ],
)
def test_one_card_fails(tmp_path: Path, lines: list[str], error: str, words: str) -> None:
    serving = lines[: max(place for place, line in enumerate(lines) if "Decode batch" in line) + 1]
    found = read(tmp_path, serving, raised(5, f"torch.AcceleratorError: {error}", LOOP), raised(1, GLOO, LOOP))
    assert words in fatal(found).cause
    assert "Of 8 ranks TP5 says so; the errors of TP1 are others" in fatal(found).cause


def test_the_rank_that_does_not_complain_has_least(tmp_path: Path, lines: list[str]) -> None:
    """Each rank compares the least with 0.9 × its own (0.5.16, distributed/bootstrap.py): TP5 has the least."""
    error = (
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        "pre_model_load_memory=71.232421875, local_gpu_memory=137.986328125, local_gpu_memory * 0.9=124.1876953125"
    )
    frame = f'  File "{SRT}distributed/bootstrap.py", line 300, in _check_tp_memory_balance'
    all_but_five = [line for rank in (7, 0, 1, 2, 3, 4, 6) for line in raised(rank, error, frame)]
    finding = fatal(read(tmp_path, until(lines, "Init torch distributed begin"), all_but_five))
    assert finding.id == "refused-unbalanced"
    assert "It is that of TP5, which alone does not say so. The least has 71.23 GiB free" in finding.cause
    assert finding.remedies[0].set == {"engine.env.SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"}


# ── a rank that never comes ──────────────────────────────────────────────────────────────────────────────────────────


#: Of SGLang 0.5.6.post2 to 0.5.23 (model_runner.py, load_model_utils.py); so said TP0 of a start on the CPU of which TP3
#: was killed while it loaded.
NOT_LOADED = (
    "ValueError: TP rank {rank} could finish the model loading, but there are other ranks that didn't finish loading. It "
    "is likely due to unexpected failures (e.g., OOM) or a slow node."
)
BARRIER = (
    f'  File "{SRT}model_executor/model_runner_components/load_model_utils.py", line 393, in dist_barrier_after_load'
)


def test_a_rank_is_killed_while_it_loads(tmp_path: Path, lines: list[str]) -> None:
    start = until(lines, "Load weight end", 7, without="TP5] Load weight end")
    finding = fatal(read(tmp_path, start, raised(0, NOT_LOADED.format(rank=0), BARRIER), QUIT))
    assert finding.id == "rank-missing" and finding.remedies == ()
    assert "TP5 is loading weights, TP0 to TP4, TP6, TP7 have loaded weights: the others wait for it." in finding.cause
    assert "It ended before, mostly killed and so without a word (SIGKILL: the kernel when the host" in finding.cause


def test_a_rank_without_memory_is_the_cause_of_those_that_wait_for_it(tmp_path: Path, lines: list[str]) -> None:
    start = until(lines, "Load weight end", 7, without="TP5] Load weight end")
    waits = [line for rank in (0, 1) for line in raised(rank, NOT_LOADED.format(rank=rank), BARRIER)]
    found = read(tmp_path, start, waits, raised(5, OOM.format(own="5.61"), LOADING), QUIT)
    assert (fatal(found).id, found.log.failures[0].rank) == ("out-of-memory-start", "TP5")


def timed_out(rank: int) -> list[str]:
    """torch 2.9's words of a rank that waits (ProcessGroupNCCL.cpp), without a stamp of SGLang's."""
    said = (
        f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=610, OpType=ALLREDUCE, "
        "NumelIn=56320, NumelOut=56320, Timeout(ms)=600000) ran for 600086 milliseconds before timing out."
    )
    ends = f"[PG ID 2 PG GUID 3 Rank {rank}] Process group watchdog thread terminated with exception: {said}"
    return [
        f"[rank{rank}]:[E1129 23:58:45.792630246 ProcessGroupNCCL.cpp:683] {said}",
        f"[rank{rank}]:[E1129 23:58:45.795790830 ProcessGroupNCCL.cpp:2068] {ends}",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        f"  what():  {ends}",
    ]


def test_the_rank_that_is_silent_is_the_one_that_the_others_waited_for(tmp_path: Path, lines: list[str]) -> None:
    serving = lines[: max(place for place, line in enumerate(lines) if "Decode batch" in line) + 1]
    waits = [line for rank in (0, 4, 1, 2, 5, 7, 6) for line in timed_out(rank)]
    died = "[2026-11-29 23:58:46] Subprocess scheduler_4 (pid=4711) crashed with exit code -6. Triggering SIGQUIT for"
    finding = fatal(read(tmp_path, serving, waits, died, QUIT))
    assert finding.id == "rank-missing"
    assert "A collective operation (ALLREDUCE) was not over after 600 s while serving" in finding.cause
    assert "ended TP0 to TP2, TP4 to TP7. TP3 does not say so: the others waited for it" in finding.cause
    assert flags(finding) == ["--dist-timeout 1800"]


def test_all_ranks_wait(tmp_path: Path, lines: list[str]) -> None:
    serving = lines[: max(place for place, line in enumerate(lines) if "Decode batch" in line) + 1]
    finding = fatal(read(tmp_path, serving, [line for rank in range(RANKS) for line in timed_out(rank)]))
    assert "ended TP0 to TP7. No rank is silent: the operation itself hung" in finding.cause


def test_a_paste_that_does_not_tell_its_ranks(tmp_path: Path) -> None:
    """Of how many ranks is not known, so none of them is called the silent one."""
    finding = fatal(read(tmp_path, [line for rank in (0, 1, 2, 4) for line in timed_out(rank)]))
    assert (
        "torch's watchdog ended ranks 0 to 2 and 4. What they waited for is a rank that does not say so"
        in finding.cause
    )


SEVEN = "TP6 has not begun to communicate, TP0 to TP5, TP7 are in the distributed init: the others wait for it."


def test_a_rank_that_never_begins_is_named(tmp_path: Path, lines: list[str]) -> None:
    """TCPStore's words after its 600 s; and what the log shows before them."""
    start = until(lines, "Init torch distributed begin", 7, without="TP6] Init")
    (notice,) = [one for one in read(tmp_path, start).findings if one.id == "rank-missing"]
    assert (notice.severity, SEVEN in notice.cause) == ("notice", True)
    assert ["TP6]" in line.text for line in notice.evidence] == [True, False]
    error = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 7/8 clients joined."
    finding = fatal(read(tmp_path, start, raised(0, error)))
    assert finding.id == "rank-missing"
    assert "7 of 8 processes came to the start of communication" in finding.cause
    assert SEVEN in finding.cause


def hung(folder: Path, recorded: Path, lines: list[str]) -> Path:
    """The record of a start that was ended when its time was up."""
    shutil.copytree(recorded, folder)
    for name in ("requests.jsonl.gz", "server_info.json", "server_info_after.json", "log_times.csv.gz"):
        (folder / name).unlink()
    status = json.loads((folder / "status.json").read_text(encoding="utf-8"))
    status |= {"status": "timed_out", "reason": "not ready after 900 s", "ready_s": None}
    (folder / "status.json").write_text(json.dumps(status), encoding="utf-8")
    (folder / "server.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_a_start_that_hangs_tells_how_far_each_rank_came(tmp_path: Path, recorded: Path, lines: list[str]) -> None:
    """TP6 loads, the others have loaded and wait to size their pools."""
    start = until(lines, "Load weight end", 7, without="TP6] Load weight end")
    folder = hung(tmp_path / "hung", recorded, start)
    finding = fatal(of_path(folder))
    assert finding.id == "timed-out"
    assert re.search(
        r"TP6 is loading weights, TP0 to TP5, TP7 have loaded weights: the others wait for it\.", finding.cause
    )
    behind, waits = finding.evidence  # the last line of the one, and of one of the others
    assert "TP6] " in behind.text and "Load weight end" not in behind.text
    assert "Load weight end" in waits.text


def test_ranks_that_hang_together_are_said_to(tmp_path: Path, recorded: Path, lines: list[str]) -> None:
    """All eight are in NCCL's init, and their time is up: its own words are what is missing."""
    folder = hung(tmp_path / "hung", recorded, until(lines, "Init torch distributed begin"))
    finding = fatal(of_path(folder))
    assert "All 8 ranks came equally far: each is in the distributed init." in finding.cause
    assert "TP0] " in finding.evidence[0].text
    assert finding.remedies[0].set == {"engine.env.NCCL_DEBUG": "INFO"}


def test_gloo_waits_without_a_name(tmp_path: Path, lines: list[str]) -> None:
    """gloo/transport/tcp/unbound_buffer.cc has no rank in its words: those that say it are named, TP3 is not."""
    serving = lines[: max(place for place, line in enumerate(lines) if "Decode batch" in line) + 1]
    error = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete"
    waits = [line for rank in (0, 1, 2, 4, 5, 6, 7) for line in raised(rank, error, LOOP)]
    finding = fatal(read(tmp_path, serving, waits))
    assert finding.id == "rank-missing" and "Gloo does not say which" in finding.cause
    assert "Of 8 ranks TP0 to TP2, TP4 to TP7 say so." in finding.cause


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error",
        "RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != nullptr. Unable to find address for: ^lo",
    ],
)
def test_gloo_takes_another_interface(tmp_path: Path, lines: list[str], error: str) -> None:
    finding = fatal(read(tmp_path, until(lines, "Init torch distributed begin"), raised(0, error)))
    assert finding.id == "communication-failed"
    # torch's ProcessGroupGloo splits it at commas; it is no pattern
    assert "GLOO_SOCKET_IFNAME" in finding.cause and "whole names with commas between, not NCCL's ^lo" in finding.cause


@pytest.mark.parametrize(
    "lost", ["Read error [10.0.0.1]:4711: Connection timed out", "Application timeout caused pair closure"]
)
def test_gloo_lost_a_rank(tmp_path: Path, lines: list[str], lost: str) -> None:
    """pair.cc: of a peer that is gone, whose own words are the cause."""
    error = f"RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:538] {lost}"
    found = read(
        tmp_path, until(lines, "Load weight begin"), raised(0, error), raised(5, OOM.format(own="5.61"), LOADING)
    )
    assert (fatal(found).id, found.log.failures[0].rank) == ("out-of-memory-start", "TP5")


# ── what the machine lacks ───────────────────────────────────────────────────────────────────────────────────────────

LACKS = [
    (CUDA, "Cuda failure 217 'peer access is not supported between these two devices'", "no peer access", ["--disable-custom-all-reduce"]),
    (CUDA, "Cuda failure 802 'system not yet initialized'", "nvidia-fabricmanager", []),
    (CUDA, "Failed to CUDA calloc 10485760 bytes", "no memory on the card for its own buffers", []),
    (SYSTEM, "Error while creating shared memory segment /dev/shm/nccl-WU88OE (size 9637888), error: No space left on device (28)", "--shm-size 16g", [""]),
    (USAGE, "Duplicate GPU detected : rank 4 and rank 0 both on CUDA device 1b000", "Two ranks were given one card", []),
    (CUDA, "Cuda failure 1 'invalid argument'", "No rank names another cause", [""]),
]  # fmt: skip


@pytest.mark.parametrize(("code", "last", "words", "offered"), LACKS)
def test_what_nccl_lacks(
    tmp_path: Path, lines: list[str], code: str, last: str, words: str, offered: list[str]
) -> None:
    start = until(lines, "Init torch distributed begin")
    error = nccl(code, last)
    found = read(tmp_path, start, raised(7, REMOTE), *(raised(rank, error) for rank in (4, 5)))
    finding = fatal(found)
    assert (finding.id, found.log.failures[0].values["last_error"]) == ("communication-failed", last)
    assert words in finding.cause and f"NCCL's last error: {last}" in finding.cause
    assert "Of 8 ranks TP4, TP5 say so; the errors of TP7 are others" in finding.cause
    assert flags(finding) == offered


def test_the_warning_of_nccl_tells_where_the_error_does_not(tmp_path: Path, lines: list[str]) -> None:
    """SGLang's own wrapper (pynccl_wrapper.py) repeats no last error; NCCL's line has a prefix of its own."""
    warns = "gpu-4:4168:5290 [1] transport/p2p.cc:275 NCCL WARN Cuda failure 'peer access is not supported between these two devices'"
    error = "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)"
    finding = fatal(read(tmp_path, until(lines, "Init torch distributed begin"), warns, raised(2, error)))
    assert finding.evidence[0].text.startswith("NCCL WARN Cuda failure 'peer access")
    assert "no peer access" in finding.cause and "Of 8 ranks TP2 says so." in finding.cause
    (notice,) = [one for one in logs.read([warns]).notices if one.kind == "nccl_warning"]
    assert notice.values == {"said": "Cuda failure 'peer access is not supported between these two devices'"}


def test_fewer_cards_than_ranks(tmp_path: Path, lines: list[str]) -> None:
    """torch 2.9's words; the first rank without a card has the number of those that are there."""
    error = "torch.AcceleratorError: CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?"
    start = until(lines, "torchcodec is not installed", 4)
    found = read(tmp_path, start, *(raised(rank, error) for rank in (7, 4, 6, 5)))
    finding = fatal(found)
    assert finding.id == "gpu-missing"
    assert (
        "A server of tp_size 8 needs 8 cards. The first rank without one is TP4: CUDA shows the server 4."
        in finding.cause
    )
    assert "Of 8 ranks TP4 to TP7 say so." in finding.cause
    assert flags(finding) == ["--tp-size 4"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("RuntimeError: No CUDA GPUs are available", "CUDA shows the server no GPU"),
        ("torch.AcceleratorError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", "compute mode"),
        ("RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 802: system not yet initialized", "nvidia-fabricmanager"),
    ],
)  # fmt: skip
def test_a_card_that_cannot_be_used(tmp_path: Path, lines: list[str], error: str, words: str) -> None:
    finding = fatal(read(tmp_path, until(lines, "torchcodec is not installed", 4), raised(0, error)))
    assert (finding.id, words in finding.cause) == ("gpu-missing", True)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Setup Custom allreduce failed with CUDART error: peer access is not supported between these two devices. To silence this warning, specify --disable-custom-all-reduce explicitly.", "by TP3: CUDART error: peer access is not supported"),
        ("Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs. To silence this warning, specify disable_custom_all_reduce=True explicitly.", "by TP3: because it's not supported on more than two PCIe-only GPUs"),
        ("CustomAllReduceV2 is disabled due to an unsupported world size: 3. Supported world sizes: [2, 4, 6, 8]. To silence this warning, specify disable_custom_all_reduce=True explicitly.", "by TP3: due to an unsupported world size: 3"),
        ("CustomAllreduce is disabled because this process group spans across nodes.", "by TP3: because this process group spans across nodes"),
        ("Setup Custom allreduce failed with invalid literal for int() with base 10: 'GPU-28d4707a'. To silence this warning, specify --disable-custom-all-reduce explicitly.", "names cards by their UUID; SGLang reads numbers alone there"),
    ],
)  # fmt: skip
def test_an_all_reduce_that_was_given_up(tmp_path: Path, lines: list[str], line: str, words: str) -> None:
    served = [*lines[:66], f"[2026-11-29 23:48:33 TP3] {line}", *lines[66:]]
    (finding,) = [one for one in read(tmp_path, served).findings if one.id == "custom-allreduce-off"]
    assert finding.severity == "notice" and words in finding.cause
