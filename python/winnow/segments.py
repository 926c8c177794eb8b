# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The parameters of a bucket."""
import ctypes
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from winnow import _library
from winnow._library import UsageError
from winnow.arguments import flag, integer, number, text
from winnow.arrays import View, expect_apart, view


class Segment(NamedTuple):
    """One parameter's gradient in a bucket: an array of any shape (see winnow.arrays.view), which
    receives the result, and the parameter's id, which keys its residual."""

    array: Any
    id: int
    name: Optional[str] = None  # of the model's parameter, for the options `exempt` and `exempt_1d`
    # Of the parameter; 1 (norms, biases): dense by default; 0: unknown. None: those of the array, if
    # there is a name; otherwise unknown, since a bare flat array may be a whole bucket.
    dimensions: Optional[int] = None
    input: Any = None  # the gradient, if `array` only receives the result
    rate: float = 1.0  # multiplies the gradient, such as a learning rate
    exempt: bool = False  # travels dense, whatever the options say


def _named(segment: Segment) -> str:
    return f"parameter {segment.id}" + (f" ('{segment.name}')" if segment.name else "")


def _fill(native: _library.Segment, segment: Segment, on_gpu: bool) -> List[View]:
    """Sets a native segment; the views that it points into, the written one first."""
    result, name, dimensions = view(segment.array, on_gpu), segment.name, segment.dimensions
    result.expect_writable()
    if name is not None:
        name = text(name, "its name")
    if dimensions is None:
        dimensions = 0 if name is None else len(result.shape)
    else:
        dimensions = integer(dimensions, "the number of its dimensions", 0, 2**31 - 1)
    native.__init__(type=result.type, id=integer(segment.id, "its id"), count=result.count,
                    data=result.address, dimensions=dimensions,
                    rate=number(segment.rate, "its rate"), name=name,
                    exempt=flag(segment.exempt, "exempt"))
    if segment.input is None:
        return [result]
    gradient = view(segment.input, on_gpu)
    if (gradient.count, gradient.type) != (result.count, result.type):
        raise UsageError("its input and its array differ in type or size")
    if not gradient.has_shape_of(result):
        raise UsageError(f"its input has the shape {gradient.shape} and its array {result.shape}: must "
                         "be equal, or one of them flat")
    if gradient.address != result.address:  # otherwise it is in place
        native.input = gradient.address
    return [result, gradient]


def native_segments(segments: Sequence[Segment],
                    on_gpu: bool = False) -> Tuple["ctypes.Array", List[Any]]:
    """Segments as the library takes them, and what the caller keeps while the call runs. UsageError
    for anything but a list of Segments, and for arrays that share memory."""
    if isinstance(segments, Segment):
        raise UsageError("a Segment where a list of Segments is meant")
    try:
        given = list(segments)
    except TypeError:
        given = [None]
    for segment in given:
        if not isinstance(segment, Segment):
            raise UsageError("a bucket is a list of winnow.Segment(array, id), not a "
                             f"{type(segments).__name__}")
    natives = (_library.Segment * len(given))()
    views = []
    for native, segment in zip(natives, given):
        try:
            views.append(_fill(native, segment, on_gpu))
        except UsageError as error:
            raise UsageError(f"{_named(segment)}: {error}") from None
    if len(views) > 1 or views and len(views[0]) > 1:
        read = [found[1] for native, found in zip(natives, views) if native.input]
        expect_apart([found[0] for found in views], "arrays of one bucket", read)
    return natives, [given, views]
