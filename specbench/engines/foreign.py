"""Whose text it is that is no log of a supported engine: told by lines that no other program prints.

In: the beginning of a text. Out: what it is, with a line that says so; None when nothing does.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ..logclean import as_text


class Foreign(NamedTuple):
    what: str  # in words: 'a log of vLLM'
    line: int
    text: str


#: What prints it -> lines at start-up, while serving, and of its tracebacks.
_SIGNS: dict[str, tuple[bytes, ...]] = {
    "a log of vLLM": (
        rb"vLLM API server version",
        rb"Initializing (?:an?|a V[01]) LLM engine \(v",
        rb"\[?(?:gpu_model_runner|kv_cache_utils|gpu_worker|api_server|loggers|engine_core|core|model_runner)\.py:\d{1,6}\]",
        rb"GPU KV cache size: [\d,]{1,20} tokens",
        rb"Maximum concurrency for [\d,]{1,20} tokens per request",
        rb"Avg prompt throughput: [\d.]{1,20} tokens/s",
        rb"\((?:EngineCore|APIServer|Worker)[\w]{0,20} pid=\d{1,10}\)",
        rb"/vllm/(?:v1|engine|worker|executor|entrypoints)/",
    ),
    "a log of TensorRT-LLM": (
        rb"\[TensorRT-LLM\](?:\[[A-Z]{1,10}\]| TensorRT-LLM version)",
        rb"\[TRT-LLM\] \[[A-Z]\]",
        rb"\[TRT-LLM\] \[RANK \d{1,5}\] \[[A-Z]\]",
        rb"TRTGptModel \w{1,60}:",
        rb"/tensorrt_llm/",
    ),
    "a log of llama.cpp": (
        rb"llama_model_loader: ",
        rb"llama_(?:kv_cache|context|new_context_with_model|init_from_model)\w{0,40}: ",
        rb"llm_load_(?:print_meta|tensors): ",
        rb"ggml_(?:cuda|metal|vulkan)_init: ",
        rb"main: (?:server is listening|loading model|model loaded)",
        rb"srv +(?:load_model|update_slots|init|log_server_r): ",
    ),
    "a log of Ollama": (rb"source=(?:sched|runner|routes|server)\.go:\d{1,6} msg=", rb"\[GIN\] \d{4}/\d\d/\d\d"),
    "a log of Text Generation Inference": (
        rb"text_generation_(?:launcher|router)\b",
        rb"text-generation-(?:launcher|server) ",
        rb"shard-manager: ",
    ),
    "a log of LMDeploy": (
        rb" - lmdeploy - [A-Z]{4,8} - ",
        rb"\[TM\]\[(?:INFO|WARNING|ERROR|DEBUG)\]",
        rb"turbomind::",
        rb"/lmdeploy/(?:serve|turbomind|pytorch)/",
    ),
    "a log of SGLang's router": (rb"sglang_router(?:_rs)?::", rb"\bsmg::"),
    "a report of a client (SGLang's bench_one_batch_server)": (
        rb"\| batch size \| (?:input len \| )?latency \(s\) \|",
    ),
    "JSON": (rb"\A\s{0,100}[\[{]\s{0,100}\"[^\"\n]{1,200}\" ?:",),
    "a page of HTML": (rb"(?i)\A\s{0,100}<(?:!doctype html|html)\b",),
    "a configuration or a program": (rb"\A(?:#!/|---\n)",),
}
_MAGIC = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    b"7z\xbc\xaf": "a 7z archive",
    b"\x7fELF": "a program (ELF)",
    b"MZ": "a program (Windows)",
    b"\x89PNG": "a picture (PNG)",
    b"\xff\xd8\xff": "a picture (JPEG)",
    b"%PDF": "a PDF",
    b"GGUF": "weights (GGUF)",
    b"SQLite format 3": "a database (SQLite)",
    b"PAR1": "a table (Parquet)",
}
_PACKED = frozenset(("a zip archive", "bzip2", "xz", "lz4", "a 7z archive"))
_SHARE_OF_NOISE = 0.1


def foreign(text: bytes) -> Foreign | None:
    """What a text is that is none of ours. Of several programs the one with the most signs."""
    best: tuple[int, str, re.Match[bytes]] | None = None
    for what, signs in _SIGNS.items():
        matches = [match for match in (re.search(sign, text) for sign in signs) if match]
        if matches and (best is None or len(matches) > best[0]):
            best = len(matches), what, min(matches, key=re.Match.start)
    if best is None:
        return None
    _, what, match = best
    start = text.rfind(b"\n", 0, match.start()) + 1
    line = text[start:].partition(b"\n")[0].partition(b"\r")[0]
    return Foreign(what, text.count(b"\n", 0, start) + 1, as_text(line).strip())


def binary(data: bytes) -> str | None:
    """What a file is that is no text: 'xz', 'a picture (PNG)', 'binary'. None for text in whatever encoding."""
    known = next((what for magic, what in _MAGIC.items() if data.startswith(magic)), None)
    if known is not None:
        return known
    decoded = data.decode("utf-8", "replace")
    noise = sum(1 for char in decoded if char == "\ufffd" or (char < " " and char not in "\t\n\r\f\x1b\0"))
    return "binary" if noise > _SHARE_OF_NOISE * max(1, len(decoded)) else None


def is_packed(what: str) -> bool:
    """Whether it holds something else that can be got out of it."""
    return what in _PACKED
