# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The elements of arrays that Python programs hold: numpy's, torch's, and of the buffer protocol; on a
GPU torch's, and those with a __cuda_array_interface__."""
import ctypes
import math
from typing import Any, NamedTuple

from winnow._library import ELEMENT_TYPES, UsageError

# What numpy and __cuda_array_interface__ call types, less the byte order.
_CODES = {"f4": "float32", "f8": "float64", "f2": "float16", "i1": "int8", "u1": "uint8",
          "i4": "int32", "u4": "uint32", "i8": "int64", "u8": "uint64"}
# The buffer protocol's letters.
_LETTERS = {"f": "float32", "d": "float64", "e": "float16", "b": "int8", "B": "uint8",
            "i": "int32", "I": "uint32", "q": "int64", "Q": "uint64", "l": "int64", "L": "uint64"}


class View(NamedTuple):
    """Elements of an array, which must live while they are used."""

    address: int
    count: int
    type: int  # of ELEMENT_TYPES
    dimensions: int
    writable: bool


def _type(name: str) -> int:
    if name not in ELEMENT_TYPES:
        raise UsageError(f"elements of type {name}: must be one of {', '.join(ELEMENT_TYPES)}")
    return ELEMENT_TYPES[name]


def _of_tensor(tensor: Any, on_gpu: bool) -> View:
    if tensor.device.type != ("cuda" if on_gpu else "cpu"):
        raise UsageError(f"a tensor on {tensor.device}: must be "
                         f"{'on the GPU' if on_gpu else 'in host memory'}")
    if not tensor.is_contiguous():
        raise UsageError("a tensor that is not contiguous")
    return View(tensor.data_ptr(), tensor.numel(), _type(str(tensor.dtype).removeprefix("torch.")),
                tensor.dim(), True)


def _of_numpy(array: Any) -> View:
    if not array.flags.c_contiguous and not array.flags.f_contiguous:
        raise UsageError("an array that is not contiguous")
    return View(array.ctypes.data, array.size, _type(array.dtype.name), array.ndim,
                array.flags.writeable)


def _of_buffer(array: Any) -> View:
    try:
        buffer = memoryview(array)
    except TypeError as error:
        raise UsageError(f"a {type(array).__name__}, whose elements are not in host memory") from error
    if not buffer.contiguous:
        raise UsageError("a buffer that is not contiguous")
    name = _LETTERS.get(buffer.format.lstrip("@=<"), f"'{buffer.format}' of the buffer protocol")
    count = buffer.nbytes // buffer.itemsize
    if buffer.nbytes == 0:
        return View(0, 0, _type(name), buffer.ndim, True)
    if buffer.readonly:
        # ctypes takes no address of read-only memory; numpy's arrays took the way above.
        raise UsageError("a buffer that is read-only")
    address = ctypes.addressof((ctypes.c_char * buffer.nbytes).from_buffer(buffer))
    return View(address, count, _type(name), buffer.ndim, True)


def _of_gpu(array: Any) -> View:
    described = getattr(array, "__cuda_array_interface__", None)
    if described is None:
        raise UsageError(f"a {type(array).__name__}, which is not on a GPU")
    if described.get("strides") is not None:
        raise UsageError("an array that is not contiguous")
    address, read_only = described["data"]
    code = described["typestr"][1:]
    return View(address or 0, math.prod(described["shape"]), _type(_CODES.get(code, code)),
                len(described["shape"]), not read_only)


def view(array: Any, on_gpu: bool = False) -> View:
    """The elements of a contiguous numpy array, torch tensor in host memory, or writable object of
    the buffer protocol (array.array, memoryview); or, `on_gpu`, of a torch tensor or an object with
    a __cuda_array_interface__ there. Raises UsageError for anything else."""
    if hasattr(array, "data_ptr") and hasattr(array, "is_contiguous"):
        return _of_tensor(array, on_gpu)
    if on_gpu:
        return _of_gpu(array)
    if hasattr(array, "__array_interface__") and hasattr(array, "flags"):
        return _of_numpy(array)
    return _of_buffer(array)
