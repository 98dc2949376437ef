"""A server of eight ranks, made of a recorded one of two: where no machine with so many GPUs is at hand.

In: the recording h200-tp2_dflash-8-full-card, whose lines, times, requests and NVML samples are kept. Out: a record
whose figures of memory are those of one of eight ranks: weights by the shapes of the models, 1/8 of every slot's state,
one KV head of the target's four and the draft's eight, pools as SGLang 0.5.16 sizes them by the rank with least free
memory. Ranks differ in what the distributed init took of their cards, as the four that were recorded do (1.06 to 1.30
GiB); TP5 has least. It is a stand-in: nothing that rests on it is a measurement.
"""

from __future__ import annotations

import bisect
import csv
import gzip
import io
import json
import random
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from specbench.units import GIB, MIB

RECORDED = Path(__file__).parent / "records" / "h200-tp2_dflash-8-full-card"
RANKS = 8
TOTAL = 143_771 * MIB
#: GiB, as each rank logs it.
COMMUNICATION = (1.25, 1.30, 1.30, 1.30, 1.30, 1.32, 1.30, 1.06)
#: In use of an idle card, and when its CUDA context stands: as recorded at TP2.
_IDLE, _CONTEXT = 644_939_776, 1_198_194_688
#: Free before loading: TP5 139.29 - 1.32 = 137.97 GiB, TP0 138.03, TP7 138.22, the others 137.99.
PRE = tuple(TOTAL - _CONTEXT - round(taken * 1024) * MIB for taken in COMMUNICATION)
WEIGHTS, DRAFT = 7_291_797_504, 824_180_736
#: Gone of each card between the loads of target and draft, before pools are sized, and for graphs: as at TP2.
_BETWEEN, _SETTLED, _WORKSPACE, _TARGET_GRAPHS, _DRAFT_GRAPHS = 20 * MIB, 50 * MIB, 195 * MIB, 440 * MIB, 123 * MIB
#: By TP5: 130.3382 - 137.9651 × (1 - 0.88) = 113.7824 GiB for pools; a third of it // (slot × (1 + 16 / 5)) slots, the
#: rest in tokens of 16,384 B and 2,560 B of the draft.
SLOTS, TOKENS = 503, 5_116_748
_CONV, _SSM, _SCRATCH_SSM, _SCRATCH_CONV = 504 * 368_640, 504 * 18_874_368, 9 * 301_989_888, 9 * 2_211_840
_KV, _DRAFT_KV = (TOKENS + 1) * 16_384, (TOKENS + 1) * 2_560

_RANKED = re.compile(r"(\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) TP([01])\] ")
#: In use of the recorded cards, where a rank of the stand-in has `_levels`.
_IN_USE_RECORDED = (
    *(2_349_531_136, 29_857_873_920, 29_878_845_440, 31_923_568_640, 31_975_997_440, 50_993_299_456, 114_360_516_608),
    *(134_157_631_488, 134_361_055_232, 134_816_137_216, 134_950_354_944),
)


def _levels(rank: int) -> list[int]:
    """Free before loading, after the target, before the draft, after it, when pools are sized, after the state pool,
    the target's KV and the draft's, before, between and after the graphs; bytes."""
    free = [PRE[rank]]
    state = _CONV + _SSM + _SCRATCH_SSM + _SCRATCH_CONV
    for taken in (WEIGHTS, _BETWEEN, DRAFT, _SETTLED, state, _KV, _DRAFT_KV, _WORKSPACE, _TARGET_GRAPHS, _DRAFT_GRAPHS):
        free.append(free[-1] - taken)
    return free


