"""RunConfig: one configuration, in SGLang's own flag names. Structure and types only.

Keys equal SGLang's flags (underscored) wherever a flag exists; the section only groups them. `None` means "not given":
the flag is left out and the engine decides (each field's description says what it decides). What a particular engine
version refuses is checked in `engines/<name>/checks.py`; reading files and naming them in messages is `params.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from ..units import counted

#: Bounds far above anything that is run: beyond them arithmetic and clocks give way, not the configuration.
_LARGEST = 2**31 - 1
_YEAR_S = 31_536_000.0
Count = Annotated[int, Field(ge=1, le=_LARGEST)]
Natural = Annotated[int, Field(ge=0, le=_LARGEST)]
Seconds = Annotated[float, Field(gt=0, le=_YEAR_S)]
#: YAML has lists, a frozen value wants tuples.
_AsTuple = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
Counts = Annotated[tuple[Count, ...], Field(min_length=1), _AsTuple]
Factor = Annotated[float, Field(ge=1e-6, le=1e6)]
Rates = Annotated[tuple[Factor, ...], Field(min_length=1), _AsTuple]
Text = Annotated[str, StringConstraints(min_length=1)]
#: Also the folder of the record: no separators, nothing a shell or a file system would read differently.
RunName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+=-]{0,120}$")]
FlagValue = str | int | float | bool | None | list[str | int | float]


class Section(BaseModel):
    """Base of all sections: frozen, strict types, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class EngineSection(Section):
    name: Literal["sglang"] = Field("sglang", description="the serving engine")
    version: Text = Field(description="the engine's version, e.g. 0.5.12; chooses flags, sizing rule and log lines")
    sizing: Text | None = Field(
        None, description="the release whose sizing rule to follow, for a development build or a fork"
    )
    python: Text | None = Field(
        None,
        description="the interpreter that has the engine: a name, or a path (a relative one is looked for in the "
        "working directory and in the workbook); when left out: this one",
    )
    args: dict[str, FlagValue] = Field(
        {},
        description="a mapping of server flags that have no key here (underscored or dashed); true: a bare flag",
    )
    env: dict[str, str] = Field(
        {},
        description="a mapping of environment variables for the server alone; TMPDIR: where its temporary files go and "
        "stay; when left out: a folder of its own, removed with it",
    )
    model_paths: dict[Text, Text] = Field(
        {},
        description="where models lie on this machine: a mapping of the name that is used here to a folder, which the "
        "server is given in its place",
    )
    replay: Text | None = Field(None, description="a record to play instead of starting the engine")
    replay_speed: Factor | Literal["instant"] = Field(
        1.0,
        description="the factor by which a replay is faster than recorded, or instant; timings stay in recorded time",
    )
    attach: Text | None = Field(
        None,
        description="the URL of a server that somebody else started: it is benchmarked, and left running",
    )
    attach_log: Text | None = Field(None, description="the log file of the attached server, when it lies here")
    api_key_env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = Field(
        "SPECBENCH_API_KEY",
        description="the name of the environment variable with the attached server's key, which is stored nowhere",
    )
    host: Text = Field("127.0.0.1", description="the address that the server binds to")
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None, description="the port of the server; when left out: a free one"
    )
    ready_timeout_s: Seconds = Field(
        900.0,
        description=(
            "the time in seconds after which a start counts as timed out; one whose log says that it failed, and which "
            "hangs, is ended before"
        ),
    )
    enable_metrics: bool = Field(
        True, description="the engine's Prometheus metrics, which are recorded while it serves (--enable-metrics)"
    )
    allow_refused: bool = Field(
        False, description="the switch that accepts values this engine version refuses, to see the engine's own error"
    )

    @model_validator(mode="after")
    def _one_server(self) -> EngineSection:
        if self.attach is not None and self.replay is not None:
            raise ValueError("attach and replay are both given, and there is one server.\nKeep one of them")
        if self.attach_log is not None and self.attach is None:
            raise ValueError("attach_log is given without attach.\nName the server whose log it is (attach)")
        problem = None if self.attach is None else _why_no_address(self.attach)
        if problem is not None:
            raise ValueError(
                f"attach: {problem}.\nExpected the address of a server, e.g. http://127.0.0.1:30000; a key goes into "
                "the environment (api_key_env)"
            )
        return self


def _why_no_address(url: str) -> str | None:
    """None: it is an address. A wrong one is not shown: it may hold a password."""
    try:
        parts = urlsplit(url)
        port_fits = parts.port is None or parts.port > 0
    except ValueError:
        return "no URL"
    if parts.scheme not in ("http", "https") or not parts.hostname or not port_fits or re.search(r"[\s\x00-\x1f]", url):
        return "no http:// or https:// URL"
    if not url.isascii():
        return "a character outside ASCII in the URL (write a host as xn--…, a path with %XX)"
    if parts.username is not None or parts.password is not None:
        return "a name or a password in the URL"
    return "a query or a fragment in the URL" if parts.query or parts.fragment else None


