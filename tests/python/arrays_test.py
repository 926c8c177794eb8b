# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What callers pass: each array, number and word comes out right or is refused."""
import array
import ctypes
import enum
import fractions
import math
import mmap
import unittest

import winnow
from reducer_test import OPTIONS, over_threads, run


def floats(count=4):
    return array.array("f", range(1, count + 1))


def alone():
    """A reducer of one rank, whose sums are what it was given."""
    transport, = winnow.local_transports(1)
    return winnow.Reducer(transport, "topk:1", **OPTIONS)


# Every way in which an array goes in or out.
PLACES = {
    "all_reduce": lambda r, x, good: r.all_reduce(x, 1),
    "bucket": lambda r, x, good: r.all_reduce_bucket([winnow.Segment(good(), 1), winnow.Segment(x, 2)]),
    "async": lambda r, x, good: r.all_reduce_async([winnow.Segment(x, 1)]).wait(),
    "input": lambda r, x, good: r.all_reduce_bucket([winnow.Segment(good(), 1, input=x)]),
    "output": lambda r, x, good: r.all_reduce_bucket([winnow.Segment(x, 1, input=good())]),
    "reduce_scatter's input": lambda r, x, good: r.reduce_scatter(x, good(), 1),
    "reduce_scatter's output": lambda r, x, good: r.reduce_scatter(good(), x, 1),
    "weights": lambda r, x, good: r.look_ahead(1, x, good(), 1),
    "ahead": lambda r, x, good: r.look_ahead(1, good(), x, 1),
}
READ_ALONE = ("input", "weights")


class ArrayCase(unittest.TestCase):
    def refuse(self, make, why, places=PLACES):
        """An array of 4 elements, as `make` makes it, and what is wrong with it."""
        for name in places:
            wrong = make()
            with self.subTest(place=name, of=type(wrong)):
                with self.assertRaisesRegex(winnow.UsageError, why):
                    PLACES[name](alone(), wrong, floats)

    def accept(self, make, listed):
        """It is summed with that of another rank as it is: its elements, as listed(array) has them, are
        1, 2, 3 and so on."""
        def body(transport):
            data, given, out = make(), make(), make()
            reducer = winnow.Reducer(transport, "topk:1", **OPTIONS)
            reducer.all_reduce(data, 1)
            reducer.all_reduce_bucket([winnow.Segment(out, 2, input=given)])
            reducer.close()
            return listed(data), listed(given), listed(out)

        for data, given, out in run(over_threads(2), body):
            self.assertEqual(given, list(range(1, len(given) + 1)))
            self.assertEqual(data, [2 * x for x in given])
            self.assertEqual(out, data)


