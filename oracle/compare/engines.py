"""Releases of SGLang, each in a process that answers questions. In: where they are installed. Out: answers."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

HERE = Path(__file__).resolve().parents[1]

#: Release -> the transformers, tokenizers and huggingface-hub that it was made for (its own pin of transformers).
RELEASES: dict[str, tuple[str, str, str]] = {
    "0.5.6": ("4.57.1", "0.22.2", "0.36.0"),
    "0.5.6.post1": ("5.0.0rc0", "0.22.2", "1.5.0"),
    "0.5.6.post2": ("4.57.1", "0.22.2", "0.36.0"),
    "0.5.7": ("4.57.1", "0.22.2", "0.36.0"),
    "0.5.8": ("4.57.1", "0.22.2", "0.36.0"),
    "0.5.8.post1": ("4.57.1", "0.22.2", "0.36.0"),
    "0.5.9": ("4.57.1", "0.22.2", "0.36.0"),
    "0.5.10": ("5.3.0", "0.22.2", "1.5.0"),
    "0.5.10.post1": ("5.3.0", "0.22.2", "1.5.0"),
    "0.5.11": ("5.6.0", "0.22.2", "1.5.0"),
    "0.5.12": ("5.6.0", "0.22.2", "1.5.0"),
    "0.5.12.post1": ("5.6.0", "0.22.2", "1.5.0"),
    "0.5.13": ("5.8.1", "0.22.2", "1.5.0"),
    "0.5.13.post1": ("5.8.1", "0.22.2", "1.5.0"),
    "0.5.14": ("5.8.1", "0.22.2", "1.5.0"),
    "0.5.15": ("5.12.1", "0.22.2", "1.5.0"),
    "0.5.15.post1": ("5.12.1", "0.22.2", "1.5.0"),
    "0.5.16": ("5.12.1", "0.22.2", "1.5.0"),
    "0.5.17": ("5.12.1", "0.22.2", "1.5.0"),
    "0.5.18": ("5.12.1", "0.22.2", "1.5.0"),
    "0.5.19": ("5.12.1", "0.22.2", "1.5.0"),
    "0.5.20": ("5.12.1", "0.22.2", "1.5.0"),
    "0.5.21": ("5.12.1", "0.22.2", "1.5.0"),
    "0.5.22": ("5.19.0", "0.23.2", "2.4.0"),
    "0.5.23": ("5.19.0", "0.23.2", "2.4.0"),
}


class EngineError(Exception):
    """A release that is not installed, or whose driver failed: no answer of the engine."""


class Engine:
    """One release, started once; a question is a line, and so is its answer."""

    def __init__(self, version: str, venv: Path) -> None:
        self.version = version
        self.served: frozenset[str] = frozenset()  # architectures
        places = (venv / "releases" / version, venv / "transformers" / RELEASES[version][0])
        for needed in (venv / "bin" / "python", *places):
            if not needed.exists():
                raise EngineError(
                    f"oracle: sglang {version} is not installed: {needed} is not there.\n"
                    f"Remove {venv / '.installed'} if there is one, and run: make oracle"
                )
        self._process = subprocess.Popen(
            [venv / "bin" / "python", HERE / "engine"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(map(str, places)),
                "OMP_NUM_THREADS": "1",
                "TOKENIZERS_PARALLELISM": "false",
                "HF_HUB_OFFLINE": "1",
            },
        )

    def __enter__(self) -> Engine:
        told = self._read()
        if told.get("version") != self.version:
            raise EngineError(f"oracle: asked for sglang {self.version}, and {told} answered.\nRun: make oracle")
        self.served = frozenset(told["served"])
        return self

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """EngineError when the driver itself failed: that is no answer of the engine."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # a process that is gone: reading says so
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        answer = self._read()
        if "fault" in answer:
            raise EngineError(f"oracle: the driver of sglang {self.version} failed on {question}:\n{answer['fault']}")
        return answer

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EngineError(
                f"oracle: sglang {self.version} ended with exit code {self._process.wait()} instead of an answer.\n"
                "Run its driver by hand to see why (oracle/README.md)."
            )
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise EngineError(
                f"oracle: sglang {self.version} said {line.rstrip()!r:.90} instead of an answer.\n"
                "Run its driver by hand to see why (oracle/README.md)."
            )
        return answer

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # gone, with a question unread
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
