# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Over MPI, by a communicator of mpi4py, on as many ranks as mpirun starts. Where mpi4py is not
installed, a module stands in for it that has MPI by ctypes."""
import array
import ctypes
import importlib.util
import os
import sys
import types

try:
    from mpi4py import MPI
except ImportError:
    spec = importlib.util.spec_from_file_location(
        "mpi4py.MPI", os.path.join(os.path.dirname(os.path.abspath(__file__)), "mpi_stand_in.py"))
    MPI = importlib.util.module_from_spec(spec)
    sys.modules["mpi4py"], sys.modules["mpi4py.MPI"] = types.ModuleType("mpi4py"), MPI
    spec.loader.exec_module(MPI)

import winnow

OPTIONS = {"schedule": "gather", "min_bytes": 0, "deadline": 30}


def expect(condition, what):
    if not condition:
        print(f"rank {MPI.COMM_WORLD.Get_rank()}: {what}", flush=True)
        MPI.COMM_WORLD.Abort(1)


def refused(call, why):
    try:
        call()
    except winnow.UsageError as error:
        expect(why in str(error), f"'{error}' does not say '{why}'")
    else:
        expect(False, f"no error that says '{why}'")


def main():
    rank, size = MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()
    transport = winnow.mpi_transport(MPI.COMM_WORLD, timeout=30)
    expect((transport.rank, transport.size) == (rank, size), "it has another rank or size")
    ranks = sum(range(1, size + 1))
    with winnow.Reducer(transport, "topk:1", **OPTIONS) as reducer:
        for op, sums in ((None, ranks / size), ("sum", ranks), (MPI.SUM, ranks), (MPI.MAX, size),
                         (MPI.MIN, 1)):
            data = array.array("f", [rank + 1.0] * 50)
            reducer.all_reduce(data, 1, op=op)
            expect(abs(data[49] - sums) < 1e-5, f"{op} is {data[49]}")
            data = array.array("f", [rank + 1.0] * 50)
            reducer.all_reduce_async([winnow.Segment(data, 1)], op=op).wait()
            expect(abs(data[0] - sums) < 1e-5, f"{op}, in flight, is {data[0]}")
        refused(lambda: reducer.all_reduce(data, 1, op=MPI.BAND), "must be one of sum")
        refused(lambda: reducer.all_reduce([1.0, 2.0], 1), "numpy array")
    # The communicator serves again, and another one, too.
    for _ in range(2):
        with winnow.Reducer(winnow.mpi_transport(MPI.COMM_WORLD), **OPTIONS, op=MPI.SUM) as reducer:
            expect("op=sum" in reducer.options.split(), reducer.options)
    for wrong in None, 0, "world", transport:
        refused(lambda what=wrong: winnow.mpi_transport(what), "communicator of mpi4py")
    refused(lambda: winnow.mpi_transport(MPI.COMM_NULL), "COMM_NULL, which a communicator is once it is freed")
    refused(lambda: winnow.mpi_transport(MPI.COMM_WORLD, timeout="1"), "timeout")
    # In a process of its own it would be the first call, which looks for the library.
    winnow.mpi._load.cache_clear()
    os.environ["WINNOW_MPI_LIBRARY"] = "/there/is/none.so"
    refused(lambda: winnow.mpi_transport(MPI.COMM_WORLD), "/there/is/none.so")
    print(f"ok {rank}")


if __name__ == "__main__":
    main()
