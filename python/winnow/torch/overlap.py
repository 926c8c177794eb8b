# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""How much of the sums hides behind backward passes."""
import contextlib
import threading
import time
from typing import Dict, Hashable, Iterator


class Overlap:
    """The host's clock of one State: how long sums were in flight, and how long training waited."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_flight, self._since, self._seconds = 0, 0.0, 0.0
        self._passes: Dict[Hashable, int] = {}
        self.wait_seconds = 0.0

    def count(self, which: Hashable) -> None:
        """The backward pass has come to a bucket, or to a module."""
        self._passes[which] = self._passes.get(which, 0) + 1

    @property
    def steps(self) -> int:
        """Backward passes that reduced gradients."""
        return max(self._passes.values(), default=0)

    def begin(self) -> None:
        """One more sum is in flight."""
        with self._lock:
            if self._in_flight == 0:
                self._since = time.perf_counter()
            self._in_flight += 1

    def end(self) -> None:
        """A sum is done, or has failed."""
        with self._lock:
            self._in_flight -= 1
            if self._in_flight == 0:
                self._seconds += time.perf_counter() - self._since

    @property
    def reduce_seconds(self) -> float:
        """In which sums were in flight, one or several."""
        with self._lock:
            running = time.perf_counter() - self._since if self._in_flight > 0 else 0.0
            return self._seconds + running

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, training does nothing but wait for sums."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.wait_seconds += time.perf_counter() - begin

    @contextlib.contextmanager
    def blocking(self) -> Iterator[None]:
        """Inside, training makes a sum itself."""
        with self.waiting():
            self.begin()
            try:
                yield
            finally:
                self.end()
