# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The package with arrays on a GPU, without torch. The CUDA runtime that allocates them is CUDART's:
that of the machine, or a model's. Ranks are threads that share the GPU."""
import array
import ctypes
import os
import unittest

import winnow
from winnow import _library
from reducer_test import OPTIONS, expected, gradient_of, over_tcp, over_threads, run

runtime = ctypes.CDLL(os.environ["CUDART"])
TO_GPU, TO_HOST = 1, 2
NON_BLOCKING = 1  # a stream that does not wait for the default stream


def check(status):
    if status != 0:
        raise RuntimeError(f"the CUDA runtime says {status}")


def stream():
    made = ctypes.c_void_p()
    check(runtime.cudaStreamCreateWithFlags(ctypes.byref(made), NON_BLOCKING))
    return made.value


def copy(to, source, count, kind):
    """Of `count` bytes between addresses."""
    on = ctypes.c_void_p(stream())
    check(runtime.cudaMemcpyAsync(ctypes.c_void_p(to), ctypes.c_void_p(source),
                                  ctypes.c_size_t(count), kind, on))
    check(runtime.cudaStreamSynchronize(on))
    check(runtime.cudaStreamDestroy(on))


class OnGpu:
    """Elements of an array.array in memory of the GPU, as other packages describe theirs."""

    def __init__(self, host):
        self.host, self.bytes = host, host.itemsize * len(host)
        self.address = ctypes.c_void_p()
        check(runtime.cudaMalloc(ctypes.byref(self.address), ctypes.c_size_t(self.bytes)))
        copy(self.address.value, host.buffer_info()[0], self.bytes, TO_GPU)
        code = {"f": "<f4", "d": "<f8", "h": "<i2"}[host.typecode]
        self.__cuda_array_interface__ = {"shape": (len(host),), "typestr": code, "version": 2,
                                         "data": (self.address.value, False)}

    def list(self):
        copy(self.host.buffer_info()[0], self.address.value, self.bytes, TO_HOST)
        return self.host.tolist()


def list_of(floats):
    """What a Reducer has on the GPU."""
    described = floats.__cuda_array_interface__
    host = array.array("f", bytes(4 * described["shape"][0]))
    copy(host.buffer_info()[0], described["data"][0], 4 * len(host), TO_HOST)
    return host.tolist()


class GpuReducerTest(unittest.TestCase):
    def test_matches_a_plain_reference_and_ranks_in_host_memory(self):
        count, steps, size = 777, 4, 3
        sums, residuals = expected(size, steps, count, 39)

        def body(transport):
            on_gpu = transport.rank != 1
            where = {"stream": stream()} if on_gpu else {}
            reducer = winnow.Reducer(transport, "topk:0.05", **where, **OPTIONS)
            found = []
            for step in range(steps):
                data = array.array("f", gradient_of(transport.rank, step, count))
                data = OnGpu(data) if on_gpu else data
                if step % 2:
                    reducer.all_reduce(data, id=4)
                    reducer.synchronize()
                else:
                    reducer.all_reduce_async([winnow.Segment(data, 4, "w", 2)]).wait()
                found.append(data.list() if on_gpu else data.tolist())
            self.assertIsNone(reducer.residual(5))
            held = reducer.residual(4)
            held = list_of(held) if on_gpu else held.tolist()
            reducer.close()
            return found, held

        for makers_of in over_threads, over_tcp:
            for rank, (found, held) in enumerate(run(makers_of(size), body)):
                self.assertEqual(found, sums)
                self.assertEqual(held, residuals[rank])

    def test_parts_beside_ranks_in_host_memory(self):
        def body(transport, schedule):
            on_gpu = transport.rank == 0
            where = {"stream": stream()} if on_gpu else {}
            reducer = winnow.Reducer(transport, "topk:0.05,int8", max_part=4096, **where,
                                     **{**OPTIONS, "schedule": schedule})
            found = []
            for step in range(3):
                data = array.array("f", gradient_of(transport.rank, step, 10000))
                data = OnGpu(data) if on_gpu else data
                reducer.all_reduce(data, id=4)
                reducer.synchronize()
                found.append(data.list() if on_gpu else data.tolist())
            return found

        for schedule in "gather", "balanced", "doubling", "shared":
            first, *others = run(over_threads(3), lambda transport, s=schedule: body(transport, s))
            self.assertTrue(any(any(sums) for sums in first))
            for other in others:
                self.assertEqual(first, other, schedule)

    def test_look_ahead(self):
        def body(transport):
            on = stream()
            reducer = winnow.Reducer(transport, "topk:0.01", stream=on, **OPTIONS)
            reducer.all_reduce(OnGpu(array.array("f", [1.0] * 99 + [5.0])), id=3)
            ahead = OnGpu(array.array("f", [0.0] * 100))
            reducer.look_ahead(3, OnGpu(array.array("f", [10.0] * 100)), ahead, 2.0)
            check(runtime.cudaStreamSynchronize(ctypes.c_void_p(on)))
            self.assertEqual(ahead.list(), [8.0] * 99 + [10.0])

        run(over_threads(2), body)

    def test_a_step_of_second_moments(self):
        gradient, moment = OnGpu(array.array("f", [3.0, -0.5])), OnGpu(array.array("f", [0.0, 0.0]))
        on = stream()
        step = _library.SecondMoment(place=_library.CUDA, stream=on, rate=0.25, decay=0.5,
                                     epsilon=1e-12, steps=1)
        _library.library.winnow_divide_by_moment(ctypes.byref(step), gradient.address,
                                                 moment.address, 2)
        check(runtime.cudaStreamSynchronize(ctypes.c_void_p(on)))
        self.assertEqual(gradient.list(), [0.25, -0.25])
        self.assertEqual(moment.list(), [4.5, 0.125])

    def test_refuses_arrays_that_are_elsewhere(self):
        transport, = winnow.local_transports(1)
        reducer = winnow.Reducer(transport, stream=stream())
        for wrong, why in ((array.array("f", [1]), "not on a GPU"),
                           (OnGpu(array.array("h", [1])), "elements of type i2")):
            with self.assertRaisesRegex(winnow.UsageError, why):
                reducer.all_reduce(wrong, 0)
        strided = OnGpu(array.array("f", [1, 2]))
        strided.__cuda_array_interface__["strides"] = (8,)
        with self.assertRaisesRegex(winnow.UsageError, "not contiguous"):
            reducer.all_reduce(strided, 0)
        transport, = winnow.local_transports(1)
        with self.assertRaises(winnow.UsageError):
            winnow.Reducer(transport).all_reduce(OnGpu(array.array("f", [1])), 0)


if __name__ == "__main__":
    unittest.main()
