# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters sharded within nodes, gradients compressed between them."""
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule

from winnow._library import UsageError
from winnow.segments import Segment
from winnow.torch.attach import expect_no_optimizer, remember
from winnow.torch.backend.caller import Caller
from winnow.torch.backend.group import WinnowGroup
from winnow.torch.completer import ACTIVITY
from winnow.torch.names import id_of, unwrapped
from winnow.torch.place import local, reals
from winnow.torch.shards import (Shard, expect_apart, expect_sharded_alone, groups_of, parameters_of,
                                 replicas_of, shards_of)
from winnow.torch.state import State
from winnow.torch.unapplied import unapplied_of, watch_shards


# A flat tensor of the gradients of these parameters.
Reduce = Callable[[torch.Tensor, Sequence[torch.Tensor]], None]


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
                             output, shards[0].others)
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

    def __init__(self, module: FSDPModule, reduce: Reduce, name: str):
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
        parameters = [one.sharded_param for group in self._groups for one in group.fsdp_params]
        self.reduce(reals(output).view(-1), [one for one in parameters if one.requires_grad])


class _Left(NamedTuple):
    """A sum that a group has left to a hook."""

    address: int  # 0: none is left
    times: int  # more than the mean
    parameters: Sequence[torch.Tensor]


_NONE_LEFT = _Left(0, 1, ())


class _InPlaceOfTorch:
    """The all-reduce hook of one module whose gradients torch itself would sum between its replicas, over
    a group of the backend winnow, which leaves that sum to the hook: torch calls it next."""

    def __init__(self, reduce: Reduce, name: str, nodes: int):
        self._name, self._nodes = name, nodes
        self.reduce: Optional[Reduce] = reduce
        self._left = _NONE_LEFT

    def take(self, output: torch.Tensor, op: Any, caller: Caller) -> bool:
        """By the group: whether the hook sums this. UsageError for what torch divides afterwards."""
        if self.reduce is None:
            return False
        is_sum = op == dist.ReduceOp.SUM and caller.divisor == 1 and output.dtype != torch.float16
        if op != dist.ReduceOp.AVG and not is_sum:
            raise UsageError(f"torch divides the sum of the gradients of module '{self._name}' between its "
                             "replicas afterwards, and the hook of attach_hsdp comes before: reduce_dtype must "
                             "be float32 or bf16, and set_force_sum_reduction_for_comms goes with "
                             "set_gradient_divide_factor(1.0) alone")
        self._left = _Left(output.data_ptr(), self._nodes if is_sum else 1,
                           [owner.sharded_param for owner in caller.owners])
        return True

    def __call__(self, output: torch.Tensor) -> None:
        if self.reduce is None:
            return
        left, self._left = self._left, _NONE_LEFT
        if left.address != output.data_ptr():
            raise UsageError(f"torch has summed the gradients of module '{self._name}' itself: attach_hsdp serves "
                             "backward passes that are not compiled")
        if left.times != 1:  # optimizers, norms and what waits are in units of p.grad
            output.mul_(left.times)
        self.reduce(reals(output).view(-1), left.parameters)


def _sums_over(model: FSDPModule, between: dist.ProcessGroup) -> bool:
    """Whether torch sums all of a model's gradients over this group, and the group leaves that to hooks."""
    groups = [replicas_of(group) for module in model.modules() if isinstance(module, FSDPModule)
              for group in groups_of(module)]
    return isinstance(between, WinnowGroup) and len(groups) > 0 and all(one is between for one in groups)


def attach_hsdp(model: FSDPModule, mesh: DeviceMesh, compressor: Optional[str] = None,
                **options: Any) -> State:
    """Lets Winnow average between nodes what `fully_shard` has averaged within them:

        mesh = init_device_mesh("cpu", (nodes, ranks_per_node), mesh_dim_names=("between", "within"))
        fully_shard(model, mesh=mesh["within"])
        winnow.torch.attach_hsdp(model, mesh["between"], "topk:0.01")

    Also of a model that is sharded over both dimensions, or by `replicate`, where the dimension between
    nodes has the backend winnow: fully_shard(model, mesh=mesh), with backend_override={"between": "winnow"}
    in init_device_mesh. Its gradients are averages, or sums by set_gradient_divide_factor.

    `mesh`: one dimension, of the ranks that hold the same shards. `compressor` and the keywords are
    the options of winnow.Reducer; those that are not given are the group's, if it is of the backend.
    Every rank makes the same calls in the same order; ranks meet.
    Residuals are sharded as the parameters are: each rank saves the state_dict of the State that this
    returns. model.set_requires_all_reduce(False) keeps micro-batches back, as in torch. Errors are
    raised by the backward pass.

    look_ahead and the optimizers of winnow.torch take the model, made after this. They then want a
    gradient of every parameter in each backward pass, unless torch would sum between nodes; reduce_dtype
    must not be float16.

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
    expect_no_optimizer(model)
    between = mesh.get_group()
    in_place = _sums_over(model, between)
    if not in_place:
        expect_sharded_alone(model, "attach_hsdp")
    expect_apart(model, between)
    given = between.options if isinstance(between, WinnowGroup) else None
    if given is not None:
        compressor, options = compressor or given.compressor, {**given.options, **options}
        if in_place:
            between.expect_unseen(one for module in model.modules() if isinstance(module, FSDPModule)
                                  for group in groups_of(module) for one in group.fsdp_params)
    state = ShardedState(compressor or "topk:0.01", group=between, **options)
    hooks: List[Union[_AllReduce, _InPlaceOfTorch]] = []

    def winnows(name: str, shards: List[Shard], together: Sequence[torch.Tensor]) -> Reduce:
        known = {id(shard.parameter): shard for shard in shards}
        return lambda output, parameters: state.reduce(
            name, [known[id(one)] for one in parameters if id(one) in known], together, output)

    def averages(output: torch.Tensor, _: Sequence[torch.Tensor]) -> None:
        dist.all_reduce(output, group=between)
        output.div_(dist.get_world_size(between))

    modules: Dict[int, Tuple[str, FSDPModule]] = {}  # one of those that fully_shard was given together
    for name, module in model.named_modules():
        if isinstance(module, FSDPModule):
            modules.setdefault(id(module._get_fsdp_state()), (unwrapped(name), module))
    for name, module in modules.values():
        shards = shards_of("", module, model)
        state.name_shards(shards)
        reduce = winnows(name, shards, parameters_of(module))
        hooks.append(_InPlaceOfTorch(reduce, name, between.size()) if in_place else
                     _AllReduce(module, reduce, name))
    state.begin()
    for (_, module), one in zip(modules.values(), hooks):
        module.set_all_reduce_hook(one)
    held = [weakref.ref(one) for one in hooks]  # by the modules, which the state must not hold

    def release() -> None:
        for one in filter(None, (reference() for reference in held)):
            one.reduce = None if in_place else averages

    state.release = release
    remember(model, state)
    watch_shards(state)
    return state
