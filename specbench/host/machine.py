"""What this machine can do, for `specbench doctor` and for the environment part of a record.

Everything is asked of the machine, nothing is assumed: what is missing is None with the reason beside it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import paths
from ..engines.sglang import capabilities
from ..engines.sglang.capabilities import Capabilities
from . import nvml
from .gpu_use import InUse, read

_WORKBOOK_PACKAGES = ("jupyterlab", "papermill", "pandas", "matplotlib", "seaborn", "nvidia-ml-py", "nbval")

#: Run by the engine's own interpreter: finds the package without importing it (an import takes most of a minute). The
#: version is what the package would say of itself: of the file that its build writes, else of the metadata beside it
#: (copies of two releases in one folder leave two: then unknown), else of any metadata (an editable install).
_PROBE = r"""
import importlib.metadata, importlib.util, json, os, re, sys
def versions(name, **where):
    return list(dict.fromkeys(dist.version for dist in importlib.metadata.distributions(name=name, **where)))
def written(folder, name):
    try: text = open(os.path.join(folder, name), encoding="utf-8").read(10000)
    except (OSError, ValueError): return None
    match = re.search(r"^__version__ *=(?: *version *=)? *['\"]([^'\"\n]+)['\"]", text, re.M)
    return match and match[1]
def own(folder):
    beside = versions("sglang", path=[os.path.dirname(folder)])
    told = [written(folder, "_version.py") or written(folder, "version.py")]
    told = told if told[0] else beside or versions("sglang")[:1]
    return told[0] if len(told) == 1 else None
def plugins():
    groups = ("sglang.srt.plugins", "sglang.srt.platforms")
    return sorted({point.name for group in groups for point in importlib.metadata.entry_points(group=group)})
def torch_cuda():
    spec = importlib.util.find_spec("torch")
    for folder in spec.submodule_search_locations or [] if spec else []:
        try: text = open(os.path.join(folder, "version.py"), encoding="utf-8").read(10000)
        except (OSError, ValueError): continue
        match = re.search(r"^cuda[^=\n]*= *['\"]([^'\"\n]+)['\"]", text, re.M)
        return match and match[1]
spec = importlib.util.find_spec("sglang")
folders = list(spec.submodule_search_locations or []) if spec else []
folder = next((f for f in folders if os.path.isfile(os.path.join(f, "launch_server.py"))), None)
print("\nspecbench probe: " + json.dumps({
    "python": sys.version.split()[0],
    "folder": folder,
    "sglang": folder and own(folder),
    "torch": next(iter(versions("torch")), None),
    "plugins": plugins(),
    "packages": {name: next(iter(versions(name)), None) for name in sys.argv[1:]},
    "torch_cuda": torch_cuda(),
}))
"""
#: Begins the line of the probe's answer.
_MARKER = "specbench probe: "
_TOLD = frozenset({"folder", "sglang", "torch", "plugins", "packages", "torch_cuda"})
#: Distributions of the engine's interpreter that decide how fast it is, and some on which its answers depend.
_ENGINE_PACKAGES = (
    *("sglang", "torch", "triton", "transformers", "tokenizers", "numpy"),
    *("sgl-kernel", "sglang-kernel", "flashinfer-python", "flashinfer-cubin", "flash-attn", "flash-attn-3", "torchao"),
    *("nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-cudnn-cu12"),
    *("nvidia-cudnn-cu13", "nvidia-cublas-cu12", "nvidia-cublas", "xgrammar", "deep-gemm", "causal-conv1d", "uvloop"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A card, as NVML sees it just now."""

    index: int
    name: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """The cards of this machine, or why there is none."""

    gpus: tuple[Gpu, ...]
    driver: str | None
    reason: str | None  # why there is none
    is_unknown: bool = False  # nothing here can ask; there may be GPUs
    cuda: str | None = None  # the latest CUDA that the driver serves


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """What an interpreter has of the engine, or why it has none."""

    python: str  # the interpreter that was asked
    version: str | None
    torch: str | None
    reason: str | None  # why there is none
    is_missing: bool = False  # the interpreter answered, and has no sglang
    folder: str | None = None  # of the package that would be imported
    plugins: tuple[str, ...] = ()  # installed for it: they may add algorithms, flags and choices
    has: Capabilities | None = None  # None: there is no engine
    packages: Mapping[str, str | None] = field(default_factory=dict)  # what its speed depends on; None: not installed
    torch_cuda: str | None = None  # the CUDA that torch was built for; None: not told, or no torch