class GpuSection(Section):
    name: Text = Field(description="a row of data/gpus.yaml, e.g. h200, or its usual name: 5090, RTX PRO 6000")
    count: Count = Field(1, description="the number of GPUs that the server may use")
    emulate: Text | None = Field(
        None,
        description="a smaller card of data/gpus.yaml, whose budget the engine is given: mem_fraction_static is then "
        "the share on that card, and the server is passed the share of the larger one that gives as many bytes",
    )


class ParallelSection(Section):
    tp_size: Count = Field(1, description="the number of tensor parallel ranks")
    pp_size: Count = Field(1, description="the number of pipeline parallel stages")
    dp_size: Count = Field(1, description="the number of data parallel ranks")
    enable_dp_attention: bool = Field(
        False, description="data-parallel attention: each attention then spans tp_size / dp_size ranks"
    )

    @property
    def replicas(self) -> int:
        """Whole copies of the model: with data-parallel attention the dp ranks share one."""
        return 1 if self.enable_dp_attention else self.dp_size

    @property
    def attention_dp(self) -> int:
        """Workers of data-parallel attention, which share requests and chunks; 1 without it."""
        return self.dp_size if self.enable_dp_attention else 1

    @property
    def gpus(self) -> int:
        """GPUs that the server takes, over all its hosts: one a rank."""
        return self.tp_size * self.pp_size * self.replicas


class CustomAlgorithm(Section):
    """What a plug-in's algorithm means for memory; the flags of its widths are those of every algorithm."""

    verify_width: Count | None = Field(
        None,
        description="the tokens verified per step where the plug-in itself sets them (a tree: its nodes and the root); "
        "when left out: num_draft_tokens",
    )
    draft_kv: Literal["none", "eagle", "dflash"] = Field(
        "none",
        description="how the engine charges the draft's KV: none, or as the class answers to is_eagle or is_standalone "
        "(eagle: the target's bytes by layers, from 0.5.14) or is_dflash_family (dflash: by layers, from 0.5.18 by the "
        "draft's geometry)",
    )
    draft_pool: bool = Field(
        True, description="whether a draft model keeps KV for the target's token count, charged or not"
    )
    overlap: bool = Field(False, description="whether it was registered with supports_overlap")
    longest_accept: Count | None = Field(
        None, description="the most tokens that one step can yield, bonus included; when left out: the verify width"
    )
    default_requests: Count | None = Field(
        None, description="max_running_requests that the plug-in sets when none is given; when left out: it sets none"
    )


class SpeculativeSection(Section):
    algorithm: Text = Field(
        "none",
        description="the speculative algorithm: none (the baseline), DFLASH, DSPARK, EAGLE, EAGLE3, NEXTN, STANDALONE, "
        "FROZEN_KV_MTP, NGRAM, UNO, DDTREE (of a fork), or the name that a plug-in registers (with custom)",
    )
    draft_model_path: Text | None = Field(
        None, description="the draft: a model shipped in data/models, or a folder with a config.json"
    )
    num_draft_tokens: Count | None = Field(
        None, description="the number of tokens verified per step; when left out: the algorithm's default"
    )
    num_steps: Count | None = Field(
        None, description="the number of draft steps (EAGLE family); when left out: the algorithm's default"
    )
    eagle_topk: Count | None = Field(
        None, description="the number of branches per step (EAGLE family); when left out: the algorithm's default"
    )
    custom: CustomAlgorithm | None = Field(
        None,
        description="what an algorithm that a plug-in registers means for memory (keys below); when left out: the "
        "algorithm is a built-in one",
    )


