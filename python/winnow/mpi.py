# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Over MPI, by mpi4py's communicators. What names MPI is a library of its own, libwinnow_mpi, which
belongs to one MPI; the package loads it at the first use, and links no MPI."""
import ctypes
import functools
import os
import sys
from ctypes import c_double, c_int, c_void_p
from ctypes.util import find_library
from pathlib import Path
from typing import Any

from winnow._library import UsageError, check, library, loaded_path
from winnow.arguments import number
from winnow.transports import Transport, made_by

_NAME = "libwinnow_mpi.so"


def _path() -> str:
    """WINNOW_MPI_LIBRARY; the library beside libwinnow.so; or the one that the system finds."""
    if "WINNOW_MPI_LIBRARY" in os.environ:
        return os.environ["WINNOW_MPI_LIBRARY"]
    beside = Path(loaded_path).with_name(_NAME)
    if os.sep in loaded_path and beside.exists():
        return str(beside)
    found = find_library("winnow_mpi")
    if found is None:
        raise UsageError(f"there is no {_NAME} beside {loaded_path}, and the system knows none: build "
                         "Winnow with MPI, and set WINNOW_MPI_LIBRARY to its path")
    return found


def _address(of: Any) -> int:
    return ctypes.cast(of, c_void_p).value or 0


@functools.lru_cache(maxsize=None)
def _load() -> Any:
    path = _path()
    try:
        loaded = ctypes.CDLL(path)
    except OSError as error:
        raise UsageError(f"libwinnow_mpi does not load: {error}") from error
    # Of what it links, too.
    if _address(loaded.winnow_version) != _address(library.winnow_version):
        raise UsageError(f"{path} belongs to another libwinnow.so than {loaded_path}: set "
                         "WINNOW_LIBRARY to the one beside it")
    function = loaded.winnow_mpi_transport
    function.argtypes, function.restype = [c_void_p, c_double, c_void_p], c_int
    function.errcheck = check
    return loaded


def _version_of(loaded: Any) -> str:
    room, length = ctypes.create_string_buffer(8192), c_int()
    loaded.MPI_Get_library_version(room, ctypes.byref(length))
    return room.value.decode(errors="replace")


def mpi_transport(comm: Any, timeout: float = 300) -> Transport:
    """Over a communicator of mpi4py, MPI.COMM_WORLD say. Collective. It needs libwinnow_mpi, made with
    the MPI that mpi4py uses: that of WINNOW_MPI_LIBRARY, the one beside libwinnow.so, or the one that
    the system finds. Unless MPI was initialised with MPI_THREAD_MULTIPLE, as mpi4py does, the thread
    that initialised it makes all calls, and Ctrl-C waits for them.

    Raises UsageError for anything but a communicator, if MPI is not initialised, or where libwinnow_mpi
    is not found or uses another MPI; CommError if the ranks have not met after `timeout` seconds."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not isinstance(comm, mpi.Comm):
        raise UsageError(f"mpi_transport takes a communicator of mpi4py, not a {type(comm).__name__}")
    if not mpi.Is_initialized() or mpi.Is_finalized():
        raise UsageError("mpi_transport needs MPI, which is not initialised, or ended")
    if comm == mpi.COMM_NULL:
        raise UsageError("mpi_transport of MPI.COMM_NULL, which a communicator is once it is freed, and "
                         "where this rank has none: give it one whose group this rank is in")
    if comm.Is_inter():
        raise UsageError("mpi_transport takes an intracommunicator: merge the groups first, by Merge()")
    loaded, seconds = _load(), number(timeout, "timeout")
    ours, theirs = _version_of(loaded), mpi.Get_library_version()
    if ours.strip("\0") != theirs.strip("\0"):
        raise UsageError(f"libwinnow_mpi uses '{ours}', mpi4py uses '{theirs}': must be one MPI")
    threads = mpi.Query_thread() == mpi.THREAD_MULTIPLE
    address = mpi._addressof(comm)
    return made_by(lambda made: loaded.winnow_mpi_transport(address, seconds, made), threads)
