"""What the engine takes when nothing is said, by version: literals from its sources, and every recorded start."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from specbench.budget.predict import predict
from specbench.budget_types import ResolvedArgument
from specbench.configuration.config import RunConfig
from specbench.engines.sglang.resolve import Settings, settings
from specbench.engines.sglang.sizing.fraction import Defaults
from specbench.engines.sglang.sizing.graph_sizes import captured_sizes, decode_sizes, in_eights, prefill_sizes
from specbench.records.record import RunRecord

RECORDS = Path(__file__).parent / "records"
NEXTN = {"algorithm": "NEXTN"}
TEXT = "Qwen/Qwen3-8B"
G = 97_887  # MiB of an RTX PRO 6000


def resolve(
    version: str,
    model: str = TEXT,
    *,
    gpu: str = "rtx-pro-6000",
    speculative: dict[str, Any] | None = None,
    parallel: dict[str, Any] | None = None,
    memory: dict[str, Any] | None = None,
    args: dict[str, Any] | None = None,
) -> Settings:
    return settings(
        RunConfig.model_validate(
            {
                "name": "defaults",
                "engine": {"version": version, "args": args or {}},
                "model": model,
                "gpu": {"name": gpu, "count": 8},
                "parallel": parallel or {},
                "speculative": speculative or {"algorithm": "none"},
                "memory": memory or {},
            }
        )
    )


def taken(version: str, model: str = TEXT, **more: Any) -> Defaults:
    found = resolve(version, model, **more).defaults
    assert found is not None
    return found


def fraction(reserved: float, total: int = G) -> float:
    return round((total - reserved) / total, 3)


# ── graphs ───────────────────────────────────────────────────────────────────────────────────────────────────────────

TO_256 = (1, 2, 4, 8, 12, *range(16, 257, 8))
SPECULATIVE_TO_64 = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 40, 44, 48, 52, 56, 60, 64)


def test_batches_without_speculation() -> None:
    assert decode_sizes("0.5.16", 256, speculates=False, padded=True) == TO_256
    assert len(TO_256) == 36
    assert decode_sizes("0.5.16", 24, speculates=False, padded=True) == (1, 2, 4, 8, 12, 16, 24)
    assert decode_sizes("0.5.16", 512, speculates=False, padded=True)[-3:] == (480, 496, 512)


def test_batches_with_speculation_are_denser() -> None:
    assert decode_sizes("0.5.16", 64, speculates=True, padded=True) == SPECULATIVE_TO_64
    assert len(decode_sizes("0.5.16", 256, speculates=True, padded=True)) == 51
    assert decode_sizes("0.5.16", 512, speculates=True, padded=True)[-2:] == (496, 512)


def test_the_largest_batch_is_a_size_of_its_own_from_0_5_10() -> None:
    assert decode_sizes("0.5.8", 13, speculates=False, padded=True) == (1, 2, 4, 8, 12)
    assert decode_sizes("0.5.10", 13, speculates=False, padded=True) == (1, 2, 4, 8, 12, 13)
    assert decode_sizes("0.5.16", 3, speculates=False, padded=False) == (1, 2, 3)


def test_what_is_captured_ends_at_the_resolved_requests() -> None:
    assert captured_sizes("0.5.16", TO_256, 7, width=1, ranks=1) == (1, 2, 4, 7)
    assert captured_sizes("0.5.16", (1, 2, 3, 4), 16, width=4, ranks=1) == (1, 2, 3, 4)
    assert captured_sizes("0.5.16", SPECULATIVE_TO_64, 20, width=16, ranks=1) == (*range(1, 9), *range(10, 21, 2))
    assert captured_sizes("0.5.16", TO_256, 43, width=1, ranks=1) == (1, 2, 4, 8, 12, 16, 24, 32, 40, 43)
    assert captured_sizes("0.5.16", TO_256, 0, width=1, ranks=1) == ()
    # ranks that gather: 10 requests are padded to 12, of one token each only multiples of 4 remain
    assert captured_sizes("0.5.16", TO_256, 10, width=1, ranks=4) == (4, 8, 12)
    # 4 tokens a request fill the ranks by themselves
    assert captured_sizes("0.5.16", TO_256, 10, width=4, ranks=4) == (1, 2, 4, 8, 12)


def test_prefill_graphs_with_deepep_come_in_eights() -> None:
    assert in_eights(prefill_sizes(64, "0.5.17")) == (8, 16, 24, 32, 48, 64)


@pytest.mark.parametrize(
    ("version", "gpu", "tp", "chunk", "batch"),
    [
        ("0.5.12", "rtx-4090", 1, 2048, 24),  # below 35 GiB
        ("0.5.12", "rtx-5090", 4, 2048, 80),
        ("0.5.19", "rtx-4090", 2, 2048, 24),
        ("0.5.20", "rtx-4090", 2, 4096, 48),
        ("0.5.23", "rtx-5090", 4, 4096, 160),
        ("0.5.16", "l40s", 1, 4096, 32),  # below 60
        ("0.5.16", "l40s", 8, 4096, 160),
        ("0.5.16", "h100", 2, 8192, 256),  # below 90 and below 160
        ("0.5.16", "h200", 4, 8192, 512),
        ("0.5.16", "b200", 1, 16384, 512),
    ],
)
def test_chunk_and_largest_batch_by_card(version: str, gpu: str, tp: int, chunk: int, batch: int) -> None:
    found = taken(version, gpu=gpu, parallel={"tp_size": tp})
    assert (found.chunked_prefill_size, found.graph_batch) == (chunk, batch)


def test_ranks_of_data_parallel_attention_share_a_chunk() -> None:
    shared = {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}
    found = taken("0.5.16", parallel=shared)
    assert (found.chunked_prefill_size, found.chunk_of_worker) == (8192, 2048)


# ── the fraction, term by term: 97,887 MiB, chunk 8192, batches to 256 ───────────────────────────────────────────────

BASE = 512 + 1.5 * 8192 + 1 / 8 * 1024  # 12,928
PREFILL = 8 * 58  # 464
DP = {"tp_size": 4, "dp_size": 2, "enable_dp_attention": True}


@pytest.mark.parametrize(
    ("version", "more", "reserved"),
    [
        ("0.5.6.post2", {}, BASE + 512),
        ("0.5.6.post2", {"args": {"enable-piecewise-cuda-graph": True}}, BASE + 512 + 4096 // 4),
        ("0.5.7", {"args": {"enable-piecewise-cuda-graph": True}}, BASE + 512 + 8192 // 8),
        ("0.5.8", {}, BASE + 512),
        # 640 to 1,024 by 64 are 7 sizes, 576 to 1,024 are 8
        ("0.5.8", {"args": {"enable_piecewise_cuda_graph": True}}, BASE + 512 + PREFILL - 8),
        ("0.5.9", {"args": {"enable_piecewise_cuda_graph": True}}, BASE + 512 + PREFILL),
        ("0.5.10", {}, BASE + 512 + PREFILL),
        ("0.5.10", {"speculative": {"algorithm": "NGRAM"}}, BASE + 512),  # speculation: no prefill graphs
        ("0.5.12", {"speculative": {"algorithm": "NGRAM"}}, BASE + 512 + PREFILL),  # with them from 0.5.11 on
        ("0.5.12", {"args": {"disable-cuda-graph": True}}, BASE + 512 + PREFILL),  # counted all the same
        ("0.5.12", {"args": {"disable-piecewise-cuda-graph": True}}, BASE + 512),
        ("0.5.14", {"args": {"disable-cuda-graph": True}}, BASE + 512),
        ("0.5.15", {"args": {"disable-cuda-graph": True}}, BASE),
        ("0.5.16", {}, BASE + 512 + PREFILL),
        ("0.5.16", {"args": {"enable-lora": True}}, BASE + 512),
        ("0.5.17", {"args": {"enable-lora": True}}, BASE + 512 + PREFILL),
        ("0.5.16", {"args": {"disable-decode-cuda-graph": True}}, BASE + PREFILL),
        ("0.5.16", {"args": {"cuda-graph-backend-prefill": "disabled"}}, BASE + 512),
        ("0.5.16", {"args": {"cuda-graph-bs-decode": [1, 2, 64]}}, BASE + 2 * 64 + PREFILL),
        ("0.5.16", {"args": {"cuda-graph-bs-decode": "1 2 64"}}, BASE + 2 * 64 + PREFILL),
        ("0.5.16", {"args": {"cuda-graph-max-bs-prefill": 16}}, BASE + 512 + 8 * 4),
        ("0.5.16", {"memory": {"context_length": 512}}, BASE + 512 + 8 * 30),  # 8 + 14 + 8 sizes up to 512
        ("0.5.17", {"memory": {"context_length": 512}}, BASE + 512 + PREFILL),
        ("0.5.12", {"memory": {"context_length": 512}}, BASE + 512 + PREFILL),
        ("0.5.16", {"memory": {"chunked_prefill_size": -1}}, 512 + 1.5 * 16384 + 128 + 512),  # no sizes up to -1
        ("0.5.16", {"args": {"moe-a2a-backend": "deepep"}}, BASE + 512 + 2048),  # no prefill graphs with it
        # from 0.5.17 they are, in eights up to 2048: 4 + 14 + 8 + 8 + 4 = 38 sizes, and a GiB for their buffers
        ("0.5.17", {"args": {"moe-a2a-backend": "deepep"}}, BASE + 512 + 8 * 38 + 1024 + 2048),
        ("0.5.14", {"args": {"moe-a2a-backend": "deepep"}}, BASE + 512),
        # tp 4: batches to 512; 3 × 512 × 2 and, above 300, 1.5 × 512 × 2 more; prefill graphs from 0.5.17
        ("0.5.16", {"parallel": DP}, BASE + 384 + 1024 + 3072 + 1536),
        ("0.5.17", {"parallel": DP}, BASE + 384 + 1024 + 3072 + 1536 + PREFILL),
        ("0.5.16", {"parallel": {"pp_size": 2}}, BASE + 128 + 512 + PREFILL),
        ("0.5.18", {"parallel": {"pp_size": 2}}, BASE + 128 + 512 + PREFILL),
        ("0.5.19", {"parallel": {"pp_size": 2}}, BASE + 128 + 512),
        ("0.5.15", {"args": {"disaggregation-mode": "decode"}}, 512 + 1.5 * 2048 + 128 + 512),
        (
            "0.5.16",  # 512 × 16 tokens of a step
            {
                "args": {"disaggregation-mode": "decode"},
                "memory": {"max_running_requests": 512},
                "speculative": {"algorithm": "NGRAM", "num_draft_tokens": 16},
            },
            512 + 1.5 * 8192 + 128 + 512,
        ),
        (
            "0.5.15",
            {"args": {"disaggregation-mode": "prefill"}},
            BASE,
        ),  # no graphs at all; as the engine's own code says
        ("0.5.16", {"args": {"disaggregation-mode": "prefill"}}, BASE + PREFILL),
        ("0.5.13", {"speculative": {"algorithm": "STANDALONE", "draft_model_path": TEXT}}, BASE + 512 + PREFILL + 6144),
        ("0.5.8", {"speculative": NEXTN}, BASE + 512 + 2048),
        ("0.5.13", {"speculative": NEXTN}, BASE + 512 + PREFILL + 4096),
        ("0.5.14", {"speculative": NEXTN}, BASE + 512 + PREFILL),
        ("0.5.23", {"memory": {"max_running_requests": 4}}, BASE + 8 + PREFILL),
        ("0.5.21", {"memory": {"max_running_requests": 4}}, BASE + 512 + PREFILL),
    ],
)
def test_terms_of_the_default_fraction(version: str, more: dict[str, Any], reserved: float) -> None:
    assert taken(version, **more).fraction == fraction(max(reserved, 10_240))


def test_a_small_card_has_no_floor_of_ten_gib() -> None:
    # RTX 4090: 512 + 1.5 × 2048 + 2 × 24 + 128 + 8 × 42 graphs up to 2048 = 4,096 of 24,564 MiB
    assert taken("0.5.12", gpu="rtx-4090").fraction == fraction(4_096, 24_564) == 0.833
    # 512 + 1.5 × 4096 + 2 × 48 + 128 + 8 × 50 up to 4096
    assert taken("0.5.23", gpu="rtx-4090").fraction == fraction(7_280, 24_564) == 0.704


def test_what_0_5_17_alone_captures_no_prefill_of() -> None:
    """Of Nemotron-H, and of latent attention without an indexer, of which no release before captured any."""
    nano, latent, sparse = "nvidia/NVIDIA-Nemotron-Nano-9B-v2", "deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3.2"
    captured = {
        (model, version): taken(version, model).prefill_sizes is not None
        for model in (nano, latent, sparse)
        for version in ("0.5.16", "0.5.17", "0.5.18")
    }
    assert [captured[nano, version] for version in ("0.5.16", "0.5.17", "0.5.18")] == [True, False, True]
    assert [captured[latent, version] for version in ("0.5.16", "0.5.17", "0.5.18")] == [False, False, True]
    assert [captured[sparse, version] for version in ("0.5.16", "0.5.17", "0.5.18")] == [False, True, True]


def test_images_are_not_scaled_for_where_none_are_read() -> None:
    whole = taken("0.5.23", "Qwen/Qwen3.6-27B").fraction
    assert whole == pytest.approx(0.858 * 0.92477, abs=1e-4)
    for flag in ("language-only", "language-model-only"):
        assert taken("0.5.23", "Qwen/Qwen3.6-27B", args={flag: True}).fraction == 0.858
    assert taken("0.5.8", "Qwen/Qwen3.6-27B", args={"language-only": True}).fraction < 0.858
    assert taken("0.5.9", "Qwen/Qwen3.6-27B", args={"language-only": True}).fraction >= 0.858
    assert taken("0.5.17", "Qwen/Qwen3.6-27B", args={"language-model-only": True}).fraction < 0.858
    decode = {"disaggregation-mode": "decode"}
    assert taken("0.5.16", "Qwen/Qwen3.6-27B", args=decode).fraction < 0.89
    assert taken("0.5.17", "Qwen/Qwen3.6-27B", args=decode).fraction >= 0.89


# ── what recorded starts printed ─────────────────────────────────────────────────────────────────────────────────────

_OLD = re.compile(r"chunked_prefill_size=(\d+).*?cuda_graph_max_bs=(\d+), cuda_graph_bs=\[([\d, ]*)\]")
_CHUNK = re.compile(r"chunked_prefill_size=(\d+)")
_NEW = re.compile(
    r"decode=PhaseConfig\(backend='(\w+)', max_bs=(\d+), bs=\[([\d, ]*)\].*?prefill=PhaseConfig\(backend='(\w+)', "
    r"max_bs=(\d+), bs=\[([\d, ]*)\]"
)
_FRACTION = re.compile(r"mem_fraction_static=([\d.]+)")
_CAPTURED = re.compile(r"Capture (?:cuda graph bs|target \w+ CUDA graph begin\. .*?bs=) ?\[([\d, ]*)\]")
_REQUESTS = re.compile(r"max_total_num_tokens=\d+.*?max_running_requests=(\d+)")


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


def test_every_recorded_start_resolved_these_defaults() -> None:
    seen = captured = 0
    for folder in sorted(RECORDS.iterdir()):
        log = folder / "server.log"
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
        line = next((line for line in text.splitlines() if "server_args=ServerArgs(" in line), None)
        if line is None:
            continue
        config = RunRecord.open(folder).config
        found = settings(config)
        assert found.defaults is not None
        old, new, chunk = _OLD.search(line), _NEW.search(line), _CHUNK.search(line)
        assert chunk is not None and found.defaults.chunk_of_worker == int(chunk[1]), folder.name
        if new is not None:
            assert found.graphs == (new[1] != "disabled"), folder.name
            assert found.defaults.graph_batch == int(new[2]), folder.name
            if found.graphs:
                assert found.defaults.decode_sizes == numbers(new[3]), folder.name
            assert (found.defaults.prefill_sizes is not None) == (new[4] != "disabled"), folder.name
            if found.defaults.prefill_sizes is not None:
                assert found.defaults.prefill_sizes == numbers(new[6]), folder.name
        else:
            assert old is not None, folder.name
            assert found.defaults.graph_batch == int(old[2]), folder.name
            if found.graphs:
                assert found.defaults.decode_sizes == numbers(old[3]), folder.name
        printed = _FRACTION.search(line)
        if config.memory.mem_fraction_static is None:
            assert printed is not None and found.fraction == float(printed[1]), folder.name
        seen += 1
        first, requests = _CAPTURED.search(text), _REQUESTS.search(text)
        if first is not None and requests is not None:
            assert found.captured(int(requests[1])) == numbers(first[1]), folder.name
            captured += 1
    assert (seen, captured) == (73, 50)


# ── as a user sees them ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_prediction_names_what_it_resolved_and_why() -> None:
    config = RunConfig.model_validate(
        {
            "name": "shown",
            "engine": {"version": "0.5.16"},
            "model": "Qwen/Qwen3.6-27B",
            "gpu": {"name": "h200"},
            "speculative": {"algorithm": "NEXTN"},
            "memory": {"mem_fraction_static": 0.8},
        }
    )
    found = {argument.name: argument for argument in predict(config).resolved}
    assert found["mem_fraction_static"].words == "mem_fraction_static 0.8 (given)"
    assert found["max_running_requests"].value == 48
    assert found["max_running_requests"].source == "default of sglang 0.5.16 with NEXTN"
    assert found["chunked_prefill_size"].value == 8192
    assert found["cuda_graph_bs"].words.startswith("cuda_graph_bs 1 to 8, 10, 12, 14")
    assert found["prefill_graphs"].value == 58


@pytest.mark.parametrize(
    ("algorithm", "asked"),
    [("none", None), ("NEXTN", 48), ("NGRAM", 48), ("UNO", None), ("DFLASH", 48), ("DSPARK", 48), ("STANDALONE", 48)],
)
def test_the_default_number_of_requests(algorithm: str, asked: int | None) -> None:
    drafts = {"DFLASH": "z-lab/Qwen3.6-27B-DFlash", "DSPARK": "z-lab/Qwen3.6-27B-DFlash", "STANDALONE": TEXT}
    section = {"algorithm": algorithm, "draft_model_path": drafts.get(algorithm), "num_draft_tokens": None}
    if algorithm == "UNO":
        section["num_draft_tokens"] = 8
    assert resolve("0.5.23", "Qwen/Qwen3.6-27B", speculative=section).requests == asked


def test_an_argument_in_words() -> None:
    assert ResolvedArgument(name="x", value=None, source="why").words == "x none (why)"
    assert ResolvedArgument(name="x", value=(1, 2, 3, 5, 7, 8), source="s").words == "x 1 to 3, 5, 7, 8 (s)"