class MemorySection(Section):
    mem_fraction_static: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="the share (0 to 1) of the memory free before loading; when left out: the engine's heuristic",
    )
    mamba_full_memory_ratio: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        None, description="the ratio of state pool to KV pool; when left out: 0.9"
    )
    max_running_requests: Count | None = Field(
        None,
        description="the most requests that run at once; when left out: 48 with speculation, else what the pools allow",
    )
    max_mamba_cache_size: Count | None = Field(
        None, description="the number of state slots; when left out: from the ratio"
    )
    max_total_tokens: Count | None = Field(
        None, description="an upper bound of the KV pool in tokens; when left out: none"
    )
    kv_cache_dtype: Text = Field(
        "auto",
        description="the type of the KV cache; auto: the model's, or fp8 where a quantized checkpoint asks for it",
    )
    mamba_ssm_dtype: Literal["float32", "bfloat16", "float16"] | None = Field(
        None, description="the type of the recurrent state; when left out: the model's config"
    )
    mamba_radix_cache_strategy: Literal["auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"] = Field(
        "auto", description="how the prefix cache handles state, which decides the slots per request"
    )
    disable_radix_cache: bool = Field(
        False, description="the switch that turns the prefix cache off: one slot per request then"
    )
    disable_overlap_schedule: bool = Field(
        False, description="the switch that turns off the overlap of scheduling and computing"
    )
    page_size: Count | None = Field(None, description="the number of tokens per KV page; when left out: 1")
    context_length: Count | None = Field(
        None, description="the most tokens of one request; when left out: the model's own"
    )
    chunked_prefill_size: Annotated[int, Field(ge=-1, le=_LARGEST)] | None = Field(
        None, description="the tokens of one prefill chunk (-1: no chunking); when left out: by the size of the card"
    )
    cuda_graph_max_bs: Count | None = Field(
        None, description="the largest batch captured as a CUDA graph; when left out: by the size of the card"
    )


class WorkloadSection(Section):
    input_tokens: Counts = Field((1024,), description="a list of prompt lengths in tokens; each is a step of its own")
    output_tokens: Count = Field(256, description="the number of tokens generated per request")
    concurrency: Counts = Field(
        (1, 4, 8), description="a list of numbers of clients (closed loop); each is a step of its own"
    )
    request_rate: Rates | None = Field(
        None, description="a list of requests per second (open loop, instead of concurrency); each is a step of its own"
    )
    requests: Natural | Counts = Field(
        8, description="the number of requests per step, or a list with one figure per load; 0: load the server only"
    )
    warmup: Natural = Field(
        2, description="the number of requests before the measured steps, which are not in the figures"
    )
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(0, description="the seed of prompts and arrivals")
    allow_overflow: bool = Field(
        False, description="the switch that sends requests which cannot fit, to see the engine's own error"
    )
    simulate_acc_len: Annotated[float, Field(ge=1, le=1e3)] | None = Field(
        None,
        description="the acceptance length (tokens per verification, bonus token included) that the engine simulates "
        "(SGLANG_SIMULATE_ACC_LEN): speed is then a cost model; when left out: the drafts' own",
    )
    request_timeout_s: Seconds = Field(600.0, description="the time in seconds after which a request counts as failed")

    @model_validator(mode="after")
    def _a_figure_per_load(self) -> WorkloadSection:
        loads = len(self.request_rate or self.concurrency)
        if isinstance(self.requests, tuple) and len(self.requests) != loads:
            key = "request_rate" if self.request_rate else "concurrency"
            raise ValueError(
                f"requests has {counted(len(self.requests), 'figure')}, {key} has {loads}.\n"
                "Give one figure per load, or a single one for all"
            )
        return self

    @property
    def load_only(self) -> bool:
        """Whether the server is started and no request is sent."""
        return self.requests == 0

    def requests_per_load(self) -> tuple[int, ...]:
        """Requests of every concurrency (or rate), in their order."""
        loads = len(self.request_rate or self.concurrency)
        return self.requests if isinstance(self.requests, tuple) else (self.requests,) * loads


class RunConfig(Section):
    """One run, whole. Its top-level keys are the names in the notebooks' parameters cell."""

    name: RunName = Field(description="what the run and its folder are called")
    engine: EngineSection
    model: Text = Field(description="the name of a shipped model, or a folder with a config.json")
    gpu: GpuSection
    parallel: ParallelSection = ParallelSection()
    speculative: SpeculativeSection = SpeculativeSection()
    memory: MemorySection = MemorySection()
    workload: WorkloadSection = WorkloadSection()

    def to_sections(self) -> dict[str, Any]:
        """Plain values (JSON and YAML safe), every key present. Loads back equal."""
        return self.model_dump(mode="json")

    def stated(self) -> dict[str, Any]:
        """Plain values of the keys that were given, every section present. A default that was given is in it."""
        return {section: {} for section in SECTIONS} | self.model_dump(mode="json", exclude_unset=True)

    def replace(self, changes: Mapping[str, Any]) -> RunConfig:
        """A copy with dotted keys changed: `{"memory.max_running_requests": 8}`. Validated like a fresh one."""
        data = self.stated()
        for dotted, value in changes.items():
            *sections, key = dotted.split(".")
            target = data
            for section in sections:
                target[section] = dict(target.get(section, {}))
                target = target[section]
            target[key] = value
        return RunConfig.model_validate(data)


SECTIONS: tuple[str, ...] = tuple(RunConfig.model_fields)
