"""Faults that were provoked with real servers: the finding of each, its arithmetic, and what would have mended it."""

from __future__ import annotations

from pathlib import Path

import pytest

from specbench.diagnose.diagnosis import of_path

PROVOKED = Path(__file__).parent / "logs" / "sglang" / "provoked"

#: log -> how it ended, its first finding, what the cause says, the flags that are offered.
FAILED: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    # 0.36 × 139.13 = 50.09 against 51.05 GiB
    "0.5.12-nomem": (
        *("refused", "refused-weights", ("allows 0.36 × 139.13 = 50.09 GiB, and loading the weights took 51.05 GiB",)),
        ("--mem-fraction-static 0.4", "--tp-size 2"),
    ),
    "0.5.12-radix": (
        *("refused", "refused-arguments", ("needs the strategy extra_buffer up to 0.5.13",)),
        ("--mamba-scheduler-strategy extra_buffer", "--disable-radix-cache"),
    ),
    "0.5.16-weights": (
        *("refused", "refused-weights", ("After the weights 1.03 GiB are missing (the engine's figure).",)),
        ("--mem-fraction-static 0.42", "--tp-size 2"),
    ),
    # 51.05 + 3.38 = 54.43 against 52.17 GiB: the engine's own "-0.12 GB" is of the scratch of -1 requests
    "0.5.16-state": (
        *(
            "refused",
            "refused-weights",
            ("= 52.17 GiB, and loading the weights took 51.05 GiB and 3.38 GiB of the draft",),
        ),
        ("--mem-fraction-static 0.59 --max-mamba-cache-size 40",),
    ),
    # 2 // 5 = 0, and 8 × 5 = 40
    "0.5.16-slots2": (
        *("refused", "refused-state-pool", ("2 // 5 = 0 requests can run", "8 requests take 8 × 5 = 40")),
        ("--max-mamba-cache-size 40",),
    ),
    # 32.00 - 18.06 = 13.94 MiB
    "0.5.12-no-slack": (
        *(
            "refused",
            "out-of-memory-graphs",
            ("32.00 MiB were asked for, 18.06 MiB of 139.80 GiB were free: 13.94 MiB",),
        ),
        ("--mem-fraction-static 0.97",),
    ),
    "0.5.16-no-slack": (
        *("refused", "out-of-memory-graphs", ("13.94 MiB are missing",)),
        ("--mem-fraction-static 0.97",),
    ),
    # 626 - 168 = 458 MiB
    "0.5.16-serving-oom": (
        "crashed",
        "out-of-memory-serving",
        ("458.00 MiB are missing", "Logged: weights 51.05 GiB, KV 45.24 GiB, state slots 40.86 GiB."),
        ("--mem-fraction-static 0.92",),
    ),
    "0.5.16-port": ("crashed", "port-in-use", ("listens on port 31120", "says that it is ready all the same"), ("",)),
    "0.5.16-killed": ("crashed", "ended-by-signal", ("scheduler_0 was ended by a signal while serving", "SIGKILL"), ()),
    "0.5.16-backend": (
        *("crashed", "bad-environment", ("Can not import FA3 in sgl_kernel",)),
        ("--attention-backend flashinfer", "--attention-backend triton"),
    ),
    "0.5.16-nomodel": ("refused", "refused-model", ("'/srv/sgl/models/none'",), ()),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_provoked_failure(name: str) -> None:
    status, finding_id, words, flags = FAILED[name]
    found = of_path(PROVOKED / f"{name}.log")
    fatal = [finding for finding in found.findings if finding.severity == "fatal"]
    assert (found.status, [finding.id for finding in fatal]) == (status, [finding_id])
    assert [word for word in words if word not in fatal[0].cause] == []
    assert tuple(remedy.flags for remedy in fatal[0].remedies) == flags
    assert fatal[0].evidence and found.unread == ()
