"""Tests with a real engine on a GPU: `pytest -m gpu tests/gpu -n 0`. What they need is named by the environment.

SPECBENCH_GPU_PARAMS    a params file; of a campaign the first run, or the one that SPECBENCH_GPU_RUN names
SPECBENCH_GPU_MACHINE   a machine file with the engine and the models (see `specbench run --machine`), if it takes one

Without the first, or without a GPU, they are skipped. An engine that needs no GPU (`engine.args: {device: cpu}`), the
stand-in of these tests too, runs the same scenarios; the GPU's memory is then not checked. With the stand-in card:

    PYTHONPATH=$PWD/tests/stand_in/nvml:$PWD STAND_IN_LEDGER=$(mktemp -d) SPECBENCH_GPU_PARAMS=… \\
        pytest -m gpu tests/gpu -n 0
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from specbench.configuration.config import RunConfig
from specbench.host import nvml
from specbench.machine_file import placed
from specbench.params import dump_run, load_campaign
from specbench.units import GIB, MIB
from tests.workbench import Workbench, until

#: Above this the engine has begun to load: a context alone takes less.
_LOADING_BYTES = GIB
#: How near the memory must come to what it was.
TOLERANCE_BYTES = 256 * MIB


@dataclass(slots=True)
class Timing:
    """What the first scenario measured, for the others."""

    loading_s: float | None = None  # from the start of the command to the first GiB on the card


@pytest.fixture(scope="session")
def timing() -> Timing:
    return Timing()


@pytest.fixture(scope="session")
def config() -> RunConfig:
    """The configuration that is started, with a workload that is short."""
    file = os.environ.get("SPECBENCH_GPU_PARAMS")
    if not file:
        pytest.skip("SPECBENCH_GPU_PARAMS names no params file of a real engine")
    campaign = placed(load_campaign(file), os.environ.get("SPECBENCH_GPU_MACHINE"))
    wanted = os.environ.get("SPECBENCH_GPU_RUN")
    run = next(run for run in campaign.runs if wanted in (None, run.name))
    if on_gpu(run) and isinstance(nvml.reader(), str):
        pytest.skip(f"no GPU: {nvml.reader()}")
    load = {"input_tokens": [64], "output_tokens": 8, "concurrency": [1], "requests": 1, "warmup": 1}
    return run.replace({"workload": load})


def on_gpu(config: RunConfig) -> bool:
    return config.engine.args.get("device") in (None, "cuda")


class GpuBench(Workbench):
    """A workbench with this machine's own cards."""

    def __init__(self, folder: Path, config: RunConfig, timing: Timing) -> None:
        super().__init__(folder, with_card=False)
        if "STAND_IN_LEDGER" in os.environ:  # the stand-in card reads the same ledger in every process
            self.environ["STAND_IN_LEDGER"] = os.environ["STAND_IN_LEDGER"]
            self.ledger = Path(os.environ["STAND_IN_LEDGER"])
            for entry in self.ledger.iterdir():
                entry.unlink()
        self.config, self.timing = config, timing
        self._read = nvml.reader() if on_gpu(config) else "this engine uses no GPU"
        self.before = self.used_bytes()

    def used_bytes(self) -> dict[int, int] | None:
        """GPU -> bytes in use; None: not checked."""
        return None if isinstance(self._read, str) else {reading.gpu: reading.used_bytes for reading in self._read()}

    def file(self, *, endless: bool = False) -> Path:
        """The configuration as a params file; `endless`: with a workload that does not end by itself."""
        run = self.config.replace({"workload.requests": 100_000}) if endless else self.config
        path = self.folder / "params.yaml"
        path.write_text(dump_run(run), encoding="utf-8")
        return path

    def is_loading(self) -> bool:
        """The server holds memory on a card; of one that uses none: its processes are there."""
        used = self.used_bytes()
        if used is None or self.before is None:
            return len(self.supervised()) >= 3
        return any(used[gpu] - size > _LOADING_BYTES for gpu, size in self.before.items())

    def wait_for_loading(self) -> set[int]:
        """Until it loads; the processes of the server then."""
        self.wait(self.is_loading, "the engine loads", 400)
        return self.supervised()

    def is_free(self) -> bool:
        """The memory is back, or was not to be checked."""
        used = self.used_bytes()
        if used is None or self.before is None:
            return True
        return all(used[gpu] - size <= TOLERANCE_BYTES for gpu, size in self.before.items())


@pytest.fixture
def bench(tmp_path: Path, config: RunConfig, timing: Timing) -> Iterator[GpuBench]:
    found = GpuBench(tmp_path, config, timing)
    yield found
    found.close()
    until(found.is_free, 30)  # the next scenario measures its own beginning
