# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Where a model's gradients lie, and how Winnow's work follows what PyTorch does there."""
import abc
import contextlib
from typing import Any, Callable, ContextManager, Dict, Iterator, Mapping

import torch

from winnow._library import UsageError
from winnow.reducer import Reducer
from winnow.transports import Transport

# A transport for gradients on a device, with these options of NCCL.
Connect = Callable[[torch.device, Mapping[str, int]], Transport]


class Place(abc.ABC):
    """Where all gradients of a State are."""

    device: torch.device

    @abc.abstractmethod
    def make_reducer(self, connect: Connect, deadline: float, compressor: str,
                     options: Dict[str, Any]) -> Reducer:
        """Collective: ranks meet by `connect`. `deadline`: of calls, in seconds, where messages have one."""

    @abc.abstractmethod
    def follow(self, buffer: torch.Tensor) -> None:
        """What Winnow does from here on sees what was written to `buffer`."""

    @abc.abstractmethod
    def in_turn(self) -> ContextManager[None]:
        """Winnow's work inside runs between what the caller has done and what it does next."""

    @abc.abstractmethod
    def working(self) -> ContextManager[None]:
        """What torch does inside is part of Winnow's work here, by any thread."""

    @abc.abstractmethod
    def future(self) -> "torch.futures.Future[torch.Tensor]":
        """Of a bucket here."""

    @abc.abstractmethod
    def complete(self, future: "torch.futures.Future[torch.Tensor]", buffer: torch.Tensor) -> None:
        """When Winnow's work on `buffer` is done, by any thread."""


class Host(Place):
    """Host memory, where everything is done once it has returned."""

    device = torch.device("cpu")

    def make_reducer(self, connect: Connect, deadline: float, compressor: str,
                     options: Dict[str, Any]) -> Reducer:
        return Reducer(connect(self.device, {}), compressor, **{"deadline": deadline, **options})

    def follow(self, buffer: torch.Tensor) -> None:
        pass

    def in_turn(self) -> ContextManager[None]:
        return contextlib.nullcontext()

    def working(self) -> ContextManager[None]:
        return contextlib.nullcontext()

    def future(self) -> "torch.futures.Future[torch.Tensor]":
        return torch.futures.Future()

    def complete(self, future: "torch.futures.Future[torch.Tensor]", buffer: torch.Tensor) -> None:
        future.set_result(buffer)


class Gpu(Place):
    """Memory of a GPU. Winnow works on a stream of its own there, beside the backward pass."""

    def __init__(self, device: torch.device, stream_priority: int, nccl: Mapping[str, int]):
        self.device, self._nccl = device, nccl
        # Of torch's pool, which outlives the reducer.
        self._stream = torch.cuda.Stream(device, priority=stream_priority)

    def make_reducer(self, connect: Connect, deadline: float, compressor: str,
                     options: Dict[str, Any]) -> Reducer:
        with torch.cuda.device(self.device):
            return Reducer(connect(self.device, self._nccl), compressor, stream=self._stream.cuda_stream,
                           **options)

    def follow(self, buffer: torch.Tensor) -> None:
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        buffer.record_stream(self._stream)

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        current = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(current)
        try:
            yield
        finally:
            current.wait_stream(self._stream)

    def working(self) -> ContextManager[None]:
        return torch.cuda.stream(self._stream)

    def future(self) -> "torch.futures.Future[torch.Tensor]":
        return torch.futures.Future(devices=[self.device])

    def complete(self, future: "torch.futures.Future[torch.Tensor]", buffer: torch.Tensor) -> None:
        with torch.cuda.stream(self._stream):  # whose work the stream that waits will follow
            future.set_result(buffer)


def place_of(device: torch.device, stream_priority: int, nccl: Mapping[str, int]) -> Place:
    """UsageError for devices that Winnow does not know. What follows is for GPUs."""
    if device.type == "cpu":
        return Host()
    if device.type != "cuda":
        raise UsageError(f"gradients on {device}: winnow.torch takes them in host memory and on GPUs")
    if device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return Gpu(device, stream_priority, nccl)


def reals(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor in place, with one more dimension, the real and the imaginary part, if it is complex."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank has of a tensor, in place: its shard, if it is sharded, of real numbers."""
    tensor = tensor.detach()
    return reals(tensor.to_local() if hasattr(tensor, "to_local") else tensor)
