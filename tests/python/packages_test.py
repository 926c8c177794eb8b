# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays of numpy and tensors of torch, where these are installed: each comes out right or is refused."""
import threading
import unittest

import winnow
from arrays_test import PLACES, READ_ALONE, ArrayCase, alone, floats
from reducer_test import OPTIONS, over_threads, run

try:
    import numpy as np
except ImportError:
    np = None
try:
    import torch
except ImportError:
    torch = None


@unittest.skipIf(np is None, "numpy is not installed")
class NumpyTest(ArrayCase):
    def accept_array(self, make):
        self.accept(make, lambda x: x.ravel().tolist())

    def test_types(self):
        for kind in ("float16 float32 float64 int8 uint8 int32 uint32 int64 uint64 longlong").split():
            self.accept_array(lambda code=kind: np.arange(1, 5, dtype=code))
        for kind in ("bool int16 uint16 complex64 complex128 longdouble datetime64[ns] timedelta64[s] S4 U4 "
                     "object V4").split():
            self.refuse(lambda code=kind: np.zeros(4, dtype=code), "elements of type",
                        ["all_reduce", "bucket", "async", "input"])
        self.refuse(lambda: np.zeros(4, dtype=[("a", "f4")]), "elements of type")

    def test_bytes_of_other_machines(self):
        for kind in "f4", "f8", "f2", "i4", "u8":
            self.refuse(lambda code=kind: np.arange(4).astype(">" + code), "byte order|one of",
                        ["all_reduce", "bucket", "async", "input", "output"])
        self.refuse(lambda: np.arange(4).astype(">f4"), "byte order")
        self.refuse(lambda: memoryview(np.arange(4).astype(">f4")), "elements of type '>f'")
        self.accept_array(lambda: np.arange(1, 5).astype("<f4"))

    def test_layouts(self):
        square = lambda: np.arange(1, 5, dtype="f4").reshape(2, 2)
        self.accept_array(square)
        for change in (np.asfortranarray, np.transpose, lambda x: x[:, ::-1],
                       lambda x: np.broadcast_to(x, (2, 2, 2)), lambda x: np.arange(8, dtype="f4")[::2]):
            self.refuse(lambda change=change: change(square()), "not contiguous.*ascontiguousarray")
        self.refuse(lambda: memoryview(np.asfortranarray(square())), "not contiguous")
        self.accept_array(lambda: np.arange(1, 5, dtype="f4").reshape(1, 4).T)  # contiguous both ways
        self.accept_array(lambda: np.ones((), "f4"))
        self.accept_array(lambda: np.ones((0, 3), "f4"))
        self.refuse(lambda: np.frombuffer(bytearray(17), "f4", 4, 1), "not aligned")
        self.refuse(lambda: np.ma.masked_array(np.arange(4, dtype="f4"), [0, 1, 0, 0]), "mask")
        self.refuse(lambda: np.float32(1), "not in host memory|read-only")

    def test_read_only(self):
        def frozen():
            made = np.arange(1, 5, dtype="f4")
            made.flags.writeable = False
            return made

        self.refuse(frozen, "read-only", set(PLACES) - set(READ_ALONE))
        reducer, out = alone(), floats()
        reducer.all_reduce_bucket([winnow.Segment(out, 1, input=frozen())])
        reducer.look_ahead(2, frozen(), out, 1)
        self.assertEqual(list(out), [1, 2, 3, 4])
        self.refuse(lambda: np.broadcast_to(np.float32(1), (4,)), "not contiguous|read-only")

    def test_no_array_moves_during_a_call(self):
        def body(transport):
            reducer = winnow.Reducer(transport, "topk:1", **OPTIONS)
            made.wait(30)
            data = np.arange(4, dtype="f4")
            work = reducer.all_reduce_async([winnow.Segment(data, 1)])
            for refcheck in True, False:
                self.assertRaises(ValueError, data.resize, 1 << 20, refcheck=refcheck)
            work.wait()
            data.resize(8, refcheck=False)
            return data.tolist()

        made = threading.Barrier(2)
        self.assertEqual(run(over_threads(2), body), [[0, 2, 4, 6, 0, 0, 0, 0]] * 2)

    def test_numbers(self):
        transport, = winnow.local_transports(np.int64(1))
        with winnow.Reducer(transport, "topk:1", min_bytes=np.int64(64), decay=np.float32(0.1),
                            deadline=np.float64(30), exempt_1d=np.bool_(False),
                            exempt=np.array(["a"]).tolist()) as reducer:
            for word in "min_bytes=64", "decay=0.1", "deadline=30", "exempt_1d=0":
                self.assertIn(word, reducer.options.split())
            data = np.arange(4, dtype="f4")
            reducer.all_reduce_bucket([winnow.Segment(data, np.uint64(2**64 - 1), rate=np.float32(0.5),
                                                      dimensions=np.int32(2), exempt=np.bool_(False))])
            self.assertEqual(data.tolist(), [0, 0.5, 1, 1.5])
            reducer.scale_residuals(np.float32(2))
            reducer.look_ahead(np.int8(3), data, data, np.float16(1))
            self.assertRaises(winnow.UsageError, reducer.residual, np.int64(-1))


