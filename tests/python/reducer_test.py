# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The package without torch and numpy: ranks are threads, over local transports and over TCP."""
import array
import math
import os
import random
import socket
import threading
import unittest

import winnow

OPTIONS = {"schedule": "gather", "min_bytes": 0, "exempt_1d": False, "op": "sum", "deadline": 30}


def free_port():
    """One that was free a moment ago, and that the system gives to nobody who names none."""
    while True:
        port = random.randrange(20000, 32000)
        with socket.socket() as probing:
            if probing.connect_ex(("127.0.0.1", port)) != 0:
                return port


def over_tcp(size):
    """Makers of each rank's transport."""
    port = free_port()
    return [lambda rank=rank: winnow.tcp_transport(rank, size, "127.0.0.1", port, timeout=30)
            for rank in range(size)]


def over_threads(size):
    """Likewise."""
    return [lambda transport=transport: transport for transport in winnow.local_transports(size)]


def run(makers, body):
    """Runs body(transport) on a thread for each rank; raises what a rank raises. Returns what the
    ranks return."""
    results, errors = [None] * len(makers), []

    def rank(number, make):
        transport = make()
        try:
            results[number] = body(transport)
        except BaseException as error:  # pylint: disable=broad-except
            errors.append(error)
            transport.abort(str(error))

    threads = [threading.Thread(target=rank, args=item) for item in enumerate(makers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def gradient_of(rank, step, count):
    """Small integers, whose sums are exact in any order."""
    generator = random.Random(1000 * step + rank)
    return [float(generator.randint(-9, 9)) for _ in range(count)]


def expected(size, steps, count, k):
    """Sums of exact top-k with error feedback, as the documents have it: ties to the lowest
    index."""
    residuals = [[0.0] * count for _ in range(size)]
    sums = []
    for step in range(steps):
        total = [0.0] * count
        for rank, residual in enumerate(residuals):
            acc = [g + r for g, r in zip(gradient_of(rank, step, count), residual)]
            for i in sorted(range(count), key=lambda i: (-abs(acc[i]), i))[:k]:
                total[i] += acc[i]
                acc[i] = 0.0
            residuals[rank] = acc
        sums.append(total)
    return sums, residuals


class ReducerTest(unittest.TestCase):
    def test_reduce_scatter(self):
        def body(transport):
            rank, size = transport.rank, transport.size
            with winnow.Reducer(transport, "topk:0.01", **OPTIONS) as reducer:
                gradient = array.array("f", [rank + 1.0] * (100 * size))
                shard = array.array("f", [0.0] * 100)
                reducer.reduce_scatter(gradient, shard, id=1)
                # Of the others' shards one element travels, the first of equal ones.
                self.assertEqual(shard[0], size * (size + 1) / 2)
                self.assertEqual(list(shard[1:]), [rank + 1.0] * 99)
                residual = reducer.residual(1)
                for owner in range(size):
                    left = list(residual[100 * owner:100 * owner + 100])
                    self.assertEqual(left, [0.0] * 100 if owner == rank
                                     else [0.0] + [rank + 1.0] * 99)
                for wrong in gradient[:-1], array.array("d", gradient), bytes(400 * size):
                    with self.assertRaises(winnow.UsageError):
                        reducer.reduce_scatter(wrong, shard, id=1)
                with self.assertRaisesRegex(winnow.UsageError, "sums and averages"):
                    reducer.reduce_scatter(gradient, shard, id=1, op="max")

        for makers_of in over_threads, over_tcp:
            for size in 1, 3:
                run(makers_of(size), body)

    def test_all_reduce_rows(self):
        def body(transport):
            rank, size = transport.rank, transport.size
            numbers = array.array("q", [9, rank, 9])
            values = memoryview(array.array("f", [1.0, 2.0, rank + 1.0, 0.0, 0.5, 0.5])).cast("b")
            with winnow.Reducer(transport, "topk:0.01", **OPTIONS) as reducer:
                rows, sums = reducer.all_reduce_rows(numbers, values.cast("f", (3, 2)), 10, id=1)
                self.assertEqual(list(rows), [*range(size), 9])
                self.assertEqual(sums.tolist(), [[r + 1.0, 0.0] for r in range(size)]
                                 + [[1.5 * size, 2.5 * size]])
                count = 3 if rank == 0 else 0
                rows, sums = reducer.all_reduce_rows(numbers[:count], values.cast("f")[:2 * count], 10, 1,
                                                     op="mean", width=2)
                self.assertEqual(list(rows), [0, 9])
                self.assertAlmostEqual(sums.tolist()[1][0], 1.5 / size)
                rows, sums = reducer.all_reduce_rows(array.array("q"), array.array("f"), 10, 1, width=2)
                self.assertEqual((len(rows), len(sums)), (0, 0))
                for wrong, why in (((numbers, values.cast("f"), 10, 1), "shape"),
                                   ((numbers[:2], values.cast("f", (3, 2)), 10, 1), "not 2 rows of 2"),
                                   ((array.array("i", [1, 2, 3]), values.cast("f", (3, 2)), 10, 1), "64 bits"),
                                   ((numbers, values.cast("f", (3, 2)), 10), "needs the id"),
                                   ((numbers, values.cast("f", (3, 2)), -1, 1), "table_rows")):
                    with self.assertRaisesRegex(winnow.UsageError, why):
                        reducer.all_reduce_rows(*wrong)
                with self.assertRaisesRegex(winnow.UsageError, "row 9 is outside"):
                    reducer.all_reduce_rows(numbers, values.cast("f", (3, 2)), 9, 1)

        for makers_of in over_threads, over_tcp:
            for size in 1, 3:
                run(makers_of(size), body)

    def test_calls_back_and_lets_go(self):
        def body(transport):
            reducer, seen = winnow.Reducer(transport, "topk:0.5", **OPTIONS), []
            for number in range(4):
                data = array.array("f", [float(number)] * 4000)
                work = reducer.all_reduce_async([winnow.Segment(data, number)])
                work.on_complete(lambda error, number=number: seen.append((number, error)))
                if number % 2:
                    work.detach()
                    with self.assertRaises(winnow.UsageError):
                        work.on_complete(print)
                else:
                    work.wait()
                del work, data
            reducer.synchronize()
            self.assertEqual(seen, [(number, None) for number in range(4)])
            # An error comes to the callback, and to later calls.
            data = array.array("f", [1.0] * 4000)
            work = reducer.all_reduce_async([winnow.Segment(data, 9)])
            if transport.size > 1 and transport.rank == 0:
                work.wait()
                transport.abort("had enough")
                return
            ended = []
            work.on_complete(ended.append)
            work.detach()
            if transport.size > 1:
                with self.assertRaisesRegex(winnow.CommError, "had enough"):
                    while True:
                        work = reducer.all_reduce_async([winnow.Segment(data, 9)])
                        work.on_complete(ended.append)
                        work.wait()
                reducer.close()  # after it the last callback has run
                self.assertIsInstance(ended[-1], winnow.CommError)

        for makers_of in over_threads, over_tcp:
            for size in 1, 2:
                run(makers_of(size), body)

    def test_matches_a_plain_reference(self):
        count, steps = 777, 5
        for makers_of in over_threads, over_tcp:
            for size in 1, 2, 3:
                kept = math.ceil(0.05 * count) if size > 1 else count
                sums, residuals = expected(size, steps, count, kept)

                def body(transport):
                    reducer = winnow.Reducer(transport, "topk:0.05", **OPTIONS)
                    found = []
                    for step in range(steps):
                        data = array.array("f", gradient_of(transport.rank, step, count))
                        if step % 2:
                            reducer.all_reduce(data, id=4)
                        else:
                            reducer.all_reduce_async([winnow.Segment(data, 4, "w", 1)]).wait()
                        found.append(data.tolist())
                    held = list(reducer.residual(4) or [])
                    self.assertIsNone(reducer.residual(5))
                    self.assertEqual(reducer.totals()["calls"], steps)
                    reducer.synchronize()
                    reducer.close()
                    return found, held

                for rank, (found, held) in enumerate(run(makers_of(size), body)):
                    self.assertEqual(found, sums)
                    if size > 1:  # a single rank keeps nothing
                        self.assertEqual(held, residuals[rank])

    def test_out_of_place(self):
        def body(transport):
            reducer = winnow.Reducer(transport, "topk:1", **OPTIONS)
            given, result = array.array("f", [1.0] * 100), array.array("f", [7.0] * 100)
            reducer.all_reduce_bucket([winnow.Segment(result, 1, input=given)], op="average")
            return given.tolist(), result.tolist()

        for given, result in run(over_threads(2), body):
            self.assertEqual((given, result), ([1.0] * 100, [1.0] * 100))

    def test_second_moments_and_rates(self):
        def body(transport):
            reducer = winnow.Reducer(transport, "topk:1", precondition="second_moment:0.5", **OPTIONS)
            found = []
            for number in 3.0, 1.0:
                data = array.array("f", [number * (transport.rank + 1)] * 50)
                reducer.all_reduce_bucket([winnow.Segment(data, 1, rate=0.25)])
                found.append(data[0])
            return found

        for found in run(over_threads(2), body):  # the sum of two; v is 4.5, then 2.75, corrected 11/3
            self.assertAlmostEqual(found[0], 0.5, places=6)
            self.assertAlmostEqual(found[1], 0.5 / math.sqrt(11 / 3), places=6)

    def test_a_discarded_step_and_another_scale(self):
        def body(transport):
            reducer = winnow.Reducer(transport, "topk:0.1", **OPTIONS)
            call = lambda step: reducer.all_reduce(array.array("f", gradient_of(0, step, 50)), 1)
            call(0)
            before = reducer.residual(1).tolist()
            reducer.begin_step()
            call(1)
            changed = reducer.residual(1).tolist()
            reducer.discard_step(ids=[2, 99])
            self.assertEqual(reducer.residual(1).tolist(), changed)
            for wrong in (-1, 2**64, "one", 1.5):
                with self.assertRaisesRegex(winnow.UsageError, "ids"):
                    reducer.discard_step([1, wrong])
            with self.assertRaisesRegex(winnow.UsageError, "ids"):
                reducer.discard_step(1)
            reducer.discard_step([1])
            back = reducer.residual(1).tolist()
            reducer.scale_residuals(0.5)
            return before, changed, back, reducer.residual(1).tolist()

        for before, changed, back, halved in run(over_threads(2), body):
            self.assertNotEqual(changed, before)
            self.assertEqual(back, before)
            self.assertEqual(halved, [x / 2 for x in before])

    def test_refuses_what_it_does_not_know(self):
        transport, = winnow.local_transports(1)
        with self.assertRaisesRegex(winnow.UsageError, "did you mean 'topk'"):
            winnow.Reducer(transport, "tokp:0.1")
        transport, = winnow.local_transports(1)
        with self.assertRaisesRegex(winnow.UsageError, "min_bytes"):
            winnow.Reducer(transport, min_byte=3)
        transport, = winnow.local_transports(1)
        reducer = winnow.Reducer(transport)
        with self.assertRaisesRegex(winnow.UsageError, "elements of type"):
            reducer.all_reduce(array.array("h", [1, 2]), 0)
        with self.assertRaisesRegex(winnow.UsageError, "read-only"):
            reducer.all_reduce(memoryview(bytes(8)).cast("f"), 0)
        with self.assertRaisesRegex(winnow.UsageError, "not contiguous"):
            reducer.all_reduce(memoryview(array.array("f", [1, 2, 3]))[::2], 0)
        with self.assertRaisesRegex(winnow.UsageError, "operation 'median'"):
            reducer.all_reduce(array.array("f", [1]), 0, op="median")
        with self.assertRaises(TypeError):
            winnow.tcp_transport(rank=0)
        with self.assertRaises(winnow.UsageError):
            winnow.TcpListener("no such interface")
        with self.assertRaisesRegex(winnow.UsageError, "max_ctas is -2|without NCCL"):
            winnow.nccl_transport(transport, max_ctas=-2)

    def test_what_one_rank_cannot_say_is_an_error_on_all(self):
        wrong = [("topq:0.01", {}, "topq"), ("topk:0.01", {"densty": 1}, "densty"),
                 ("topk:0.01", {"op": "summ"}, "summ"), ("topk:0.01", {"seed": None}, "seed is None"),
                 ("topk:0.01", {"exempt": "a b"}, "'a b'"), ("topk:\0", {}, r"topk:\\x00"),
                 ("topk:0.01", {"links": object()}, "links is <object"), (7.5, {}, "7.5"),
                 ("\udc80", {}, "surrogates"), ("topk:0.01", {"stream": "one"}, "stream is 'one'"),
                 ("topk:0.01", {"stream": 0}, "stream that is not null")]

        def body(transport):
            odd = transport.rank == 1
            for compressor, options, names in wrong:
                names = names if odd else f"rank 1 refuses: .*{names}"
                with self.subTest(wrong=(compressor, options)):
                    with self.assertRaisesRegex(winnow.UsageError, names):
                        if odd:
                            winnow.Reducer(transport, compressor, **options)
                        else:
                            winnow.Reducer(transport, deadline=20)
            winnow.Reducer(transport, **OPTIONS).close()

        run(over_threads(3), body)

    def test_options_that_differ_are_an_error_on_all(self):
        def body(transport):
            with self.assertRaises(winnow.UsageError):
                winnow.Reducer(transport, f"topk:0.0{transport.rank + 1}")

        run(over_tcp(2), body)

    def test_look_ahead(self):
        def body(transport):
            reducer = winnow.Reducer(transport, "topk:0.01", **{**OPTIONS, "op": "average"})
            data = array.array("f", [1.0] * 99 + [5.0])
            reducer.all_reduce(data, id=3)
            self.assertAlmostEqual(reducer.look_ahead_share(0.75), 1, places=6)
            self.assertAlmostEqual(reducer.look_ahead_share(0.75, op="sum"), 2, places=6)
            weights = array.array("f", [10.0] * 100)
            ahead = array.array("f", [0.0] * 100)
            reducer.look_ahead(3, weights, ahead, 2.0)
            self.assertEqual(list(ahead), [8.0] * 99 + [10.0])
            reducer.look_ahead(4, weights, ahead, 2.0)
            self.assertEqual(ahead, weights)
            for wrong in (lambda: reducer.look_ahead(3, weights, ahead[:50], 2.0),
                          lambda: reducer.look_ahead(3, weights[:50], ahead[:50], 2.0),
                          lambda: reducer.look_ahead(3, weights, array.array("d", weights), 2.0),
                          lambda: reducer.look_ahead(3, weights, ahead, -1.0),
                          lambda: reducer.look_ahead_share(1.0)):
                self.assertRaises(winnow.UsageError, wrong)

        run(over_threads(2), body)

    def test_abort_reaches_peers_with_its_reason(self):
        def body(transport):
            reducer = winnow.Reducer(transport, "topk:1", **OPTIONS)
            data = array.array("f", [1.0] * 100)
            if transport.rank == 1:
                reducer.all_reduce(data, id=0)
                transport.abort("had enough")
            else:
                with self.assertRaisesRegex(winnow.CommError, "had enough"):
                    while True:
                        reducer.all_reduce(data, id=0)

        for makers_of in over_threads, over_tcp:
            run(makers_of(2), body)

    def test_duplicates_serve_other_reducers(self):
        def body(transport):
            one, other = transport.duplicate(30), transport.duplicate(30)
            makers = [lambda: one.duplicate(30), lambda: other]

            def train(own):
                reducer, sums = winnow.Reducer(own, "topk:1", **OPTIONS), []
                for step in range(20):
                    data = array.array("f", [own.rank + step + float(own is other)] * 100)
                    reducer.all_reduce(data, id=0)
                    sums.append(data[0])
                return sums

            found = run(makers, train)  # at once, on a thread each
            if transport.rank == 0:
                one.abort("had enough")
            with self.assertRaises(winnow.CommError):
                one.duplicate(30)
            late = transport.duplicate(30)
            found.append(train(late))
            transport.abort("had enough of that, too")
            found.append(train(late.duplicate(30)))
            return found

        for makers_of in over_threads, over_tcp:
            for found in run(makers_of(3), body):
                self.assertEqual(found, [[3.0 * step + 3 + 3 * model for step in range(20)]
                                         for model in (0, 1, 0, 0)])

    def test_a_duplicate_needs_all_ranks(self):
        def body(transport):
            if transport.rank == 0:
                ended.wait(30)
            else:
                with self.assertRaisesRegex(winnow.CommError, "deadline"):
                    transport.duplicate(0.1)
                ended.set()
            with self.assertRaises(winnow.CommError):
                transport.duplicate(30)

        for makers_of in over_threads, over_tcp:
            ended = threading.Event()
            run(makers_of(2), body)

    def test_a_child_of_a_fork_leaves_the_parents_reducer_alone(self):
        def body(transport):
            reducer = winnow.Reducer(transport, "topk:1", **OPTIONS)
            data = array.array("f", [1.0] * 100)
            reducer.all_reduce_async([winnow.Segment(data, 0)]).wait()
            if transport.rank == 0:
                child = os.fork()
                if child == 0:
                    try:
                        reducer.all_reduce(data, id=0)
                    except winnow.UsageError:
                        reducer.close()
                        os._exit(0)
                    os._exit(1)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
            reducer.all_reduce(data, id=0)
            return data[0]

        self.assertEqual(run(over_tcp(2), body), [4.0, 4.0])


if __name__ == "__main__":
    unittest.main()
