"""What a record's files hold, as checked values: how a run ended, every request with its raw chunk times, and rows.

JSON has the first two; rows of CSV are GPU samples, arrivals of log lines, and samples of /metrics. Raw only: no
percentile, no pool, no verdict is stored, so a better reader improves old records. Schema 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ..terms import Status

SCHEMA = 1
#: How the error of a request begins that came as an event inside a stream with HTTP 200; the engine's text follows.
ERROR_EVENT = "error event in the stream: "

#: Far above anything that is recorded: beyond them sums and ratios give way.
Seconds = Annotated[float, Field(ge=-1e12, le=1e12)]
Tokens = Annotated[int, Field(ge=0, le=2**53)]
#: JSON has lists, a frozen value wants tuples.
_Chunk = Annotated[
    tuple[Seconds, Tokens], BeforeValidator(lambda pair: tuple(pair) if isinstance(pair, list) else pair)
]
_AsTuple = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)


class Stored(BaseModel):
    """Base of everything that is read back from a record: frozen, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)


class RequestTrace(Stored):
    """One request as the client saw it. Times are seconds; of a replay they are in recorded time.

    Failed is a request whose `error` is not None: no connection, an HTTP error, an error event inside a stream that
    began with HTTP 200, a stream that ended without a token or before it said why, a connection that broke.
    """

    step: str  # name of the step, e.g. conc8-in1024
    phase: Literal["warmup", "measured"]
    index: int  # within the step, in the order of sending
    concurrency: int | None = None  # closed loop: clients of the step
    request_rate: float | None = None  # open loop: requests per second of the step
    input_tokens: Tokens
    max_new_tokens: Tokens
    sent_s: Seconds  # since the step began
    sent_unix_s: Seconds | None = None
    http_status: int | None = None  # None: no response at all
    chunks: Annotated[tuple[_Chunk, ...], _AsTuple] = ()  # (seconds since sending, tokens in the chunk)
    end_s: Seconds | None = None  # seconds since sending when the response was complete, or when it failed
    output_tokens: Tokens = 0
    finish_reason: str | None = None  # length, stop, abort, …
    error: str | None = None  # None: fine
    meta_info: dict[str, Any] = {}  # the engine's own figures of the last chunk

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def ttft_s(self) -> float | None:
        """Seconds from sending to the first chunk; None when no token came."""
        return self.chunks[0][0] if self.chunks else None

    @property
    def replayed_exactly(self) -> bool | None:
        """Of a replay: whether this very request was recorded. None: not a replay."""
        mark = self.meta_info.get("specbench_replay")
        exact = mark.get("exact") if isinstance(mark, Mapping) else None
        return exact if isinstance(exact, bool) else None

    @property
    def verify_rounds(self) -> int | None:
        """Verify rounds of speculation as the engine counted them; None without speculation, or not said."""
        rounds = self.meta_info.get("spec_verify_ct")
        return rounds if isinstance(rounds, int) and not isinstance(rounds, bool) and 0 < rounds < 2**53 else None


class CacheState(Stored):
    """The prefix cache before a measured step: what the flush was answered, and what the engine then said it held."""

    flushed: bool  # the engine said that it did
    used_tokens: int | None = None  # of the KV pool, by running requests; asked of the scheduler just then
    running: int | None = None  # requests
    waiting: int | None = None
    evictable_tokens: int | None = None  # cached; as the engine last reported it, which may be before the flush
    source: str = ""  # which addresses told


class ClientCost(Stored):
    """What a step cost the client that measured it, on its own machine (see `client_load`)."""

    wall_s: Seconds
    cpu_s: Seconds  # of the thread that sends and receives
    process_cpu_s: Seconds  # of its whole process
    chunks: int = Field(ge=0)  # received
    ticks: int = Field(ge=0)
    lag_p50_s: Seconds | None = None  # how late its event loop was; None: too short to tell
    lag_p99_s: Seconds | None = None
    lag_max_s: Seconds | None = None

    @property
    def cpu_per_chunk_s(self) -> float | None:
        """None: no chunk came."""
        return self.cpu_s / self.chunks if self.chunks else None

    @property
    def cpu_share(self) -> float | None:
        """Of a core; 1 is full. None: no time passed."""
        return self.cpu_s / self.wall_s if self.wall_s > 0 else None


