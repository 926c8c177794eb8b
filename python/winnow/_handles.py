# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Pointers of the library: who may use them, and how they end."""
import atexit
import collections
import itertools
import sys
import threading
import time
import weakref
from typing import Any, Callable, Deque, Dict, Optional

from winnow._calls import Job, Process, in_main_thread, start
from winnow._library import UsageError, library


class Handle:
    """A pointer of the library and the rules of its calls: one at a time, in the order in which they
    come; none once it is closed; none in a child of a fork.

    `noun`: what errors call it. `destroy(pointer)` runs once, when it is closed, no call runs and
    nobody keeps it. `stop(reason)`, which never blocks, makes calls that run end soon and says whether
    there were any; it comes before `destroy` where the caller cannot wait: in finalizers and at the
    interpreter's exit. `anywhere`: whether any thread may destroy it, or only the main one."""

    stop: Optional[Callable[[str], bool]] = None
    anywhere = True

    def __init__(self, noun: str, pointer: Any, destroy: Callable[[Any], Any]):
        self.noun, self._pointer, self._destroy = noun, pointer, destroy
        self._forks = Process.forks
        # Guards what follows; reentrant, since the garbage collector may run `drop` anywhere.
        self._lock = threading.RLock()
        self._turn = threading.Condition(self._lock)
        self._job: Any = None  # the call that runs
        self._caller: Optional[int] = None  # the thread that waits for it
        self._queue: Deque[int] = collections.deque()  # threads whose calls are to run, the next first
        self._closed = self._ended = False
        self._users = 0
        self._number = next(_numbers)
        _open[self._number] = self

    @classmethod
    def of(cls, owner: Any, *arguments: Any) -> "Handle":
        """A handle that is dropped when its owner is garbage."""
        handle = cls(type(owner).__name__, *arguments)
        weakref.finalize(owner, handle.drop).atexit = False
        return handle

    def foreign(self) -> bool:
        """Whether this is a child of a fork."""
        return self._forks != Process.forks

    def expect_open(self) -> None:
        """UsageError unless calls are possible."""
        if self._forks != Process.forks:
            raise UsageError(f"a {self.noun} belongs to the process that made it; this is a child of a "
                             "fork: make another one here")
        if self._closed:
            raise UsageError(f"this {self.noun} is closed")

    def busy(self) -> bool:
        """Whether a call runs."""
        return self._job is not None

    def _begin(self, job: Any) -> None:
        self.expect_open()
        caller = threading.get_ident()
        with self._lock:
            if caller == self._caller or caller in self._queue:
                raise UsageError(f"this thread is in a call of this {self.noun}: a signal handler or "
                                 "a finalizer must not make another one")
            try:
                self._queue.append(caller)
                self._turn.wait_for(lambda: self._job is None and self._queue[0] == caller)
                self.expect_open()
                self._job, self._caller = job, caller
            finally:
                if caller in self._queue:
                    self._queue.remove(caller)
                if self._job is None:
                    self._turn.notify_all()

    def _end(self, job: Any) -> None:
        with self._lock:
            if self._job is not job:
                return
            self._job = self._caller = None
            self._turn.notify_all()
        if self._closed:
            self._destroy_if_due()

    def call(self, function: Callable[..., Any], *arguments: Any, blocks: bool = True,
             last: bool = False) -> Any:
        """function(pointer, *arguments). `blocks`: whether it may, so that signals interrupt it in the
        main thread; otherwise this thread makes the call. `last`: no call may follow."""
        if not blocks or not in_main_thread():
            token = object()
            try:
                self._begin(token)
                self._closed |= last
                return function(self._pointer, *arguments)
            finally:
                self._end(token)
        job = Job(lambda: function(self._pointer, *arguments), self._end)
        try:
            self._begin(job)
            self._closed |= last
            return job.perform()
        finally:
            if job.claim():  # a signal came before anybody made the call
                self._end(job)
            elif self._job is job:  # it goes on alone
                self._caller = None

    def close(self, waits: bool, blocks: bool = True) -> None:
        """No call may follow. The pointer ends at once, or with the call that runs; if `waits`, before
        this returns. Nothing happens where it was closed before, and in a child of a fork."""
        if self.foreign() or self._closed:
            return
        if not waits:
            self._shut()
            self._destroy_if_due()
            return
        try:
            self.call(lambda _: None, blocks=blocks, last=True)
        except UsageError:
            if not self._closed:  # by another thread, meanwhile
                raise

    def _shut(self) -> None:
        self._closed = True

    def _destroy_if_due(self) -> None:
        with self._lock:
            if not self._closed or self._job is not None or self._users > 0:
                return
            pointer, self._pointer = self._pointer, None
        if pointer is None:
            return
        try:
            self._destroy(pointer)
        finally:
            with self._turn:
                self._ended = True
                self._turn.notify_all()
            _open.pop(self._number, None)

    def keep(self) -> None:
        """The pointer lives until release, even if it is closed."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """See keep."""
        with self._lock:
            self._users -= 1
        self._destroy_if_due()

    def abort(self, reason: str) -> None:
        """Of a transport, by any thread at any time, even if it is closed and kept."""
        if self.foreign():
            return
        with self._lock:
            if self._pointer is not None:
                library.winnow_transport_abort(self._pointer, reason.encode(errors="replace"))

    def drop(self) -> None:
        """For finalizers, in any thread. Does not wait for a call."""
        if self.foreign():
            return
        self._shut()
        stopped = self.stop is not None and self.stop("a rank has dropped its Reducer with a call in "
                                                      "flight")
        if not self.anywhere and not in_main_thread():
            return  # until the exit
        if stopped and self.anywhere or in_callback():  # `destroy` waits, perhaps for this thread
            start(Job(self._destroy_if_due))
        else:
            self._destroy_if_due()

    def leave(self) -> None:
        """The first half of drop, at the interpreter's exit."""
        self._shut()
        if self.stop is not None:
            self.stop("a rank's process ended with a call in flight")

    def await_end(self, until: float) -> None:
        """Returns when the pointer has ended, or at that time.monotonic(); at once if it is in a call
        that cannot be stopped."""
        if self.stop is None and self.busy():
            return
        with self._turn:
            self._turn.wait_for(lambda: self._ended, max(0.0, until - time.monotonic()))


