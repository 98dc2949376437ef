"""A log of several starts: the last one counts, and what it got otherwise than the one before it is said.

The logs are real ones (tests/logs/sglang/provoked, tests/records), put one behind the other as a file that is appended
to. `plain` and `others` were started alike; beside `others` another process held 30 GiB.
"""

from __future__ import annotations

from pathlib import Path

from specbench.diagnose.diagnosis import of_log
from specbench.diagnose.finding import Finding
from specbench.engines.sglang import logs

HERE = Path(__file__).parent
PLAIN = (HERE / "logs/sglang/provoked/0.5.16-plain.log").read_text("utf-8")
OTHERS = (HERE / "logs/sglang/provoked/0.5.16-others.log").read_text("utf-8")
SERVED = (HERE / "records/dflash_r8/server.log").read_text("utf-8")
GRAPHS = "elapsed=1.29 s, mem usage=0.09 GB"  # of the target, in dflash_r8
GROWN = SERVED.replace(GRAPHS, "elapsed=1.29 s, mem usage=1.29 GB")


def findings(*starts: str) -> dict[str, Finding]:
    return {
        finding.id: finding for finding in of_log(line.encode() for line in "".join(starts).splitlines(True)).findings
    }


def test_less_free_memory_than_at_the_start_before() -> None:
    """139.13 - 108.61 = 30.52 GiB; 1 - 309,479 / 521,478 = 40.7 % of the tokens."""
    found = findings(PLAIN, OTHERS)["starts-differ"]
    assert found.cause == (
        "With the same arguments 108.61 GiB were free before loading, 30.52 GiB less than at the start before in this "
        "log (139.13 GiB); it has 309,479 KV tokens instead of 521,478: another program, or a server that was not yet "
        "gone, holds memory of the card."
    )
    assert found.severity == "costly" and found.lost is not None and round(found.lost, 3) == 0.407
    lines = PLAIN.count("\n")
    assert [line.text.partition("] ")[2] for line in found.evidence] == [
        "Load weight begin. avail mem=139.13 GB",
        "Load weight begin. avail mem=108.61 GB",
    ]
    first, second = (line.line for line in found.evidence)
    assert first is not None and second is not None and first <= lines < second


def test_more_free_memory_costs_nothing() -> None:
    found = findings(OTHERS, PLAIN)["starts-differ"]
    assert found.severity == "notice" and found.lost is None
    assert "30.52 GiB more than at the start before in this log (108.61 GiB)" in found.cause
    assert "held memory of the card" in found.cause


def test_starts_alike_give_nothing() -> None:
    assert not {"starts-differ", "graphs-grew"} & set(findings(PLAIN, PLAIN))
    assert not {"starts-differ", "graphs-grew"} & set(findings(SERVED, SERVED))


def test_other_arguments_are_no_comparison() -> None:
    assert "max_running_requests=4," in OTHERS
    changed = OTHERS.replace("max_running_requests=4,", "max_running_requests=5,")
    assert "starts-differ" not in findings(PLAIN, changed)


def test_graphs_that_grew() -> None:
    """0.09 + 0.05 GiB at first; the target's then 1.29: 1.34, 1.20 more."""
    assert SERVED.count(GRAPHS) == 1
    found = findings(SERVED, GROWN)["graphs-grew"]
    assert found.cause.startswith(
        "CUDA graphs took 1.34 GiB, 1.20 GiB more than at the start before in this log (0.14 GiB), with the same "
        "arguments"
    )
    assert found.severity == "notice" and len(found.evidence) == 4
    assert "graphs-grew" not in findings(GROWN, SERVED)


def test_the_start_before_is_kept_and_only_that() -> None:
    log = logs.read([line.encode() for line in (PLAIN + OTHERS + PLAIN).splitlines(True)])
    assert log.seen["starts"] == 3
    assert log.previous is not None and log.previous.previous is None
    assert [str(load.before and round(load.before.bytes / 2**30, 2)) for load in log.previous.weights] == ["108.61"]
    assert logs.read([PLAIN.encode()]).previous is None


def test_a_later_start_is_never_the_one_before() -> None:
    """Of a start that served, then two that only loaded, the first counts: nothing was before it."""
    loaded = "".join(PLAIN.splitlines(True)[:20]).replace("is fired up", "")
    assert "Load weight begin" in loaded and "Load weight end" not in loaded
    log = logs.read([line.encode() for line in (PLAIN + loaded + loaded).splitlines(True)])
    assert log.ready_line is not None and log.previous is None
    log = logs.read([line.encode() for line in (OTHERS + PLAIN + loaded).splitlines(True)])
    assert log.previous is not None
    assert [load.before and round(load.before.bytes / 2**30, 2) for load in log.previous.weights] == [108.61]
