"""The client's own cost: ticks that were late, CPU of the loop's thread."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from specbench.load.client_load import ClientLoad, LoadMeter, late, settle


@pytest.mark.parametrize(
    ("due", "now", "expected"),
    [
        (1.0, 1.0, [0.0]),
        (1.0, 1.004, [0.004]),
        (1.0, 1.0355, [0.0355, 0.0255, 0.0155, 0.0055]),  # the ticks at 1.01, 1.02 and 1.03 waited too
        (1.0, 0.9995, [0.0]),  # a loop may call a timer within its clock's resolution early
    ],
)
def test_every_tick_that_a_stop_of_the_loop_delays_counts(due, now, expected):
    assert late(due, now, 0.01) == pytest.approx(expected)


def test_a_suspended_machine_does_not_fill_the_memory():
    assert len(late(0.0, 86_400.0, 0.01)) == 10_001


def measured(block_s: float, chunks: int = 3) -> ClientLoad:
    async def work() -> ClientLoad:
        meter = LoadMeter(tick_s=0.01)
        meter.start()
        ended = time.thread_time() + block_s
        while time.thread_time() < ended:  # busy, and without giving the loop a turn
            pass
        await asyncio.sleep(0.05)
        return meter.stop(chunks)

    return asyncio.run(work())


def test_a_loop_that_stands_still_is_seen():
    load = measured(0.2)
    assert load.lag_max_s is not None
    assert load.lag_p50_s is not None
    assert load.lag_p99_s is not None
    assert load.lag_max_s >= 0.18
    # 19 of the ticks fell into the stop, evenly late between 0 and 0.19 s; some five came after it.
    assert 0.0 <= load.lag_p50_s <= load.lag_p99_s <= load.lag_max_s
    assert load.lag_p50_s >= 0.02
    assert load.ticks >= 19


def test_cpu_time_is_that_of_the_loop():
    load = measured(0.1, chunks=4)
    assert load.cpu_s >= 0.1
    assert load.process_cpu_s >= load.cpu_s * 0.99
    assert load.wall_s >= 0.1
    assert load.chunks == 4


def test_without_a_tick_nothing_is_made_up():
    async def work() -> ClientLoad:
        meter = LoadMeter(tick_s=60.0)
        meter.start()
        return meter.stop(0)

    load = asyncio.run(work())
    assert load.chunks == 0
    assert (load.ticks, load.lag_p50_s, load.lag_p99_s, load.lag_max_s) == (0, None, None, None)


def test_a_meter_stops_with_stop():
    async def work() -> int:
        meter = LoadMeter(tick_s=0.001)
        meter.start()
        await asyncio.sleep(0.01)
        before = meter.stop(0).ticks
        await asyncio.sleep(0.01)
        return meter.stop(0).ticks - before

    assert asyncio.run(work()) == 0


def test_what_exists_is_left_out_of_collections_until_it_is_released():
    class Thing:
        pass

    thing = Thing()
    assert any(thing is one for one in gc.get_objects())
    try:
        settle()
        assert not any(thing is one for one in gc.get_objects())
        assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()
    assert gc.get_freeze_count() == 0
    assert any(thing is one for one in gc.get_objects())
