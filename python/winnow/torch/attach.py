# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""One line for a user: attach to a DistributedDataParallel, or to all that will be made."""
import functools
import warnings
import weakref
from typing import Any, Union

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from winnow._library import UsageError
from winnow.torch.hook import State
from winnow.torch.slot import expect_no_other_hook, put_in_slot

Attached = Union[torch.nn.Module, State]  # a model that Winnow is attached to, or its state

_states: "weakref.WeakKeyDictionary" = weakref.WeakKeyDictionary()


def attach(ddp: DistributedDataParallel, compressor: str = "topk:0.01", **options: Any) -> State:
    """Lets `ddp` reduce its gradients by Winnow, from the next backward pass on. `compressor` and
    the keywords are the options of winnow.Reducer. Every rank makes the same calls in the same
    order. Returns the state, whose reducer has the statistics and residuals.

    Collective: ranks meet and compare options. Raises UsageError for wrong options, for anything but
    a DistributedDataParallel, and where something else sums its gradients: another hook,
    mixed_precision=, optimizers that are applied in the backward pass.
    """
    if not isinstance(ddp, DistributedDataParallel):
        raise UsageError(f"attach takes a DistributedDataParallel, not a {type(ddp).__name__}")
    if ddp in _states:
        raise UsageError("Winnow is attached to this model already")
    expect_no_other_hook(ddp)
    state = State(compressor, group=ddp.process_group, **options)
    state.finds_unused = ddp.find_unused_parameters
    state.name_parameters(ddp.module.named_parameters())
    state.begin()
    put_in_slot(ddp, state)
    remember(ddp, state)
    return state


def detach(model: Attached) -> None:
    """Ends what attach, attach_hsdp or attach_fsdp began: from the next backward pass on torch sums
    the gradients, whole, and Winnow's connections and memory are free. `model`: what Winnow is
    attached to, or its State. What waits in the residuals is dropped; state_dict() of the State
    before this keeps it. It may be attached again. Every rank makes this call, outside of a backward
    pass.

    Raises UsageError if Winnow is not attached, or an optimizer of winnow.torch moves the model.
    """
    state = state_of(model)
    state.detach()
    for attached in [one for one, its in _states.items() if its is state]:
        del _states[attached]


_ADAPTIVE = tuple(getattr(torch.optim, name) for name in (
    "Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "NAdam", "RAdam", "RMSprop"))


@functools.lru_cache(maxsize=None)
def _watch_optimizers() -> None:
    """Warns once of an optimizer whose second moments compressed sums spoil."""
    def look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not isinstance(optimizer, _ADAPTIVE) or hasattr(optimizer, "_winnow"):
            return
        moved = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if any(state.names_any(moved) and not state.lossless for state in _states.values()):
            watch.remove()
            warnings.warn(f"{type(optimizer).__name__} makes wrong second moments of compressed sums, "
                          "and the loss suffers: use winnow.torch.AdamW, or SGD with momentum",
                          stacklevel=4)

    watch = register_optimizer_step_pre_hook(look)


def enable(compressor: str = "topk:0.01", **options: Any) -> None:
    """Attaches to every DistributedDataParallel that is made from here on: for frameworks that make
    it themselves (Lightning, the trainer of Hugging Face). Once per process."""
    init = DistributedDataParallel.__init__
    if hasattr(init, "__wrapped__"):
        raise UsageError("Winnow is enabled already")

    @functools.wraps(init)
    def attached(self: DistributedDataParallel, *arguments: Any, **keywords: Any) -> None:
        init(self, *arguments, **keywords)
        attach(self, compressor, **options)

    DistributedDataParallel.__init__ = attached


def remember(model: torch.nn.Module, state: State) -> None:
    """From here on state_of(model) is `state`, and a warning tells of optimizers that it misleads."""
    _states[model] = state
    _watch_optimizers()


def state_of(model: Attached) -> State:
    """The state of a model that Winnow is attached to."""
    if isinstance(model, State):
        return model
    if model not in _states:
        raise UsageError("Winnow is not attached to this model")
    return _states[model]


def report(model: Attached) -> str:
    """What the calls of this rank have sent so far, a line a bucket: elements, calls, bytes, how
    many times fewer than a dense ring would have sent, and the schedule. DistributedDataParallel
    cuts other buckets after the first step, so there is a line for those before and after."""
    reducer = state_of(model).reducer
    rows = [(f"{bucket['count']:,}", bucket["totals"]) for bucket in reducer.bucket_stats()]
    lines = [f"{'elements':>14}{'calls':>10}{'bytes':>18}{'saved':>9}  schedule"]
    for elements, stats in [*rows, ("all", reducer.totals())]:
        saved = stats["dense_wire_bytes"] / max(1, stats["wire_bytes"])
        lines.append(f"{elements:>14}{stats['calls']:10,}{stats['wire_bytes']:18,}"
                     f"{saved:8.1f}x  {stats['schedule']}")
    return "\n".join(lines)
