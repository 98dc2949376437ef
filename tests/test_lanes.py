"""Many figures calculate as Python calculates with one: values, cases, errors."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbench.lanes import least, most, run, whole

WHOLE = st.integers(-(2**40), 2**40)
OTHER = st.floats(-1e12, 1e12, allow_nan=False).map(lambda value: round(value, 6))


def answers(code: Callable[..., Any], **columns: list[Any]) -> list[Any]:
    """What the code gives for every row, through `run`, in the order of the rows."""
    arrays = {name: np.array(values) for name, values in columns.items()}
    rows = len(next(iter(columns.values())))
    found: list[Any] = [None] * rows

    def called(given: Mapping[str, Any]) -> dict[str, Any]:
        return {"answer": code(**given)}

    for some, answer in run(arrays, np.arange(rows), called):
        value = answer["answer"]
        listed = value.tolist() if isinstance(value, np.ndarray) else [value] * len(some)
        for row, one in zip(some.tolist(), listed, strict=True):
            found[row] = one
    return found


@settings(max_examples=80, deadline=None)
@given(
    pairs=st.lists(st.tuples(WHOLE, WHOLE.filter(bool)), min_size=1, max_size=6)
    | st.lists(st.tuples(OTHER, OTHER.filter(bool)), min_size=1, max_size=6)
)
@pytest.mark.parametrize("name", ["add", "sub", "truediv", "floordiv", "mod"])
def test_each_operation_is_python_s(name: str, pairs: list[tuple[Any, Any]]) -> None:
    operation = getattr(operator, name)
    left, right = map(list, zip(*pairs, strict=True))
    expected = [operation(a, b) for a, b in pairs]
    found = answers(lambda a, b: operation(a, b), a=left, b=right)
    assert found == expected
    assert [type(value) for value in found] == [type(value) for value in expected]
    # one side a plain number
    assert answers(lambda a: operation(a, right[0]), a=left) == [operation(a, right[0]) for a in left]
    assert answers(lambda b: operation(left[0], b), b=right) == [operation(left[0], b) for b in right]


def test_rounding_is_python_s() -> None:
    """Halves to even, decimals as Python rounds them (numpy multiplies by 10^n first), `whole` towards zero."""
    figures = [0.5, 1.5, 2.5, -0.5, -2.7, 2.675, 0.0005, 1.0005, 0.1235]
    assert answers(lambda x: round(x), x=figures) == [0, 2, 2, 0, -3, 3, 0, 1, 0]
    assert answers(lambda x: round(x, 3), x=figures) == [round(x, 3) for x in figures]
    assert answers(lambda x: whole(x), x=figures) == [0, 1, 2, 0, -2, 2, 0, 1, 0]
    assert whole(-2.7) == -2


def test_rows_that_disagree_run_once_more_by_themselves() -> None:
    calls = []

    def case(x: Any) -> str:
        calls.append(len(x.values))
        if x < 0:
            return "negative"
        return "zero" if not x else "large" if x >= 100 else "small"

    assert answers(case, x=[3, -1, 0, 500, 7, 9, -2]) == [
        "small",
        "negative",
        "zero",
        "large",
        "small",
        "small",
        "negative",
    ]
    assert calls == [7, 4, 2, 1]  # each time without the rows that were answered


def test_a_condition_of_two_sides_and_a_chain() -> None:
    def within(x: Any, low: Any) -> bool:
        return bool(low <= x < 10 and (x % 2 == 0 or x in (5, 7)))

    assert answers(within, x=[4, 5, 6, 11, 3, 7], low=[5, 5, 5, 5, 0, 0]) == [False, True, True, False, False, True]


def test_the_smaller_and_the_larger_are_chosen_row_by_row() -> None:
    calls = []

    def both(a: Any, b: Any) -> Any:
        calls.append(1)
        return most(least(a, b), 3)

    assert answers(both, a=[1, 9, 5], b=[4, 8, 6]) == [3, 8, 5]
    assert len(calls) == 1
    assert (least(2, 1), most(2, 1)) == (1, 2)


def test_the_built_in_functions_are_right_too() -> None:
    assert answers(lambda a, b: max(min(a, b), 3), a=[1, 9, 5], b=[4, 8, 6]) == [3, 8, 5]
    assert answers(lambda a: int(a) + len(range(a)), a=[2, 5, 2]) == [4, 10, 4]
    assert answers(lambda a: sum([a, a]) if a else None, a=[2, 0]) == [4, None]


def test_what_python_refuses_is_refused_for_the_rows_that_meet_it() -> None:
    with pytest.raises(ZeroDivisionError):
        answers(lambda a, b: a // b, a=[1, 2], b=[1, 0])
    # rows that take another way do not meet it
    assert answers(lambda a, b: a // b if b else None, a=[4, 2, 9], b=[2, 0, 3]) == [2, None, 3]
    with pytest.raises(OverflowError):
        answers(lambda a: a * 2**40, a=[1, 2**40])
    with pytest.raises(OverflowError):
        answers(lambda a: whole(a), a=[1.0, 1e30])
    with pytest.raises(TypeError):
        answers(lambda a: range(a), a=[1.5])
    with pytest.raises(TypeError):
        answers(lambda a: a + "text", a=[1])


def test_figures_are_no_keys_and_no_text() -> None:
    with pytest.raises(TypeError):
        answers(lambda a: {a: 1}, a=[1])
    assert answers(lambda a: f"{a:,} of {a}", a=[1, 2]) == ["… of …", "… of …"]
    assert answers(lambda a: a is None or a == None, a=[1]) == [False]  # noqa: E711
