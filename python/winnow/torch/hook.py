# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The communication hook of DistributedDataParallel."""
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Sequence, Tuple

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from winnow import _library
from winnow._library import ELEMENT_TYPES, UsageError
from winnow.segments import Segment
from winnow.torch import rows
from winnow.torch.buckets import gradients_of, spans_of
from winnow.torch.completer import ACTIVITY, Completer
from winnow.torch.end_of_pass import EndOfPass
from winnow.torch.names import id_of, listed
from winnow.torch.overlap import Overlap

if TYPE_CHECKING:
    from winnow.torch.state import State


class BucketReducer:
    """Reduces the buckets of DistributedDataParallel for a State."""

    def __init__(self, overlap: Overlap):
        self._completer = Completer(overlap)
        self._layouts: Dict[Any, Tuple[Any, List[int]]] = {}
        self.end = EndOfPass(overlap)

    def close(self) -> None:
        """Finishes calls in flight."""
        self._completer.close()

    def start(self, state: "State", bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Reduces a bucket. Its future has the buffer then, or the error."""
        buffer, parameters = bucket.buffer(), bucket.parameters()
        if buffer.layout != torch.strided:
            return _sum_rows(state, buffer, bucket)
        place = state.place_at(buffer.device)
        reducer, future = state.reducer, place.future()
        if state.marks.automatic is None:
            state.expect_moved(parameters)
        segments = self._segments(state, bucket, state.unmoved(parameters))
        gradients = gradients_of(bucket)
        state.overlap.count(bucket.index())
        if state.finds_unused:
            used = _used(state, gradients, segments)
            if not used:
                place.complete(future, buffer)
                return future
            segments = (_library.Segment * len(used))(*[segments[i] for i in used])
            parameters, gradients = [parameters[i] for i in used], [gradients[i] for i in used]
        norms = state.prepare(parameters, gradients, buffer)
        state.rescale(gradients if norms is None else [*gradients, norms.reduced])
        if norms is not None:
            segments = (_library.Segment * (len(parameters) + 1))(*segments, norms.native)
        place.follow(buffer)
        state.overlap.begin()
        try:
            work = reducer.start(segments, buffer)
        except BaseException:
            state.overlap.end()
            raise
        self._completer.add(place, work, future, buffer)
        return future

    def _segments(self, state: "State", bucket: dist.GradBucket, unmoved: FrozenSet[int]) -> Any:
        """A bucket's parameters as the library takes them. Only addresses change from step to step, and
        which of them State.unmoved says."""
        buffer, parameters = bucket.buffer(), bucket.parameters()
        base = buffer.data_ptr()
        key = (bucket.index(), buffer.dtype, tuple(map(id, parameters)), unmoved)
        if key not in self._layouts:
            self._layouts[key] = _layout(state, bucket, unmoved)
        natives, offsets = self._layouts[key]
        for native, offset in zip(natives, offsets):
            native.data = base + offset
        return natives


def _sum_rows(state: "State", gradient: torch.Tensor,
              bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Of a bucket that is the sparse gradient of one parameter. Torch sums those that Winnow does not."""
    state.rescale([gradient])
    place = state.place_at(gradient.device)
    if not (rows.are_rows(gradient) and rows.takes_rows(state.reducer)):
        return allreduce_hook(dist.group.WORLD if state.group is None else state.group, bucket)
    future = place.future()
    parameter, = bucket.parameters()
    with state.overlap.blocking():
        place.complete(future, rows.all_reduce(state.reducer, gradient, state.parameter_id(parameter)))
    return future


def _layout(state: "State", bucket: dist.GradBucket, unmoved: FrozenSet[int]) -> Tuple[Any, List[int]]:
    buffer, parameters, spans = bucket.buffer(), bucket.parameters(), spans_of(bucket)
    kind = str(buffer.dtype).removeprefix("torch.")
    if kind not in ELEMENT_TYPES:
        names = listed(state.name_of(p) for p in parameters)
        raise UsageError(f"a bucket of {kind} ({names}): must be one of {', '.join(ELEMENT_TYPES)}")
    natives = (_library.Segment * len(parameters))()
    for place, (native, parameter, span) in enumerate(zip(natives, parameters, spans)):
        number = state.parameter_id(parameter)
        name = state.given_name(parameter)
        is_exempt = place in unmoved
        if is_exempt:  # another one, so that buckets with it are planned anew
            number = id_of(f"unmoved {number}")
        native.__init__(type=ELEMENT_TYPES[kind], id=number, count=span.count, dimensions=parameter.dim(),
                        rate=1.0, name=name.encode() if name else None, exempt=is_exempt)
    return natives, [span.offset * buffer.element_size() for span in spans]


def _used(state: "State", gradients: Sequence[torch.Tensor], segments: Any) -> List[int]:
    """The numbers of a bucket's parameters of which some rank has a gradient. The others stay zero, and
    what waits of them waits on: DistributedDataParallel would throw away what they were sent. Ranks wait
    for each other."""
    used = torch.stack([gradient.any() for gradient in gradients]).to(torch.uint8)
    number = id_of(" ".join(str(segment.id) for segment in segments))
    with state.place_at(used.device).in_turn(), state.overlap.blocking():
        state.reducer.all_reduce_bucket([Segment(used, number)], op="max")
    return used.nonzero().flatten().tolist()


def hook(state: "State", bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The hook that register_comm_hook takes: averages a bucket over the ranks (unless the option
    `op` says otherwise) while the backward pass goes on. For gradients in host memory, or all on one
    GPU. Errors are raised by the backward pass."""
    with torch.profiler.record_function(ACTIVITY):
        future = state.buckets.start(state, bucket)
    state.buckets.end.wait_for(future, bucket.buffer().device.type == "cpu")
    return future
