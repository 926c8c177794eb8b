# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""libwinnow.so by ctypes: the functions of winnow.h, and the exceptions that stand for statuses.

ctypes lets go of the interpreter's lock during a call, so other Python threads run while ranks
exchange messages.
"""
import ctypes
import ctypes.util
import os
from ctypes import (POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint32,
                    c_uint64, c_void_p)
from pathlib import Path


class Error(RuntimeError):
    """Anything that Winnow reports."""


class UsageError(Error):
    """The caller's fault: wrong options, counts or types, or ranks that differ. Nothing changed."""


class CommError(Error):
    """The ranks cannot finish. The bucket reads zero; its content is in the residuals."""


class CudaError(Error):
    """A device failed."""


class Struct(ctypes.Structure):
    """A structure of winnow.h: knows its own size."""

    def __init__(self, **members):
        super().__init__(struct_bytes=ctypes.sizeof(type(self)), **members)


class TcpMeeting(Struct):
    _fields_ = [("struct_bytes", c_uint32), ("rank", c_int32), ("size", c_int32), ("port", c_int32),
                ("host", c_char_p), ("job", c_char_p)]


class TcpOptions(Struct):
    _fields_ = [("struct_bytes", c_uint32), ("interfaces", c_char_p), ("secret", c_char_p),
                ("host_timeout", c_double), ("tls", c_char_p), ("tls_certificate", c_char_p),
                ("tls_key", c_char_p), ("tls_authority", c_char_p),
                ("stop", ctypes.POINTER(c_int32))]


class NcclOptions(Struct):
    _fields_ = [("struct_bytes", c_uint32), ("min_ctas", c_int32), ("max_ctas", c_int32),
                ("cga_cluster_size", c_int32), ("register_memory", c_int32)]


class ReducerSettings(Struct):
    _fields_ = [("struct_bytes", c_uint32), ("place", c_int32), ("stream", c_void_p),
                ("options", c_char_p), ("refusal", c_char_p)]


class SecondMoment(Struct):
    _fields_ = [("struct_bytes", c_uint32), ("place", c_int32), ("stream", c_void_p),
                ("threads", c_int32), ("rate", c_float), ("decay", c_double),
                ("epsilon", c_double), ("steps", c_uint64)]


class Segment(Struct):
    _fields_ = [("struct_bytes", c_uint32), ("type", c_int32), ("id", c_uint64),
                ("count", c_uint64), ("data", c_void_p), ("input", c_void_p), ("name", c_char_p),
                ("dimensions", c_int32), ("rate", c_float), ("exempt", c_int32)]


class Scatter(Struct):
    _fields_ = [("struct_bytes", c_uint32), ("type", c_int32), ("id", c_uint64),
                ("shard", c_uint64), ("input", c_void_p), ("output", c_void_p)]


class Rows(Struct):
    _fields_ = [("struct_bytes", c_uint32), ("type", c_int32), ("id", c_uint64),
                ("table_rows", c_uint64), ("width", c_uint64), ("count", c_uint64),
                ("rows", c_void_p), ("values", c_void_p)]


# enum winnow_element_type, by the names of numpy and torch.
ELEMENT_TYPES = {"float32": 0, "bfloat16": 1, "float16": 2, "float64": 3, "int8": 4, "uint8": 5,
                 "int32": 6, "uint32": 7, "int64": 8, "uint64": 9}
# enum winnow_place.
CUDA = 1
# enum winnow_reduce_op.
REDUCE_OPS = {"sum": 0, "average": 1, "min": 2, "max": 3, "product": 4}
# enum winnow_stats.
LAST_CALL, ALL_CALLS, BUCKETS, SCHEDULES = range(4)

# What winnow_work_on_complete takes.
Completion = ctypes.CFUNCTYPE(None, c_void_p, c_int)

_EXCEPTIONS = {1: UsageError, 2: CommError, 3: CudaError, 4: MemoryError, 5: Error}

