# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What a sum returns before it is done."""
import collections
import copy
import datetime
import threading
from typing import Any, Deque, List, Optional

import torch
import torch.distributed as dist

from winnow._library import CommError
from winnow.torch.overlap import Overlap

_NONE = datetime.timedelta(0)
_SMALL = 4096  # bytes
_recent: "Deque[GroupWork]" = collections.deque(maxlen=16)


class GroupWork(dist.Work):
    """Of one sum. An error is raised by `wait`, as a UsageError or CommError, and is in the future, where
    C++ sees it, too; the call that made the sum raises none. On a GPU `wait` has the current stream wait,
    not the host, once the work is on its stream."""

    def __init__(self, done: "torch.futures.Future[List[torch.Tensor]]", tensors: List[torch.Tensor],
                 overlap: Overlap):
        super().__init__()
        self._done, self._tensors, self._overlap = done, tensors, overlap
        # Whose failure is one for C++ as well, where that of set_exception is a value.
        self._future = done.then(lambda one: one.value())
        self._ended = threading.Event()
        # C++ may hold a Work longer than Python does, and then asks it in vain: so it lives at least until
        # it is done, and small ones, which DistributedDataParallel makes in its forward pass, for longer.
        done.add_done_callback(self._end)
        if sum(one.numel() * one.element_size() for one in tensors) <= _SMALL:
            _recent.append(self)

    def _end(self, _: Any) -> None:
        self._ended.set()

    def wait(self, timeout: Optional[datetime.timedelta] = _NONE) -> bool:
        """True; CommError if it takes longer than `timeout`, if that is above 0."""
        seconds = timeout.total_seconds() if timeout is not None and timeout > _NONE else None
        with self._overlap.waiting():
            if not self._ended.wait(seconds):  # in the main thread Ctrl-C interrupts it
                raise CommError(f"the deadline passed: a sum took longer than the {seconds:g} seconds that wait "
                                "was given")
            error = self.exception()
        if error is not None:
            raise copy.copy(error)  # the future keeps its own without the frames of those that wait
        return True

    def get_future(self) -> "torch.futures.Future[List[torch.Tensor]]":
        """Of the tensors that the sum was given."""
        return self._future

    def is_completed(self) -> bool:
        """Whether wait would return at once."""
        return self._done.done()

    def exception(self) -> Optional[BaseException]:
        """Why it failed; None if it has not."""
        if self._done.done():
            try:
                self._done.wait()
            except Exception as error:  # pylint: disable=broad-except
                return error.with_traceback(None)
        return None

    def is_success(self) -> bool:
        """Whether it is done, and has not failed."""
        return self.is_completed() and self.exception() is None

    def result(self) -> List[torch.Tensor]:
        """The tensors that it was given."""
        self.wait()
        return self._tensors

    def synchronize(self) -> Any:
        """As wait."""
        self.wait()


def failed(error: Exception, tensors: List[torch.Tensor]) -> GroupWork:
    """The Work of a sum that is refused."""
    future: "torch.futures.Future[List[torch.Tensor]]" = torch.futures.Future()
    future.set_exception(error)
    return GroupWork(future, tensors, Overlap())