def gpus() -> GpuState:
    """The GPUs that NVML sees. Without NVML, or where it cannot read them: none, and why."""
    probe, told = nvml.memory_reader(), nvml.names()
    if isinstance(probe, str):
        return GpuState(gpus=(), driver=None, reason=probe, is_unknown=probe == nvml.NOT_INSTALLED)
    if isinstance(told, str):
        return GpuState(gpus=(), driver=None, reason=told)
    seen = read(probe)
    if isinstance(seen, str):
        return GpuState(gpus=(), driver=told.driver, reason=seen, cuda=told.cuda)
    found = tuple(
        Gpu(index=now.gpu, name=name, total_bytes=now.total_bytes, free_bytes=now.free_bytes)
        for name, now in zip(told.names, seen, strict=True)
    )
    return GpuState(gpus=found, driver=told.driver, reason=None, cuda=told.cuda)


def gpu_use() -> tuple[InUse, ...] | str:
    """Who holds the memory of every GPU just now; the reason in words where it cannot be read."""
    return read(nvml.use_reader())


def engine(python: str | None = None, *, env: Mapping[str, str] | None = None, timeout_s: float = 60.0) -> EngineState:
    """SGLang as `python` sees it: version, and what its source declares (see `capabilities`). Nothing is imported.

    `env`: variables on top of this environment, as the server will have them (a PYTHONPATH decides what is found).
    """
    interpreter = paths.interpreter(python)
    try:
        done = subprocess.run(
            [interpreter, "-c", _PROBE, *_ENGINE_PACKAGES],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=True,
            env={**os.environ, **(env or {})},
        )
        told = _told(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError, RecursionError) as error:
        return EngineState(python=interpreter, version=None, torch=None, reason=_why(error))
    if told["folder"] is None:
        return EngineState(
            python=interpreter,
            version=None,
            torch=told["torch"],
            reason="sglang is not installed there",
            is_missing=True,
        )
    return EngineState(
        python=interpreter,
        version=told["sglang"],
        torch=told["torch"],
        reason=None,
        folder=told["folder"],
        plugins=tuple(told["plugins"]),
        has=capabilities.read(Path(told["folder"])),
        packages=told["packages"],
        torch_cuda=told["torch_cuda"],
    )


def engine_help(
    python: str | None = None, *, env: Mapping[str, str] | None = None, timeout_s: float = 300.0
) -> Capabilities | str:
    """What the engine's own --help tells, or why it told nothing. It imports the engine: up to a minute."""
    argv = [paths.interpreter(python), "-m", "sglang.launch_server", "--help"]
    wide = {**os.environ, **(env or {}), "COLUMNS": "10000"}  # argparse breaks lines where the terminal ends
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=True, env=wide)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return _why(error)
    return capabilities.of_help(done.stdout)


def _told(output: str) -> dict[str, Any]:
    """What the probe says, in the line that it marks: a sitecustomize may print whatever it likes around it.

    ValueError: there is no such line, or it is not the probe's.
    """
    line = next((line for line in reversed(output.splitlines()) if line.startswith(_MARKER)), None)
    if line is None:
        raise ValueError("it runs, but does not answer as a Python interpreter")
    told = json.loads(line.removeprefix(_MARKER))
    if not isinstance(told, dict) or not told.keys() >= _TOLD:
        raise ValueError("its answer is not that of a Python interpreter")
    return told


def _why(error: Exception) -> str:
    """In one line: what the interpreter said last, when it said anything."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer within {error.timeout:g} s"
    said = (error.stderr or "").strip().splitlines() if isinstance(error, subprocess.CalledProcessError) else []
    return said[-1] if said else f"{type(error).__name__}: {error}".splitlines()[0]


def packages() -> dict[str, str | None]:
    """Versions of what the workbook needs; None: not installed."""
    found: dict[str, str | None] = {}
    for name in _WORKBOOK_PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def python_version() -> str:
    return f"{platform.python_version()} ({platform.system()} {platform.machine()})"
