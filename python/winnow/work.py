# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Calls in flight."""
import ctypes
import itertools
import os
import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

from winnow import _library
from winnow._calls import Job
from winnow._handles import Bound, in_callback, set_in_callback
from winnow._library import UsageError, library

OnComplete = Callable[[Optional[Exception]], Any]


class Calls:
    """Those of one Reducer that are in flight, in the order in which they were made. `threads`:
    whether the library runs them by a thread of its own."""

    def __init__(self, threads: bool):
        self.threads = threads
        self._calls: Dict["Call", None] = {}

    def add(self, call: "Call") -> None:
        """It is in flight."""
        self._calls[call] = None

    def discard(self, call: "Call") -> None:
        """It is no more."""
        self._calls.pop(call, None)

    def any_runs(self) -> bool:
        """Whether some call is not done."""
        return any(call.runs() for call in list(self._calls))

    def settle(self) -> None:
        """Waits for all that are not detached, whose Works then know their answers."""
        for call in list(self._calls):
            call.settle()

    def expect_outside_callbacks(self) -> None:
        """UsageError in a callback, where a call of the Reducer would wait for the callback."""
        if in_callback() is self:
            raise UsageError("a callback must not use its Reducer, nor wait for its calls")


class Call:
    """One of them. One thread waits for it in the library, and others for that thread."""

    def __init__(self, calls: Calls, pointer: Any, keeps: Any):
        self._calls, self._pointer, self._keeps = calls, pointer, keeps
        self._process = os.getpid()
        # Guards what follows; reentrant, since the garbage collector may run `drop` anywhere.
        self._turn = threading.Condition(threading.RLock())
        self._leader: Optional[Job] = None  # that of the thread in the library
        self._error: Optional[Exception] = None
        calls.add(self)

    def _expect_own_process(self) -> None:
        if self._process != os.getpid():
            raise UsageError("a Work belongs to the process that made it; this is a child of a fork")

    def wait(self) -> None:
        """See Work.wait."""
        self._expect_own_process()
        leader = Job(self._finish)
        try:
            with self._turn:
                if self._pointer is not None:
                    self._calls.expect_outside_callbacks()
                while self._leader is not None:
                    self._turn.wait()
                if self._pointer is None:
                    leader.claim()
                    if self._error is not None:  # anew: each thread adds its own traceback
                        raise type(self._error)(*self._error.args)
                    return
                self._leader = leader
            leader.perform(self._calls.threads)
        finally:
            if leader.claim():  # a signal came before anybody waited
                self._give_up(leader)

    def _give_up(self, leader: Job) -> None:
        with self._turn:
            if self._leader is leader:
                self._leader = None
                self._turn.notify_all()

    def _finish(self) -> None:
        try:
            library.winnow_work_wait(self._pointer)
        except Exception as error:
            self._error = type(error)(*error.args)
            raise
        finally:
            self._let_go()
            self._keeps = None
            self._calls.discard(self)

    def _let_go(self) -> None:
        with self._turn:
            pointer, self._pointer, self._leader = self._pointer, None, None
            self._turn.notify_all()
        library.winnow_work_destroy(pointer)

    def settle(self) -> None:
        """Waits unless it is detached, and drops what that raises."""
        try:
            self.wait()
        except Exception:  # pylint: disable=broad-except
            pass  # its Work knows

    def runs(self) -> bool:
        """Whether it is not done, as far as one can know without waiting."""
        with self._turn:
            if self._pointer is None or self._leader is not None or not self._calls.threads:
                return True
            done = ctypes.c_int()
            try:
                library.winnow_work_test(self._pointer, ctypes.byref(done))
            except _library.Error:
                pass
            return done.value == 0

    def on_complete(self, callback: OnComplete) -> None:
        """See Work.on_complete."""
        self._expect_own_process()
        if not callable(callback):
            raise UsageError(f"on_complete takes a function, not {callback!r}")
        with self._turn:
            if self._pointer is None or self._leader is not None:
                raise UsageError("on_complete of a Work that has waited, waits or is detached")
            self._call_back(callback)

    def _call_back(self, callback: OnComplete) -> None:
        number = next(_numbers)
        _callbacks[number] = (self._calls, callback)
        try:
            library.winnow_work_on_complete(self._pointer, _complete, number)
        except BaseException:
            _callbacks.pop(number, None)
            raise

    def detach(self) -> None:
        """See Work.detach. Nothing happens if it has waited, or if somebody waits."""
        self._expect_own_process()
        with self._turn:
            if self._pointer is None or self._leader is not None:
                return
            self._call_back(self._forget)  # which holds what the library reads and writes
            library.winnow_work_detach(self._pointer)
            self._let_go()

    def _forget(self, _error: Optional[Exception]) -> None:
        self._keeps = None
        self._calls.discard(self)

    def drop(self) -> None:
        """For a finalizer, in any thread: detaches."""
        if self._process != os.getpid():
            return
        try:
            self.detach()
        except Exception:  # pylint: disable=broad-except
            _lost.append(self)  # no memory for a callback: the arrays stay for ever


class Work(Bound):
    """A call in flight. Keeps the arrays alive and their memory where it is; leave them alone until
    wait has returned. A Work that is dropped is detached. Any thread may use it."""

    def __init__(self, call: Call, reducer: Any):
        self._call, self._reducer = call, reducer  # which lives as long as somebody may wait
        weakref.finalize(self, call.drop).atexit = False

    def wait(self) -> None:
        """Returns when the call is done, or raises what all_reduce raises. Called again, or by several
        threads, it gives the same answer; after Reducer.close, too. Returns at once if detached. Other
        Python threads run meanwhile. Ctrl-C interrupts it; the call then goes on, and wait may be
        called again."""
        with self._reducer._interruptions:
            self._call.wait()

    def on_complete(self, callback: OnComplete) -> None:
        """Has `callback` run once, when the call is done: with None, or with what wait raises. It
        runs in the reducer's own thread, so later calls wait for it; or in one that waits, if the
        transport allows no threads; or at once, if the call is done. It must not use the Reducer:
        UsageError. What it raises is printed and dropped. Before wait."""
        self._call.on_complete(callback)

    def detach(self) -> None:
        """Lets go of the call without waiting for it. It goes on, and its arrays live until it is
        done. A callback learns of its error; so do later calls, or synchronize."""
        self._call.detach()


# Callbacks that have not run. The library knows their numbers.
_callbacks: Dict[int, Tuple[Calls, OnComplete]] = {}
_numbers = itertools.count(1)
_lost: List[Call] = []


@_library.Completion
def _complete(number: int, status: int) -> None:
    calls, callback = _callbacks.pop(number)
    before = set_in_callback(calls)
    try:
        callback(_library.error_of(status, "all_reduce_async"))
    finally:
        set_in_callback(before)
