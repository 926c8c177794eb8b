# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The communication hook of DistributedDataParallel."""
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist

from winnow import _library
from winnow._calls import Job
from winnow._library import ELEMENT_TYPES, UsageError
from winnow.reducer import Reducer
from winnow.segments import Segment
from winnow.torch.agree import agree_to_detach
from winnow.torch.buckets import gradients_of, spans_of
from winnow.torch.checkpoint import Owner, pack, unpack, warn_of_strangers
from winnow.torch.completer import ACTIVITY, Completer
from winnow.torch.marks import Marks
from winnow.torch.meeting import timeout_of
from winnow.torch.names import id_of, listed, unwrapped, warn_of_unmatched
        norms = self.prepare(parameters, gradients, buffer)
        self.rescale(gradients if norms is None else [*gradients, norms.reduced])
        if norms is not None:
            segments = (_library.Segment * (len(parameters) + 1))(*segments, norms.native)
        place.follow(buffer)
        self.overlap.begin()
        try:
            work = reducer.start(segments, buffer)
        except BaseException:
            self.overlap.end()
            raise
        self._completer.add(place, work, future, buffer)
        return future

    def _raise_at_the_end(self, future: torch.futures.Future) -> None:
        """DistributedDataParallel replaces what a future raises by a RuntimeError. So the backward
        pass first runs this callback, which raises the error itself."""
        if not self._futures:
            try:
                torch.autograd.Variable._execution_engine.queue_callback(self._wait)
            except RuntimeError:  # outside of a backward pass, as in ddp.join()
                return
        self._futures.append(future)

    def _wait(self) -> None:
        futures, self._futures = self._futures, []
        with self.overlap.waiting():
            for future in futures:
                if self._place.device.type == "cpu":
                    Job(future.wait).perform()  # which Ctrl-C interrupts
                else:
                    future.wait()


def hook(state: State, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The hook that register_comm_hook takes: averages a bucket over the ranks (unless the option
    `op` says otherwise) while the backward pass goes on. For gradients in host memory, or all on one
    GPU. Errors are raised by the backward pass."""
    with torch.profiler.record_function(ACTIVITY):
        future = state._start(bucket)
    state._raise_at_the_end(future)
    return future
