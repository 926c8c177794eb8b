# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What a DistributedDataParallel calls for its gradients, which it keeps for good."""
import weakref
from typing import Any, Callable, Optional

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from winnow._library import UsageError
from winnow.torch.hook import hook
from winnow.torch.state import State
from winnow.torch.unapplied import unapplied_of


class Slot:
    """The State that reduces a model's gradients now; None: torch sums them itself. `model` is a weak
    reference."""

    def __init__(self, model: Callable[[], Optional[DistributedDataParallel]]):
        self._model = model
        self.state: Optional[State] = None

    @property
    def group(self) -> Optional[dist.ProcessGroup]:
        """The model's, which may change; None once it is gone."""
        model = self._model()
        return None if model is None else model.process_group

    def expect_one_group(self) -> None:
        """UsageError if other ranks reduce than the model's."""
        if self.state is not None and self.state.group is not self.group:
            raise UsageError("the DistributedDataParallel has another process group than Winnow, by "
                             "_update_process_group: call winnow.torch.regroup(ddp) on all of its ranks "
                             "before its forward pass (after a backward pass that has raised this, make the "
                             "DistributedDataParallel anew)")

    def __reduce__(self) -> Any:
        return Slot, (_nobody,)  # a copy of the model has a new reducer, which calls nobody

    def clear(self) -> None:
        """From the next backward pass on torch sums."""
        self.state = None


def _nobody() -> None:
    return None


def winnow_hook(slot: Slot, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Its name is what torch logs."""
    if slot.state is None:
        return allreduce_hook(slot.group, bucket)
    slot.expect_one_group()
    unapplied = unapplied_of(slot.state)
    if unapplied is not None:
        unapplied.reduce(bucket)
    return hook(slot.state, bucket)


_slots: "weakref.WeakKeyDictionary[DistributedDataParallel, Slot]" = weakref.WeakKeyDictionary()


def expect_no_other_hook(ddp: DistributedDataParallel) -> None:
    """UsageError for a model whose gradients something else sums or applies."""
    if ddp in _slots:
        return
    other = None
    hooks = [one for one, _ in getattr(ddp, "_comm_hooks", ()) if one is not winnow_hook]
    if getattr(ddp, "mixed_precision", None) is not None:
        other = "mixed_precision= of DistributedDataParallel (torch.autocast does the same beside a hook)"
    elif any(hasattr(p, "_in_backward_optimizers") for p in ddp.parameters()):
        other = "optimizers that are applied in the backward pass"
    elif hooks:
        other = f"the communication hook {getattr(hooks[0], '__qualname__', hooks[0])}"
    elif name := ddp._get_ddp_logging_data().get("comm_hook"):
        other = f"the communication hook {name}"
    if other is not None:
        raise UsageError(f"{other}: a DistributedDataParallel has one hook; give up that, or Winnow")


def expect_one_group(ddp: DistributedDataParallel) -> None:
    """UsageError if Winnow reduces between other ranks than the model's."""
    if ddp in _slots:
        _slots[ddp].expect_one_group()


def was_attached(ddp: DistributedDataParallel) -> bool:
    """Whether it is attached, or was and is detached."""
    return ddp in _slots


def put_in_slot(ddp: DistributedDataParallel, state: State) -> None:
    """From the next backward pass on `state` reduces the gradients of `ddp`."""
    slot = _slots.get(ddp)
    if slot is None:
        slot = Slot(weakref.ref(ddp))
        ddp.register_comm_hook(slot, winnow_hook)
        _slots[ddp] = slot
    slot.state, state.release = state, slot.clear
    state.group_of_model = lambda: slot.group
