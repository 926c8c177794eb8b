# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The thread that completes what the hook has promised."""
import queue
import threading
import weakref
from typing import Optional

import torch

from winnow.torch.overlap import Overlap
from winnow.torch.place import Place
from winnow.work import Work

ACTIVITY = "winnow::all_reduce"  # what profilers show


def _complete(calls: "queue.SimpleQueue", overlap: Overlap) -> None:
    """Waits without the interpreter's lock, and keeps nothing of a call that is complete."""
    while (call := calls.get()) is not None:
        place, work, future, buffer = call
        try:
            try:
                with torch.profiler.record_function(ACTIVITY):
                    work.wait()
            finally:
                overlap.end()  # before anybody goes on
            place.complete(future, buffer)
        except Exception as error:  # pylint: disable=broad-except
            future.set_exception(error)
        del call, place, work, future, buffer


class Completer:
    """Completes futures in the order of calls, by a thread of its own, which ends with it."""

    def __init__(self, overlap: Overlap) -> None:
        self._overlap = overlap
        self._calls: "queue.SimpleQueue" = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None

    def add(self, place: Place, work: Work, future: torch.futures.Future,
            buffer: torch.Tensor) -> None:
        """The future has the buffer once the work is done, or its error."""
        if self._thread is None:
            self._thread = threading.Thread(target=_complete, args=(self._calls, self._overlap),
                                            daemon=True, name="winnow")
            self._thread.start()
            weakref.finalize(self, self._calls.put, None).atexit = False
        self._calls.put((place, work, future, buffer))

    def close(self) -> None:
        """Returns when all futures are complete. None may follow."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()