_open: Dict[int, Handle] = {}  # in the order in which they were made
_numbers = itertools.count()
_thread = threading.local()


def in_callback() -> Any:
    """Whose callback this thread runs; None if it runs none."""
    return getattr(_thread, "callback_of", None)


def set_in_callback(whose: Any) -> Any:
    """Returns what it was."""
    before, _thread.callback_of = in_callback(), whose
    return before


@atexit.register
def _leave() -> None:
    """Ends what is open, before the interpreter takes the threads that run calls and callbacks.
    What does not end in a few seconds is left to the system."""
    handles = [handle for handle in reversed(list(_open.values())) if not handle.foreign()]
    if not handles:
        return
    until = time.monotonic() + 5
    for handle in handles:
        handle.leave()
    start(Job(lambda: [handle._destroy_if_due() for handle in handles if handle.anywhere]))
    for handle in handles:
        if handle.anywhere:
            handle.await_end(until)
        else:
            handle._destroy_if_due()


def _stop_after_ctrl_c() -> None:
    """Lets threads go that the interpreter waits for at its exit, if Ctrl-C has ended the main one."""
    ended_by = getattr(sys, "last_type", None)
    if ended_by is not None and issubclass(ended_by, KeyboardInterrupt):
        for handle in list(_open.values()):
            if handle.stop is not None and not handle.foreign():
                handle.stop("a rank's process was interrupted in a call")


# Python has no public name for it, before 3.9 none at all.
getattr(threading, "_register_atexit", lambda _: None)(_stop_after_ctrl_c)


class Bound:
    """What belongs to its process: neither copied nor pickled."""

    def __reduce_ex__(self, _protocol: Any) -> Any:
        raise TypeError(f"a winnow.{type(self).__name__} cannot be copied or pickled: it belongs to the "
                        "process that made it")


class Made(Bound):
    """What calls return and nobody makes: its class is a type alone, since a pointer that is none
    would end the interpreter."""

    _makers = ""

    def __init__(self, *_: Any, **__: Any):
        kind = type(self).__name__
        raise UsageError(f"nobody makes a {kind} by {kind}(): take {self._makers}")
