"""What specbench's own part takes: by the shipped figures first, then by what was seen."""

from __future__ import annotations

from specbench.campaign.own_time import OwnTime

DURATIONS = {"beside_s": {"seconds": 10.0}, "replay_beside_s": {"seconds": 4.0}, "page_s": {"seconds": 8.0}}


def test_before_anything_was_seen_the_shipped_figures_are_taken() -> None:
    own = OwnTime(DURATIONS)
    assert (own.beside_s(is_replay=False), own.beside_s(is_replay=True), own.page_s) == (10.0, 4.0, 8.0)


def test_pages_are_written_several_at_a_time_and_the_front_page_takes_two() -> None:
    own = OwnTime(DURATIONS)
    assert [own.pages_s(14, jobs) for jobs in (1, 4, 16, 32)] == [128.0, 32.0, 16.0, 16.0]
    assert own.pages_s(0, 4) == 0.0


def test_the_slowest_of_the_last_four_counts() -> None:
    own = OwnTime(DURATIONS)
    for seconds in (30.0, 3.0, 6.0, 5.0, 4.0):
        own.saw_run(seconds, is_replay=True)
    assert own.beside_s(is_replay=True) == 6.0
    assert own.beside_s(is_replay=False) == 10.0
    assert own.page_s == 12.0  # as slow as the runs


def test_pages_that_were_written_tell_what_one_takes_and_an_engines_end_does_not() -> None:
    own = OwnTime(DURATIONS)
    own.saw_run(30.0, is_replay=False)
    assert (own.beside_s(is_replay=False), own.page_s) == (30.0, 8.0)
    own.saw_page(4.0)
    assert own.page_s == 5.0
