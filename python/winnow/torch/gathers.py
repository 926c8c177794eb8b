# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Look-ahead where torch gathers weights from the shards of all ranks, which stay as they are."""
import contextlib
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from winnow._library import UsageError
from winnow.torch.fsdp import FsdpState, ReduceScatter
from winnow.torch.place import reals
from winnow.torch.shards import gather_anew, groups_of


class _Gather:
    """The all-gather of one module's weights, as torch's AllGather has it, which then moves this rank's
    copy. `shares`: of residuals, by id() of a parameter."""

    def __init__(self, gather: Any, state: FsdpState, reduction: ReduceScatter, shares: Dict[int, float]):
        self._gather, self._state, self._reduction, self._shares = gather, state, reduction, shares

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype,
                 device: torch.device) -> torch.Tensor:
        return self._gather.allocate(size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 group: dist.ProcessGroup, async_op: bool = False) -> Optional[dist.Work]:
        work = self._gather(output_tensor, input_tensor, group, async_op)
        if work is not None:
            work.wait()
        self._move(output_tensor)
        return None

    @torch.no_grad()
    def _move(self, weights: torch.Tensor) -> None:
        one, state = self._reduction, self._state
        reduced, kinds = one.reduced(), {shard.parameter.dtype for shard in one.shards}
        if not any(self._shares.get(id(shard.parameter)) for shard in reduced.shards):
            return
        flat = reals(weights).view(-1)
        rows, count = dist.get_world_size(state.group), sum(shard.count for shard in one.shards)
        if len(kinds) > 1 or flat.numel() != rows * count:
            raise UsageError(f"look_ahead: parameters of module '{one.name}' have several types, or lie "
                             "otherwise than fully_shard lays them")
        # What is to be added, 0 - 1 * residual.
        way = torch.zeros(rows * sum(shard.count for shard in reduced.shards), device=flat.device)
        reducer = state.reducer
        with state.place_at(flat.device).in_turn():
            reducer.look_ahead_at(reduced.id, way.data_ptr(), way.data_ptr(), way.numel(), 1.0)
        ways = {id(shard.parameter): columns for shard, columns in zip(reduced.shards, reduced.columns(way))}
        matrix = flat.view(rows, count).split([shard.count for shard in one.shards], dim=1)
        for shard, columns in zip(one.shards, matrix):
            share = self._shares.get(id(shard.parameter))
            if share and id(shard.parameter) in ways:
                columns.add_(ways[id(shard.parameter)], alpha=share)


def _expect_movable(one: ReduceScatter, shares: Dict[int, float]) -> None:
    module = one.module()
    if not hasattr(module, "set_custom_all_gather"):
        raise UsageError("fully_shard of this torch has no set_custom_all_gather, which look_ahead needs")
    gathered = {id(each.sharded_param) for group in groups_of(module) for each in group.fsdp_params}
    if any(getattr(group, "_use_post_forward_mesh", False) for group in groups_of(module)):
        raise UsageError(f"look_ahead: module '{one.name}' gathers weights for its backward pass from some "
                         "of the ranks, of which each is ahead by its own: give fully_shard "
                         "reshard_after_forward=True or False")
    if not one.shards and not gathered.isdisjoint(shares):
        raise UsageError(f"look_ahead: module '{one.name}' gathers others than its own parameters, or shards "
                         "that are not rows")


@contextlib.contextmanager
def gathered_ahead(state: FsdpState, shares: Iterable[Tuple[torch.Tensor, float]]) -> Iterator[None]:
    """Weights that are gathered inside are less these shares of what this rank has not sent of them."""
    by_id = {id(parameter): float(share) for parameter, share in shares}
    reductions = state.reductions
    for one in reductions:
        _expect_movable(one, by_id)
    before: List[Tuple[Any, Any]] = []
    try:
        for one in reductions:
            module = one.module()
            gather_anew(module)
            for group in groups_of(module):
                before.append((module, group._all_gather_comm))
                module.set_custom_all_gather(_Gather(group._all_gather_comm, state, one, by_id))
        yield
    finally:
        for module, gather in reversed(before):
            module.set_custom_all_gather(gather)
            gather_anew(module)
