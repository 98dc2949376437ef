"""Launch commands in text: what people paste above a log, or give by --launch."""

from __future__ import annotations

import time
from typing import Any

import pytest

from specbench.engines.sglang.launch_text import Launch, launch_in

SHELL = r"""$ SGLANG_ENABLE_SPEC_V2=1 CUDA_VISIBLE_DEVICES=0 python -m sglang.launch_server \
    --model-path Qwen/Qwen3.6-27B --tp 2 \
    --speculative-algorithm DFLASH --max-running-requests 8 \
    --mem-fraction-static=0.75 --json-model-override-args '{"a": "b;c"}' 2>&1 | tee server.log
[2026-05-20 10:11:12] --not-a-flag of the command
"""
DOCKER = r"""docker run --gpus all --shm-size 32g -e SGLANG_MAMBA_CONV_DTYPE=float32 \
    -v /models:/models lmsysorg/sglang:v0.5.12 \
    python3 -m sglang.launch_server --model /models/q --cuda-graph-bs 1 2 4 --disable-radix-cache
"""
FOLDED = """    command: >
      python3 -m sglang.launch_server
      --model-path Qwen/x
      --context-length 4096
    ports:
      - 30000
"""
WARNING = """launch_server.py:56: UserWarning: 'python -m sglang.launch_server' is still supported, but \
'sglang serve' is the recommended entrypoint.
  Example: sglang serve --model-path <model> [options]
"""

CASES: list[tuple[str, dict[str, Any], dict[str, str], int]] = [
    (
        SHELL,
        {
            "model_path": "Qwen/Qwen3.6-27B",
            "tp_size": 2,
            "speculative_algorithm": "DFLASH",
            "max_running_requests": 8,
            "mem_fraction_static": 0.75,
            "json_model_override_args": '{"a": "b;c"}',
        },
        {"SGLANG_ENABLE_SPEC_V2": "1"},
        1,
    ),
    (
        DOCKER,
        {"model_path": "/models/q", "cuda_graph_bs": [1, 2, 4], "disable_radix_cache": True},
        {"SGLANG_MAMBA_CONV_DTYPE": "float32"},
        1,
    ),
    (FOLDED, {"model_path": "Qwen/x", "context_length": 4096}, {}, 2),
    ("sglang serve Qwen/Qwen3.6-27B --tp-size two;echo x", {"model_path": "Qwen/Qwen3.6-27B", "tp_size": "two"}, {}, 1),
    (
        "(venv) # /opt/venv/bin/sglang serve --model-path 'x y' --mamba-scheduler-strategy no_buffer &",
        {"model_path": "x y", "mamba_radix_cache_strategy": "no_buffer"},
        {},
        1,
    ),
]


@pytest.mark.parametrize(("text", "arguments", "env", "line"), CASES)
def test_a_command_is_taken_apart(text: str, arguments: dict[str, Any], env: dict[str, str], line: int) -> None:
    assert launch_in(text) == Launch(arguments=arguments, env=env, line=line)


@pytest.mark.parametrize(
    "text",
    [
        WARNING,
        "",
        "see sglang.launch_server",
        "sglang serve",
        "--model-path x",
        "sglang serve $(",
        "Use sglang serve to start.",
    ],
)
def test_a_mention_is_no_command(text: str) -> None:
    assert launch_in(text) is None


def test_of_several_commands_the_last_counts() -> None:
    found = launch_in("sglang serve --model-path a --tp 1\nsglang serve --model-path a --tp 2\n" + WARNING)
    assert found is not None and found.arguments["tp_size"] == 2


def test_an_open_quote_and_a_long_text_are_read_in_time() -> None:
    begin = time.perf_counter()
    assert launch_in("sglang serve --model-path 'x --tp 2") is not None
    launch_in("sglang serve --x \\\n" * 4000)
    launch_in("\\\n" * 30_000 + "sglang serve --tp 2")
    assert time.perf_counter() - begin < 2
