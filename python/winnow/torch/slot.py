# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What a DistributedDataParallel calls for its gradients, which it keeps for good."""
import weakref
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from winnow._library import UsageError
from winnow.torch.hook import State, hook


class Slot:
    """The State that reduces a model's gradients now; None: torch sums them itself."""

    def __init__(self, group: Optional[dist.ProcessGroup]):
        self.group = group
        self.state: Optional[State] = None

    def __reduce__(self) -> Any:
        return Slot, (None,)  # a copy of the model has a new reducer, which calls nobody

    def clear(self) -> None:
        """From the next backward pass on torch sums."""
        self.state = None


def winnow_hook(slot: Slot, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Its name is what torch logs."""
    if slot.state is None:
        return allreduce_hook(slot.group, bucket)
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


def was_attached(ddp: DistributedDataParallel) -> bool:
    """Whether it is attached, or was and is detached."""
    return ddp in _slots


def put_in_slot(ddp: DistributedDataParallel, state: State) -> None:
    """From the next backward pass on `state` reduces the gradients of `ddp`."""
    slot = _slots.get(ddp)
    if slot is None:
        slot = Slot(ddp.process_group)
        ddp.register_comm_hook(slot, winnow_hook)
        _slots[ddp] = slot
    slot.state, state.release = state, slot.clear
