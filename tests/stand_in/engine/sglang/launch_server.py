"""An engine that is real in everything but the model: a tree of processes, a log, a port, memory on a card.

`python -m sglang.launch_server --port N …`, as specbench starts it. The tree: this process, a scheduler in a session of
its own, a compiler that the scheduler leaves behind (forked twice, own session, empty environment), a detokenizer. Each
writes a file with its pid into the folder that STAND_IN_LEDGER names; what stands in it are the MiB that it holds on
the GPU, which the pynvml beside this folder adds up as long as the process lives. With `--tp-size N` there are N
schedulers, one on each card, and every line about memory is said by each rank, the last one first. As SGLang does,
it leaves a file in the temporary directory, whose path is in the ledger as `temporary`, and a table in shared memory.

STAND_IN says what goes wrong (words, separated by spaces):
    crash_at_start, crash_at_capture     ends with an error before, or after, its pools are logged
    hang_at_start                        never listens
    gate                                 listens when a file named `go` lies in the ledger
    crash_in_request                     dies of SIGKILL after the first chunk, as an engine whose scheduler died does
    mute                                 answers health checks, but no request; `asked` then lies in the ledger
    stubborn                             ignores SIGTERM
    leak                                 memory stays in use after the end, held by nobody
    lose_card                            the card falls off the bus while it serves
"""

from __future__ import annotations

import http.server
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

LEDGER = Path(os.environ["STAND_IN_LEDGER"])
#: As a real 0.5.16 wrote them for these memory settings.
LOADING = """\
Init torch distributed begin.
Init torch distributed ends. elapsed=0.05 s, mem usage=0.09 GB
Load weight begin. avail mem=139.13 GB
Load weight end. elapsed=0.28 s, type=Qwen3_5ForConditionalGeneration, avail mem=88.07 GB, mem usage=51.05 GB."""
POOLS = """\
Mamba Cache is allocated. max_mamba_cache_size: 45, conv_state size: 0.13GB, ssm_state size: 6.47GB
KV Cache is allocated. dtype: torch.bfloat16, #tokens: 215239, K size: 6.57 GB, V size: 6.57 GB
Memory pool end. avail mem=68.27 GB
Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, bs=[1, 2, 4, 8], avail mem=68.18 GB"""
SERVING = """\
Capture target decode CUDA graph end. elapsed=2.47 s, mem usage=0.14 GB, avail mem=68.04 GB.
max_total_num_tokens=215239, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=8, \
context_len=32768, available_gpu_mem=68.04 GB"""
LOST = """\
Scheduler hit an exception: Traceback (most recent call last):
  File "scheduler.py", line 1, in run_scheduler_process
    run_scheduler_process()
RuntimeError: CUDA error: an illegal memory access was encountered
"""
CAPTURE = """\
Scheduler hit an exception: Traceback (most recent call last):
  File "scheduler.py", line 1, in run_scheduler_process
    run_scheduler_process()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB of \
which 1.00 GiB is free.
"""


tables: list[mmap.mmap] = []


def wrong(what: str) -> bool:
    return what in os.environ.get("STAND_IN", "").split()


def say(text: str, ranks: int = 1) -> None:
    for line in text.splitlines():
        alone = ranks == 1 or line.startswith("max_total_num_tokens")
        for rank in (0,) if alone else reversed(range(ranks)):
            print(time.strftime(f"[%Y-%m-%d %H:%M:%S{f' TP{rank}' if ranks > 1 else ''}]"), line, flush=True)


def hold(mib: int, card: int = 0) -> None:
    """This process is of the tree, and holds so much. The file appears whole."""
    partial = LEDGER / f"{os.getpid()}.partial"
    partial.write_text(f"{mib} {card}")
    partial.replace(LEDGER / str(os.getpid()))


def member(role: str, card: int = 0) -> None:
    """Another process of the tree; returns never."""
    if wrong("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if role == "scheduler":
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                ledger = {"STAND_IN_LEDGER": str(LEDGER)}
                os.execve(sys.executable, [sys.executable, __file__, "compiler", str(card)], ledger)
            os._exit(0)
        os.wait()
    hold({"scheduler": 2048, "compiler": 512, "detokenizer": 0}[role], card)
    while True:
        time.sleep(60)


def until_there(count: int) -> None:
    while len([entry for entry in LEDGER.iterdir() if entry.name.isdigit()]) < count:
        time.sleep(0.01)


class Answers(http.server.BaseHTTPRequestHandler):
    """Health, what is asked once, and a stream of chunks."""

    def do_GET(self) -> None:
        known = {"/health": b"", "/server_info": b'{"version": "0.5.16"}', "/model_info": b"{}", "/metrics": b""}
        self.answer(known.get(self.path))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        if self.path != "/generate":
            self.answer(b"Cache flushed.\n" if self.path == "/flush_cache" else None)
            return
        if wrong("mute"):
            (LEDGER / "asked").touch()
            threading.Event().wait()
        self.answer(b"", end=False)
        count = body["sampling_params"]["max_new_tokens"]
        for number in range(1, count + 1):
            reason = {"type": "length", "length": count} if number == count else None
            event = {"text": "x" * number, "meta_info": {"completion_tokens": number, "finish_reason": reason}}
            self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
            self.wfile.flush()
            if wrong("crash_in_request"):
                print(LOST, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
        self.wfile.write(b"data: [DONE]\n\n")

    def answer(self, body: bytes | None, *, end: bool = True) -> None:
        self.send_response(404 if body is None else 200)
        if end:
            self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_: object) -> None: ...


def main() -> None:
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ranks = int(sys.argv[sys.argv.index("--tp-size") + 1]) if "--tp-size" in sys.argv else 1
    roles = [*(("scheduler", rank) for rank in range(ranks)), ("detokenizer", 0)]
    members = [subprocess.Popen([sys.executable, __file__, role, str(card)]) for role, card in roles]

    def leave(*_: object, code: int = 0) -> None:
        for process in members:
            process.terminate()
        sys.exit(code)

    signal.signal(signal.SIGTERM, signal.SIG_IGN if wrong("stubborn") else leave)
    if wrong("lose_card"):
        (LEDGER / "lost").touch()
    if wrong("leak"):
        (LEDGER / "leaked").write_text("1024")
    with tempfile.NamedTemporaryFile(delete=False) as left:
        (LEDGER / "temporary").write_text(left.name)
    table = Path(f"/dev/shm/sglang_loads_{os.getpid()}.shm")
    table.write_bytes(bytes(64))
    with table.open("r+b") as opened:
        tables.append(mmap.mmap(opened.fileno(), 64))
    hold(600)
    until_there(2 * ranks + 2)
    if wrong("crash_at_start"):
        print(LOST, flush=True)
        os._exit(1)
    say(LOADING, ranks)
    while wrong("hang_at_start"):
        time.sleep(60)
    say(POOLS, ranks)
    if wrong("crash_at_capture"):
        print(CAPTURE, flush=True)
        os._exit(1)
    say(SERVING, ranks)
    while wrong("gate") and not (LEDGER / "go").exists():
        time.sleep(0.01)
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Answers)
    except OSError as error:
        say(f"ERROR:    [Errno {error.errno}] error while attempting to bind on address ('127.0.0.1', {port}): in use")
        leave(code=1)
        return
    server.daemon_threads = True
    say("The server is fired up and ready to roll!")
    server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        member(sys.argv[1], int(sys.argv[2]))
    else:
        main()
