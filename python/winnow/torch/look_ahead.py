# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients where the weights will be."""
import contextlib
from typing import Any, Iterable, Iterator, List, Optional, Tuple

import torch

from winnow._library import UsageError
from winnow.arguments import number
from winnow.torch.ahead import look, share_of
from winnow.torch.attach import Attached, state_of
from winnow.torch.backend.pairing import group_state_of
from winnow.torch.backend.sums import GroupState
from winnow.torch.fsdp import FsdpState
from winnow.torch.gathers import gathered_ahead
from winnow.torch.pairing import pairing_of
from winnow.torch.place import local
from winnow.torch.rules import Sgd
from winnow.torch.state import State


def _reaches(optimizer: torch.optim.Optimizer) -> Iterator[Tuple[Any, float, float]]:
    """Each parameter, the momentum with which the optimizer repeats what is reduced, and the weight
    that it gives it."""
    pairing = pairing_of(optimizer)
    if pairing is not None:
        yield from pairing.reaches()
        return
    if not isinstance(optimizer, torch.optim.SGD):
        raise UsageError("look_ahead knows how torch.optim.SGD, winnow.torch.SGD and AdamW move "
                         f"weights, not how {type(optimizer).__name__} does")
    for group in optimizer.param_groups:
        if group["maximize"]:
            raise UsageError("look_ahead: an optimizer that maximizes")
        momentum, weight = Sgd().reach(group)
        for parameter in group["params"]:
            yield parameter, momentum, group["lr"] * weight


def _shares(state: State, optimizer: torch.optim.Optimizer,
            given: Optional[float]) -> Iterator[Tuple[Any, float]]:
    """Each parameter that the optimizer moves, and how far a unit of its residual will move it."""
    for parameter, momentum, weight in _reaches(optimizer):
        if given is None:
            yield parameter, share_of(state, momentum, weight)
        else:
            yield parameter, given / (1 - momentum) * float(weight) / state.loss_scale()


@contextlib.contextmanager
def _moved(state: State, shares: Iterable[Tuple[Any, float]]) -> Iterator[None]:
    """Inside, parameters are less these shares of what this rank has not sent of them."""
    kept: List[Tuple[torch.Tensor, torch.Tensor]] = []
    try:
        with torch.no_grad():
            for parameter, share in shares:
                weights = local(parameter).clone()
                kept.append((local(parameter), weights))
                look(state, parameter, weights, local(parameter), share)
        yield
    finally:
        with torch.no_grad():
            for ours, weights in kept:
                ours.copy_(weights)


@contextlib.contextmanager
def look_ahead(model: Attached, optimizer: torch.optim.Optimizer,
               share: Optional[float] = None) -> Iterator[None]:
    """Forward and backward passes inside take their gradients at the weights that would be if what
    this rank has not sent were applied; afterwards the weights are as they were, equal on all
    ranks, for the optimizer and for evaluation:

        with winnow.torch.look_ahead(ddp, optimizer):
            loss(ddp(inputs)).backward()
        optimizer.step()

    attach(ddp, optimizer) does this by itself. `model`: what Winnow is attached to, or its State, or the group
    that the optimizer is made over;
    sharded parameters look ahead in their shards, or behind attach_fsdp where torch has gathered them,
    and the shards stay as they are. No byte more travels, and training with momentum
    keeps the loss of dense sums. Costs a copy of the weights and one pass over them. `optimizer` is a
    torch.optim.SGD, a winnow.torch.SGD or a winnow.torch.AdamW, whose settings say how far a residual
    will move the weights. `share`: of the residual, before momentum and learning rate, which come on
    top; None: 1 / (2 sqrt(max(P, 4))) on P ranks, as Reducer.look_ahead_share says. Under a
    GradScaler call attach_scaler before.

    Raises UsageError for other optimizers, where the passes look ahead already, and in a step inside.
    """
    pairing, over_group = pairing_of(optimizer), group_state_of(optimizer)
    state = state_of(model) if over_group is None else over_group
    if isinstance(state, GroupState) and state is not over_group:
        raise UsageError("look_ahead over a group of the backend takes a winnow.torch.SGD or winnow.torch.AdamW "
                         "that is made with group=: of other optimizers it does not know which sums are of which "
                         "parameters")
    if state.marks.ahead or (pairing is not None and pairing.twins is not None):
        raise UsageError("look_ahead: the passes of this model look ahead already")
    shares = list(_shares(state, optimizer, None if share is None else number(share, "share")))
    state.marks.ahead = state.marks.looked = True
    try:
        with gathered_ahead(state, shares) if isinstance(state, FsdpState) else _moved(state, shares):
            yield
    finally:
        state.marks.ahead = False
