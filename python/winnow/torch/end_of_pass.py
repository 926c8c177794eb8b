# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a backward pass of DistributedDataParallel, which waits for its sums."""
from typing import List, Tuple

import torch

from winnow._calls import Job
from winnow.torch.overlap import Overlap


class EndOfPass:
    """DistributedDataParallel replaces what a future raises by a RuntimeError. So the backward pass first
    waits here, where the error itself is raised."""

    def __init__(self, overlap: Overlap):
        self._overlap = overlap
        # Of this pass, and whether their gradients lie in host memory.
        self._futures: List[Tuple[torch.futures.Future, bool]] = []

    def wait_for(self, future: torch.futures.Future, is_on_host: bool) -> None:
        """At the end of the pass that runs now."""
        if not self._futures:
            try:
                torch.autograd.Variable._execution_engine.queue_callback(self._wait)
            except RuntimeError:  # outside of a backward pass, as in ddp.join()
                return
        self._futures.append((future, is_on_host))

    def _wait(self) -> None:
        futures, self._futures = self._futures, []
        with self._overlap.waiting():
            for future, is_on_host in futures:
                if is_on_host:
                    Job(future.wait).perform()  # which Ctrl-C interrupts
                else:
                    future.wait()