class BufferTest(ArrayCase):
    def test_formats(self):
        for letter in "fdbBiIlLqQ":
            self.accept(lambda code=letter: array.array(code, range(1, 5)), list)
        raw = lambda form: lambda: memoryview(bytearray(16)).cast(form)
        for form, why in (("h", "int16"), ("H", "uint16"), ("?", r"'\?'"), ("c", "'c'"), ("P", "'P'")):
            self.refuse(raw(form), f"elements of type {why}", ["all_reduce", "input", "async"])
        for kind in ctypes.c_float.__ctype_be__, ctypes.c_int32.__ctype_be__:
            self.refuse(kind * 4, "elements of type '>", ["all_reduce", "input", "async"])
        # Of four bytes, whatever C's long has.
        self.accept(lambda: (ctypes.c_int32.__ctype_le__ * 4)(1, 2, 3, 4), list)

    def test_layouts(self):
        self.refuse(lambda: memoryview(floats(8))[::2], "not contiguous")
        self.refuse(lambda: memoryview(floats())[::-1], "not contiguous")
        shifted = lambda: memoryview(bytearray(17))[1:].cast("f")
        self.refuse(shifted, "not aligned")
        square = lambda: memoryview(floats()).cast("B").cast("f", (2, 2))
        self.accept(square, lambda view: [x for row in view.tolist() for x in row])

    def test_read_only(self):
        self.refuse(lambda: memoryview(floats()).toreadonly(), "read-only")
        self.refuse(lambda: memoryview(bytes(16)).cast("f"), "read-only")

    def test_things_that_are_no_arrays(self):
        for wrong in [1.0, 2.0, 3.0, 4.0], (1.0, 2.0), 3.0, None, "text", {1: 2}, object(), winnow:
            self.refuse(lambda what=wrong: what, "not in host memory.*numpy array",
                        set(PLACES) - ({"input"} if wrong is None else set()))

        def released():
            view = memoryview(floats())
            view.release()
            return view

        self.refuse(released, "released")

        def closed():
            made = mmap.mmap(-1, 16)
            made.close()
            return made

        self.refuse(closed, "mmap")

    def test_no_elements(self):
        reducer = alone()
        reducer.all_reduce(array.array("f"), 1)
        reducer.reduce_scatter(array.array("f"), array.array("f"), 2)
        self.assertRaises(winnow.UsageError, reducer.all_reduce, array.array("h"), 3)

    def test_arrays_that_share_memory(self):
        reducer, data = alone(), memoryview(floats(8))
        one, two = winnow.Segment(data[:4], 1), winnow.Segment(data[4:], 2)
        reducer.all_reduce_bucket([two, one])
        reducer.all_reduce_bucket([one._replace(input=data[:4])])  # in place
        reducer.all_reduce_bucket([one._replace(input=data[4:]), winnow.Segment(floats(), 3, input=data[4:])])
        for wrong in ([one, one._replace(id=2)], [one, two._replace(array=data[3:])],
                      [one._replace(input=data[1:5])], [one._replace(input=data[4:]), two],
                      [one._replace(array=data), winnow.Segment(data[2:3], 2)]):
            with self.assertRaisesRegex(winnow.UsageError, "share memory"):
                reducer.all_reduce_bucket(wrong)
            with self.assertRaisesRegex(winnow.UsageError, "share memory"):
                reducer.all_reduce_async(wrong)
        self.assertEqual(data.tolist(), [5, 6, 7, 8, 5, 6, 7, 8])

    def test_shapes_that_differ(self):
        shaped = lambda *shape: memoryview(floats(math.prod(shape))).cast("B").cast("f", shape)
        for one, other, good in (((3, 2), (2, 3), False), ((3, 2), (1, 3, 2), False),
                                 ((6, 1), (1, 6), False), ((3, 2), (3, 2), True), ((3, 2), (6,), True),
                                 ((6,), (3, 2), True)):
            uses = (lambda r: r.all_reduce_bucket([winnow.Segment(shaped(*one), 1, input=shaped(*other))]),
                    lambda r: r.all_reduce_async([winnow.Segment(shaped(*one), 1,
                                                                 input=shaped(*other))]).wait(),
                    lambda r: r.look_ahead(1, shaped(*one), shaped(*other), 1))
            for use in uses:
                with self.subTest(one=one, other=other):
                    if good:
                        use(alone())
                    else:
                        self.assertRaisesRegex(winnow.UsageError, "one of them flat", use, alone())

        def body(transport):
            reducer = winnow.Reducer(transport, "topk:1", **OPTIONS)
            for source in (12,), (2, 3, 2), (6, 2):
                reducer.reduce_scatter(shaped(*source), shaped(3, 2), 1)
            reducer.reduce_scatter(shaped(2, 6), shaped(6), 1)
            for source in (2, 6), (3, 4), (4, 3), (3, 2, 2):
                with self.assertRaisesRegex(winnow.UsageError, r"of shape \(2, 3, 2\) or \(6, 2\)"):
                    reducer.reduce_scatter(shaped(*source), shaped(3, 2), 1)

        run(over_threads(2), body)

    def test_a_shard_lies_apart_or_where_it_was(self):
        def body(transport):
            reducer = winnow.Reducer(transport, "topk:1", **OPTIONS)
            rank, data = transport.rank, memoryview(floats(8))
            for begin in set(range(5)) - {4 * rank}:
                with self.assertRaisesRegex(winnow.UsageError, "share memory"):
                    reducer.reduce_scatter(data, data[begin:begin + 4], 1)
            shard = data[4 * rank:4 * rank + 4]
            reducer.reduce_scatter(data, shard, 1)
            return shard.tolist()

        self.assertEqual(run(over_threads(2), body), [[2, 4, 6, 8], [10, 12, 14, 16]])

    def test_a_bare_flat_array_is_a_bucket(self):
        """Compressed, as in C++, and not a bias."""
        def body(transport):
            reducer = winnow.Reducer(transport, "topk:0.25", **{**OPTIONS, "exempt_1d": True})
            sums = []
            for number, options in enumerate(({}, {"dimensions": 2}, {"name": "bias"},
                                              {"dimensions": 1}, {"name": "w", "dimensions": 2})):
                data = floats()
                reducer.all_reduce_bucket([winnow.Segment(data, number, **options)])
                sums.append(sum(x != 0 for x in data))
            data = floats()
            reducer.all_reduce(data, 10)
            return sums + [list(data)]

        for found in run(over_threads(2), body):
            self.assertEqual(found, [1, 1, 4, 4, 1, [0, 0, 0, 8]])

    def test_an_id_is_needed(self):
        reducer = alone()
        with self.assertRaisesRegex(winnow.UsageError, "needs the id"):
            reducer.all_reduce(floats())
        with self.assertRaisesRegex(winnow.UsageError, "needs the id"):
            reducer.reduce_scatter(floats(), floats())
        for wrong in -1, 2**64, 1.5, "weight", None, b"1":
            for use in (lambda: reducer.all_reduce_bucket([winnow.Segment(floats(), wrong)]),
                        lambda: reducer.reduce_scatter(floats(), floats(), wrong),
                        lambda: reducer.all_reduce(floats(), wrong),
                        lambda: reducer.look_ahead(wrong, floats(), floats(), 1),
                        lambda: reducer.residual(wrong)):
                self.assertRaises(winnow.UsageError, use)
        reducer.all_reduce(floats(), 2**64 - 1)

    def test_segments(self):
        reducer = alone()
        good = winnow.Segment(floats(), 1, "w")
        for wrong in (good, floats(), [floats()], [(floats(), 1)], None, 3, [good, None]):
            self.assertRaises(winnow.UsageError, reducer.all_reduce_bucket, wrong)
            self.assertRaises(winnow.UsageError, reducer.all_reduce_async, wrong)
        for changes in ({"name": b"w"}, {"name": "w\0x"}, {"dimensions": -1}, {"dimensions": 2**31},
                        {"dimensions": 1.0}, {"rate": "1"}, {"rate": None}, {"rate": 1j},
                        {"exempt": "no"}, {"exempt": 2}, {"exempt": 1}, {"exempt": None}, {"exempt": []},
                        {"input": floats(3)}, {"input": array.array("d", floats())}):
            with self.subTest(changes), self.assertRaises(winnow.UsageError):
                reducer.all_reduce_bucket([good._replace(**changes)])
        reducer.all_reduce_bucket(iter([good]))
        self.assertEqual(list(good.array), list(floats()))
        with self.assertRaisesRegex(winnow.UsageError, "^parameter 1 .'w'.: exempt is 'no': must be True or"):
            reducer.all_reduce_bucket([good._replace(exempt="no")])

    def test_errors_name_the_parameter(self):
        reducer, wrong = alone(), memoryview(bytes(16)).cast("f")
        for changes in ({"array": wrong}, {"input": wrong}, {"input": floats(3)}, {"rate": "1"},
                        {"dimensions": -1}):
            with self.assertRaisesRegex(winnow.UsageError, r"^parameter 7 \('layer.weight'\): "):
                reducer.all_reduce_bucket([winnow.Segment(floats(), 7, "layer.weight")._replace(**changes)])
        with self.assertRaisesRegex(winnow.UsageError, "^parameter 8: "):
            reducer.all_reduce(wrong, 8)
        for use, what in ((lambda: reducer.reduce_scatter(wrong, floats(), 9), "reduce_scatter.*9, input"),
                          (lambda: reducer.reduce_scatter(floats(), wrong, 9), "reduce_scatter.*9, output"),
                          (lambda: reducer.look_ahead(9, [], floats(), 1), "look_ahead.*9, weights"),
                          (lambda: reducer.look_ahead(9, floats(), wrong, 1), "look_ahead.*9, ahead")):
            self.assertRaisesRegex(winnow.UsageError, "^" + what, use)

    def test_rates(self):
        def body(transport):
            reducer, found = winnow.Reducer(transport, "topk:1", **OPTIONS), []
            for number, rate in enumerate((0, 0.0, 1, 0.5, fractions.Fraction(1, 4), True)):
                data = floats()
                reducer.all_reduce_bucket([winnow.Segment(data, number, rate=rate)])
                found.append(data[3])
            return found

        for found in run(over_threads(2), body):
            self.assertEqual(found, [0, 0, 8, 4, 2, 8])

    def test_operations(self):
        def body(transport):
            reducer, found = winnow.Reducer(transport, "topk:1", **OPTIONS), []
            torchs = enum.Enum("RedOpType", "SUM AVG MAX")
            for number, op in enumerate((None, "sum", "mean", "avg", "average", "min", "max", "product",
                                         " Mean ", torchs.SUM, torchs.AVG, torchs.MAX)):
                data = floats()
                reducer.all_reduce(data, number, op=op)
                found.append(data[3])
            for wrong in "median", "", 0, 1, ["sum"], {}, object(), enum.Enum("Op", "BAND").BAND:
                with self.assertRaisesRegex(winnow.UsageError, "must be one of sum"):
                    reducer.all_reduce(floats(), 1, op=wrong)
            return found

        for found in run(over_threads(2), body):
            self.assertEqual(found, [8, 8, 4, 4, 4, 4, 4, 16, 4, 8, 4, 4])


