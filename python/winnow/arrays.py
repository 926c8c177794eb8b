# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The elements of arrays that Python programs hold: numpy's, torch's, and of the buffer protocol; on a
GPU torch's, and those with a __cuda_array_interface__."""
import ctypes
import functools
import math
import sys
import weakref
from typing import Any, List, NamedTuple, Sequence, Tuple

from winnow._library import ELEMENT_TYPES, UsageError

# What numpy and __cuda_array_interface__ call types, less the byte order.
_CODES = {"f4": "float32", "f8": "float64", "f2": "float16", "i1": "int8", "u1": "uint8",
          "i4": "int32", "u4": "uint32", "i8": "int64", "u8": "uint64"}
# The buffer protocol's letters, by what they stand for; the size is that of the format.
_LETTERS = {**dict.fromkeys("efd", "float"), **dict.fromkeys("bhilqn", "int"),
            **dict.fromkeys("BHILQN", "uint")}
_NATIVE_ORDER = "<" if sys.byteorder == "little" else ">"
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8, "int8": 1, "uint8": 1, "int32": 4,
          "uint32": 4, "int64": 8, "uint64": 8}
_SIZES = {ELEMENT_TYPES[name]: size for name, size in _BYTES.items()}


_READ_ONLY = "an array that is read-only"


class View(NamedTuple):
    """Elements of an array, whose memory stays where it is as long as `keeps` does."""

    address: int
    count: int
    type: int  # of ELEMENT_TYPES
    shape: Tuple[int, ...]
    refusal: str  # why it must not be written; empty if it may
    keeps: List[Any]

    @property
    def bytes(self) -> int:
        """Of all elements."""
        return self.count * _SIZES[self.type]

    def has_shape_of(self, other: "View") -> bool:
        """Whether elements of one place belong together; a flat array has the shape of any."""
        return self.shape == other.shape or 1 in (len(self.shape), len(other.shape))

    def expect_writable(self) -> "View":
        """Itself; UsageError for memory that must not be written."""
        if self.refusal:
            raise UsageError(self.refusal)
        return self

    def expect_integers(self) -> "View":
        """Itself; UsageError for elements that are no integers of 64 bits."""
        if self.type not in (ELEMENT_TYPES["int64"], ELEMENT_TYPES["uint64"]):
            raise UsageError("must be integers of 64 bits")
        return self


def _type(name: str) -> int:
    if name not in ELEMENT_TYPES:
        raise UsageError(f"elements of type {name}: must be one of {', '.join(ELEMENT_TYPES)}")
    return ELEMENT_TYPES[name]


def _of_tensor(tensor: Any, on_gpu: bool) -> View:
    if hasattr(tensor, "to_local"):
        raise UsageError("a tensor that is distributed: reduce what this rank has of it, to_local()")
    if tensor.is_nested:
        raise UsageError("a nested tensor, whose parts have shapes of their own: reduce each of "
                         "tensor.unbind()")
    if "strided" not in str(tensor.layout):
        raise UsageError(f"a tensor of layout {tensor.layout}: must be dense, as by to_dense()")
    if tensor.device.type != ("cuda" if on_gpu else "cpu"):
        raise UsageError(f"a tensor on {tensor.device}: must be "
                         f"{'on the GPU' if on_gpu else 'in host memory'}")
    kind = _type(str(tensor.dtype).rpartition(".")[2])
    if not tensor.is_contiguous():
        raise UsageError("a tensor that is not contiguous")
    if tensor.is_neg() or tensor.is_conj():
        raise UsageError("a tensor whose elements wait for their sign: take resolve_neg()")
    count = tensor.numel()
    try:
        address = tensor.data_ptr()
    except RuntimeError:  # it stands for another one, or for none
        address = 0
    if count > 0 and address == 0:
        raise UsageError("a tensor without memory of its own")
    refusal = "a tensor that requires a gradient, which autograd records: take detach()"
    return View(address, count, kind, tuple(tensor.shape), refusal if tensor.requires_grad else "",
                [tensor, tensor.untyped_storage()])


def _of_numpy(array: Any) -> View:
    kind = _type(array.dtype.name)
    if not array.dtype.isnative:
        raise UsageError(f"an array of {array.dtype.str}, in the byte order of other machines: take "
                         "array.astype(array.dtype.newbyteorder('='))")
    if not array.flags.c_contiguous:
        raise UsageError("an array that is not contiguous in C's order of its dimensions: take "
                         "numpy.ascontiguousarray(array)")
    if not array.flags.aligned:
        raise UsageError("an array that is not aligned: take array.copy()")
    if hasattr(array, "mask") and hasattr(array, "filled"):
        raise UsageError("an array with a mask, which would not count: take array.filled(0)")
    # No array can be resized that has a weak reference, even by refcheck=False.
    return View(array.ctypes.data, array.size, kind, array.shape,
                "" if array.flags.writeable else _READ_ONLY, [array, weakref.ref(array)])


