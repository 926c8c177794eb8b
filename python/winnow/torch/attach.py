# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Attaches Winnow to a DistributedDataParallel, and to the optimizer that moves its parameters."""
from typing import Any, Dict, List, Optional, Set, Union, overload

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from winnow._library import UsageError
from winnow.arguments import flag
from winnow.torch.agree import exchange
from winnow.torch.frameworks import follow
from winnow.torch.names import listed
from winnow.torch.pairing import Pairing, pairing_of
from winnow.torch.rules import RECIPES, Recipe, recipe_of
from winnow.torch.slot import expect_no_other_hook, put_in_slot
from winnow.torch.state import State
from winnow.torch.twins import Twins
from winnow.torch.unapplied import unapplied_of, watch_sums
from winnow.torch.uneven import rescale_of
from winnow.torch.warn import warn
from winnow.torch.watch import allow_step, states, watch

# A model that Winnow is attached to, or its state, or a group of the backend.
Attached = Union[torch.nn.Module, State, dist.ProcessGroup]


@overload
def attach(ddp: torch.nn.Module, optimizer: torch.optim.Optimizer, compressor: Optional[str] = None, *,
           anyway: bool = False, **options: Any) -> torch.optim.Optimizer: ...


@overload
def attach(ddp: torch.nn.Module, compressor: str = "topk:0.01", **options: Any) -> State: ...


def attach(ddp, optimizer=None, compressor=None, *, anyway=False, **options):
    """Lets Winnow reduce the gradients of `ddp`, a DistributedDataParallel, and `optimizer` train by
    what is reduced, from the next backward pass on:

        optimizer = winnow.torch.attach(ddp, torch.optim.AdamW(ddp.parameters(), lr=1e-3))

    Returns `optimizer`, the same object: a torch.optim.SGD, Adam or AdamW, also as Accelerate or
    Lightning wrap it. Compressor and schedule are those that served its kind best
    (docs/convergence.md); `compressor` and the keywords, the options of winnow.Reducer, override
    them. Each rank prepares its gradients as winnow.torch.SGD and AdamW do, and forward and backward
    passes look ahead; between them the parameters are the weights. A gradient that did not pass the
    hook takes torch's ordinary step. Several optimizers of one model are attached one after the
    other. On one rank nothing is compressed.

    attach(ddp, "topk:0.01") attaches the hook alone, and returns its State, whose reducer has the
    statistics and residuals: for winnow.torch.SGD, AdamW and look_ahead in a loop of your own.

    Collective: ranks meet and compare options. Every rank makes the same calls in the same order. One
    thread trains a model.

    Raises UsageError for wrong options; for anything but a DistributedDataParallel; where something
    else sums its gradients (another hook, mixed_precision=, optimizers that are applied in the
    backward pass); for an optimizer that is attached already; for settings that Winnow's rule lacks
    (amsgrad, maximize, Adam's coupled weight_decay); and for optimizers of other kinds, unless
    `anyway`: these then step by compressed sums, without look-ahead. A backward pass raises it for a
    gradient that is reduced twice before a step.
    """
    anyway = flag(anyway, "anyway")
    if isinstance(optimizer, str):
        optimizer, compressor = None, optimizer
    ddp = getattr(ddp, "_orig_mod", ddp)  # of torch.compile
    if not isinstance(ddp, DistributedDataParallel):
        raise UsageError(f"attach takes a DistributedDataParallel, not a {type(ddp).__name__}")
    if optimizer is None:
        state = _make_state(ddp, compressor or "topk:0.01", options)
        watch_sums(ddp, state)
        return state
    inner = _unwrap(optimizer)
    recipe = _agree_on(inner, ddp, anyway)
    state = states.get(ddp)
    if state is None:
        state = state_for(ddp, recipe, compressor, options)
    elif state.marks.automatic is None:
        raise UsageError("Winnow is attached to this model already, without an optimizer")
    elif compressor is not None or options:
        raise UsageError("attach of a further optimizer takes no options: the first one's hold")
    pair(inner, state, anyway)
    return optimizer


