"""Many points at once through code that is written for one.

In: columns of figures, and a function of one point. Out: what the function gives, row by row. `Lanes` stand for the
figures of all rows; they calculate with numpy, in 64 bits, as Python calculates with one figure. The non-obvious thing
is an `if`: where rows disagree, the run goes on with the majority, and the others are run once more by themselves. So
each formula, and each of its cases, exists once. `int`, `min` and `max` are right too, but cost a run for every figure
or every order: what is to be fast spells them `whole`, `least` and `most`.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

#: Below this, sums of a few integers stay within 64 bits.
_LARGEST = 2.0**61


class Trace:
    """One run: which of its rows are on the way that it takes."""

    __slots__ = ("alive", "count")

    def __init__(self, rows: int) -> None:
        self.alive: Array | None = None  # None: all of them
        self.count = rows

    def decide(self, condition: Array) -> bool:
        """The way that most rows take; the others are left behind."""
        taken = condition if self.alive is None else condition & self.alive
        yes = int(taken.sum())
        if yes in (0, self.count):
            return yes > 0
        way = 2 * yes >= self.count
        if way:
            self.alive, self.count = taken, yes
        else:
            self.alive = ~condition if self.alive is None else self.alive & ~condition
            self.count -= yes
        return way

    def only(self, values: Array) -> Any:
        """The value of the first row on the way; rows that have another are left behind."""
        first = values[0 if self.alive is None else int(self.alive.argmax())]
        same = values == first
        self.alive = same if self.alive is None else self.alive & same
        self.count = int(self.alive.sum())
        return first

    def concerns(self, condition: Array) -> bool:
        """Whether it holds for a row that is on the way."""
        return bool((condition if self.alive is None else condition & self.alive).any())


class Truth:
    """A condition, row by row; as soon as somebody asks for yes or no, the run takes one way."""

    __slots__ = ("trace", "values")

    def __init__(self, values: Array, trace: Trace) -> None:
        self.values, self.trace = values, trace

    def __bool__(self) -> bool:
        return self.trace.decide(self.values)


def _operation(
    function: Callable[[Any, Any], Any],
    most: Callable[[float, float], float],
    *,
    swapped: bool = False,
    divides: bool = False,
) -> Any:
    """`most`: of the sizes of both sides, that of the result."""

    def apply(self: Lanes, other: Any) -> Any:
        values: Any
        if isinstance(other, Lanes):
            values, size = other.values, other.most
        elif isinstance(other, (int, float)):
            values, size = other, abs(float(other))
        else:
            return NotImplemented
        left, right = (values, self.values) if swapped else (self.values, values)
        if divides and not isinstance(right, (int, float)) and self.trace.concerns(right == 0):
            raise ZeroDivisionError("division by zero in a row")
        sizes = (size, self.most) if swapped else (self.most, size)
        if divides and not isinstance(right, (int, float)):
            size = sizes[0] if right.dtype.kind == "i" else math.inf  # a divisor of rows is 1 at least, or anything
        else:
            size = most(*sizes)
        return Lanes(function(left, right), self.trace, size)

    return apply


def _sum(first: float, second: float) -> float:
    return first + second


def _quotient(first: float, second: float) -> float:
    return first / second + 1 if second else math.inf


def _product(self: Lanes, other: Any) -> Any:
    """OverflowError where Python's integers go on and those of 64 bits end."""
    values: Any
    if isinstance(other, Lanes):
        values, size = other.values, other.most * self.most
    elif isinstance(other, (int, float)):
        values, size = other, abs(float(other)) * self.most
    else:
        return NotImplemented
    found = self.values * values
    if found.dtype.kind == "i" and not size <= _LARGEST:
        _refuse_overflow(self.values * 1.0 * values, self.trace)
        size = _LARGEST
    return Lanes(found, self.trace, size)


def _refuse_overflow(values: Array, trace: Trace) -> None:
    if trace.concerns(abs(values) > _LARGEST):
        raise OverflowError("a figure of a row does not fit into 64 bits")


def _comparison(function: Callable[[Any, Any], Any]) -> Any:
    def apply(self: Lanes, other: Any) -> Any:
        if not isinstance(other, (Lanes, int, float)):
            return NotImplemented
        return Truth(function(self.values, other.values if isinstance(other, Lanes) else other), self.trace)

    return apply


