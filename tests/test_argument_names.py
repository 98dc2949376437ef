"""Which release printed the arguments: by their names alone."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from specbench.engines.sglang import logs
from specbench.engines.sglang.logs.argument_names import _names, release_of
from specbench.records.record import RunRecord

RECORDS = Path(__file__).parent / "records"
#: Starts that ended before they printed their arguments.
SILENT = {"nemo_nano_r32", "var_nobuffer_r4_badargs"}


def test_no_two_releases_have_the_same_names() -> None:
    """Counted in the sources: 291 names in 0.5.6.post2, 381 in 0.5.12, 445 in 0.5.16, 546 in 0.5.23."""
    names = _names()
    assert len(names) == 20
    assert {version: len(names[version]) for version in ("0.5.6.post2", "0.5.12", "0.5.16", "0.5.23")} == {
        "0.5.6.post2": 291,
        "0.5.12": 381,
        "0.5.16": 445,
        "0.5.23": 546,
    }
    versions = list(names)
    assert [len(names[a] ^ names[b]) for a, b in itertools.pairwise(versions)] == [
        *(4, 2),  # within 0.5.6
        *(25, 17, 5, 45, 35, 15, 27, 28, 18, 29, 15, 18, 16, 19, 24, 19, 12),
    ]


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*/server.log")), ids=lambda path: path.parent.name)
def test_every_recording_tells_its_release(path: Path) -> None:
    log, true = logs.read(path), RunRecord.open(path.parent).config.engine.version
    assert log.version == (None if path.parent.name in SILENT else true)


def test_a_shortened_line_tells_a_range() -> None:
    """`speculative_dspark_block_size` came with 0.5.16; tp_size is as old as the table."""
    found = release_of(["model_path", "speculative_dspark_block_size"], whole=True)
    assert found.exact is None and found.fitting[0] == "0.5.16" and found.fitting[-1] == "0.5.23"
    assert release_of(["model_path", "tp_size"], whole=True).fitting == ()


def test_a_development_build_is_near_a_release() -> None:
    names = {*_names()["0.5.20"], "an_argument_of_a_fork"} - {"model_path"}
    found = release_of(names, whole=True)
    assert (found.exact, found.nearest, found.different) == (None, "0.5.20", 2)
    assert release_of({f"other_{name}" for name in names}, whole=True).nearest is None


def test_a_cut_line_is_not_taken_for_whole() -> None:
    names = sorted(_names()["0.5.16"])[:400]
    assert release_of(names, whole=False).exact is None


def test_a_text_that_names_another_version_is_contradicted() -> None:
    text = (RECORDS / "0512_nospec_r8" / "server.log").read_bytes()
    log = logs.read([b"image: lmsysorg/sglang:v0.5.11\n", *text.splitlines(keepends=True)])
    assert log.version == "0.5.12"
    assert log.version_from == (
        (
            "engine version 0.5.12, by the names of its arguments: of others 0.5.12.post1 alone, which sizes alike, "
            "has exactly these"
        ),
        "the text names version 0.5.11 beside them: the arguments' names count",
    )


def test_a_post_release_is_what_the_text_says() -> None:
    """0.5.12.post1 has the names of 0.5.12 (its server_args.py is the same): the names do not contradict the text."""
    text = (RECORDS / "0512_nospec_r8" / "server.log").read_bytes()
    log = logs.read([b"image: lmsysorg/sglang:v0.5.12.post1\n", *text.splitlines(keepends=True)])
    assert (log.version, log.version_range) == ("0.5.12.post1", ("0.5.12", "0.5.12"))
    assert log.version_from == (
        "engine version 0.5.12.post1, as the text says: the names of its arguments are its own",
    )
