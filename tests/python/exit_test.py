# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Signals during calls that would last for ten minutes, and interpreters that end during them. Each
case is a process of its own, of which this one is the other rank where it needs one."""
import array
import os
import subprocess
import sys
import textwrap
import threading
import unittest

import winnow
from reducer_test import OPTIONS, free_port

# `reducer` is one of two ranks, and the other one never calls; what blocks does so for ten minutes.
PRELUDE = """
import array, faulthandler, os, signal, sys, threading, time
import winnow
faulthandler.enable()
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
OPTIONS = {**OPTIONS, "deadline": 600}
def floats(): return array.array("f", [1.0] * 100)
def pair():
    transports, made = winnow.local_transports(2), [None, None]
    def make(rank): made[rank] = winnow.Reducer(transports[rank], "topk:1", **OPTIONS)
    other = threading.Thread(target=make, args=(1,))
    other.start()
    make(0)
    other.join()
    return made
loose, apart = winnow.local_transports(2), winnow.local_transports(2)
def begin(): return reducer.all_reduce_async([winnow.Segment(floats(), 1)])
def until(blocked):
    while not blocked(): time.sleep(0.001)
    time.sleep(0.05)  # until it is in the library, most likely; before is right, too
"""
# Of daemon threads whose calls end.
TRACEBACKS = "(?s)^(?!.*(Fatal|terminate called))"
# Calls that never end by themselves.
BLOCKING = {
    "all_reduce": "reducer.all_reduce(floats(), 1)",
    "all_reduce behind another one": "begin(); reducer.all_reduce(floats(), 2)",
    "reduce_scatter": "reducer.reduce_scatter(floats(), floats()[:50], 1)",
    "all_reduce_rows": "reducer.all_reduce_rows(array.array('q', [0]), memoryview(floats()).cast('b').cast("
                       "'f', (1, 100)), 4, 1)",
    "wait": "begin().wait()",
    "wait in a with block": "\nwith reducer: begin().wait()",
    "synchronize": "begin(); reducer.synchronize()",
    "save": "begin().detach(); reducer.synchronize(); reducer.save()",
    "close": "begin(); reducer.close()",
    "Reducer": "winnow.Reducer(loose[0], **OPTIONS)",
    "duplicate": "apart[0].duplicate(600)",
    "tcp_transport": "winnow.tcp_transport(0, 2, '127.0.0.1', PORT, timeout=600)",
    "tcp_transport of another rank": "winnow.tcp_transport(1, 2, '127.0.0.1', PORT + 1, timeout=600)",
    "connect": "listener.connect(0, [listener.address, lost.address], 600)",
}


def start(code, **names):
    """A process that runs this code."""
    constants = "".join(f"{name} = {value!r}\n" for name, value in {"OPTIONS": OPTIONS, **names}.items())
    return subprocess.Popen([sys.executable, "-c", constants + PRELUDE + textwrap.dedent(code)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class EndsTest(unittest.TestCase):
    def expect(self, process, out, err="^$", status=0):
        """A process ends long before its calls would."""
        try:
            found = process.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f"a process hangs: {process.communicate()}")
        self.assertRegex(found[0], out)
        self.assertRegex(found[1], err, found[1])
        self.assertEqual(process.returncode, status, found)

    def test_ctrl_c_ends_each_call(self):
        """Each in turn, in the main thread; then the process ends with calls in flight."""
        process = start("""
            reducer, other = pair()
            listener, lost = winnow.TcpListener("lo"), winnow.TcpListener("lo")
            main = threading.main_thread().ident
            def interrupt():
                until(lambda: "_calls.py" in sys._current_frames()[main].f_code.co_filename)
                os.kill(os.getpid(), signal.SIGINT)
            for name, call in BLOCKING.items():
                killer = threading.Thread(target=interrupt)
                killer.start()
                try:
                    exec(compile(call, name, "exec"))
                    print("no interrupt in", name)
                except KeyboardInterrupt:
                    print("ok", name)
                killer.join()
                reducer, other = pair()
            begin()
            print("end")
        """, BLOCKING=BLOCKING, PORT=free_port())
        self.expect(process, "^" + "".join(f"ok {name}\n" for name in BLOCKING) + "end\n$")

    def test_ctrl_c_ends_a_meeting(self):
        process = start("""
            import socket
            from winnow import _calls
            main = threading.main_thread().ident
            def interrupt():
                until(lambda: "_calls.py" in sys._current_frames()[main].f_code.co_filename)
                os.kill(os.getpid(), signal.SIGINT)
            for rank in 0, 1:
                killer = threading.Thread(target=interrupt)
                killer.start()
                try:
                    winnow.tcp_transport(rank, 2, "127.0.0.1", PORT, timeout=600)
                except KeyboardInterrupt:
                    until(lambda: _calls._idle)  # the call has returned
                killer.join()
                socket.create_server(("127.0.0.1", PORT)).close()
            print("end")
        """, PORT=free_port())
        self.expect(process, "^end\n$")

    def test_an_uncaught_ctrl_c_ends_the_process(self):
        calls = ("reducer.all_reduce(floats(), 1)", "with reducer: begin().wait()",
                 "\ntry: reducer.all_reduce(floats(), 1)\nfinally: reducer.close()")
        interrupt = """
            reducer, other = pair()
            def interrupt():
                until(lambda: reducer._handle.busy() or reducer._calls._calls)
                os.kill(os.getpid(), signal.SIGINT)
            threading.Thread(target=interrupt).start()
            """
        for process in [start(textwrap.dedent(interrupt) + call) for call in calls]:
            self.expect(process, "^$", "KeyboardInterrupt\n$", -2)

    def test_ctrl_c_in_the_main_thread_ends_the_calls_of_others(self):
        """Which the interpreter waits for at its exit."""
        process = start("""
            reducer, other = pair()
            worker = threading.Thread(target=reducer.all_reduce, args=(floats(), 1))
            worker.start()
            def interrupt():
                until(lambda: reducer._handle.busy())
                os.kill(os.getpid(), signal.SIGINT)
            threading.Thread(target=interrupt).start()
            # Not join: interrupted, Python 3.11 takes the thread for one that has ended.
            while worker.is_alive(): time.sleep(0.01)
        """)
        self.expect(process, "^$", "(?s)KeyboardInterrupt.*was interrupted in a call\n$", -2)

    def test_other_signals_are_handled_while_the_call_goes_on(self):
        process = start("""
            reducer, other = pair()
            def come(*_):
                try:
                    reducer.totals()
                except winnow.UsageError as error:
                    print(error)
                threading.Thread(target=other.all_reduce, args=(floats(), 1)).start()
            signal.signal(signal.SIGUSR1, come)
            def send():
                until(reducer._handle.busy)
                os.kill(os.getpid(), signal.SIGUSR1)
            threading.Thread(target=send).start()
            data = floats()
            reducer.all_reduce(data, 1)
            print(data[0], data[99])
        """)
        self.expect(process, "^this thread is in a call of this Reducer.*\n2.0 2.0\n$")

    def test_an_interrupted_wait_may_be_repeated(self):
        process = start("""
            reducer, other = pair()
            data = floats()
            work = reducer.all_reduce_async([winnow.Segment(data, 1)])
            def interrupt():
                until(lambda: work._call._leader)
                os.kill(os.getpid(), signal.SIGINT)
            threading.Thread(target=interrupt).start()
            try:
                work.wait()
            except KeyboardInterrupt:
                other.all_reduce(floats(), 1)
                work.wait()
                reducer.all_reduce_async([])
                other.all_reduce_bucket([])
                reducer.close()
                print(data[0])
        """)
        self.expect(process, "^2.0\n$")

    def test_an_exit_with_a_call_in_flight_tells_the_others(self):
        ways = ("work = begin()", "begin().detach()", "holder = [begin()]; holder.append(holder)",
                "threading.Thread(target=reducer.all_reduce, args=(floats(), 1), daemon=True).start()"
                "\nuntil(reducer._handle.busy)")
        ports = [free_port() for _ in ways]
        processes = [start("reducer = winnow.Reducer(winnow.tcp_transport(1, 3, '127.0.0.1', PORT), "
                           f"'topk:1', **OPTIONS)\n{way}", PORT=port)
                     for way, port in zip(ways, ports)]
        for process, port in zip(processes, ports):
            made = {}

            def make(rank):
                transport = winnow.tcp_transport(rank, 3, "127.0.0.1", port, timeout=60)
                made[rank] = winnow.Reducer(transport, "topk:1", **{**OPTIONS, "deadline": 600})

            makers = [threading.Thread(target=make, args=(rank,)) for rank in (0, 2)]
            for maker in makers:
                maker.start()
            for maker in makers:
                maker.join()
            with self.assertRaisesRegex(winnow.CommError, "rank 1.*process ended with a call in flight"):
                made[0].all_reduce(array.array("f", [1.0] * 100), 1)
            self.expect(process, "^$", TRACEBACKS)

    def test_an_exit_during_calls_of_daemon_threads(self):
        """Which may also loop, wait, call back, or not have met anybody."""
        process = start("""
            reducer, other = pair()
            listener, lost = winnow.TcpListener("lo"), winnow.TcpListener("lo")
            def loop(call):
                while True:
                    try: call()
                    except winnow.Error: time.sleep(0)
            def both():
                for number in range(3):
                    threading.Thread(target=loop, args=(calls[number],), daemon=True).start()
            calls = [lambda: reducer.all_reduce(floats(), 1), lambda: other.all_reduce(floats(), 1),
                     lambda: begin_called_back()]
            def begin_called_back():
                work = third.all_reduce_async([winnow.Segment(floats(), 1)])
                work.on_complete(lambda _: None)
                work.wait()
            third, fourth = pair()
            both()
            threads = []
            for call in BLOCKING.values():
                reducer_of_it, kept = pair()
                run = lambda code=call, one=reducer_of_it: exec(code, {
                    **globals(), "reducer": one,
                    "begin": lambda: one.all_reduce_async([winnow.Segment(floats(), 1)])})
                threads.append(threading.Thread(target=run, daemon=True))
                threads[-1].start()
            time.sleep(0.2)
            sys.excepthook = threading.excepthook = lambda *_: None
            print("end")
        """, BLOCKING=BLOCKING, PORT=free_port())
        self.expect(process, "^end\n$", TRACEBACKS)

    def test_an_exit_with_everything_open(self):
        process = start("""
            reducer, other = pair()
            listener = winnow.TcpListener("lo")
            cycle = [reducer, listener, loose]
            cycle.append(cycle)
            print("end")
        """)
        self.expect(process, "^end\n$")


if __name__ == "__main__":
    unittest.main()
