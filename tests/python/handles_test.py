# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What is closed, dropped, copied, forked, or used by several threads: an exception, never the end of
the interpreter."""
import array
import copy
import gc
import os
import pickle
import signal
import sys
import threading
import time
import unittest

import winnow
from reducer_test import OPTIONS, over_tcp, over_threads, run


def floats(count=4):
    return array.array("f", [1.0] * count)


def segment(data=None, number=1):
    return winnow.Segment(floats() if data is None else data, number)


# A use of every public member. Where they are closed, each raises UsageError.
USES = {
    winnow.Reducer: {
        "all_reduce": lambda r: r.all_reduce(floats(), 1),
        "all_reduce_bucket": lambda r: r.all_reduce_bucket([segment()]),
        "all_reduce_async": lambda r: r.all_reduce_async([segment()]),
        "start": lambda r: r.start((winnow._library.Segment * 0)(), None),
        "reduce_scatter": lambda r: r.reduce_scatter(floats(4 * r._size), floats(), 1),
        "all_reduce_rows": lambda r: r.all_reduce_rows(array.array("q", [0]), memoryview(
            floats()).cast("b").cast("f", (1, 4)), 4, 1),
        "synchronize": lambda r: r.synchronize(),
        "residual": lambda r: r.residual(1),
        "begin_step": lambda r: r.begin_step(),
        "discard_step": lambda r: r.discard_step(),
        "scale_residuals": lambda r: r.scale_residuals(2),
        "look_ahead": lambda r: r.look_ahead(1, floats(), floats(), 1),
        "look_ahead_at": lambda r: r.look_ahead_at(1, 0, 0, 0, 1),
        "look_ahead_share": lambda r: r.look_ahead_share(0),
        "save": lambda r: r.save(),
        "load": lambda r: r.load(b""),
        "options": lambda r: r.options,
        "last": lambda r: r.last(),
        "totals": lambda r: r.totals(),
        "bucket_stats": lambda r: r.bucket_stats(),
        "schedule_stats": lambda r: r.schedule_stats(),
        "__enter__": lambda r: r.__enter__(),
    },
    winnow.Transport: {
        "rank": lambda t: t.rank,
        "size": lambda t: t.size,
        "node": lambda t: t.node,
        "duplicate": lambda t: t.duplicate(1),
        "abort": lambda t: t.abort("why"),
        "call": lambda t: t.call(print, "why"),
        "__enter__": lambda t: t.__enter__(),
    },
    winnow.TcpListener: {
        "address": lambda l: l.address,
        "connect": lambda l: l.connect(0, ["a"], 1),
        "__enter__": lambda l: l.__enter__(),
    },
}
USES_OF_A_TRANSPORT = {
    "Reducer": winnow.Reducer,
    "mixed_transport": lambda t: winnow.mixed_transport(t, winnow.local_transports(1)[0]),
    "mixed_transport, of the node": lambda t: winnow.mixed_transport(winnow.local_transports(1)[0], t),
    "nccl_transport": winnow.nccl_transport,
}


def make(kind):
    if kind is winnow.TcpListener:
        return winnow.TcpListener("lo")
    transport, = winnow.local_transports(1)
    return transport if kind is winnow.Transport else winnow.Reducer(transport)


class HandlesTest(unittest.TestCase):
    def test_every_public_member_has_a_row(self):
        for kind, uses in USES.items():
            public = {name for name in vars(kind) if not name.startswith("_")}
            self.assertEqual(public - {"close"}, set(uses) - {"__enter__"})

    def refuse(self, made, why):
        for name, use in USES[type(made)].items():
            with self.subTest(kind=type(made).__name__, member=name):
                with self.assertRaisesRegex(winnow.UsageError, why):
                    use(made)

    def test_no_use_after_close(self):
        for kind in USES:
            made = make(kind)
            made.close()
            made.close()
            self.refuse(made, "is closed")
            with make(kind) as made:
                made.close()
            self.refuse(made, "is closed")
        closed = make(winnow.Transport)
        closed.close()
        for name, use in USES_OF_A_TRANSPORT.items():
            with self.subTest(use=name), self.assertRaisesRegex(winnow.UsageError, "is closed"):
                use(closed)
        reducer = make(winnow.Reducer)
        reducer.close()
        self.refuse(reducer.transport, "is closed")

    def test_nobody_makes_what_calls_return(self):
        """Of a pointer that is none the interpreter would end."""
        made, = winnow.local_transports(1)
        for wrong in 5, 7, 0, -1, "x", None, 1.5, made, made._handle._pointer:
            for kind, makers in (winnow.Transport, "local_transports"), (winnow.Work, "all_reduce_async"):
                with self.subTest(kind=kind.__name__, of=wrong):
                    self.assertRaisesRegex(winnow.UsageError, makers, kind, wrong)
                    self.assertRaisesRegex(winnow.UsageError, makers, kind, wrong, wrong)
            for kind in winnow.Reducer, winnow.TcpListener:
                if wrong not in (None, made) and not (kind is winnow.TcpListener and wrong == "x"):
                    self.assertRaises(winnow.UsageError, kind, wrong)
        self.assertRaises(winnow.UsageError, winnow.Transport)

    def test_a_reducer_outlives_its_closed_transport(self):
        def body(transport):
            reducer = winnow.Reducer(transport, "topk:1", **OPTIONS)
            transport.close()
            data = floats()
            reducer.all_reduce(data, 1)
            self.refuse(transport, "is closed")
            return data[0]

        self.assertEqual(run(over_threads(2), body), [2.0, 2.0])

    def test_close_under_a_call(self):
        """What cannot wait for it ends with it."""
        transport, _peer = winnow.local_transports(2)
        listener, lost = winnow.TcpListener("lo"), winnow.TcpListener("lo")
        for one, call in ((transport, lambda: transport.duplicate(0.2)),
                          (listener, lambda: listener.connect(0, [listener.address, lost.address], 0.2))):
            errors = []

            def fail(call=call):
                try:
                    call()
                except winnow.CommError as error:
                    errors.append(error)

            caller = threading.Thread(target=fail)
            caller.start()
            while not one._handle.busy():
                pass
            one.close()
            self.refuse(one, "is closed")
            caller.join()
            self.assertEqual(len(errors), 1)
            self.assertIsNone(one._handle._pointer)

    def test_parts_of_a_mixed_transport_are_closed(self):
        world, = winnow.local_transports(1)
        node, = winnow.local_transports(1)
        mixed = winnow.mixed_transport(world, node)
        self.refuse(world, "is closed")
        self.refuse(node, "is closed")
        self.assertEqual(mixed.size, 1)
        with self.assertRaisesRegex(winnow.UsageError, "one twice"):
            winnow.mixed_transport(mixed, mixed)

    def test_wrong_things_where_a_transport_is_meant(self):
        for wrong in None, "tcp", make(winnow.Reducer):
            for name, use in USES_OF_A_TRANSPORT.items():
                with self.subTest(use=name, of=wrong):
                    self.assertRaises(winnow.UsageError, use, wrong)

    def test_a_child_of_a_fork_gets_errors(self):
        transport, = winnow.local_transports(1)
        made = [make(kind) for kind in USES] + [transport]
        reducer = made[0]
        work = reducer.all_reduce_async([segment()])
        waits = {"wait": work.wait, "detach": work.detach, "on_complete": lambda: work.on_complete(print)}
        child = os.fork()
        if child == 0:
            failures = []
            uses = [(kind.__class__.__name__ + "." + name, lambda u=use, k=kind: u(k)) for kind in made
                    for name, use in USES[type(kind)].items() if name != "abort"]
            for name, use in uses + list(waits.items()):
                try:
                    use()
                    failures.append(name)
                except winnow.UsageError as error:
                    if "fork" not in str(error):
                        failures.append(f"{name}: {error}")
            transport.abort("nothing happens")
            for one in made:
                one.close()
            del work, waits, uses, made
            gc.collect()
            print(*failures, sep="\n", end="", flush=True, file=sys.stderr)
            os._exit(len(failures))
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        work.wait()

    def test_nothing_is_copied_or_pickled(self):
        reducer = make(winnow.Reducer)
        for one in reducer, reducer.transport, make(winnow.TcpListener), reducer.all_reduce_async([]):
            for way in copy.copy, copy.deepcopy, pickle.dumps:
                with self.assertRaisesRegex(TypeError, type(one).__name__):
                    way(one)

    def test_threads_share_a_reducer(self):
        data = [floats(100) for _ in range(8)]
        with make(winnow.Reducer) as reducer:
            def call(mine):
                for number in range(50):
                    if number % 3 == 0:
                        reducer.all_reduce_async([segment(mine, 1)]).wait()
                    elif number % 3 == 1:
                        reducer.all_reduce(mine, 1)
                    reducer.totals()

            threads = [threading.Thread(target=call, args=(mine,)) for mine in data]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(reducer.totals()["calls"], 8 * 34)
        self.assertEqual(data, [floats(100)] * 8)

    def test_an_arrays_memory_stays_during_a_call(self):
        def body(transport):
            with winnow.Reducer(transport, "topk:1", **OPTIONS) as reducer:
                if transport.rank == 1:
                    grown.wait(30)
                for data in floats(), bytearray(array.array("f", [1.0] * 4).tobytes()):
                    viewed = memoryview(data).cast("B").cast("f")
                    work = reducer.all_reduce_async([winnow.Segment(viewed, 1)])
                    del viewed
                    if transport.rank == 0 and not grown.is_set():
                        self.assertRaises(BufferError, data.extend, data)
                        grown.set()
                    work.wait()
                    data.extend(data)  # here it may
                    self.assertEqual(memoryview(data).cast("B").cast("f").tolist(), [2.0] * 8)
                # What only a call without a Work holds.
                data = floats()
                if transport.rank == 0:
                    caller = threading.Thread(target=reducer.all_reduce, args=(data, 1))
                    caller.start()
                    begun = False
                    while not begun:
                        begun = reducer._handle.busy()
                    self.assertRaises(BufferError, data.append, 0.0)
                    called.set()
                    caller.join()
                else:
                    called.wait(30)
                    reducer.all_reduce(data, 1)
                data.append(0.0)
                self.assertEqual(list(data), [2.0] * 4 + [0.0])

        grown, called = threading.Event(), threading.Event()
        run(over_tcp(2), body)

    def test_calls_run_in_the_order_in_which_they_come(self):
        """So a thread that polls statistics does not keep the others from their calls."""
        reducer, order, threads = make(winnow.Reducer), [], []
        handle, first = reducer._handle, threading.Event()

        def poll():
            handle.call(lambda _: first.wait(30), blocks=False)
            reducer.totals()
            order.append("poll")

        def train(number):
            handle.call(lambda _: order.append(number), blocks=False)

        for number, body in enumerate([poll] + [lambda number=n: train(number) for n in range(5)]):
            threads.append(threading.Thread(target=body))
            threads[-1].start()
            while not handle.busy() or len(handle._turn._waiters) < number:
                time.sleep(0.001)
        first.set()
        for thread in threads:
            thread.join()
        self.assertEqual(order, [0, 1, 2, 3, 4, "poll"])

    def test_an_interrupted_wait_keeps_nobody(self):
        """A signal comes while the main thread waits for another's call, and its handler makes one."""
        def handler(*_):
            with self.assertRaisesRegex(winnow.UsageError, "in a call of this Reducer"):
                reducer.totals()
            raise InterruptedError

        def interrupt():
            while not handle._turn._waiters:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGUSR1)
            while handle._turn._waiters:
                time.sleep(0.001)

        reducer = make(winnow.Reducer)
        handle = reducer._handle
        before = signal.signal(signal.SIGUSR1, handler)
        other = threading.Thread(target=lambda: handle.call(lambda _: interrupt(), blocks=False))
        try:
            other.start()
            while not handle.busy():
                pass
            self.assertRaises(InterruptedError, reducer.all_reduce, floats(), 1)
        finally:
            signal.signal(signal.SIGUSR1, before)
        other.join()
        reducer.all_reduce(floats(), 1)
        self.assertEqual(reducer.totals()["calls"], 1)

    def test_a_signal_handler_or_finalizer_within_a_call_gets_an_error(self):
        reducer = make(winnow.Reducer)
        with self.assertRaisesRegex(winnow.UsageError, "in a call of this Reducer"):
            reducer._handle.call(lambda _: reducer.totals(), blocks=False)
        self.assertEqual(reducer.totals()["calls"], 0)


if __name__ == "__main__":
    unittest.main()
