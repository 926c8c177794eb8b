# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters sharded within nodes, gradients compressed between them."""
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule

from winnow._library import UsageError
from winnow.segments import Segment
from winnow.torch.attach import remember
from winnow.torch.completer import ACTIVITY
from winnow.torch.names import id_of, unwrapped
from winnow.torch.place import local, reals
from winnow.torch.shards import (Shard, expect_apart, expect_sharded_alone, groups_of, parameters_of,
                                 shards_of)
from winnow.torch.state import State
from winnow.torch.unapplied import unapplied_of, watch_shards


class ShardedState(State):
    """What attach_hsdp returns."""

    def _forget(self) -> None:
        super()._forget()
        self._paddings: Dict[int, int] = {}  # id() of a parameter -> real numbers

    def name_shards(self, shards: Sequence[Shard]) -> None:
        self.name_parameters((shard.name, shard.parameter) for shard in shards)
        self._paddings.update((id(shard.parameter), shard.padding) for shard in shards)

    def padding_of(self, parameter: torch.nn.Parameter) -> int:
        return self._paddings.get(id(parameter), 0)

    def prepare_shards(self, shards: Sequence[Shard], gradients: Sequence[torch.Tensor],
                       output: torch.Tensor) -> List[Segment]:
        """prepare, of what is not padding; what is to be reduced with it."""
        norms = self.prepare([shard.parameter for shard in shards],
                             [gradient[:shard.count - shard.padding].view_as(local(shard.parameter))
                              for shard, gradient in zip(shards, gradients)],
                             output, shards[0].parameter.device_mesh.get_group())
        return [] if norms is None else [Segment(norms.reduced, norms.id, exempt=True)]

    def reduce(self, prefix: str, shards: List[Shard], together: Sequence[torch.Tensor],
               output: torch.Tensor) -> None:
        """`output`: what a reduce-scatter has left on this rank, the shards one after the other.
        `together`: all parameters of which it may be."""
        whole = (sum(shard.count for shard in shards) == output.numel()
                 and len({shard.parameter.dtype for shard in shards}) == 1)
        gradients = output.split([shard.count for shard in shards]) if whole else []
        norms: List[Segment] = []
        if self.is_prepared:
            if not whole or output.dtype == torch.float16:
                raise UsageError(f"a parameter of module '{prefix}' has no gradient or another type, or "
                                 "gradients are float16: an optimizer of winnow.torch takes neither")
            self.expect_moved([shard.parameter for shard in shards])
            norms = self.prepare_shards(shards, gradients, output) if shards else []
        segments = [Segment(gradient, id_of(shard.name), shard.name, shard.parameter.dim())
                    for shard, gradient in zip(shards, gradients)]
        if not whole:  # other parameters, other counts, other ids
            segments = [Segment(output, id_of(f"{prefix}/{output.numel()}"), prefix, 2)]
            self.note_together(segments[0].id, prefix, together)
        if (unapplied := unapplied_of(self)) is not None and not self.is_prepared:
            unapplied.reduce([shard.parameter for shard in shards])
        self.overlap.count(prefix)
        with self.place_at(output.device).in_turn(), torch.profiler.record_function(ACTIVITY):
            with self.overlap.blocking():
                self.reducer.all_reduce_bucket(segments + norms)


class _AllReduce:
    """The all-reduce hook of one module."""

    def __init__(self, module: FSDPModule, reduce: Callable[[torch.Tensor], None], name: str):
        self._groups, self._name, self.reduce = groups_of(module), name, reduce
        self._partial: Optional[torch.Tensor] = None  # of micro-batches before

    def __call__(self, output: torch.Tensor) -> None:
        if self._partial is not None and self._partial.shape != output.shape:
            raise UsageError(f"module '{self._name}': other parameters have gradients than in the "
                             "micro-batch before, which set_requires_all_reduce(False) has kept back")
        if not all(group.all_reduce_grads for group in self._groups):  # as torch does in its own
            self._partial = output.clone() if self._partial is None else self._partial.add_(output)
            output.zero_()
            return
        if self._partial is not None:
            output.add_(self._partial)
            self._partial = None
        self.reduce(reals(output).view(-1))


def attach_hsdp(model: FSDPModule, mesh: DeviceMesh, compressor: str = "topk:0.01",
                **options: Any) -> State:
    """Lets Winnow average between nodes what `fully_shard` has averaged within them:

        mesh = init_device_mesh("cpu", (nodes, ranks_per_node), mesh_dim_names=("between", "within"))
        fully_shard(model, mesh=mesh["within"])
        winnow.torch.attach_hsdp(model, mesh["between"], "topk:0.01")

    `mesh`: one dimension, of the ranks that hold the same shards. `compressor` and the keywords are
    the options of winnow.Reducer. Every rank makes the same calls in the same order; ranks meet.
    Residuals are sharded as the parameters are: each rank saves the state_dict of the State that this
    returns. model.set_requires_all_reduce(False) keeps micro-batches back, as in torch. Errors are
    raised by the backward pass.

    look_ahead and the optimizers of winnow.torch take the model, made after this. They then want a
    gradient of every parameter in each backward pass; reduce_dtype must not be float16.

    Raises UsageError for wrong options, a model that is not sharded or between whose shards torch sums
    itself, a mesh of several dimensions or of ranks with other shards, or torch 2.6.
    """
    if not isinstance(model, FSDPModule):
        raise UsageError(f"attach_hsdp takes what fully_shard returns, not a {type(model).__name__}")
    if not hasattr(model, "set_all_reduce_hook"):
        raise UsageError("fully_shard of this torch has no set_all_reduce_hook; 2.6 is too old")
    if mesh.ndim != 1:
        raise UsageError(f"attach_hsdp takes a mesh of one dimension, the ranks with equal shards; "
                         f"got {mesh.ndim}")
    expect_sharded_alone(model, "attach_hsdp")
    between = mesh.get_group()
    expect_apart(model, between)
    state = ShardedState(compressor, group=between, **options)
    hooks: List[_AllReduce] = []

    def winnows(name: str, shards: List[Shard],
                together: Sequence[torch.Tensor]) -> Callable[[torch.Tensor], None]:
        return lambda output: state.reduce(
            name, [shard for shard in shards if shard.parameter.requires_grad], together, output)

    def averages(output: torch.Tensor) -> None:
        dist.all_reduce(output, group=between)
        output.div_(dist.get_world_size(between))

    modules = [(unwrapped(name), module) for name, module in model.named_modules()
               if isinstance(module, FSDPModule)]
    for name, module in modules:
        shards = shards_of(name, module)
        state.name_shards(shards)
        hooks.append(_AllReduce(module, winnows(name, shards, parameters_of(module)), name))
    state.begin()
    for (_, module), one in zip(modules, hooks):
        module.set_all_reduce_hook(one)
    held = [weakref.ref(one) for one in hooks]  # by the modules, which the state must not hold

    def release() -> None:
        for one in filter(None, (reference() for reference in held)):
            one.reduce = averages

    state.release = release
    remember(model, state)
    watch_shards(state)
    return state