@unittest.skipIf(torch is None, "torch is not installed")
class TorchTest(ArrayCase):
    def test_layouts(self):
        square = lambda **options: torch.arange(1, 5, dtype=torch.float32, **options).reshape(2, 2)
        for kind in torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.uint8:
            self.accept(lambda code=kind: square().to(code), lambda x: x.flatten().tolist())
        for make, why in ((lambda: square().t(), "not contiguous"),
                          (lambda: torch.ones(1).expand(4), "not contiguous"),
                          (lambda: square().to_sparse(), "layout"),
                          (lambda: square().to_sparse_csr(), "layout"),
                          (lambda: square(device="meta"), "on meta"),
                          (lambda: torch.ones(4, dtype=torch.complex64), "elements of type"),
                          (lambda: torch.ones(4, dtype=torch.bool), "elements of type"),
                          (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(2)]), "a nested tensor"),
                          (lambda: torch.zeros(4, dtype=torch.complex64).conj().imag, "not contiguous"),
                          (lambda: torch._neg_view(torch.ones(4)), "resolve_neg")):
            self.refuse(make, why)

    def test_shapes_that_differ(self):
        three, two, flat = torch.ones(3, 2), torch.ones(2, 3), torch.ones(6)
        for one, other in (three, two), (two, three), (three, np.ones((2, 3), "f4") if np else two):
            with self.assertRaisesRegex(winnow.UsageError, r"the shape \(\d, \d\).*one of them flat"):
                alone().all_reduce_bucket([winnow.Segment(one, 1, input=other)])
        alone().all_reduce_bucket([winnow.Segment(three, 1, input=torch.ones(3, 2)),
                                   winnow.Segment(two, 2, input=flat)])
        for source, good in ((three, True), (two, False), (flat, True), (torch.ones(1, 3, 2), True)):
            reduce = lambda r: r.reduce_scatter(source, torch.ones(3, 2), 1)
            if good:
                reduce(alone())
            else:
                self.assertRaisesRegex(winnow.UsageError, "of shape", reduce, alone())

    def test_tensors_that_stand_for_others(self):
        self.refuse_within = lambda x: self.refuse(lambda: x, "memory of its own", ["all_reduce"])
        torch.func.vmap(lambda x: (self.refuse_within(x), x)[1])(torch.ones(2, 4))
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            self.refuse(lambda: torch.ones(4), "memory of its own", ["all_reduce"])

    def test_autograd(self):
        leaf = lambda: torch.ones(4, requires_grad=True)
        for make in leaf, lambda: leaf() * 2, lambda: torch.nn.Parameter(torch.ones(4)):
            self.refuse(make, r"detach\(\)", set(PLACES) - set(READ_ALONE))
        out = floats()
        alone().all_reduce_bucket([winnow.Segment(out, 1, input=leaf())])
        self.assertEqual(list(out), [1.0] * 4)
        alone().all_reduce(leaf().detach(), 1)

    def test_operations(self):
        import torch.distributed as dist
        for op in dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT:
            alone().all_reduce(torch.ones(4), 1, op=op)
        with self.assertRaisesRegex(winnow.UsageError, "must be one of sum"):
            alone().all_reduce(torch.ones(4), 1, op=dist.ReduceOp.BAND)


if __name__ == "__main__":
    unittest.main()
