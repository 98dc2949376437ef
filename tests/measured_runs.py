"""Free memory and pools that real SGLang servers logged on H200 machines, 2026-11-29: what a prediction has to hit.

Figures as printed, in GiB; `pre` is "Load weight begin. avail mem" and `post` the last "Load weight end. avail mem"
before the pools, each of the rank with least. The model is Qwen3.6-27B (or Qwen3.5-35B-A3B) with random weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from specbench.configuration.config import RunConfig

TARGET = "Qwen/Qwen3.6-27B"
DRAFT = "z-lab/Qwen3.6-27B-DFlash"


@dataclass(frozen=True, kw_only=True)
class Run:
    name: str
    version: str
    algorithm: str
    pre: str
    post: str
    slots: int
    tokens: int
    requests: int | None  # None: the server died before it said
    memory: dict[str, Any]
    tp: int = 1
    model: str = TARGET
    speculative: dict[str, Any] = field(default_factory=dict)
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> RunConfig:
        speculative: dict[str, Any] = {"algorithm": self.algorithm, **self.speculative}
        if self.algorithm == "DFLASH":
            speculative |= {"draft_model_path": DRAFT}
        return RunConfig.model_validate(
            {
                "name": self.name,
                "engine": {"version": self.version, "args": self.args},
                "model": self.model,
                "gpu": {"name": "h200", "count": self.tp},
                "parallel": {"tp_size": self.tp},
                "speculative": speculative,
                "memory": {"context_length": 32768, "mamba_full_memory_ratio": 0.5, **self.memory},
            }
        )


NEXTN = {"num_steps": 3, "eagle_topk": 1, "num_draft_tokens": 4}
EXTRA = {"mamba_radix_cache_strategy": "extra_buffer"}
#: f, and requests asked
S = 0.508124


def _old(name: str, tokens: int, slots: int, asked: int, got: int | None, f: float = S, **more: Any) -> Run:
    memory = {"mem_fraction_static": f, "max_running_requests": asked, **EXTRA}
    figures = {"pre": "139.13", "post": "88.07", **more}
    return Run(
        name=name,
        version="0.5.12",
        algorithm="DFLASH",
        memory=memory,
        slots=slots,
        tokens=tokens,
        requests=got,
        **figures,
    )


def _new(name: str, tokens: int, slots: int, asked: int, got: int | None, f: float = S, **more: Any) -> Run:
    memory = {"mem_fraction_static": f, "max_running_requests": asked} | more.pop("memory", {})
    figures = {"pre": "139.13", "post": "84.68", "algorithm": "DFLASH", **more}
    return Run(name=name, version="0.5.16", memory=memory, slots=slots, tokens=tokens, requests=got, **figures)


RUNS = (
    _old("0512_dflash_r4", 87034, 24, 4, 4),
    _old("0512_dflash_r4_exact", 87061, 24, 4, 4, f=0.50814),
    _old("0512_dflash_r8", 11866, 2, 8, 0),
    _old("0512_dflash_r8_exact", 11893, 2, 8, 0, f=0.50814, args={"disable_cuda_graph": True}),
    _old("0512_dflash_r8_nograph", 11866, 2, 8, 0, args={"disable_cuda_graph": True}),
    _old("cal_0512_dflash_r1", 181795, 50, 1, 1, f=0.54),
    Run(
        name="0512_nospec_r8",
        version="0.5.12",
        algorithm="none",
        pre="139.13",
        post="88.07",
        slots=152,
        tokens=401479,
        requests=8,
        memory={"mem_fraction_static": 0.7, "max_running_requests": 8, "mamba_full_memory_ratio": 0.9},
    ),
    _old("tp2_0512_dflash_r8", 591558, 165, 8, 8, f=0.5088, tp=2, pre="138.28", post="112.64"),
    _old("tp4_0512_dflash_r8", 1750910, 488, 8, 8, f=0.5088, tp=4, pre="138.00", post="124.95"),
    _new("dflash_r4", 158178, 8, 4, 1),
    _new("dflash_r8", 158177, 8, 8, 1),
    _new("dflash_r8_full", 580619, 37, 8, 7, f=0.88),
    _new("dflash_r8_full_sim", 580620, 37, 8, 7, f=0.88),
    _new("oom_r8", 739171, 46, 8, None, f=0.997),
    _new("smoke_dflash_r4", 179560, 11, 4, 2, f=0.54),
    _new("var_block8_r4", 147438, 14, 4, 2, speculative={"num_draft_tokens": 8}),
    _new("var_maxmamba20_r4", 50794, 20, 4, 4, memory={"max_mamba_cache_size": 20}),
    _new(
        "var_nobuffer_r4",
        163546,
        5,
        4,
        1,
        memory={"mamba_radix_cache_strategy": "no_buffer", "disable_overlap_schedule": True},
    ),
    _new("var_noradix_r4", 79430, 4, 4, 4, memory={"disable_radix_cache": True}),
    _new("var_ratio09_r4", 122382, 12, 4, 2, memory={"mamba_full_memory_ratio": 0.9}),
    _new("nospec_r4", 215239, 45, 4, 4, algorithm="none", post="88.07"),
    _new("nospec_r8", 215239, 45, 8, 8, algorithm="none", post="88.07"),
    Run(
        name="nospec_defaults",
        version="0.5.16",
        algorithm="none",
        pre="139.13",
        post="88.07",
        slots=218,
        tokens=569225,
        requests=43,
        memory={"mamba_full_memory_ratio": None},
        args={"disable_cuda_graph": True, "disable-prefill-cuda-graph": True},
    ),
    _new(
        "ngram_r8",
        429666,
        44,
        8,
        8,
        f=0.7,
        algorithm="NGRAM",
        post="88.07",
        memory={"mamba_full_memory_ratio": None},
    ),
    _new("nextn_r4_full", 841183, 85, 4, 4, f=0.88, algorithm="NEXTN", post="82.53", speculative=NEXTN),
    _new("nextn_r4_full_nodeepgemm", 841183, 85, 4, None, f=0.88, algorithm="NEXTN", post="82.53", speculative=NEXTN),
    _new(
        "q35b_nextn_r16",
        1701906,
        216,
        16,
        16,
        f=0.85,
        algorithm="NEXTN",
        pre="139.11",
        post="70.13",
        model="Qwen/Qwen3.5-35B-A3B",
        speculative=NEXTN,
        memory={"mamba_full_memory_ratio": None},
    ),
    _new("tp2_dflash_r8", 753626, 47, 8, 8, f=0.5088, tp=2, pre="138.21", post="110.67"),
    _new("tp2_dflash_r32_full", 1588865, 104, 32, 20, f=0.88, tp=2, pre="138.21", post="110.67"),
    _new("tp2_nospec_r8", 977967, 207, 8, 8, f=0.5088, tp=2, algorithm="none", pre="138.21", post="112.59"),
    _new("tp4_dflash_r8", 2347000, 123, 8, 8, f=0.5088, tp=4, pre="137.99", post="123.80"),
    _new("tp4_nospec_r8", 2499005, 531, 8, 8, f=0.5088, tp=4, algorithm="none", pre="137.99", post="124.94"),
)
