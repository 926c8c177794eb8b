# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Calls in flight."""
import _thread
import ctypes
import itertools
import threading
import weakref
from typing import Any, Callable, Dict, Optional, Tuple

from winnow import _library
from winnow._calls import Job, Process
from winnow._handles import Made, in_callback, set_in_callback
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
    """One of them. One thread waits for it in the library, and others for that thread.

    In the main thread a signal handler may raise an exception between any two lines, also when the
    library has done what was asked. So a Call is in flight before the library knows of it, and what it
    keeps goes only once the library has said that the call is done."""

    def __init__(self, calls: Calls, keeps: Any):
        self._calls, self._keeps = calls, keeps
        self._forks = Process.forks
        self.pointer: Any = ctypes.c_void_p()  # None once the library has forgotten it
        # Guards what follows; reentrant, since the garbage collector may run `drop` anywhere.
        self._lock = threading.RLock()
        self._turn = threading.Condition(self._lock)
        self._leader: Optional[Job] = None  # that of the thread in the library
        self._error: Optional[Exception] = None
        self._detached = False
        calls.add(self)

    def _expect_own_process(self) -> None:
        if self._forks != Process.forks:
            raise UsageError("a Work belongs to the process that made it; this is a child of a fork")

    def give_up(self) -> None:
        """Whoever began it has got an exception instead of a Work."""
        if self.pointer.value is None:
            self._calls.discard(self)
        else:
            self.drop()

    def wait(self) -> None:
        """See Work.wait."""
        self._expect_own_process()
        leader = Job(self._finish)
        try:
            with self._lock:
                if self.pointer is not None:
                    self._calls.expect_outside_callbacks()
                while self._leader is not None:
                    self._turn.wait()
                if self.pointer is None:
                    if self._error is not None:  # anew: each thread adds its own traceback
                        raise type(self._error)(*self._error.args)
                    return
                self._leader = leader
            if self._calls.threads:
                leader.perform()
            else:
                self._finish()
        finally:
            if leader.claim():  # nobody else waits on its behalf
                with self._lock:
                    if self._leader is leader:
                        self._leader = None
                        self._turn.notify_all()

    def _finish(self) -> None:
        try:
            library.winnow_work_wait(self.pointer)
        except Exception as error:
            self._error = type(error)(*error.args)
            self._let_go()
            raise
        self._let_go()

    def _let_go(self) -> None:
        """The library has nothing to say of it any more."""
        if not self._detached:
            self._forget()
        with self._lock:
            pointer, self.pointer, self._leader = self.pointer, None, None
            self._turn.notify_all()
        library.winnow_work_destroy(pointer)

    def _forget(self, _error: Optional[Exception] = None) -> None:
        self._keeps = None
        self._calls.discard(self)

    def settle(self) -> None:
        """Waits unless it is detached, and drops what that raises."""
        try:
            self.wait()
        except Exception:  # pylint: disable=broad-except
            pass  # its Work knows

    def runs(self) -> bool:
        """Whether it is not done, as far as one can know without waiting."""
        with self._lock:
            if self.pointer is None or self._leader is not None or not self._calls.threads:
                return True
            if self.pointer.value is None:
                return False
            done = ctypes.c_int()
            try:
                library.winnow_work_test(self.pointer, ctypes.byref(done))
            except _library.Error:
                pass
            return done.value == 0

    def on_complete(self, callback: OnComplete) -> None:
        """See Work.on_complete."""
        self._expect_own_process()
        if not callable(callback):
            raise UsageError(f"on_complete takes a function, not {callback!r}")
        with self._lock:
            if self.pointer is None or self._leader is not None or self._detached:
                raise UsageError("on_complete of a Work that has waited, waits or is detached")
            self._call_back(callback)

    def _call_back(self, callback: OnComplete) -> None:
        number = next(_numbers)
        _callbacks[number] = (self._calls, callback)
        try:
            library.winnow_work_on_complete(self.pointer, _complete, number)
        except Exception:
            _callbacks.pop(number, None)
            raise

    def detach(self) -> None:
        """See Work.detach. Nothing happens if it has waited, or if somebody waits."""
        self._expect_own_process()
        with self._lock:
            if self.pointer is None or self._leader is not None:
                return
            self._call_back(self._forget)  # which holds what the library reads and writes
            self._detached = True
            library.winnow_work_detach(self.pointer)
            self._let_go()

    def drop(self) -> None:
        """For a finalizer, in any thread: detaches."""
        if self._forks != Process.forks:
            return
        try:
            self.detach()
        except Exception:  # pylint: disable=broad-except
            pass  # no memory for a callback: the Reducer keeps it until it is closed


class Work(Made):
    """A call in flight. Keeps the arrays alive and their memory where it is; leave them alone until
    wait has returned. A Work that is dropped is detached. Any thread may use it."""

    _makers = "Reducer.all_reduce_async"
    _call: Call
    _reducer: Any

    @classmethod
    def _of(cls, call: Call, reducer: Any) -> "Work":
        self = cls.__new__(cls)
        self._call, self._reducer = call, reducer  # which lives as long as somebody may wait
        weakref.finalize(self, call.drop).atexit = False
        return self

    def wait(self) -> None:
        """Returns when the call is done, or raises what all_reduce raises. Called again, or by several
        threads, it gives the same answer; after Reducer.close, too. Returns at once if detached. Other
        Python threads run meanwhile. Ctrl-C interrupts it; the call then goes on, and wait may be
        called again."""
        try:
            self._call.wait()
            self._reducer.interrupted = False
        except BaseException as error:
            self._reducer.interrupted = not isinstance(error, Exception)
            raise

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


@_library.Completion
def _complete(number: int, status: int) -> None:
    calls, callback = _callbacks.pop(number)
    before = set_in_callback(calls)
    try:
        callback(_library.error_of(status, "all_reduce_async"))
    except KeyboardInterrupt:  # in the main thread; ctypes would drop it
        _thread.interrupt_main()
    finally:
        set_in_callback(before)
