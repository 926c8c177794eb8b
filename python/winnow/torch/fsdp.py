# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters sharded over all ranks, gradients compressed on their way to the shards."""
import weakref
from typing import Any, List, NamedTuple, Optional, Sequence

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from winnow._library import UsageError
from winnow.arguments import named
from winnow.segments import Segment
from winnow.torch.attach import remember
from winnow.torch.completer import ACTIVITY
from winnow.torch.names import id_of, unwrapped
from winnow.torch.norms import Norms
from winnow.torch.place import reals
from winnow.torch.shards import (Shard, expect_sharded_alone, groups_of, lie_as_reduced, parameters_of,
                                 shards_of)
from winnow.torch.state import State
from winnow.torch.unapplied import unapplied_of, watch_shards

_OPERATIONS = {dist.ReduceOp.AVG: "average", dist.ReduceOp.SUM: "sum"}


class FsdpState(State):
    """What attach_fsdp returns."""

    takes_whole = True

    def _forget(self) -> None:
        super()._forget()
        # Of modules, which hold them: none of their parameters is held here.
        self._reductions: "List[weakref.ref[ReduceScatter]]" = []

    def serve(self, reductions: Sequence["ReduceScatter"]) -> None:
        """From here on these reduce for the model's modules."""
        self._reductions = [weakref.ref(one) for one in reductions]

    @property
    def reductions(self) -> "List[ReduceScatter]":
        """Those of the model's modules."""
        return [one for one in (reference() for reference in self._reductions) if one is not None]

    def residual(self, parameter: torch.nn.Parameter) -> Optional[torch.Tensor]:
        """As State.residual, of the whole parameter."""
        for reduced in (one.reduced() for one in self.reductions):
            numbers = [id(shard.parameter) for shard in reduced.shards]
            held = self.held(reduced.id) if id(parameter) in numbers else None
            if held is not None:
                columns = reduced.columns(held)[numbers.index(id(parameter))]
                return columns.flatten()[:parameter.numel() * (1 + parameter.is_complex())]
        return None


class Reduced(NamedTuple):
    """What a module reduces in one pass."""

    id: int
    shards: List[Shard]  # none if it is not known which have gradients

    def columns(self, flat: torch.Tensor) -> Sequence[torch.Tensor]:
        """Those of each parameter in a matrix with a row for each rank's shards."""
        counts = [shard.count for shard in self.shards]
        return flat.view(-1, sum(counts)).split(counts, dim=1)


class ReduceScatter:
    """The reduce-scatter of one module's gradients, as torch's ReduceScatter has it."""

    def __init__(self, state: FsdpState, name: str, module: FSDPModule):
        shards = shards_of(name, module)
        self._state, self.name, self._count = state, unwrapped(name), sum(shard.count for shard in shards)
        self.shards = shards if lie_as_reduced(module, shards) else []
        self.module = weakref.ref(module)

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype,
                 device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def reduced(self, count: Optional[int] = None) -> Reduced:
        """What a pass reduces in which `count` numbers come to each rank; None: one in which all
        parameters that are not frozen have gradients."""
        trained = [shard for shard in self.shards if shard.parameter.requires_grad]
        expected = sum(shard.count for shard in trained)
        known = bool(trained) and count in (None, expected)
        # Other parameters, other ids.
        which = str(count)
        if (count or expected) == self._count:
            which = ""
        elif known:
            which = " ".join(shard.name for shard in trained)
        return Reduced(id_of(f"{self.name}/{which}"), trained if known else [])

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 group: dist.ProcessGroup, op: Any, async_op: bool = False) -> Optional[dist.Work]:
        state, name = self._state, self.name
        if state.is_detached:
            return dist.reduce_scatter_tensor(output_tensor, input_tensor, op, group, async_op)
        if dist.get_process_group_ranks(group) != dist.get_process_group_ranks(state.group):
            raise UsageError(f"module '{name}': attach_fsdp reduces over the mesh that fully_shard was "
                             "given")
        operation = next((ours for theirs, ours in _OPERATIONS.items() if op == theirs), None)
        if operation is None:
            raise UsageError(f"module '{name}': attach_fsdp takes averages and sums: "
                             "set_gradient_divide_factor needs set_force_sum_reduction_for_comms(True)")
        flat, output = reals(input_tensor).view(-1), reals(output_tensor).view(-1)
        reduced = self.reduced(output.numel())
        norms = self._prepare(reduced, flat, input_tensor.dtype) if state.is_prepared else None
        together = [shard.parameter for shard in reduced.shards] or parameters_of(self.module())
        state.note_together(reduced.id, name, together)
        if (unapplied := unapplied_of(state)) is not None and norms is None:
            unapplied.reduce([parameter for parameter in together if parameter.requires_grad])
        state.overlap.count(name)
        with named(f"module '{name}'"), torch.profiler.record_function(ACTIVITY):
            with state.place_at(flat.device).in_turn(), state.overlap.blocking():
                state.reducer.reduce_scatter(flat, output, reduced.id, operation)
                if norms is not None:
                    state.reducer.all_reduce_bucket([Segment(norms.reduced, norms.id, exempt=True)], "average")
        return None

    def _prepare(self, reduced: Reduced, flat: torch.Tensor, kind: torch.dtype) -> Optional[Norms]:
        """`flat`: this rank's gradients, a shard of each for every rank, whose type for torch is `kind`."""
        state, module = self._state, self.module()
        factors = {getattr(group, "gradient_divide_factor", None) for group in groups_of(module)}
        if not reduced.shards:
            raise UsageError(
                f"module '{self.name}' has a parameter without a gradient, or others than its own, or shards "
                "that are not rows: an optimizer of winnow.torch takes none of these. Freeze parameters that "
                "a pass does not use, by requires_grad_(False)")
        if any(shard.parameter.device != flat.device for shard in reduced.shards):
            raise UsageError(f"module '{self.name}' offloads its parameters: an optimizer of winnow.torch "
                             "takes them where gradients are")
        # torch divides other types before and after sums, against overflows, which Adam's would not undo.
        ranks = dist.get_world_size(state.group)
        if kind not in (torch.float32, torch.bfloat16) or not factors <= {None, ranks}:
            raise UsageError(f"module '{self.name}' reduces {kind}, divided by {factors.pop() or ranks}: an "
                             "optimizer of winnow.torch takes averages of float32 or bfloat16, without "
                             "set_gradient_divide_factor")
        state.expect_moved([shard.parameter for shard in reduced.shards])
        return state.prepare([shard.parameter for shard in reduced.shards], reduced.columns(flat), flat)


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
    that this returns. If nodes are where the slow links are, attach_hsdp needs less of all this.

    winnow.torch.AdamW and SGD take the model, made after this. AdamW has its second moments of the whole
    model, too, 4 more bytes an element on every rank: a plain tensor for each parameter in its
    state_dict, of which each rank saves its own. A pass must then give a gradient to every parameter that
    is not frozen, and gradients must be averages of float32 or bf16. look_ahead moves the weights that this
    rank has gathered, whose shards stay as they are; evaluation outside gathers them anew.

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
    state = FsdpState(compressor, group=meshes.pop().get_group(), **options)
    state.name_parameters(model.named_parameters())
    state.begin()
    modules = [(name, module) for name, module in model.named_modules() if isinstance(module, FSDPModule)]
    reductions = [ReduceScatter(state, name, module) for name, module in modules]
    for (_, module), one in zip(modules, reductions):
        module.set_custom_reduce_scatter(one)
    state.serve(reductions)
    state.release = lambda: None  # they ask the state
    remember(model, state)
    watch_shards(state)
    return state
