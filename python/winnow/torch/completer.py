# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The thread that completes what the hook has promised."""
import functools
import queue
import threading
import weakref
from typing import Callable, Optional

import torch

from winnow import _calls
from winnow.torch.overlap import Overlap
from winnow.torch.place import Place
from winnow.work import Work

ACTIVITY = "winnow::all_reduce"  # what profilers show
Deliver = Callable[[Callable[[], None]], None]  # calls a function, which completes a future, now or soon


def at_once(body: Callable[[], None]) -> None:
    """Delivers in this thread, in which callbacks of the future then run: they must wait for no other one."""
    body()


def elsewhere(body: Callable[[], None]) -> None:
    """Delivers in a thread of its own."""
    _calls.start(_calls.Job(body))


def _complete(calls: "queue.SimpleQueue", overlap: Overlap, deliver: Deliver) -> None:
    """Waits without the interpreter's lock, and keeps nothing of a call that is complete."""
    while (call := calls.get()) is not None:
        place, work, future, buffer = call
        try:
            try:
                with torch.profiler.record_function(ACTIVITY):
                    work.wait()
            finally:
                overlap.end()  # before anybody goes on
            deliver(functools.partial(place.complete, future, buffer))
        except Exception as error:  # pylint: disable=broad-except
            deliver(functools.partial(future.set_exception, error))
        del call, place, work, future, buffer


class Completer:
    """Completes futures in the order of calls, by a thread of its own, which ends with it."""

    def __init__(self, overlap: Overlap, deliver: Deliver = at_once) -> None:
        self._overlap, self._deliver = overlap, deliver
        self._calls: "queue.SimpleQueue" = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None

    def add(self, place: Place, work: Work, future: torch.futures.Future,
            buffer: torch.Tensor) -> None:
        """The future has the buffer once the work is done, or its error."""
        if self._thread is None:
            self._thread = threading.Thread(target=_complete, args=(self._calls, self._overlap, self._deliver),
                                            daemon=True, name="winnow")
            self._thread.start()
            weakref.finalize(self, self._calls.put, None).atexit = False
        self._calls.put((place, work, future, buffer))

    def close(self) -> None:
        """Returns when all futures are complete. None may follow."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()
