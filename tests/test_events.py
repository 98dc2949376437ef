"""Events looked up by their count give what whole reading gives, also where the text tries to look like an event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specbench.load import events as module
from specbench.load.events import Events, NoAnswerError

LENGTH = {"type": "length", "length": 4}


def event(tokens: int, finish: Any = None, text: str = "", **meta: Any) -> bytes:
    """As SGLang writes it: compact, text and ids of everything so far."""
    told = {"id": "a", "finish_reason": finish, "prompt_tokens": 3, "completion_tokens": tokens, **meta}
    data = {"text": text, "output_ids": list(range(tokens)), "meta_info": told}
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


def fed(*pieces: bytes) -> Events:
    events = Events()
    for place, piece in enumerate(pieces):
        events.feed(piece, float(place))
    events.finish()
    return events


@pytest.fixture
def whole_reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The events that were read whole."""
    seen: list[bytes] = []
    read = module._json

    def noted(text: bytes) -> Any:
        seen.append(text)
        return read(text)

    monkeypatch.setattr(module, "_json", noted)
    return seen


def test_only_the_last_event_is_read_whole(whole_reads: list[bytes]) -> None:
    events = fed(event(1), event(4), event(4), event(6), event(7, LENGTH, cached_tokens=2), b"data: [DONE]\n\n")
    assert events.chunks == [(0.0, 1), (1.0, 3), (3.0, 2), (4.0, 1)]
    assert (events.tokens, events.finish_reason, events.meta_info["cached_tokens"]) == (7, "length", 2)
    assert len(whole_reads) == 1


def test_a_stream_that_breaks_keeps_what_its_newest_event_said(whole_reads: list[bytes]) -> None:
    events = fed(event(1), event(3, cached_tokens=8), b'data: {"text":"half of an eve')
    assert events.chunks == [(0.0, 1), (1.0, 2)]
    assert (events.finish_reason, events.meta_info["cached_tokens"]) == (None, 8)
    assert len(whole_reads) == 1


def test_the_newest_good_event_counts_when_the_next_is_broken() -> None:
    events = Events()
    events.feed(event(2, cached_tokens=8), 0.0)
    with pytest.raises(NoAnswerError, match="no JSON"):
        events.feed(b"data: {broken\n\n", 1.0)
    events.finish()
    assert (events.tokens, events.meta_info["cached_tokens"]) == (2, 8)


@pytest.mark.parametrize(
    "text",
    [
        'the model writes "meta_info":{"completion_tokens":9999,"finish_reason":null} itself',
        '{"error":{"message":"not one"}}',
        '\\","meta_info":{"completion_tokens":9999},"x":"',
        "data: [DONE]",
        "Zeilen\n\nund ein \u2028 Trenner",
    ],
)
def test_generated_text_is_never_taken_for_the_event(text: str) -> None:
    events = fed(event(1, text=text), event(2, text=text), event(3, LENGTH, text=text))
    assert [tokens for _, tokens in events.chunks] == [1, 1, 1]
    assert events.finish_reason == "length"


@pytest.mark.parametrize(
    "middle",
    [
        b'data: {"meta_info": {"finish_reason": null, "completion_tokens": 2}}\n\n',  # with blanks
        b'data: {"meta_info":{"completion_tokens":2,"x":1}}\n\n',  # without a finish reason
        b'data: {"meta_info":{"finish_reason":null,"completion_tokens":2.0e0}}\n\n',
        b'data: {"meta_info":{"finish_reason":null,"completion_tokens":"2"}}\n\n',
        b'data: {"meta_info":{"finish_reason":null}}\n\n',
        b'data: {"meta_info":{"finish_reason":null,"completion_tokens":99999999999999999999}}\n\n',
        b'data: {"meta_info":{"finish_reason":null,"completion_tokens":2,"specbench_replay":{"t_s":1e-05}}}\n\n',
        b'data: {"error":{"message":"gone","meta_info":{"finish_reason":null,"completion_tokens":2}}}\n\n',
    ],
)
def test_an_unusual_event_is_read_whole(middle: bytes, whole_reads: list[bytes]) -> None:
    events = Events()
    events.feed(event(1), 0.0)
    assert whole_reads == []
    try:
        events.feed(middle, 1.0)
    except NoAnswerError:
        assert events.tokens == 1
    assert whole_reads == [middle[len(b"data: ") : -2]]


def test_a_last_event_that_counts_otherwise_than_it_seemed_is_no_answer() -> None:
    nested = b'data: {"meta_info":{"usage":{"completion_tokens":2},"finish_reason":null,"completion_tokens":5}}\n\n'
    with pytest.raises(NoAnswerError, match="counts 5 tokens where it seemed 2"):
        fed(nested)


def test_marks_of_a_replay_belong_to_the_chunks() -> None:
    def marked(tokens: int, at_s: float, finish: Any = None) -> bytes:
        return event(tokens, finish, specbench_replay={"exact": True, "from": "conc1[0]", "t_s": at_s})

    events = fed(marked(1, 0.5), marked(3, 0.7), marked(3, 0.75), marked(4, 12, LENGTH))
    assert events.marks == [0.5, 0.7, 12.0]
    assert [tokens for _, tokens in events.chunks] == [1, 2, 1]


@pytest.mark.parametrize("size", [1, 7, 50, 1000])
def test_pieces_of_any_size_give_the_same_chunks(size: int) -> None:
    stream = event(1) + event(3) + event(8, LENGTH) + b"data: [DONE]\n\n"
    events = fed(*(stream[place : place + size] for place in range(0, len(stream), size)))
    assert [tokens for _, tokens in events.chunks] == [1, 2, 5]
    assert events.meta_info["completion_tokens"] == 8


@pytest.mark.parametrize("size", [1, 2, 3, 50, 1000])
def test_lines_that_end_with_a_carriage_return(size: int) -> None:
    text = "kept: \r\n\r\n"
    stream = b"".join(event(*of, text=text) for of in ((1,), (3,), (8, LENGTH))).replace(b"\n\n", b"\r\n\r\n")
    events = fed(*(stream[place : place + size] for place in range(0, len(stream), size)))
    assert [tokens for _, tokens in events.chunks] == [1, 2, 5]


def test_counts_beyond_what_was_asked_for() -> None:
    events = Events(most_tokens=4)
    events.feed(event(4), 0.0)
    with pytest.raises(NoAnswerError, match="counts 5 tokens where 4 were asked for"):
        events.feed(event(5), 1.0)
    events.finish()
    assert (events.tokens, events.chunks) == (4, [(0.0, 4)])


def test_a_count_that_falls() -> None:
    events = Events()
    events.feed(event(5), 0.0)
    with pytest.raises(NoAnswerError, match="fell from 5 to 3"):
        events.feed(event(3), 1.0)
