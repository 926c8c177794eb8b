# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters sharded over all ranks, gradients compressed on their way to the shards."""
from typing import Any, Optional, Sequence

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from winnow._library import UsageError
from winnow.arguments import named
from winnow.torch.attach import remember
from winnow.torch.completer import ACTIVITY
from winnow.torch.hook import State
from winnow.torch.names import id_of, unwrapped
from winnow.torch.shards import expect_sharded_alone, shards_of

_OPERATIONS = {dist.ReduceOp.AVG: "average", dist.ReduceOp.SUM: "sum"}


class _ReduceScatter:
    """The reduce-scatter of one module's gradients, as torch's ReduceScatter has it."""

    def __init__(self, state: State, name: str, count: int):
        self._state, self._name, self._count = state, name, count

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype,
                 device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 group: dist.ProcessGroup, op: Any, async_op: bool = False) -> Optional[dist.Work]:
        state, name = self._state, self._name
        if state.is_detached:
            return dist.reduce_scatter_tensor(output_tensor, input_tensor, op, group, async_op)
        if dist.get_process_group_ranks(group) != dist.get_process_group_ranks(state.group):
            raise UsageError(f"module '{name}': attach_fsdp reduces over the mesh that fully_shard was "
                             "given")
        operation = next((ours for theirs, ours in _OPERATIONS.items() if op == theirs), None)
        if operation is None:
            raise UsageError(f"module '{name}': attach_fsdp takes averages and sums: "
                             "set_gradient_divide_factor needs set_force_sum_reduction_for_comms(True)")
        if state.is_prepared:
            raise UsageError("the optimizers of winnow.torch change gradients before they are "
                             "reduced, and are for attach and attach_hsdp")
        # Of some of its parameters there may be no gradient: other counts, other ids.
        number = id_of(f"{name}/" + ("" if output_tensor.numel() == self._count
                                     else str(output_tensor.numel())))
        state.overlap.count(name)
        with named(f"module '{name}'"), torch.profiler.record_function(ACTIVITY):
            with state.place_at(input_tensor.device).in_turn(), state.overlap.blocking():
                state.reducer.reduce_scatter(input_tensor, output_tensor, number, operation)
        return None


def attach_fsdp(model: FSDPModule, compressor: str = "topk:0.01", **options: Any) -> State:
    """Lets Winnow reduce the gradients of a model that `fully_shard` has sharded over slow links:

        fully_shard(model, mesh=mesh)  # of one dimension
        winnow.torch.attach_fsdp(model, "topk:0.01")

    `compressor` and the keywords are the options of winnow.Reducer. Elements compete with all of
    their module's that go to the same rank, biases and norms included; modules below min_bytes
    travel dense. Parameters still travel whole, by torch. Every rank makes the same calls in the
    same order; ranks meet. Errors are raised by the backward pass. Where a module's parameters are
    frozen or unfrozen, residuals are those of what it reduces then.

    What a rank has not sent is of the whole model, so residuals take 4 bytes for each of its
    elements on every rank. They continue on as many ranks as before alone: state_dict of the State
    that this returns. Neither look_ahead nor the optimizers of winnow.torch serve here: use SGD. If
    nodes are where the slow links are, attach_hsdp needs less of all this.

    Raises UsageError for wrong options, and for a model that is not sharded, between whose shards torch
    sums itself, or whose mesh has several dimensions.
    """
    if not isinstance(model, FSDPModule):
        raise UsageError("attach_fsdp takes what fully_shard returns, not a "
                         f"{type(model).__name__}")
    if not hasattr(model, "set_custom_reduce_scatter"):
        raise UsageError("fully_shard of this torch has no set_custom_reduce_scatter: it is too "
                         "old")
    expect_sharded_alone(model, "attach_fsdp")
    meshes = {parameter.device_mesh for parameter in model.parameters()}
    if len(meshes) != 1 or next(iter(meshes)).ndim != 1:
        raise UsageError("attach_fsdp takes parameters that are sharded over one mesh, of one "
                         "dimension")
    state = State(compressor, group=meshes.pop().get_group(), **options)
    state.name_parameters(model.named_parameters())
    state.begin()
    for name, module in model.named_modules():
        if isinstance(module, FSDPModule):
            count = sum(shard.count for shard in shards_of(name, module))
            module.set_custom_reduce_scatter(_ReduceScatter(state, unwrapped(name), count))
    state.release = lambda: None  # they ask the state
    remember(model, state)
    return state
