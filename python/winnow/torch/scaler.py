# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Residuals under a loss scale."""
import functools
import weakref
from typing import Any, Callable, Dict

import torch

from winnow._library import UsageError
from winnow.torch.attach import Attached, state_of
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
            skipped, before = self._skipped(scaler), scaler.get_scale()
            update(*arguments, **keywords)
            factor = scaler.get_scale() / before
            for state in list(self.states):
                if state.is_open:
                    self._follow(state, skipped.get(state, False), factor)

        scaler.update = followed

    def _noting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def noted(optimizer: torch.optim.Optimizer, *arguments: Any, **keywords: Any) -> Any:
            self._optimizers.add(optimizer)
            return function(optimizer, *arguments, **keywords)

        return noted

    def _skipped(self, scaler: torch.amp.GradScaler) -> Dict[State, bool]:
        """Whether the scaler has skipped the step of each model that an optimizer moves. No gradient
        waits for a step that was skipped."""
        optimizers = list(self._optimizers)
        self._optimizers.clear()
        skipped: Dict[State, bool] = {}
        for optimizer in optimizers if scaler.is_enabled() else []:
            found = any(flag.item() > 0 for flag in scaler._found_inf_per_device(optimizer).values())
            moved = [p for group in optimizer.param_groups for p in group["params"]]
            for state in self.states:
                for parameter in moved if found else []:
                    state.marks.take(parameter)
                if state.names_any(set(map(id, moved))) and skipped.setdefault(state, found) != found:
                    raise UsageError("two optimizers move one model, and the GradScaler has skipped the "
                                     "step of one of them: Winnow undoes the whole step or nothing; make "
                                     "one optimizer of both, with groups")
        return skipped

    @staticmethod
    def _follow(state: State, skipped: bool, factor: float) -> None:
        if skipped:
            state.reducer.discard_step()
            if (unapplied := unapplied_of(state)) is not None:
                unapplied.clear()
        if factor != 1:
            state.reducer.scale_residuals(factor)
        state.reducer.begin_step()


_followers: "weakref.WeakKeyDictionary[torch.amp.GradScaler, _Follower]" = weakref.WeakKeyDictionary()


def attach_scaler(model: Attached, scaler: torch.amp.GradScaler) -> None:
    """Lets the residuals of `model` follow a GradScaler, from the next backward pass on:

        winnow.torch.attach(ddp, "topk:0.01")
        winnow.torch.attach_scaler(ddp, scaler)

    A residual is in the units of the scaled loss, so it is scaled with it; and a step that the
    scaler skips, since it has found infinities for the optimizer, leaves no trace in the residuals,
    whichever buckets were finite. A step is what comes between two calls of scaler.update(). One
    scaler serves several models. Costs a copy of the residuals. Collective: ranks meet, and all attach.

    Raises UsageError for a model that follows a scaler already. So does scaler.update() where two
    optimizers move one model and one of them was skipped.
    """
    state = state_of(model)
    if any(state in follower.states for follower in _followers.values()):
        raise UsageError("this model follows a scaler already")
    state.reducer.begin_step()
    if scaler not in _followers:
        _followers[scaler] = _Follower(scaler)
    _followers[scaler].states.add(state)
    state.loss_scale = scaler.get_scale
