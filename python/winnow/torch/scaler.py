# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Residuals under a loss scale."""
import functools
import weakref
from typing import Any, Callable, Dict, List

import torch

from winnow._library import UsageError
from winnow.torch.attach import Attached, state_of
from winnow.torch.backend.sums import GroupState
from winnow.torch.state import State
from winnow.torch.unapplied import unapplied_of


class _Follower:
    """The models whose residuals follow one scaler."""

    def __init__(self, scaler: torch.amp.GradScaler):
        self.states: "weakref.WeakSet[State]" = weakref.WeakSet()
        # That the scaler has seen since the last update. Weak: an optimizer may reach the scaler.
        self._optimizers: "weakref.WeakSet[torch.optim.Optimizer]" = weakref.WeakSet()
        scaler.unscale_ = self._noting(scaler.unscale_)
        scaler.step = self._noting(scaler.step)  # of which some do not unscale
        update = scaler.update

        @functools.wraps(update)
        def followed(*arguments: Any, **keywords: Any) -> None:
            found = {one: _finds_infinities(scaler, one) for one in self._noted()}
            states, before = [state for state in self.states if state.is_open], scaler.get_scale()
            for state in states:
                _discard(state, found)
            update(*arguments, **keywords)
            factor = scaler.get_scale() / before
            for state in states:
                _follow(state, factor)

        scaler.update = followed

    def _noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def noted(optimizer: torch.optim.Optimizer, *arguments: Any, **keywords: Any) -> Any:
            self._optimizers.add(optimizer)
            return function(optimizer, *arguments, **keywords)

        return noted

    def _noted(self) -> List[torch.optim.Optimizer]:
        optimizers = list(self._optimizers)
        self._optimizers.clear()
        return optimizers


def _discard(state: State, found: Dict[torch.optim.Optimizer, bool]) -> None:
    """Undoes the steps that the scaler has skipped. `found`: whether it has, for each optimizer."""
    of_state = {one: skipped for one, skipped in found.items()
                if state.names_any({id(parameter) for parameter in _moved_by(one)})}
    skipped = [parameter for one, is_skipped in of_state.items() if is_skipped
               for parameter in _moved_by(one)]
    for parameter in skipped:
        state.marks.take(parameter)
    if skipped:
        state.discard(None if all(of_state.values()) else skipped)
        if (unapplied := unapplied_of(state)) is not None:
            unapplied.clear()


def _follow(state: State, factor: float) -> None:
    if factor != 1:
        state.reducer.scale_residuals(factor)
    state.reducer.begin_step()


def _moved_by(optimizer: torch.optim.Optimizer) -> List[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _finds_infinities(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> bool:
    """Whether the scaler skips this step of the optimizer."""
    flags = scaler._found_inf_per_device(optimizer) if scaler.is_enabled() else {}
    return any(flag.item() > 0 for flag in flags.values())


_followers: "weakref.WeakKeyDictionary[torch.amp.GradScaler, _Follower]" = weakref.WeakKeyDictionary()


def attach_scaler(model: Attached, scaler: torch.amp.GradScaler) -> None:
    """Lets the residuals of `model` follow a GradScaler, from the next backward pass on:

        winnow.torch.attach(ddp, "topk:0.01")
        winnow.torch.attach_scaler(ddp, scaler)

    A residual is in the units of the scaled loss, so it is scaled with it; and a step that the
    scaler skips, since it has found infinities for the optimizer, leaves no trace in the residuals of
    the parameters that the optimizer moves, whichever buckets were finite. A step is what comes
    between two calls of scaler.update(). One scaler serves several models. Costs a copy of the
    residuals. Collective: ranks meet, and all attach.

    `model` may be a group of the backend winnow, of one optimizer, before its first sum.

    Raises UsageError for a model that follows a scaler already. Behind attach_fsdp, and attach_hsdp where a
    pass has given some parameters no gradient, so does scaler.update() where two optimizers move
    parameters of one module, and one of them was skipped.
    """
    state = state_of(model)
    if any(state in follower.states for follower in _followers.values()):
        raise UsageError("this model follows a scaler already")
    if isinstance(state, GroupState) and state.is_midway:
        raise UsageError("the group has compressed sums of gradients without a scale: call attach_scaler before "
                         "the first backward pass")
    state.reducer.begin_step()
    if scaler not in _followers:
        _followers[scaler] = _Follower(scaler)
    _followers[scaler].states.add(state)
    state.follows_scaler = True
    state.loss_scale = scaler.get_scale
