"""RunConfig: one configuration, in SGLang's own flag names. Structure and types only.

Keys equal SGLang's flags (underscored) wherever a flag exists; the section only groups them. `None` means "not given":
the flag is left out and the engine decides (each field's description says what it decides). What a particular engine
version refuses is checked in `engines/<name>/checks.py`; reading files and naming them in messages is `params.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

#: YAML has lists, a frozen value wants tuples.
_AsTuple = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)
Counts = Annotated[tuple[Annotated[int, Field(ge=1)], ...], _AsTuple]
Rates = Annotated[tuple[Annotated[float, Field(gt=0)], ...], _AsTuple]
Text = Annotated[str, StringConstraints(min_length=1)]
#: Also the folder of the record: no separators, nothing a shell or a file system would read differently.
RunName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+=-]{0,120}$")]
FlagValue = str | int | float | bool | None | list[str | int | float]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """Base of all sections: frozen, strict types, unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class EngineSection(Section):
    name: Literal["sglang"] = Field("sglang", description="the serving engine")
    version: Text = Field(description="the engine's version, e.g. 0.5.12; chooses flags, sizing rule and log lines")
    sizing: Text | None = Field(
        None, description="sizing rule to follow when the version is a development build or a fork"
    )
    python: Text | None = Field(None, description="interpreter that has the engine; not given: this one")
    args: dict[str, FlagValue] = Field(
        {}, description="further server flags, verbatim (underscored or dashed); true: bare flag"
    )
    env: dict[str, str] = Field({}, description="environment variables for the server alone")
    replay: Text | None = Field(None, description="a record to play instead of starting the engine")
    replay_speed: Annotated[float, Field(gt=0)] | Literal["instant"] = Field(
        1.0, description="how much faster than recorded a replay runs; timings are reported in recorded time"
    )
    host: Text = Field("127.0.0.1", description="address the server binds to")
    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(None, description="not given: a free one")
    ready_timeout_s: Annotated[float, Field(gt=0)] = Field(
        900.0, description="seconds until a start counts as timed out"
    )
    allow_refused: bool = Field(
        False, description="accept values that this engine version refuses, to see the engine's own error"
    )


class GpuSection(Section):
    name: Text = Field(description="a row of data/gpus.yaml, e.g. h200")
    count: Count = Field(1, description="GPUs that the server may use")
    emulate: Text | None = Field(None, description="give the engine the budget of this smaller card")


class ParallelSection(Section):
    tp_size: Count = Field(1, description="tensor parallel ranks")
    pp_size: Count = Field(1, description="pipeline parallel stages")
    dp_size: Count = Field(1, description="data parallel ranks")
    enable_dp_attention: bool = Field(False, description="data-parallel attention: attention TP is tp_size / dp_size")


class SpeculativeSection(Section):
    algorithm: Text = Field("none", description="none is the baseline; DFLASH, EAGLE, EAGLE3, NEXTN, NGRAM, …")
    draft_model_path: Text | None = Field(
        None, description="a config.json shipped in data/models, or a folder with one"
    )
    num_draft_tokens: Count | None = Field(
        None, description="tokens verified per step; not given: the algorithm's default"
    )
    num_steps: Count | None = Field(None, description="draft steps (EAGLE family)")
    eagle_topk: Count | None = Field(None, description="branches per step (EAGLE family)")


class MemorySection(Section):
    mem_fraction_static: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="of the memory free before loading; not given: the engine's heuristic"
    )
    mamba_full_memory_ratio: Annotated[float, Field(gt=0)] | None = Field(
        None, description="state pool : KV pool; not given: 0.9"
    )
    max_running_requests: Count | None = Field(None, description="not given: 48 with speculation, else from the pool")
    max_mamba_cache_size: Count | None = Field(None, description="state slots; not given: from the ratio")
    max_total_tokens: Count | None = Field(None, description="upper bound of the KV pool in tokens")
    kv_cache_dtype: Text = Field("auto", description="auto: the model's dtype")
    mamba_ssm_dtype: Literal["float32", "bfloat16", "float16"] | None = Field(
        None, description="dtype of the recurrent state; not given: the model's config"
    )
    mamba_radix_cache_strategy: Literal["auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"] = Field(
        "auto", description="state handling of the prefix cache; decides the slots per request"
    )
    disable_radix_cache: bool = Field(False, description="no prefix cache: one slot per request")
    disable_overlap_schedule: bool = Field(False, description="no overlap of scheduling and computing")
    page_size: Count | None = Field(None, description="tokens per KV page; not given: 1")
    context_length: Count | None = Field(None, description="not given: the model's own")
    chunked_prefill_size: Annotated[int, Field(ge=-1)] | None = Field(None, description="-1 disables chunking")
    cuda_graph_max_bs: Count | None = Field(None, description="largest batch captured as a CUDA graph")


class WorkloadSection(Section):
    input_tokens: Counts = Field((1024,), description="prompt lengths in tokens; each is a step of its own")
    output_tokens: Annotated[int, Field(ge=1)] = Field(256, description="tokens generated per request")
    concurrency: Counts = Field((1, 4, 8), description="clients of the closed loop; each is a step of its own")
    request_rate: Rates | None = Field(
        None, description="open loop instead: requests per second; each a step of its own"
    )
    requests: Annotated[int, Field(ge=0)] | Counts = Field(
        8, description="requests per step, or a list: one figure per load; 0: load the server only"
    )
    warmup: Annotated[int, Field(ge=0)] = Field(2, description="requests before the measured steps, not in the figures")
    seed: Annotated[int, Field(ge=0)] = Field(0, description="seed of prompts and arrivals")
    allow_overflow: bool = Field(False, description="send requests that cannot fit, to see the engine's own error")
    request_timeout_s: Annotated[float, Field(gt=0)] = Field(
        600.0, description="seconds until a request counts as failed"
    )

    @model_validator(mode="after")
    def _a_figure_per_load(self) -> WorkloadSection:
        loads = len(self.request_rate or self.concurrency)
        if isinstance(self.requests, tuple) and len(self.requests) != loads:
            raise ValueError(f"requests has {len(self.requests)} figures for {loads} loads (concurrency, request_rate)")
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

    name: RunName
    engine: EngineSection
    model: Text
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