class OptionsTest(unittest.TestCase):
    def words(self, compressor="topk:0.01", **options):
        transport, = winnow.local_transports(1)
        with winnow.Reducer(transport, compressor, **options) as reducer:
            return reducer.options.split()

    def test_values(self):
        compressors = enum.Enum("Compressor", {"SMALL": "topk:0.25,int8"})
        schedules = enum.Enum("Schedule", {"GATHER": "gather"}, type=str)
        for options, word in (({"op": "mean"}, "op=average"), ({"op": "avg"}, "op=average"),
                              ({"op": enum.Enum("Op", "SUM").SUM}, "op=sum"),
                              ({"min_bytes": 64.0}, "min_bytes=64"), ({"min_bytes": 64}, "min_bytes=64"),
                              ({"exempt_1d": False}, "exempt_1d=0"), ({"decay": 0.5}, "decay=0.5"),
                              ({"decay": fractions.Fraction(1, 2)}, "decay=0.5"),
                              ({"exempt": ["a*", "b"]}, "exempt=a*,b"), ({"exempt": ("a",)}, "exempt=a"),
                              ({"exempt": " a , b "}, "exempt=a,b"),
                              ({"schedule": schedules.GATHER}, "schedule=gather"),
                              ({"compressor": compressors.SMALL}, "compressor=topk:0.25,int8"),
                              ({"compressor": " topk: 0.25, int8 "}, "compressor=topk:0.25,int8"),
                              ({"compressor": "compressor=topk:0.25"}, "compressor=topk:0.25"),
                              ({"compressor": "preset=dgc"}, "precondition=momentum:0.9:masked"),
                              ({"compressor": "preset=dgc; op=max", "op": "min"}, "op=min"),
                              ({"compressor": "schedule = gather"}, "schedule=gather"),
                              ({"min_bytes": "64 KiB"}, "min_bytes=65536"), ({"min_bytes": "1 kB"}, "min_bytes=1000"),
                              ({"links": "inter=50us,1Gbit/s pass=8GB/s"},
                               "links=inter=50us,1Gbit/s,per-node+intra=1us,10GB/s,per-rank+pass=8GB/s")):
            with self.subTest(options):
                self.assertIn(word, self.words(**options))

    def test_refusals(self):
        for options, why in (({"deadline": None}, "leave it out"), ({"exempt": ["a b"]}, "blanks"),
                             ({"schedule": "gather op=max"}, "blanks"), ({"schedule": "a;b"}, "blanks"),
                             ({"exempt": {"a": 1}}, "text, a number or a list"),
                             ({"decay": object()}, "text, a number or a list"),
                             ({"compressor": None}, "leave it out"), ({"compressor": "topk\0"}, "blanks"),
                             ({"compressor": "preset=dgc\0"}, "null bytes"),
                             ({"compressor": "compressor="}, "is empty"),
                             ({"compressor": "topk:0.01 int8"}, "mean 'compressor=topk:0.01,int8'"),
                             ({"compressor": "topk=0.01"}, "compressor=topk:0.01"),
                             ({"seed": 10**400}, "seed is a number of 1329 bits"),
                             ({"seed": [1, 2]}, "number, not '1,2'$"),
                             ({"exempt_1d": 2}, "takes 0 or 1, not '2'$"), ({"links": "fast"}, r"10GB/s\+pass"),
                             ({"op": "median"}, "sum, average, min, max or product"), ({"min_byte": 3}, "min_bytes")):
            with self.subTest(options), self.assertRaisesRegex(winnow.UsageError, why):
                self.words(**options)

    def test_numbers_of_transports(self):
        listener, (transport,) = winnow.TcpListener("lo"), winnow.local_transports(1)
        reducer = winnow.Reducer(transport)
        for wrong in (lambda: winnow.local_transports(0), lambda: winnow.local_transports(-1),
                      lambda: winnow.local_transports(2**32 + 1), lambda: winnow.local_transports("2"),
                      lambda: winnow.local_transports(1.0), lambda: winnow.TcpListener(5),
                      lambda: listener.connect(2**32, [listener.address]),
                      lambda: listener.connect(0, listener.address), lambda: listener.connect(0, 5),
                      lambda: listener.connect(0, None), lambda: listener.connect(0, [None]),
                      lambda: winnow.local_transports(1025),
                      lambda: listener.connect(0, [b"a"]), lambda: listener.connect(0, ["a\0b"]),
                      lambda: listener.connect(0, [listener.address], timeout="1"),
                      lambda: winnow.tcp_transport(2**32, 1, "localhost"),
                      lambda: winnow.tcp_transport(0, 2**32 + 1, "localhost"),
                      lambda: winnow.tcp_transport(0, 1, "localhost", port=2**32 + 5),
                      lambda: winnow.tcp_transport(0, 1, b"localhost"),
                      lambda: winnow.tcp_transport(0, 1, "localhost", timeout=None),
                      lambda: transport.duplicate("x"), lambda: transport.abort(None),
                      lambda: winnow.Reducer(transport, stream="0"), lambda: reducer.load("text"),
                      lambda: reducer.load(None), lambda: reducer.scale_residuals("2"),
                      lambda: reducer.look_ahead_share(None), lambda: reducer.scale_residuals(None)):
            self.assertRaises(winnow.UsageError, wrong)
        with self.assertRaisesRegex(winnow.UsageError, "^size is 0: .* from 1 to 1024$"):
            winnow.local_transports(0)
        with self.assertRaisesRegex(winnow.UsageError, "from 1 to 1024"):  # as the library has it
            winnow._library.library.winnow_local_transports(1025, (ctypes.c_void_p * 1025)())
        with self.assertRaisesRegex(winnow.UsageError, "a number of 1329 bits"):
            reducer.all_reduce_bucket([winnow.Segment(floats(), 1, rate=10**400)])
        with self.assertRaisesRegex(winnow.UsageError, r"xxx\.\.\.: must"):
            winnow.local_transports("x" * 1000)
        for tls, why in (("on", "off, secret or certificates"), ("secret", "needs one: TcpOptions::secret"),
                         (("a.pem", "a.key"), "three PEM files"), (5, "three PEM files"),
                         (("a", None, "c"), "tls_key is None: must be a path"),
                         (["a", "b", 3], "tls_authority is 3: must be a path"),
                         ((b"a", "b", "c"), "tls_certificate is b'a': must be a path"),
                         (("no.pem", "no.key", "no.ca"), "no.pem")):
            with self.subTest(tls), self.assertRaisesRegex(winnow.UsageError, why):
                winnow.TcpListener("lo", tls=tls)
        winnow.TcpListener("lo", secret="a secret", tls="secret")
        winnow.TcpListener("lo", secret=b"\xff\xfe bytes", tls="secret")
        for secret in b"key\0key", "key\0key", bytearray(b"key"), 7771:
            with self.assertRaisesRegex(winnow.UsageError, "must be text or bytes") as raised:
                winnow.TcpListener("lo", secret=secret)
            self.assertNotRegex(str(raised.exception), "key|777")
        state = reducer.save()
        for kind in bytes, bytearray, memoryview:
            winnow.Reducer(winnow.local_transports(1)[0]).load(kind(state))


class MaskedOnGpu:
    """As packages describe arrays on a GPU."""

    def __init__(self, **changes):
        self.__cuda_array_interface__ = {"shape": (2, 2), "typestr": "<f4", "version": 3,
                                         "data": (4096, False), **changes}


class GpuArrayCase(unittest.TestCase):
    def test_descriptions(self):
        from winnow.arrays import view
        for right in {}, {"strides": (8, 4)}, {"strides": None}, {"shape": (1, 4), "strides": (99, 4)}:
            self.assertEqual(view(MaskedOnGpu(**right), True).count, 4)
        for wrong, why in (({"typestr": ">f4"}, "byte order"), ({"mask": object()}, "mask"),
                           ({"strides": (4, 8)}, "not contiguous"), ({"typestr": "|b1"}, "type b1"),
                           ({"strides": (16, 4)}, "not contiguous")):
            with self.assertRaisesRegex(winnow.UsageError, why):
                view(MaskedOnGpu(**wrong), True)
        with self.assertRaisesRegex(winnow.UsageError, "read-only"):
            view(MaskedOnGpu(data=(4096, True)), True).expect_writable()


if __name__ == "__main__":
    unittest.main()
