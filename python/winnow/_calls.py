# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Calls that block, without keeping signals from the main thread.

Python runs signal handlers in the main thread alone, between its instructions: not while that thread
is in a function of the library. So there another thread makes a call that blocks, and the main thread
waits on a lock, which Ctrl-C interrupts.
"""
import os
import queue
import threading
from typing import Any, Callable, List, Optional


class Job:
    """One call, made by whoever claims it first: the thread that makes it, or the one that gives it
    up. `at_end(job)` runs when the call has returned, in the thread that made it."""

    def __init__(self, body: Callable[[], Any], at_end: Optional[Callable[["Job"], Any]] = None):
        self._body, self._at_end = body, at_end
        self._claimed, self._ended = threading.Lock(), threading.Lock()
        self._ended.acquire()
        self._result: Any = None
        self._error: Any = None

    def claim(self) -> bool:
        """Whether nobody has, so that nobody will make the call. Does not block."""
        return self._claimed.acquire(blocking=False)

    def run(self) -> None:
        """Makes the call, unless it was given up."""
        if not self.claim():
            return
        try:
            self._result = self._body()
        except BaseException as error:  # pylint: disable=broad-except
            self._error = error
        finally:
            self._body = None
            if self._at_end is not None:
                self._at_end(self)

    def end(self) -> None:
        """After run: wakes who waits."""
        self._ended.release()

    def perform(self) -> Any:
        """Makes the call and returns what it returns: in the main thread by another thread. What a
        signal handler raises meanwhile comes from here, and the call goes on without anybody who
        waits."""
        if in_main_thread():
            start(self)
            self._ended.acquire()
        else:
            self.run()
        result, error = self._result, self._error
        self._result = self._error = None
        try:
            if error is not None:
                raise error
            return result
        finally:
            del error  # whose traceback has this frame


def in_main_thread() -> bool:
    """Whether signal handlers run in this thread."""
    return threading.get_ident() == threading.main_thread().ident


class _Helper:
    """A thread that makes one call after another."""

    def __init__(self) -> None:
        self.jobs: "queue.SimpleQueue[Job]" = queue.SimpleQueue()
        # A daemon: the interpreter does not wait for it at its exit, where it may be in a call.
        threading.Thread(target=self._work, daemon=True, name="winnow call").start()

    def _work(self) -> None:
        while True:
            job = self.jobs.get()
            job.run()
            _idle.append(self)
            job.end()
            del job  # or what it holds would live until the next


_idle: List[_Helper] = []


def start(job: Job) -> None:
    """Has another thread make a call; this one if the system has no thread left."""
    try:
        helper = _idle.pop() if _idle else _Helper()
    except RuntimeError:
        job.run()
        job.end()
        return
    helper.jobs.put(job)


class Process:
    """How many forks made this process: those who remember another number belong to a parent."""

    forks = 0


def _fork() -> None:
    Process.forks += 1
    _idle.clear()  # these threads are not here


os.register_at_fork(after_in_child=_fork)
