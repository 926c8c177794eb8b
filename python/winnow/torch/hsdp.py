# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters sharded within nodes, gradients compressed between them."""
import functools
from typing import Any, Dict, List, NamedTuple, Sequence

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule

from winnow._library import UsageError
from winnow.segments import Segment
from winnow.torch.attach import remember
from winnow.torch.hook import State
from winnow.torch.names import id_of
from winnow.torch.place import local


class _Shard(NamedTuple):
    """This rank's rows of a parameter, padded to what the rank with most rows has."""

    name: str
    parameter: torch.Tensor
    count: int  # elements, padding and all

    @property
    def padding(self) -> int:
        return self.count - local(self.parameter).numel()


class ShardedState(State):
    """What attach_hsdp returns."""

    def _forget(self) -> None:
        super()._forget()
        self._paddings: Dict[int, int] = {}  # id() of a parameter -> elements

    def name_shards(self, shards: Sequence[_Shard]) -> None:
        self.name_parameters((shard.name, shard.parameter) for shard in shards)
        self._paddings.update((id(shard.parameter), shard.padding) for shard in shards)

    def padding_of(self, parameter: torch.nn.Parameter) -> int:
        return self._paddings.get(id(parameter), 0)

    def prepare_shards(self, shards: Sequence[_Shard], gradients: Sequence[torch.Tensor]) -> None:
        """prepare, of what is not padding."""
        self.prepare([shard.parameter for shard in shards],
                     [gradient[:shard.count - shard.padding].view_as(local(shard.parameter))
                      for shard, gradient in zip(shards, gradients)])


def _shards_of(prefix: str, module: FSDPModule) -> List[_Shard]:
    """Of the parameters that this module gathers and reduces: not those of such modules inside."""
    found, inside = [], [child for child in module.modules()
                         if isinstance(child, FSDPModule) and child is not module]
    others = {id(p) for child in inside for p in child.parameters()}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in others:
            rows = -(-parameter.shape[0] // parameter.device_mesh.size())
            found.append(_Shard(f"{prefix}.{name}" if prefix else name, parameter,
                                rows * (parameter.numel() // parameter.shape[0])))
    return found


def attach_hsdp(model: FSDPModule, mesh: DeviceMesh, compressor: str = "topk:0.01",
                **options: Any) -> State:
    """Lets Winnow average between nodes what `fully_shard` has averaged within them:

        mesh = init_device_mesh("cpu", (nodes, ranks_per_node), mesh_dim_names=("between", "within"))
        fully_shard(model, mesh=mesh["within"])
        winnow.torch.attach_hsdp(model, mesh["between"], "topk:0.01")

    `mesh`: one dimension, of the ranks that hold the same shards. `compressor` and the keywords are
    the options of winnow.Reducer. Every rank makes the same calls in the same order. Residuals are
    sharded as the parameters are: each rank saves the state_dict of the State that this returns.
    Errors are raised by the backward pass.

    look_ahead and the optimizers of winnow.torch take the model, made after this. They then want a
    gradient of every parameter in each backward pass; reduce_dtype must not be float16.

    Raises UsageError for a model that is not sharded, a mesh of several dimensions, or torch 2.6.
    """
    if not isinstance(model, FSDPModule):
        raise UsageError(f"attach_hsdp takes what fully_shard returns, not a {type(model).__name__}")
    if not hasattr(model, "set_all_reduce_hook"):
        raise UsageError("fully_shard of this torch has no set_all_reduce_hook; 2.6 is too old")
    if mesh.ndim != 1:
        raise UsageError(f"attach_hsdp takes a mesh of one dimension, the ranks with equal shards; "
                         f"got {mesh.ndim}")
    state = ShardedState(compressor, group=mesh.get_group(), **options)

    def reduce(prefix: str, shards: List[_Shard], output: torch.Tensor) -> None:
        """`output`: what a reduce-scatter has left on this rank, the shards one after the other."""
        place, reducer = state.place_at(output.device), state.reducer
        whole = sum(shard.count for shard in shards) == output.numel()
        gradients = output.split([shard.count for shard in shards]) if whole else []
        if state.is_prepared:
            if not whole or output.dtype == torch.float16:
                raise UsageError(f"a parameter of '{prefix}' has no gradient, or gradients are "
                                 "float16: an optimizer of winnow.torch takes neither")
            state.prepare_shards(shards, gradients)
        segments = [Segment(gradient, id_of(shard.name), shard.name, shard.parameter.dim())
                    for shard, gradient in zip(shards, gradients)]
        if not whole:
            segments = [Segment(output, id_of(prefix + "/"), prefix, 2)]
        with place.in_turn():
            reducer.all_reduce_bucket(segments)

    for name, module in model.named_modules():
        if isinstance(module, FSDPModule):
            shards = _shards_of(name, module)
            state.name_shards(shards)
            module.set_all_reduce_hook(functools.partial(reduce, name, shards))
    remember(model, state)
    return state
