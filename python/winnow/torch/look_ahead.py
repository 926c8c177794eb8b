# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients where the weights will be."""
import contextlib
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from winnow._library import UsageError
from winnow.torch.adamw import AdamW
from winnow.torch.attach import Attached, state_of
from winnow.torch.hook import State
from winnow.torch.place import local
from winnow.torch.sgd import SGD


def _reach(optimizer: torch.optim.Optimizer, group: Dict[str, Any]) -> Tuple[float, float]:
    """The momentum with which an optimizer repeats a gradient, and the weight that it gives it."""
    if isinstance(optimizer, AdamW):
        return 0, 1  # first moments are means: all repetitions of an update make one
    momentum = group["momentum"]
    rate = 1 if isinstance(optimizer, SGD) else group["lr"]
    return momentum, rate * (1 - group["dampening"] if momentum != 0 else 1)


def _shares(state: State, optimizer: torch.optim.Optimizer,
            given: Optional[float]) -> Iterator[Tuple[Any, float]]:
    """Each parameter that the optimizer moves, and how far a unit of its residual will move it."""
    for group in optimizer.param_groups:
        if group["maximize"]:
            raise UsageError("look_ahead: an optimizer that maximizes")
        momentum, weight = _reach(optimizer, group)
        share = state.reducer.look_ahead_share(momentum) if given is None else given / (1 - momentum)
        share *= float(weight) / state.loss_scale()
        for parameter in group["params"]:
            yield parameter, share


def _look(state: State, parameter: torch.Tensor, weights: torch.Tensor, share: float) -> None:
    """parameter = weights - share * residual, of what this rank has of it. All have their elements
    where the gradient in a bucket has them: in the order of the parameter's memory, in whatever order
    of dimensions; of a shard, with padding behind it."""
    ours, source = local(parameter), weights.float()
    padding = state.padding_of(parameter)
    in_place = (ours.dtype == torch.float32 and ours.stride() == source.stride() and padding == 0)
    if padding > 0:
        source = torch.nn.functional.pad(source.flatten(), (0, padding))
    ahead = ours if in_place else torch.empty_like(source)
    reducer = state.reducer
    with state.place_at(ours.device).in_turn():
        reducer.look_ahead_at(state.parameter_id(parameter), source.data_ptr(), ahead.data_ptr(),
                              source.numel(), share)
    if padding > 0:
        ahead = ahead[:ours.numel()].view_as(ours)
    if not in_place:
        ours.copy_(ahead)


@contextlib.contextmanager
def look_ahead(model: Attached, optimizer: torch.optim.Optimizer,
               share: Optional[float] = None) -> Iterator[None]:
    """Forward and backward passes inside take their gradients at the weights that would be if what
    this rank has not sent were applied; afterwards the weights are as they were, equal on all
    ranks, for the optimizer and for evaluation:

        with winnow.torch.look_ahead(ddp, optimizer):
            loss(ddp(inputs)).backward()
        optimizer.step()

    `model`: what Winnow is attached to, or its State; sharded parameters look ahead in their shards.
    No byte more travels, and training with momentum keeps the loss of dense sums. Costs a copy of
    the weights and one pass over them. `optimizer` is a torch.optim.SGD, a winnow.torch.SGD or a
    winnow.torch.AdamW, whose settings say how far a residual will move the weights; UsageError for
    others. `share`: of the residual, before momentum and learning rate, which come on top; None:
    1 / (2 sqrt(max(P, 4))) on P ranks, as Reducer.look_ahead_share says. Under a GradScaler call
    attach_scaler before.
    """
    if not isinstance(optimizer, (torch.optim.SGD, AdamW)):
        raise UsageError("look_ahead knows how torch.optim.SGD, winnow.torch.SGD and AdamW move "
                         f"weights, not how {type(optimizer).__name__} does")
    state = state_of(model)
    kept: List[Tuple[torch.Tensor, torch.Tensor]] = []
    try:
        with torch.no_grad():
            for parameter, share_of_it in _shares(state, optimizer, share):
                weights = local(parameter).clone()
                kept.append((local(parameter), weights))
                _look(state, parameter, weights, share_of_it)
        yield
    finally:
        with torch.no_grad():
            for ours, weights in kept:
                ours.copy_(weights)