class Lanes:
    """A figure of every row: int64 where Python has whole numbers, float64 where it has others."""

    __slots__ = ("most", "trace", "values")
    __hash__ = None  # type: ignore[assignment]  # nothing is looked up by many figures

    def __init__(self, values: Array, trace: Trace, most: float) -> None:
        self.values, self.trace, self.most = (
            values,
            trace,
            most,
        )  # `most`: no row on the way is larger, or smaller than -

    __add__, __radd__ = _operation(operator.add, _sum), _operation(operator.add, _sum, swapped=True)
    __sub__, __rsub__ = _operation(operator.sub, _sum), _operation(operator.sub, _sum, swapped=True)
    __mul__ = __rmul__ = _product
    __truediv__ = _operation(operator.truediv, _quotient, divides=True)
    __rtruediv__ = _operation(operator.truediv, _quotient, swapped=True, divides=True)
    __floordiv__ = _operation(operator.floordiv, _quotient, divides=True)
    __rfloordiv__ = _operation(operator.floordiv, _quotient, swapped=True, divides=True)
    __mod__ = _operation(operator.mod, max, divides=True)
    __rmod__ = _operation(operator.mod, max, swapped=True, divides=True)
    __lt__, __le__ = _comparison(operator.lt), _comparison(operator.le)
    __gt__, __ge__ = _comparison(operator.gt), _comparison(operator.ge)
    __eq__, __ne__ = _comparison(operator.eq), _comparison(operator.ne)

    def __neg__(self) -> Lanes:
        return Lanes(-self.values, self.trace, self.most)

    def __bool__(self) -> bool:
        return self.trace.decide(self.values != 0)

    def __index__(self) -> int:
        """For what needs one number (a range, a shift): of the first row, and only rows with the same go on."""
        if self.values.dtype.kind != "i":
            raise TypeError("figures of rows that are not whole numbers, where one is needed")
        return int(self.trace.only(self.values))

    def __int__(self) -> int:
        """Right, but a run for every different figure: `whole` is one for all."""
        return int(self.trace.only(self.values.astype("int64")))

    def __float__(self) -> float:
        return float(self.trace.only(self.values))

    def __round__(self, digits: int | None = None) -> Lanes:
        if digits is None:
            return self._whole(self.values.round())
        import numpy as np

        each, where = np.unique(self.values, return_inverse=True)  # as Python rounds, not as numpy does
        rounded = np.array([round(float(value), digits) for value in each])
        return Lanes(rounded[where], self.trace, self.most + 1)

    def __format__(self, spec: str) -> str:
        return "…"  # in texts that nobody reads

    __repr__ = __str__ = lambda self: "…"

    def whole(self) -> Lanes:
        """Towards zero, as `int`."""
        return self if self.values.dtype.kind == "i" else self._whole(self.values)

    def _whole(self, values: Array) -> Lanes:
        if not self.most <= _LARGEST:
            _refuse_overflow(values, self.trace)
        return Lanes(values.astype("int64"), self.trace, min(self.most + 1, _LARGEST))


@overload
def whole(value: float) -> int: ...
@overload
def whole(value: Lanes) -> Lanes: ...
def whole(value: float | Lanes) -> int | Lanes:
    """`int(value)` of one figure or of many."""
    return value.whole() if isinstance(value, Lanes) else int(value)


@overload
def single(value: float) -> float: ...
@overload
def single(value: Lanes) -> Lanes: ...
def single(value: float | Lanes) -> float | Lanes:
    """The nearest number of 32 bits, of one figure or of many."""
    if isinstance(value, Lanes):
        return Lanes(value.values.astype("float32").astype("float64"), value.trace, 2 * value.most)
    return float(struct.unpack("f", struct.pack("f", value))[0])


def least(first: int, second: int) -> int:
    """`min` of one figure each, or row by row. (`min` itself asks which is smaller, and many rows disagree.)"""
    if isinstance(first, Lanes) or isinstance(second, Lanes):
        return _lanes(_minimum(), first, second)
    return min(first, second)


def most(first: int, second: int) -> int:
    """`max`, likewise."""
    if isinstance(first, Lanes) or isinstance(second, Lanes):
        return _lanes(_maximum(), first, second)
    return max(first, second)


def _lanes(function: Callable[[Any, Any], Any], first: Any, second: Any) -> Any:
    trace = first.trace if isinstance(first, Lanes) else second.trace
    values = (one.values if isinstance(one, Lanes) else one for one in (first, second))
    size = max(one.most if isinstance(one, Lanes) else abs(float(one)) for one in (first, second))
    return Lanes(function(*values), trace, size)


def _minimum() -> Callable[[Any, Any], Any]:
    import numpy as np

    return np.minimum


def _maximum() -> Callable[[Any, Any], Any]:
    import numpy as np

    return np.maximum


def run(
    columns: Mapping[str, Array], rows: Array, code: Callable[[Mapping[str, Any]], Mapping[str, Any]]
) -> Iterator[tuple[Array, dict[str, Any]]]:
    """Call `code` with the columns as `Lanes` until every one of `rows` was on the way that a call took.

    Yields those rows, and of each result the figures of these rows (an array), or what is the same for all of them.
    """
    import numpy as np

    waiting = [rows] if len(rows) else []
    sizes = {name: float(abs(values).max()) if len(values) else 0.0 for name, values in columns.items()}
    while waiting:
        some = waiting.pop()
        trace = Trace(len(some))
        with np.errstate(all="ignore"):  # of rows that are left behind
            found = code({name: Lanes(values[some], trace, sizes[name]) for name, values in columns.items()})
        alive = trace.alive
        if alive is not None and not alive.all():
            waiting.append(some[~alive])
        yield (
            some if alive is None else some[alive],
            {
                name: (value.values if alive is None else value.values[alive]) if isinstance(value, Lanes) else value
                for name, value in found.items()
            },
        )
