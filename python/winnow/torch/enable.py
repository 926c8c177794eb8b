# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""One line for programs in which a framework makes the DistributedDataParallel."""
import functools
import weakref
from typing import Any, Callable, Dict, NamedTuple, Optional

import torch
from torch.nn.parallel import DistributedDataParallel

from winnow._library import UsageError
from winnow.arguments import flag, shown
from winnow.torch import clipping, frameworks
from winnow.torch.attach import expect_recipe, pair, state_for
from winnow.torch.pairing import pairing_of
from winnow.torch.slot import was_attached
from winnow.torch.state import State
from winnow.torch.twins import Twins
from winnow.torch.watch import meetings, steps_anyway, watch

Only = Callable[[DistributedDataParallel], bool]


class _Arguments(NamedTuple):
    """Of enable."""

    compressor: Optional[str]
    only: Optional[Only]
    anyway: bool
    options: Dict[str, Any]


class _Later:
    """Of one model: torch's sums until an optimizer moves its parameters, then Winnow's."""

    def __init__(self, ddp: DistributedDataParallel, arguments: _Arguments):
        self._ddp, self._arguments = weakref.ref(ddp), arguments
        self._state: Optional[State] = None
        self._twins = Twins(ddp, None)  # a step, and so meet, may come inside of a forward pass

    def meet(self, optimizer: torch.optim.Optimizer) -> None:
        """Before a step."""
        ddp = self._ddp()
        if ddp is None or pairing_of(optimizer) is not None or steps_anyway(optimizer):
            return
        moved = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if moved.isdisjoint(map(id, ddp.parameters())):
            return
        if self._state.is_detached if self._state is not None else was_attached(ddp):
            return  # the program has detached it, or attached it by itself
        given = self._arguments
        if self._state is None and given.only is not None and not given.only(ddp):
            return
        recipe = expect_recipe(optimizer, given.anyway, "enable(anyway=True)")
        if self._state is None:
            self._state = state_for(ddp, recipe, given.compressor, dict(given.options), self._twins)
        pair(optimizer, self._state, given.anyway)


def enable(compressor: Optional[str] = None, *, only: Optional[Only] = None, anyway: bool = False,
           **options: Any) -> None:
    """Attaches every DistributedDataParallel that is made from here on to the optimizers that move
    its parameters, as attach(ddp, optimizer) with these arguments: for frameworks that make both
    themselves (Lightning, the trainer of Hugging Face). An optimizer is known from its first step on,
    so the sums before that are dense. `only(ddp)` says whether a model is one of those; it is asked
    before a step, on all ranks, and leaves the others to torch, such as models with another hook:

        winnow.torch.enable(only=lambda ddp: not ddp._comm_hooks)

    Once per process.

    Raises UsageError if it was called before, for arguments of wrong kinds, and what attach raises in an
    optimizer's first step.
    """
    init = DistributedDataParallel.__init__
    if hasattr(init, "__wrapped__"):
        raise UsageError("Winnow is enabled already")
    if only is not None and not callable(only):
        raise UsageError(f"only is {shown(only)}: must be a function of a DistributedDataParallel")
    given = _Arguments(compressor, only, flag(anyway, "anyway"), options)
    later: "weakref.WeakKeyDictionary[DistributedDataParallel, _Later]" = weakref.WeakKeyDictionary()

    @functools.wraps(init)
    def attached(self: DistributedDataParallel, *arguments: Any, **keywords: Any) -> None:
        init(self, *arguments, **keywords)
        later[self] = _Later(self, given)
        frameworks.follow()  # checkpoints come before the first step, too

    def meet(optimizer: torch.optim.Optimizer) -> None:
        for one in list(later.values()):
            one.meet(optimizer)

    DistributedDataParallel.__init__ = attached
    meetings.append(meet)
    watch()
    clipping.follow()  # how torch clips the gradients of a first step
