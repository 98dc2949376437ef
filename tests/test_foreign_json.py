"""What a server may write where JSON is expected, and what of it a record can hold."""

from __future__ import annotations

import pytest

from specbench.records.foreign_json import parse


def test_what_a_record_cannot_hold_is_unknown() -> None:
    text = b'{"a": NaN, "b": [Infinity, 1e400, 1.5], "c": 99999999999999999999, "d\\ud800": "x\\udfff", "e": true}'
    assert parse(text) == {"a": None, "b": [None, None, 1.5], "c": None, "d?": "x?", "e": True}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"<html>", "no JSON"),
        (b"\xff", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("9" * 5000, "no JSON"),
        ("[" * 40 + "]" * 40, "nested more than 32 deep"),
    ],
)
def test_what_is_none(text: str | bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse(text)