# Functions that return a status, with what they take; then the others, with what they return.
_FALLIBLE = {
    "winnow_transport_duplicate": [c_void_p, c_double, POINTER(c_void_p)],
    "winnow_local_transports": [c_int, POINTER(c_void_p)],
    "winnow_nccl_transport_with": [c_void_p, POINTER(NcclOptions), c_double, POINTER(c_void_p)],
    "winnow_mixed_transport": [c_void_p, c_void_p, c_double, POINTER(c_void_p)],
    "winnow_tcp_listen_with": [POINTER(TcpOptions), POINTER(c_void_p)],
    "winnow_tcp_connect": [c_void_p, c_int, c_int, POINTER(c_char_p), c_double, POINTER(c_void_p)],
    "winnow_tcp_transport_with": [POINTER(TcpMeeting), POINTER(TcpOptions), c_double,
                                  POINTER(c_void_p)],
    "winnow_reducer_create": [c_void_p, POINTER(ReducerSettings), POINTER(c_void_p)],
    "winnow_all_reduce": [c_void_p, POINTER(Segment), c_size_t, c_int],
    "winnow_reduce_scatter": [c_void_p, POINTER(Scatter), c_int],
    "winnow_all_reduce_rows": [c_void_p, POINTER(Rows), c_int, POINTER(c_void_p), POINTER(c_void_p),
                               POINTER(c_uint64)],
    "winnow_all_reduce_async": [c_void_p, POINTER(Segment), c_size_t, c_int, POINTER(c_void_p)],
    "winnow_work_wait": [c_void_p],
    "winnow_work_test": [c_void_p, POINTER(c_int)],
    "winnow_work_on_complete": [c_void_p, Completion, c_void_p],
    "winnow_work_detach": [c_void_p],
    "winnow_reducer_synchronize": [c_void_p],
    "winnow_reducer_residual": [c_void_p, c_uint64, POINTER(c_void_p), POINTER(c_uint64)],
    "winnow_reducer_begin_step": [c_void_p],
    "winnow_reducer_discard_step": [c_void_p],
    "winnow_reducer_discard_step_of": [c_void_p, POINTER(c_uint64), c_uint64],
    "winnow_reducer_scale_residuals": [c_void_p, c_float],
    "winnow_reducer_look_ahead": [c_void_p, c_uint64, c_void_p, c_void_p, c_uint64, c_float],
    "winnow_reducer_look_ahead_share": [c_void_p, c_float, c_int, POINTER(c_float)],
    "winnow_divide_by_moment": [POINTER(SecondMoment), c_void_p, c_void_p, c_uint64],
    "winnow_reducer_save": [c_void_p, POINTER(c_void_p)],
    "winnow_reducer_load": [c_void_p, POINTER(c_char_p), POINTER(c_size_t), c_size_t],
    "winnow_reducer_options": [c_void_p, c_char_p, c_size_t, POINTER(c_size_t)],
    "winnow_reducer_stats": [c_void_p, c_int, c_char_p, c_size_t, POINTER(c_size_t)],
}
_OTHERS = {
    "winnow_last_error": ([], c_char_p),
    "winnow_version": ([], c_char_p),
    "winnow_nccl_available": ([], c_int),
    "winnow_tcp_can_have_secret": ([], c_int),
    "winnow_transport_destroy": ([c_void_p], None),
    "winnow_transport_rank": ([c_void_p], c_int),
    "winnow_transport_size": ([c_void_p], c_int),
    "winnow_transport_node": ([c_void_p], c_int),
    "winnow_transport_abort": ([c_void_p, c_char_p], None),
    "winnow_tcp_address": ([c_void_p], c_char_p),
    "winnow_tcp_listener_destroy": ([c_void_p], None),
    "winnow_reducer_destroy": ([c_void_p], None),
    "winnow_work_destroy": ([c_void_p], None),
    "winnow_state_data": ([c_void_p], c_void_p),
    "winnow_state_bytes": ([c_void_p], c_size_t),
    "winnow_state_destroy": ([c_void_p], None),
}


def _path():
    """WINNOW_LIBRARY; the copy in this package; or the one that the system finds."""
    if "WINNOW_LIBRARY" in os.environ:
        return os.environ["WINNOW_LIBRARY"]
    beside = Path(__file__).with_name("libwinnow.so")
    if beside.exists():
        return str(beside)
    found = ctypes.util.find_library("winnow")
    if found is None:
        raise ImportError(f"there is no {beside}, and the system knows no libwinnow.so; set "
                          "WINNOW_LIBRARY to the path of one")
    return found


def error_of(status, name):
    """The exception of a status in this thread; None if it is none."""
    if status == 0:
        return None
    text = library.winnow_last_error().decode(errors="replace")
    return _EXCEPTIONS.get(status, Error)(text or f"{name} failed")


def check(status, function, _arguments):
    """Raises what a status says."""
    error = error_of(status, function.__name__)
    if error is not None:
        raise error


def _load():
    loaded = ctypes.CDLL(loaded_path)
    for name, takes in _FALLIBLE.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype, function.errcheck = takes, c_int, check
    for name, (takes, returns) in _OTHERS.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = takes, returns
    return loaded


loaded_path = _path()
library = _load()


def text_of(function, *arguments):
    """What a function writes that takes (..., text, room, bytes)."""
    needed = c_size_t()
    function(*arguments, None, 0, ctypes.byref(needed))
    while True:
        room = needed.value
        text = ctypes.create_string_buffer(room)
        function(*arguments, text, room, ctypes.byref(needed))
        if needed.value <= room:
            return text.value.decode(errors="replace")
