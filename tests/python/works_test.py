# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Calls in flight: who waits for them, what they keep, and what becomes of those that nobody waits
for."""
import array
import gc
import os
import sys
import threading
import unittest
import weakref
from unittest import mock

import winnow
from handles_test import USES
from reducer_test import OPTIONS, over_tcp, over_threads, run


class Floats(array.array):
    """Which weak references can see."""


def floats(count=4):
    return Floats("f", [1.0] * count)


def segment(data=None, number=1):
    return winnow.Segment(floats() if data is None else data, number)


def pair():
    """Reducers of two ranks, whose calls this test makes as it likes: those of each are in flight
    until the other has made its own."""
    reducers = run(over_threads(2), lambda t: (t.rank, winnow.Reducer(t, "topk:1", **OPTIONS)))
    return [reducer for _, reducer in reducers]


class WorksTest(unittest.TestCase):
    def answers_of_threads(self, work, then):
        answers = []

        def wait():
            try:
                answers.append(work.wait())
            except winnow.Error as error:
                answers.append(str(error))

        threads = [threading.Thread(target=wait) for _ in range(8)]
        for thread in threads:
            thread.start()
        then()
        for thread in threads:
            thread.join()
        wait()
        return answers

    def test_many_threads_wait_for_one(self):
        mine, other = pair()
        data = floats()
        work = mine.all_reduce_async([segment(data)])
        answers = self.answers_of_threads(work, lambda: other.all_reduce(floats(), 1))
        self.assertEqual(answers, [None] * 9)
        self.assertEqual(data[0], 2.0)
        work = mine.all_reduce_async([segment(data)])
        answers = self.answers_of_threads(work, lambda: other.transport.abort("had enough"))
        self.assertEqual(len(answers), 9)
        for answer in answers:
            self.assertRegex(answer, "had enough")

    def test_close_finishes_works_and_they_know_their_answers(self):
        mine, other = pair()
        works = [mine.all_reduce_async([segment(number=n)]) for n in range(3)]
        works[1].detach()
        seen = []
        works[2].on_complete(seen.append)
        closing = threading.Thread(target=mine.close)
        closing.start()
        for number in range(3):
            other.all_reduce(floats(), number)
        closing.join()
        self.assertEqual([work.wait() for work in works], [None] * 3)
        self.assertEqual(seen, [None])
        with self.assertRaises(winnow.UsageError):
            works[0].on_complete(print)
        works[0].detach()
        work = other.all_reduce_async([segment()])
        other.close()  # the other rank has left
        for _ in range(2):
            self.assertRaises(winnow.CommError, work.wait)

    def test_close_waits_for_the_call_of_another_thread(self):
        mine, other = pair()
        data, found = floats(), []
        caller = threading.Thread(target=lambda: found.append(mine.all_reduce(data, 1)))
        caller.start()
        while not mine._handle.busy():
            pass
        closers = [threading.Thread(target=mine.close) for _ in range(3)]
        for closer in closers:
            closer.start()
        other.all_reduce(floats(), 1)
        for thread in [caller, *closers]:
            thread.join()
        self.assertEqual((found, data[0]), ([None], 2.0))
        self.assertRaises(winnow.UsageError, mine.totals)

    def test_a_dropped_work_goes_on_and_keeps_its_arrays(self):
        mine, other = pair()
        data = floats()
        where, alive = data.buffer_info()[0], weakref.ref(data)
        self.assertIsNotNone(mine.all_reduce_async([segment(data)]))
        del data
        gc.collect()
        self.assertEqual(alive().buffer_info()[0], where)
        other.all_reduce(floats(), 1)
        mine.synchronize()
        self.assertIsNone(alive())

    def test_names_live_as_long_as_the_call(self):
        mine, other = pair()
        names = [f"a name that is long enough to be elsewhere {n}" for n in range(20)]
        bucket = lambda: [winnow.Segment(floats(), n, name) for n, name in enumerate(names)]
        work = mine.all_reduce_async(bucket())
        gc.collect()
        _others = [f"another name that may take its place {n}".encode() for n in range(10000)]
        other.all_reduce_bucket(bucket())
        work.wait()
        self.assertIn(names[0], mine.bucket_stats()[0]["name"])

    def test_garbage_with_a_call_in_flight_wakes_the_others(self):
        def body(transport):
            reducer = winnow.Reducer(transport, "topk:1", **OPTIONS)
            made.wait(60)
            if transport.rank == 0:
                with self.assertRaisesRegex(winnow.CommError, "dropped its Reducer"):
                    reducer.all_reduce(floats(), 1)  # rank 2 never comes
            if transport.rank == 1:
                holder = {"reducer": reducer, "work": reducer.all_reduce_async([segment()])}
                if cyclic:
                    holder["itself"] = holder
                del holder, reducer, transport
                gc.collect()
            ended.wait(60)

        for makers_of in over_threads, over_tcp:
            for cyclic in False, True:
                made, ended = threading.Barrier(3), threading.Barrier(3)
                run(makers_of(3), body)

    def test_garbage_in_a_callback_of_its_own(self):
        mine, other = pair()
        alive = weakref.ref(mine)
        collected = threading.Event()

        def collect(_):
            holder["ready"].wait(30)
            gc.collect()
            collected.set()

        holder = {"reducer": mine, "ready": threading.Event()}
        work = mine.all_reduce_async([segment()])
        work.on_complete(collect)
        work.detach()
        ready = holder["ready"]
        mine.itself = mine
        gc.disable()
        try:
            other.all_reduce(floats(), 1)
            holder.pop("reducer")
            del mine, work
            ready.set()
            self.assertTrue(collected.wait(30))
        finally:
            gc.enable()
        self.assertIsNone(alive())


class CallbacksTest(unittest.TestCase):
    def test_a_callback_that_raises_is_printed_and_dropped(self):
        mine, other = pair()
        printed, seen = [], []

        def fail(_):
            raise ValueError("a callback's own")

        with mock.patch.object(sys, "unraisablehook", lambda what: printed.append(what.exc_value)):
            for number in range(2):
                work = mine.all_reduce_async([segment(number=number)])
                work.on_complete(fail)
                work.on_complete(seen.append)
                other.all_reduce(floats(), number)
                work.wait()
                mine.synchronize()
        self.assertEqual([str(error) for error in printed], ["a callback's own"] * 2)
        self.assertEqual(seen, [None, None])

    def test_a_callback_must_not_use_its_reducer(self):
        mine, other = pair()
        works = [mine.all_reduce_async([segment(number=number)]) for number in range(2)]
        errors = {}

        def use(_):
            uses = {**USES[winnow.Reducer], "close": lambda r: r.close(),
                    "wait": lambda _: works[1].wait()}
            del uses["__enter__"]
            for name, one in uses.items():
                try:
                    one(mine)
                    errors[name] = None
                except winnow.UsageError as error:
                    errors[name] = str(error)

        works[0].on_complete(use)
        other.all_reduce(floats(), 0)
        other.all_reduce(floats(), 1)
        mine.synchronize()
        self.assertEqual(len(errors), len(USES[winnow.Reducer]) + 1)
        for name, error in errors.items():
            self.assertRegex(error or "no error", "callback", name)
        works[1].wait()

    def test_callbacks_want_functions_and_time(self):
        mine, other = pair()
        work = mine.all_reduce_async([segment()])
        self.assertRaises(winnow.UsageError, work.on_complete, None)
        waiter = threading.Thread(target=work.wait)
        waiter.start()
        while work._call._leader is None:
            pass
        self.assertRaises(winnow.UsageError, work.on_complete, print)
        work.detach()  # somebody waits: nothing happens
        other.all_reduce(floats(), 1)
        waiter.join()
        self.assertRaises(winnow.UsageError, work.on_complete, print)

    def test_a_reducer_and_a_work_end_in_a_child_of_a_fork(self):
        mine, _ = pair()
        work = mine.all_reduce_async([segment()])
        work.on_complete(lambda _: None)
        child = os.fork()
        if child == 0:
            del work, mine
            gc.collect()
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        mine.transport.abort("enough")
        self.assertRaises(winnow.CommError, work.wait)


if __name__ == "__main__":
    unittest.main()