def record(folder: Path, name: str = "tp8_dflash_r8", *, seed: int = 8) -> Path:
    """The record, as a folder of that name. `seed`: the order in which ranks that speak at once are printed."""
    target = folder / name
    shutil.copytree(RECORDED, target)
    config = yaml.safe_load((target / "config.yaml").read_text(encoding="utf-8"))
    config["name"], config["gpu"]["count"], config["parallel"]["tp_size"] = name, RANKS, RANKS
    (target / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    command = json.loads((target / "command.json").read_text(encoding="utf-8"))
    command[command.index("--tp-size") + 1] = str(RANKS)
    (target / "command.json").write_text(json.dumps(command), encoding="utf-8")
    env = json.loads((target / "env.json").read_text(encoding="utf-8"))
    (target / "env.json").write_text(json.dumps(_of_machine(env)), encoding="utf-8")
    for file in ("server_info.json", "server_info_after.json"):
        info = json.loads((target / file).read_text(encoding="utf-8"))
        (target / file).write_text(json.dumps(_server_info(info)), encoding="utf-8")
    _write_gz(target / "gpu.csv.gz", _samples(_rows(target / "gpu.csv.gz")))
    _write_gz(target / "metrics.csv.gz", _metrics(_rows(target / "metrics.csv.gz")))
    times = [float(row["t_s"]) for row in _rows(target / "log_times.csv.gz")]
    lines = log_lines((target / "server.log").read_bytes().decode().removesuffix("\n").split("\n"), times, seed)
    (target / "server.log").write_bytes("".join(f"{text}\n" for _, text in lines).encode())
    _write_gz(target / "log_times.csv.gz", _arrivals(lines))
    return target


def log_lines(recorded: Sequence[str], times: Sequence[float], seed: int = 8) -> list[tuple[float, str]]:
    """(when it came, line). What both ranks print, all eight do, within 3 ms of the second rank; TP7 first."""
    order = random.Random(seed)
    said = [_Rank(rank) for rank in range(RANKS)]
    found: list[tuple[float, int, str]] = []
    last = [0.0] * RANKS
    for index, (line, came) in enumerate(zip(recorded, times, strict=True)):
        parts = _RANKED.search(line)
        if parts is None:
            found.append((came, index, line.replace("tp_size=2,", f"tp_size={RANKS},")))
            continue
        for rank in [0] if parts[2] == "0" else range(1, RANKS):
            late = 0.0 if rank in (0, RANKS - 1) else order.uniform(0.0002, 0.003)
            last[rank] = max(came + late, last[rank])
            text = f"{line[: parts.start()]}{parts[1]} TP{rank}] {said[rank].line(line[parts.end() :])}"
            found.append((last[rank], index, text))
    return [(came, text) for came, _, text in sorted(found, key=lambda entry: entry[:2])]


class _Rank:
    """Puts the figures of one rank into the lines that a rank of two printed, in their order."""

    def __init__(self, rank: int) -> None:
        self._free = _levels(rank)
        self._pools = iter((_KV, _DRAFT_KV))
        self._ends = iter(self._free[6:8])
        self._inits = iter((f"{COMMUNICATION[rank]:.2f}", "0.00"))
        self._begins = iter((self._free[0], self._free[2]))
        self._loads = iter(((self._free[1], WEIGHTS), (self._free[3], DRAFT)))
        self._graph_begins = iter(self._free[8:10])
        self._graph_ends = iter(((self._free[9], _TARGET_GRAPHS), (self._free[10], _DRAFT_GRAPHS)))

    def line(self, text: str) -> str:
        for begin, change in self._changes().items():
            if begin in text:
                return change(text)
        return text.replace("world_size=2", f"world_size={RANKS}").replace("(tp=2)", f"(tp={RANKS})")

    def _changes(self) -> dict[str, Callable[[str], str]]:
        return {
            "Init torch distributed ends": lambda text: _put(text, usage=next(self._inits)),
            "Load weight begin": lambda text: _put(text, free=next(self._begins)),
            "Load weight end": lambda text: _free_and_usage(text, *next(self._loads)),
            "Mamba Cache is allocated": lambda _: (
                f"Mamba Cache is allocated. max_mamba_cache_size: {SLOTS}, conv_state size: {_gib(_CONV)}GB, "
                f"ssm_state size: {_gib(_SSM)}GB intermediate_ssm_state_cache size: {_gib(_SCRATCH_SSM)}GB "
                f"intermediate_conv_window_cache size: {_gib(_SCRATCH_CONV)}GB "
            ),
            "KV Cache is allocated": lambda _: self._kv(next(self._pools)),
            "Memory pool end": lambda text: _put(text, free=next(self._ends)),
            "CUDA graph begin": lambda text: _put(text, free=next(self._graph_begins)),
            "CUDA graph end": lambda text: _free_and_usage(text, *next(self._graph_ends)),
            "max_total_num_tokens=": lambda text: re.sub(
                r"(?<=max_total_num_tokens=)\d+(.*available_gpu_mem=)[\d.]+",
                rf"{TOKENS}\g<1>{_gib(self._free[-1])}",
                text,
            ),
        }

    @staticmethod
    def _kv(size: int) -> str:
        half = _gib(size // 2)
        return f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {TOKENS}, K size: {half} GB, V size: {half} GB"


def _gib(size: int) -> str:
    return f"{size / GIB:.2f}"


def _put(text: str, *, free: int | None = None, usage: str | None = None) -> str:
    if free is not None:
        text = re.sub(r"(?<=avail mem=)[\d.]+(?= GB)", _gib(free), text)
    return text if usage is None else re.sub(r"(?<=mem usage=)[\d.]+(?= GB)", usage, text)


def _free_and_usage(text: str, free: int, usage: int) -> str:
    return _put(text, free=free, usage=_gib(usage))


# ── beside the log ───────────────────────────────────────────────────────────────────────────────────────────────────


def _of_machine(env: dict[str, Any]) -> dict[str, Any]:
    env["server_gpus"] = list(range(RANKS))
    env["machine"]["gpus"] = [env["machine"]["gpus"][0]] * RANKS
    for when in ("before", "after"):
        card = env["gpu_memory"][when][0]
        uuids = [f"GPU-{gpu:08x}-0000-0000-0000-000000000000" for gpu in range(RANKS)]
        env["gpu_memory"][when] = [{**card, "gpu": gpu, "uuid": uuid} for gpu, uuid in enumerate(uuids)]
    env["inherited_environment"]["NVIDIA_VISIBLE_DEVICES"] = ",".join(map(str, range(RANKS)))
    return env


def _server_info(info: dict[str, Any]) -> dict[str, Any]:
    state = info["internal_states"][0]
    state["memory_usage"] = {
        "weight": round(WEIGHTS / GIB, 2),
        "kvcache": round(_KV / GIB, 2),
        "token_capacity": TOKENS,
        "graph": round(_TARGET_GRAPHS / GIB, 2),
    }
    info["tp_size"] = state["tp_size"] = RANKS
    info["max_total_num_tokens"], state["max_mamba_cache_size"] = TOKENS, SLOTS
    return info


def _samples(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """The first card as it was recorded, the others as the second, each at the levels of its rank."""
    found = []
    for row in rows:
        for gpu in [0] if row["gpu"] == "0" else range(1, RANKS):
            used = _in_use(gpu, int(row["used_bytes"]))
            found.append({**row, "gpu": str(gpu), "used_bytes": str(used), "free_bytes": str(TOTAL - used)})
    return found


def _in_use(rank: int, recorded: int) -> int:
    """Between two levels of the recording, as far between those of the rank; what comes after the last stays."""
    old = [_IDLE, _CONTEXT, *_IN_USE_RECORDED]
    new = [_IDLE, _CONTEXT, *(TOTAL - free for free in _levels(rank))]
    place = bisect.bisect_left(old, recorded)
    if place == 0:
        return recorded
    if place == len(old):
        return new[-1] + recorded - old[-1]
    share = (recorded - old[place - 1]) / (old[place] - old[place - 1])
    return new[place - 1] + round(share * (new[place] - new[place - 1]))


def _metrics(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Figures of the second rank are those of all further ones; free memory is each rank's own."""
    found = []
    for row in rows:
        for rank in range(1, RANKS) if "tp_rank=1}" in row["name"] else [0]:
            name, value = row["name"].replace("tp_rank=1}", f"tp_rank={rank}}}"), row["value"]
            if name.startswith("startup_available_gpu_memory_gb"):
                value = str((TOTAL - _in_use(rank, TOTAL - int(float(value) * GIB))) / GIB)
            elif name.startswith(("max_total_num_tokens", "num_pages", "kv_available_tokens")):
                value = str(float(TOKENS))
            found.append({**row, "name": name, "value": value})
    return found


def _arrivals(lines: Sequence[tuple[float, str]]) -> list[dict[str, str]]:
    found, offset = [], 0
    for number, (came, text) in enumerate(lines, start=1):
        found.append({"line": str(number), "offset": str(offset), "t_s": f"{came:.4f}", "within_s": "0.0022"})
        offset += len(text.encode()) + 1
    return found


def _rows(file: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(gzip.decompress(file.read_bytes()).decode())))


def _write_gz(file: Path, rows: Sequence[dict[str, str]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    file.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
