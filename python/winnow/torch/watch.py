# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""A look at every optimizer before it moves the parameters of a model that Winnow is attached to."""
import functools
import weakref
from typing import Any, Callable, List

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from winnow._library import UsageError
from winnow.torch.holders import holds_others
from winnow.torch.pairing import Pairing, average, pairing_of
from winnow.torch.place import local
from winnow.torch.rules import Adam, are_updates, as_of_torch, default_scale, recipe_of
from winnow.torch.state import State
from winnow.torch.unapplied import unapplied_of
from winnow.torch.untied import expect_tied
from winnow.torch.warn import warn

DENSE_STEPS = 50  # after which a model whose buckets travel dense is warned of

_ADAPTIVE = tuple(getattr(torch.optim, name) for name in (
    "Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "NAdam", "RAdam", "RMSprop"))
states: "weakref.WeakKeyDictionary[torch.nn.Module, State]" = weakref.WeakKeyDictionary()
meetings: List[Callable[[torch.optim.Optimizer], None]] = []  # of models and optimizers that enable has
_steps: "weakref.WeakKeyDictionary[State, int]" = weakref.WeakKeyDictionary()
_anyway: "weakref.WeakSet[torch.optim.Optimizer]" = weakref.WeakSet()  # attached with anyway=True


@functools.lru_cache(maxsize=None)
def watch() -> None:
    """From here on, once per process."""
    def look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if holds_others(optimizer):
            return
        for meet in meetings:
            meet(optimizer)
        pairing, moved = pairing_of(optimizer), {id(p) for group in optimizer.param_groups
                                                 for p in group["params"]}
        expect_tied(optimizer)
        _expect_whole(optimizer)
        if pairing is None:
            _convert(optimizer)
        else:
            pairing.come_last()
        for state in list(states.values()):
            if state.names_any(moved):
                _check(optimizer, pairing, state)

    register_optimizer_step_pre_hook(look)


def _expect_whole(optimizer: torch.optim.Optimizer) -> None:
    inner = getattr(optimizer, "optim", None)
    if isinstance(inner, torch.optim.Optimizer) and pairing_of(inner) is not None:
        raise UsageError(f"{type(optimizer).__name__} gives each rank an optimizer of some parameters, "
                         "and an optimizer of winnow.torch prepares gradients of all on every rank: "
                         "use it without, or shard by attach_hsdp")


def _convert(optimizer: torch.optim.Optimizer) -> None:
    """Of a copy, or of a checkpoint of Winnow: torch's own step takes moments in torch's units."""
    recipe = recipe_of(optimizer)
    if recipe is None:
        return
    ranks = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            moments = optimizer.state.get(parameter)
            if ranks > 1 and are_updates(moments):
                for name in recipe.rule.of_one_rank:  # else replicas would go apart
                    average(local(moments[name]), None)
            as_of_torch(recipe.rule, group, moments, default_scale(ranks))


# What mends a reason that names these words.
_DENSE_REMEDIES = {"min_bytes": "min_bytes=0", "exempt": "exempt_1d=False"}


def allow_step(optimizer: torch.optim.Optimizer) -> None:
    """attach has taken it with anyway=True."""
    _anyway.add(optimizer)


def steps_anyway(optimizer: torch.optim.Optimizer) -> bool:
    """Also one that such an optimizer holds, and steps by."""
    return optimizer in _anyway or any(getattr(outer, "optim", None) is optimizer for outer in _anyway)


def _check(optimizer: torch.optim.Optimizer, pairing: "Pairing | None", state: State) -> None:
    name = type(optimizer).__name__
    if state.marks.ahead:
        raise UsageError(f"{name}.step() inside of look_ahead, which would undo it: step after it")
    if pairing is None and state.marks.automatic and not steps_anyway(optimizer):
        raise UsageError(f"{name} moves parameters of a model that is attached with another optimizer: "
                         "call winnow.torch.attach(ddp, optimizer) for each of them, before training")
    parameters = (p for group in optimizer.param_groups for p in group["params"])
    prepared = None if pairing is not None else state.marks.any_of(parameters)
    if prepared is not None:
        raise UsageError(f"{name} moves {state.name_of(prepared)}, whose gradient another optimizer, "
                         "one of winnow.torch, has prepared for its own step")
    if (unapplied := unapplied_of(state)) is not None:
        unapplied.step()
    if not state.is_open or state.lossless:
        return
    if pairing is None and state.marks.undoes:
        state.reducer.begin_step()  # what this step applies is not undone any more
    warn_of_losses(optimizer, pairing, state)
    _steps[state] = _steps.get(state, 0) + 1
    if _steps[state] == DENSE_STEPS:
        _warn_of_dense(state)


def warn_of_adaptive(optimizer: torch.optim.Optimizer, remedy: str) -> None:
    """If this is such an optimizer of torch's own, and steps by compressed sums."""
    if isinstance(optimizer, _ADAPTIVE) and pairing_of(optimizer) is None and not steps_anyway(optimizer):
        warn("adaptive", f"{type(optimizer).__name__} makes wrong second moments of compressed sums: torch's "
             f"AdamW so ended 32 % above the loss of dense sums (docs/convergence.md). {remedy}")


def warn_of_losses(optimizer: torch.optim.Optimizer, pairing: "Pairing | None",
                   state: State) -> None:
    """Once: what a step by compressed sums, or without look-ahead, costs."""
    name = type(optimizer).__name__
    of_ddp = any(isinstance(model, DistributedDataParallel) for model, its in states.items() if its is state)
    if pairing is None:
        warn_of_adaptive(optimizer, "Write optimizer = " + (
            "winnow.torch.attach(ddp, optimizer) in place of winnow.torch.attach(ddp)" if of_ddp else
            "winnow.torch.AdamW(model.parameters(), ..., model=model)"))
    looks = state.marks.looked or (pairing is not None and pairing.twins is not None)
    if looks or steps_anyway(optimizer):
        return
    if pairing is not None and isinstance(pairing.rule, Adam):
        cost = "winnow.torch.AdamW so ended 72 %"
    elif isinstance(optimizer, torch.optim.SGD) and any(group["momentum"] != 0
                                                        for group in optimizer.param_groups):
        cost = "SGD with momentum so ended 0.7 to 1.7 %"
    else:
        return
    warn("look-ahead", f"backward passes without look-ahead: {cost} above the loss of dense sums "
         "(docs/convergence.md). " +
         ("Write optimizer = winnow.torch.attach(ddp, optimizer) with torch's optimizer, or put" if of_ddp
          else "Put") + " forward and backward passes into with winnow.torch.look_ahead(model, optimizer):")


def _warn_of_dense(state: State) -> None:
    totals = state.reducer.totals()
    if totals["wire_bytes"] < 0.99 * totals["dense_wire_bytes"]:
        return
    reasons = {bucket["totals"]["reason"] for bucket in state.reducer.bucket_stats()
               if bucket["compressed"] == 0 and bucket["totals"]["calls"] > 1}  # not of the first step
    why = "; ".join(sorted(reasons - {""})) or "no reason given"
    remedies = [remedy for words, remedy in _DENSE_REMEDIES.items() if words in why] or ['schedule="balanced"']
    warn("dense", f"all sums of {DENSE_STEPS} steps travelled dense, so nothing is saved ({why}). On links "
         f"where that is wrong attach with {' and '.join(remedies)}")
