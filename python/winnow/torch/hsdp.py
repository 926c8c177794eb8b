# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters sharded within nodes, gradients compressed between them."""
import functools
from typing import Any, List, Tuple

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule

from winnow._library import UsageError
from winnow.reducer import Segment
from winnow.torch.hook import State, id_of


class ShardedState(State):
    """What attach_hsdp returns."""

    def prepare_by(self, prepare: Any) -> None:
        raise UsageError("optimizers of winnow.torch take a DistributedDataParallel alone")


def _own_parameters(module: FSDPModule) -> List[Tuple[str, torch.Tensor]]:
    """The parameters that this module gathers and reduces: not those of such modules inside."""
    found, inside = [], [child for child in module.modules()
                         if isinstance(child, FSDPModule) and child is not module]
    others = {id(p) for child in inside for p in child.parameters()}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and id(parameter) not in others:
            found.append((name, parameter))
    return found


def _segments(prefix: str, module: FSDPModule, output: torch.Tensor) -> List[Segment]:
    """A segment for each parameter's shard in what a reduce-scatter has left on this rank, or one
    for all if some have no gradient."""
    segments, begin = [], 0
    for name, parameter in _own_parameters(module):
        rows = -(-parameter.shape[0] // parameter.device_mesh.size())  # shards are padded to equal
        count = rows * (parameter.numel() // parameter.shape[0])
        name = f"{prefix}.{name}" if prefix else name
        segments.append(Segment(output[begin:begin + count], id_of(name), name, parameter.dim()))
        begin += count
    if begin != output.numel():
        return [Segment(output, id_of(prefix + "/"), prefix, 2)]
    return segments


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

    Raises UsageError for a model that is not sharded, or a mesh of several dimensions.
    """
    if not isinstance(model, FSDPModule):
        raise UsageError(f"attach_hsdp takes what fully_shard returns, not a {type(model).__name__}")
    if mesh.ndim != 1:
        raise UsageError(f"attach_hsdp takes a mesh of one dimension, the ranks with equal shards; "
                         f"got {mesh.ndim}")
    state = ShardedState(compressor, group=mesh.get_group(), **options)

    def reduce(prefix: str, module: FSDPModule, output: torch.Tensor) -> None:
        place, segments = state.place_at(output.device), _segments(prefix, module, output)
        reducer = state.reducer
        with place.in_turn():
            reducer.all_reduce_bucket(segments)

    for name, module in model.named_modules():
        if isinstance(module, FSDPModule):
            module.set_all_reduce_hook(functools.partial(reduce, name, module))
    return state
