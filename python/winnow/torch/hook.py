# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The communication hook of DistributedDataParallel."""
import hashlib
import queue
import threading
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist

from winnow import _library
from winnow._calls import Job
from winnow._library import ELEMENT_TYPES, UsageError
from winnow.reducer import Reducer
from winnow.segments import Segment
from winnow.torch.marks import Marks
from winnow.torch.place import Place, place_of

Prepare = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], None]


def id_of(name: str) -> int:
    """The id of a model's parameter: the same on all ranks and after a restart."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def _gradients(bucket: dist.GradBucket) -> List[torch.Tensor]:
    """bucket.gradients(), but in the order of dimensions in which DistributedDataParallel has put them
    there: their parameters', if these lie without gaps."""
    found = bucket.gradients()
    for i, parameter in enumerate(bucket.parameters()):
        if not parameter.is_contiguous():
            strides = torch.empty_like(parameter).stride()
            if strides == parameter.stride():
                found[i] = found[i].as_strided(parameter.shape, strides)
    return found


class State:
    """What `hook` needs. Made on every rank before training; ranks meet at the first bucket, so it
    can be made before the process group, and pickled: a copy has the options, not the connections.

    `compressor` and the keywords are the options of winnow.Reducer. `group`: the process group
    whose ranks reduce; None: all. `timeout`: seconds that ranks wait for each other to connect. On
    GPUs, `stream_priority`: that of Winnow's stream, lower numbers first, as for torch.cuda.Stream;
    `nccl`: keywords of winnow.nccl_transport, such as dict(max_ctas=4).
    """

    def __init__(self, compressor: str = "topk:0.01", *,
                 group: Optional[dist.ProcessGroup] = None, timeout: float = 300,
                 stream_priority: int = 0, nccl: Optional[Dict[str, int]] = None, **options: Any):
        self.compressor, self.options = compressor, options
        self.stream_priority, self.nccl = stream_priority, dict(nccl or {})
        self.group, self.timeout = group, timeout
        self._forget()

    def _forget(self) -> None:
        self._reducer: Optional[Reducer] = None
        self._place: Optional[Place] = None  # that of the parameters that came first
        self._names: Dict[int, Tuple[int, str]] = {}  # id() of a parameter -> its id and name
        self._layouts: Dict[Any, Tuple[Any, List[int]]] = {}
        self._ending: "queue.SimpleQueue" = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._futures: List[torch.futures.Future] = []  # of this backward pass
        self._preparing: List[Callable[[], Optional[Prepare]]] = []
        self.marks = Marks()
        self.finds_unused = False  # whether parameters may have no gradient in a backward pass
        self.loss_scale: Callable[[], float] = lambda: 1.0  # of gradients, and so of residuals

    def __getstate__(self) -> Dict[str, Any]:
        return {name: getattr(self, name)
                for name in ("compressor", "options", "timeout", "stream_priority", "nccl")}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state, group=None)
        self._forget()

    def name_parameters(self, named: Iterable[Tuple[str, torch.nn.Parameter]]) -> None:
        """Gives the model's parameters ids that last, made of their qualified names. Without, they
        are numbered as they come, and no option sees names."""
        for name, parameter in named:
            self._names[id(parameter)] = (id_of(name), name)
            self.place_at(parameter.device)

    def place_at(self, device: torch.device) -> Place:
        """Where gradients lie: `device`, on which all are. UsageError if others are elsewhere."""
        if self._place is None:
            self._place = place_of(device, self.stream_priority, self.nccl)
        if self._place.device != device:
            raise UsageError(f"gradients on {self._place.device} and on {device}: one State reduces "
                             "gradients in one place")
        return self._place

    @property
    def reducer(self) -> Reducer:
        """The reducer behind the hook. The first use is collective: ranks meet."""
        if self._reducer is None:
            if self._place is None:
                self.place_at(torch.device("cpu"))
            self._reducer = self._place.make_reducer(self.group, self.timeout, self.compressor,
                                                     self.options)
        return self._reducer

    def residual(self, parameter: torch.nn.Parameter) -> Optional[torch.Tensor]:
        """A copy of what this rank has not sent of a parameter: float32 on its device, in one
        dimension, in the order of the parameter's memory; None if there is nothing. Between a
        backward pass and the next."""
        reducer = self.reducer
        with self._place.in_turn():
            held = reducer.residual(self.parameter_id(parameter))
        if held is None:
            return None
        if isinstance(held, memoryview):
            return torch.frombuffer(held, dtype=torch.float32)
        return torch.as_tensor(held, device=self._place.device).clone()

    def names_any(self, parameters: Set[int]) -> bool:
        """Whether one of these, given by id(), belongs to the model."""
        return not parameters.isdisjoint(self._names)

    def name_of(self, parameter: torch.nn.Parameter) -> str:
        """How messages call a parameter."""
        _, name = self._names.get(id(parameter), (0, ""))
        return name or f"a parameter of shape {tuple(parameter.shape)}"

    @property
    def has_met(self) -> bool:
        """Whether the ranks have, so that `reducer` is not collective."""
        return self._reducer is not None

    @property
    def lossless(self) -> bool:
        """Whether the compressor loses nothing, so that nothing ever waits. The first use is
        collective."""
        words = self.reducer.options.split()
        return "enable=0" in words or not {"compressor=none", "compressor=topk:1"}.isdisjoint(words)

    def prepare_by(self, prepare: Callable[[], Optional[Prepare]]) -> None:
        """From here on prepare()(parameters, gradients) may first change this rank's gradients, as
        long as prepare(), a weak reference, is not None."""
        self._preparing.append(prepare)

    @property
    def is_prepared(self) -> bool:
        """Whether somebody changes gradients before they are reduced."""
        return not self.lossless and any(reference() is not None for reference in self._preparing)

    def prepare(self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Before gradients are reduced: where parameters are sharded, their local part."""
        for reference in self._preparing:
            prepare = reference()
            if prepare is not None:
                prepare(parameters, gradients)

    def parameter_id(self, parameter: torch.nn.Parameter) -> int:
        """The id of a parameter, for reducer.residual."""
        return self._names.setdefault(id(parameter), (len(self._names), ""))[0]

    def padding_of(self, parameter: torch.nn.Parameter) -> int:
        """Elements behind this rank's shard of a parameter that are reduced with it."""
        return 0

    def state_dict(self) -> Dict[str, Any]:
        """What this rank has not sent, for its checkpoint beside the model and the optimizer. Every
        rank saves its own, after the same step."""
        return {"state": self.reducer.save()}

    def load_state_dict(self, *states: Dict[str, Any]) -> None:
        """Continues from a checkpoint, before the first step: from this rank's own state_dict, or,
        with another number of ranks, from those of all old ranks, in any order. Collective."""
        self.reducer.load(*[state["state"] for state in states])

    def close(self) -> None:
        """Finishes calls in flight and closes the connections."""
        if self._thread is not None:
            self._ending.put(None)
            self._thread.join()
        if self._reducer is not None:
            self._reducer.close()
        self._forget()

    def _segments(self, bucket: dist.GradBucket) -> Any:
        """A bucket's parameters as the library takes them. Only addresses change from step to
        step."""
        buffer, parameters = bucket.buffer(), bucket.parameters()
        base = buffer.data_ptr()
        key = (bucket.index(), buffer.dtype, tuple(map(id, parameters)))
        if key not in self._layouts:
            self._layouts[key] = self._layout(bucket)
        natives, offsets = self._layouts[key]
        for native, offset in zip(natives, offsets):
            native.data = base + offset
        return natives

    def _layout(self, bucket: dist.GradBucket) -> Tuple[Any, List[int]]:
        buffer, parameters = bucket.buffer(), bucket.parameters()
        kind = str(buffer.dtype).removeprefix("torch.")
        if kind not in ELEMENT_TYPES:
            raise UsageError(f"a bucket of {kind}: must be one of {', '.join(ELEMENT_TYPES)}")
        natives = (_library.Segment * len(parameters))()
        for native, parameter in zip(natives, parameters):
            number = self.parameter_id(parameter)
            name = self._names[id(parameter)][1]
            native.__init__(type=ELEMENT_TYPES[kind], id=number, count=parameter.numel(),
                            dimensions=parameter.dim(), rate=1.0,
                            name=name.encode() if name else None)
        offsets = [gradient.data_ptr() - buffer.data_ptr() for gradient in bucket.gradients()]
        return natives, offsets

    def _used(self, gradients: Sequence[torch.Tensor], segments: Any) -> List[int]:
        """The numbers of a bucket's parameters of which some rank has a gradient. The others stay
        zero, and what waits of them waits on: DistributedDataParallel would throw away what they
        were sent. Ranks wait for each other."""
        used = torch.stack([gradient.any() for gradient in gradients]).to(torch.uint8)
        number = id_of(" ".join(str(segment.id) for segment in segments))
        with self.place_at(used.device).in_turn():
            self.reducer.all_reduce_bucket([Segment(used, number)], op="max")
        return used.nonzero().flatten().tolist()

    def _start(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer = bucket.buffer()
        place = self.place_at(buffer.device)
        reducer, segments, future = self.reducer, self._segments(bucket), place.future()
        parameters, gradients = bucket.parameters(), _gradients(bucket)
        if self.finds_unused:
            used = self._used(gradients, segments)
            if not used:
                place.complete(future, buffer)
                return future
            segments = (_library.Segment * len(used))(*[segments[i] for i in used])
            parameters, gradients = [parameters[i] for i in used], [gradients[i] for i in used]
        self.prepare(parameters, gradients)
        place.follow(buffer)
        work = reducer.start(segments, buffer)
        if self._thread is None:
            self._thread = threading.Thread(target=self._complete, daemon=True, name="winnow")
            self._thread.start()
        self._ending.put((work, future, buffer))
        return future

    def _complete(self) -> None:
        """Completes futures in the order of calls. Waits without the interpreter's lock."""
        while (call := self._ending.get()) is not None:
            work, future, buffer = call
            try:
                work.wait()
                self._place.complete(future, buffer)
            except Exception as error:  # pylint: disable=broad-except
                future.set_exception(error)

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
        for future in futures:
            if self._place.device.type == "cpu":
                Job(future.wait).perform()  # which Ctrl-C interrupts
            future.wait()


def hook(state: State, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The hook that register_comm_hook takes: averages a bucket over the ranks (unless the option
    `op` says otherwise) while the backward pass goes on. For gradients in host memory, or all on one
    GPU. Errors are raised by the backward pass."""
    future = state._start(bucket)
    state._raise_at_the_end(future)
    return future