@functools.lru_cache(maxsize=None)
def _type_of_format(form: str, size: int) -> int:
    kind = form[1:] if form[:1] in ("@", "=", _NATIVE_ORDER) else form
    return _type(f"{_LETTERS[kind]}{8 * size}" if kind in _LETTERS else f"'{form}' of the buffer protocol")


def _of_buffer(array: Any) -> View:
    try:
        buffer = memoryview(array)
    except TypeError as error:
        raise UsageError(f"a {type(array).__name__}, whose elements are not in host memory: pass a "
                         "numpy array, a tensor or an array.array") from error
    except ValueError as error:  # it was released or closed
        raise UsageError(f"a {type(array).__name__}: {error}") from error
    kind, size = _type_of_format(buffer.format, buffer.itemsize), buffer.nbytes
    if not buffer.c_contiguous:
        raise UsageError("a buffer that is not contiguous in C's order of its dimensions")
    if size == 0:
        return View(0, 0, kind, tuple(buffer.shape), "", [buffer])
    if buffer.readonly:
        # ctypes takes no address of read-only memory; numpy's arrays took the way above.
        raise UsageError("a buffer that is read-only")
    # Exports the buffer, so that nobody can resize what it is of.
    exported = (ctypes.c_char * size).from_buffer(buffer)
    address = ctypes.addressof(exported)
    if address % buffer.itemsize != 0:
        raise UsageError("a buffer that is not aligned")
    return View(address, size // buffer.itemsize, kind, tuple(buffer.shape), "", [exported])


def _of_gpu(array: Any) -> View:
    described = getattr(array, "__cuda_array_interface__", None)
    if described is None:
        raise UsageError(f"a {type(array).__name__}, which is not on a GPU")
    order, code = described["typestr"][0], described["typestr"][1:]
    kind = _type(_CODES.get(code, code))
    if order not in ("|", _NATIVE_ORDER):
        raise UsageError(f"an array of {described['typestr']}, in the byte order of other machines")
    if described.get("mask") is not None:
        raise UsageError("an array with a mask, which would not count")
    shape, strides = described["shape"], described.get("strides")
    if strides is not None:
        dense, ahead = [], _SIZES[kind]
        for extent in reversed(shape):
            dense.insert(0, ahead)
            ahead *= extent
        if any(extent > 1 and given != wanted
               for extent, given, wanted in zip(shape, strides, dense)):
            raise UsageError("an array that is not contiguous in C's order of its dimensions")
    address, read_only = described["data"]
    return View(address or 0, math.prod(shape), kind, tuple(shape),
                _READ_ONLY if read_only else "", [array])


def view(array: Any, on_gpu: bool = False) -> View:
    """The elements of a contiguous numpy array, torch tensor in host memory, or writable object of
    the buffer protocol (array.array, memoryview), in C's order and this machine's order of bytes; or,
    `on_gpu`, of a torch tensor or an object with a __cuda_array_interface__ there. Raises UsageError
    for anything else."""
    if hasattr(array, "data_ptr") and hasattr(array, "is_contiguous"):
        return _of_tensor(array, on_gpu)
    if on_gpu:
        return _of_gpu(array)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):
        return _of_numpy(array)
    return _of_buffer(array)


# Letters that a memoryview can be cast to; it knows no floats of 16 bits, which are given as bits.
_CASTS = {ELEMENT_TYPES["float32"]: "f", ELEMENT_TYPES["float16"]: "H", ELEMENT_TYPES["bfloat16"]: "H",
          ELEMENT_TYPES["uint64"]: "Q"}


def copied(address: "int | None", kind: int, shape: Tuple[int, ...]) -> memoryview:
    """A copy of elements that the library has: gradients, or uint64."""
    letter, size = _CASTS[kind], math.prod(shape) * _SIZES[kind]
    memory = bytearray((ctypes.c_char * size).from_address(address) if size > 0 else b"")
    if size == 0:
        return memoryview(memory).cast(letter)  # no view has several dimensions without elements
    return memoryview(memory).cast(letter, shape) if len(shape) > 1 else memoryview(memory).cast(letter)


def expect_apart(written: Sequence[View], what: str, read: Sequence[View] = ()) -> None:
    """UsageError if memory that is written lies in other memory that is written or read."""
    places = sorted([(v.address, v.address + v.bytes, True) for v in written if v.count > 0]
                    + [(v.address, v.address + v.bytes, False) for v in read if v.count > 0])
    end_of_any = end_of_written = 0
    for begin, end, is_written in places:
        if begin < (end_of_any if is_written else end_of_written):
            raise UsageError(f"{what} share memory: must lie apart")
        end_of_any = max(end_of_any, end)
        if is_written:
            end_of_written = max(end_of_written, end)


class GpuFloats:
    """Floats on a GPU that a Reducer has: torch.as_tensor(these, device="cuda") and what else knows
    __cuda_array_interface__ reads them in place. Do not write to them; they say that one may, since
    torch takes no others."""

    def __init__(self, address: int, count: int, owner: Any):
        self._owner = owner
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4",
                                         "data": (address, False), "version": 2}