class RunStatus(Stored):
    """How a run ended. Written last: a record without it is unfinished."""

    schema_: Literal[1] = Field(1, alias="schema")
    status: Status
    origin: Literal["recorded", "measured"]  # recorded: replayed or imported; measured: a real engine, just now
    exit_code: int | None = (
        None  # of the engine's process when it ended by itself; negative: a signal; None: not logged
    )
    reason: str  # one sentence, with the engine's own words where it gave any
    started_unix_s: Seconds | None = None
    ended_unix_s: Seconds | None = None
    ready_s: Seconds | None = None  # seconds from the start to ready; None: never ready, or not logged
    phases: dict[str, Seconds] = {}  # seconds that each phase took: start, warmup, one per step, stop
    marks: dict[str, Seconds] = {}  # seconds since the start at which something was seen, e.g. load_begin
    stages: dict[str, Seconds] = {}  # seconds of each part of the start, by the log; empty: not recorded
    flushes: dict[str, str] = {}  # step -> what the engine answered to the cache flush before it
    caches: dict[str, CacheState] = {}  # step -> the prefix cache after that flush; empty: not recorded
    client: dict[str, ClientCost] = {}  # step -> what it cost the client; empty: not recorded
    notes: Annotated[tuple[str, ...], _AsTuple] = ()  # what a reader of the figures must know
    #: Why it is to run again: it was ended before it was done, or another process took the port that specbench chose.
    cut_short: Literal["deadline", "port"] | None = None  # None: done


class Probe(Stored):
    """A single recorded HTTP exchange outside the workload: oversize requests and the engine's own error bodies."""

    case: str
    path: str
    sent: dict[str, Any] = {}  # the request's fields except the prompt
    http_status: int | None = None
    seconds: float | None = None
    body: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMachine:
    """GPUs that were seen, not those that a configuration asks for."""

    gpus: tuple[str, ...]  # a name per GPU; empty: none was seen
    driver: str | None
    reason: str | None  # why none was seen

    @property
    def words(self) -> str:
        """'2 × NVIDIA H200, driver 580.159.04', or why no GPU was seen."""
        if not self.gpus:
            return f"no GPU seen ({self.reason or 'not said'})"
        counts = ", ".join(f"{self.gpus.count(name)} × {name}" for name in dict.fromkeys(self.gpus))
        return counts if self.driver is None else f"{counts}, driver {self.driver}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One NVML sample of one GPU. While a server starts most are of memory alone: the rest is None then.

    Old records have neither clocks nor temperature.
    """

    t_s: float  # since the start of the run
    phase: str
    gpu: int  # NVML index
    used_bytes: int
    free_bytes: int
    total_bytes: int
    utilization_pct: float | None
    power_w: float | None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    temperature_c: float | None = None


GPU_COLUMNS: tuple[str, ...] = tuple(GpuSample.__slots__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogArrival:
    """When a line of the server's log was seen. It was written after `t_s - within_s` and not after `t_s`."""

    line: int  # 1-based
    offset: int  # bytes before the line
    t_s: float  # on the clock of the GPU samples
    within_s: float  # since the look before this one


LOG_COLUMNS: tuple[str, ...] = tuple(LogArrival.__slots__)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSample:
    """One figure of /metrics that is new or has changed; it holds until the next sample of the same name and labels."""

    t_s: float  # on the clock of the GPU samples
    phase: str
    name: str  # without the engine's prefix and constant labels: num_queue_reqs, http_requests_total{endpoint=…}
    value: float


METRIC_COLUMNS: tuple[str, ...] = tuple(MetricSample.__slots__)