def _agree_on(optimizer: torch.optim.Optimizer, ddp: DistributedDataParallel, anyway: bool) -> Recipe:
    """UsageError on all ranks if one refuses its optimizer, or if theirs move different parameters of the
    model. Collective."""
    recipes: List[Recipe] = []

    def moved() -> List[int]:
        recipes.append(expect_recipe(optimizer, anyway, "attach(..., anyway=True)"))
        moves = _moves(optimizer)
        return [place for place, parameter in enumerate(ddp.parameters()) if id(parameter) in moves]

    everyone = exchange(ddp.process_group, moved)
    if not any(everyone):
        raise UsageError(f"this {type(optimizer).__name__} moves no parameter of the model")
    if any(theirs != everyone[0] for theirs in everyone):
        raise UsageError(f"the {type(optimizer).__name__} of each rank moves other parameters, as the one "
                         "inside of a ZeroRedundancyOptimizer does, and Winnow prepares gradients of all on every rank: "
                         "take an optimizer of all parameters, or shard by attach_hsdp")
    return recipes[0]


def _unwrap(optimizer: Any) -> torch.optim.Optimizer:
    """torch's object, which wrappers of frameworks hold as their `optimizer`."""
    while recipe_of(optimizer) is None and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"attach takes an optimizer of torch.optim, not a {type(optimizer).__name__}")
    return optimizer


def expect_recipe(optimizer: torch.optim.Optimizer, anyway: bool, remedy: str) -> Recipe:
    """UsageError for optimizers that have none, or settings that it lacks, or that are attached.
    `remedy`: how `anyway` is given."""
    pairing = pairing_of(optimizer)
    if pairing is not None:
        raise UsageError(f"this {type(optimizer).__name__} is attached already, with a model that has "
                         f"{listed(pairing.state.names)}: attach it once, and make one of its own for each "
                         "further model")
    recipe = recipe_of(optimizer)
    for group in optimizer.param_groups if recipe is not None else []:
        recipe.rule.check(optimizer, group)
    if recipe is None and not anyway:
        held = getattr(optimizer, "optim", None)
        inside = (f", or attach(ddp, optimizer.optim), the {type(held).__name__} inside"
                  if isinstance(held, torch.optim.Optimizer) and recipe_of(held) is not None
                  and type(optimizer).__name__ != "ZeroRedundancyOptimizer"
                  and _moves(held) == _moves(optimizer) else "")
        raise UsageError(
            f"attach knows how torch.optim.SGD, Adam and AdamW move weights, not how "
            f"{type(optimizer).__name__} does: take one of these{inside}, or {remedy}, by "
            "which it steps by compressed sums without look-ahead. That costs loss: torch's AdamW so "
            "ended 32 % above dense sums, SGD with momentum 0.7 to 1.7 % (docs/convergence.md). An "
            "optimizer that compares gradients of several steps, as LBFGS does, may not converge at all")
    return recipe or RECIPES[0]


def _moves(optimizer: torch.optim.Optimizer) -> Set[int]:
    return {id(p) for group in optimizer.param_groups for p in group["params"]}


def state_for(ddp: DistributedDataParallel, recipe: Recipe, compressor: Optional[str],
              options: Dict[str, Any], twins: Optional[Twins] = None) -> State:
    """The State of a model that is attached with an optimizer. `twins`: those that it has already."""
    if compressor != "none":
        options = {"schedule": recipe.schedule, **options}
    if ddp.process_group.size() == 1:
        compressor, options = "none", {**options, "schedule": "auto"}
    state = _make_state(ddp, compressor or recipe.compressor, options)
    if twins is None:
        twins = Twins(ddp, state)
    else:
        twins.serve(state)
    state.marks.automatic = twins
    return state


