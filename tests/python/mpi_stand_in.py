# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What winnow.mpi_transport uses of mpi4py.MPI, by ctypes over Open MPI or MPICH."""
import atexit
import ctypes
import os
from ctypes.util import find_library

_mpi = ctypes.CDLL(os.environ.get("MPI_LIBRARY") or find_library("mpi"), ctypes.RTLD_GLOBAL)
THREAD_MULTIPLE = 3
_provided = ctypes.c_int()
_mpi.MPI_Init_thread(None, None, THREAD_MULTIPLE, ctypes.byref(_provided))


class Op:
    """Of MPI."""


SUM, MIN, MAX, PROD, BAND = Op(), Op(), Op(), Op(), Op()
Op.__module__ = "mpi4py.MPI"


class Comm:
    """A communicator: what MPI_Comm holds, a pointer of Open MPI's or a number of MPICH's."""

    def __init__(self, open_mpi, mpich):
        try:
            self.handle = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(_mpi, open_mpi)))
        except ValueError:
            self.handle = ctypes.c_int(mpich)

    def _ask(self, function):
        answer = ctypes.c_int()
        function(self.handle, ctypes.byref(answer))
        return answer.value

    def Get_rank(self):
        return self._ask(_mpi.MPI_Comm_rank)

    def Get_size(self):
        return self._ask(_mpi.MPI_Comm_size)

    def Is_inter(self):
        return bool(self._ask(_mpi.MPI_Comm_test_inter))

    def Abort(self, code):
        _mpi.MPI_Abort(self.handle, code)


COMM_WORLD = Comm("ompi_mpi_comm_world", 0x44000000)
COMM_NULL = Comm("ompi_mpi_comm_null", 0x04000000)


def Is_initialized():
    return True


def Is_finalized():
    return False


def Query_thread():
    return _provided.value


def Get_library_version():
    room, length = ctypes.create_string_buffer(8192), ctypes.c_int()
    _mpi.MPI_Get_library_version(room, ctypes.byref(length))
    return room.value.decode()


def _addressof(comm):
    return ctypes.addressof(comm.handle)


atexit.register(_mpi.MPI_Finalize)  # before winnow is imported, so after its own