def pair(optimizer: torch.optim.Optimizer, state: State, anyway: bool) -> None:
    """From here on `optimizer` moves parameters of the model by Winnow's rule."""
    recipe = recipe_of(optimizer)
    if recipe is not None:
        Pairing(optimizer, state, recipe.rule, twins=state.marks.automatic)
    elif anyway:
        allow_step(optimizer)


def _make_state(ddp: DistributedDataParallel, compressor: str, options: Dict[str, Any]) -> State:
    if ddp in states:
        raise UsageError("Winnow is attached to this model already")
    expect_no_other_hook(ddp)
    if getattr(ddp, "_use_python_reducer", False):
        raise UsageError('torch._dynamo.config.optimize_ddp = "python_reducer" sums gradients without hooks: '
                         "set it to True before the DistributedDataParallel is made")
    state = State(compressor, group=ddp.process_group, **options)
    state.finds_unused, state.rescale = ddp.find_unused_parameters, rescale_of(ddp, state)
    state.name_parameters(ddp.module.named_parameters())
    state.begin()
    put_in_slot(ddp, state)
    remember(ddp, state)
    return state


def detach(model: Attached) -> None:
    """Ends what attach, attach_hsdp or attach_fsdp began: from the next backward pass on torch sums
    the gradients, whole, and Winnow's connections and memory are free. `model`: what Winnow is
    attached to, or its State. What waits in the residuals is dropped; state_dict() of the State
    before this keeps it. Optimizers that attach took make torch's own steps again, by moments in its
    units, which are the means over ranks where ranks had their own. The model and they may be attached
    again. Every rank makes this call, between a step and the next forward pass.

    Raises UsageError if Winnow is not attached, if winnow.torch.SGD or AdamW moves the model, and if
    gradients that were reduced wait for their step.
    """
    state = state_of(model)
    state.detach()
    for attached in [one for one, its in states.items() if its is state]:
        del states[attached]


def expect_no_optimizer(model: torch.nn.Module) -> None:
    """UsageError if a model is attached already, and an optimizer of Winnow moves it."""
    state = states.get(model)
    if state is not None and state.is_paired:
        raise UsageError("Winnow is attached to this model already, and an optimizer of winnow.torch moves it: drop "
                         "the optimizer, call winnow.torch.detach(model), and make another one after it is attached")


def remember(model: torch.nn.Module, state: State) -> None:
    """From here on state_of(model) is `state`, and optimizers that move the model are watched."""
    states[model] = state
    watch()
    follow()


def state_of(model: Attached) -> State:
    """The State of a model that Winnow is attached to, or of a group of the backend: its reducer has the
    statistics and residuals, its state_dict what this rank has not sent. UsageError if there is none."""
    if isinstance(model, State):
        return model
    if isinstance(model, dist.ProcessGroup):
        if not hasattr(model, "state"):
            raise UsageError(f"a group of the backend {dist.get_backend(model)}: takes a model that Winnow is attached "
                             "to, or a group of the backend winnow")
        return model.state
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    if model not in states:
        raise UsageError("Winnow is not attached to this model")
    return states[model]


def skip_step(model: Attached) -> None:
    """In place of an optimizer's step that is left out, on all ranks: by the gradients that were
    reduced last no step will be made. From the second call on this undoes what they did to the
    residuals and to second moments, of which copies are kept from the first call on; at the first, what
    was not sent of these gradients still comes later, and second moments know of them. So call it once
    before training, where steps will be left out."""
    state = state_of(model)
    if state.marks.undoes:
        state.discard()
        for parameter, mark in state.marks.items():
            if (owner := mark.owner()) is not None:
                owner.undo(parameter, mark)
    elif state.is_midway:
        warn("skip", "the first call of winnow.torch.skip_step leaves traces of the gradients that it skips, "
             "in what waits and in second moments; later ones leave none. Call it once before training")
    state.marks.undoes = True
    state.marks.clear()
    if (unapplied := unapplied_of(state)) is not None:
        unapplied.clear()
    state.begin_step()
