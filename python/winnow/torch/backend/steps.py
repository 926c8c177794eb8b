# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""All groups of this process, and what they are told of an optimizer's step."""
import functools
import weakref
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from winnow.torch.holders import holds_others
from winnow.torch.watch import warn_of_adaptive

groups: "weakref.WeakSet[Any]" = weakref.WeakSet()


@functools.lru_cache(maxsize=None)
def watch_optimizers() -> None:
    """From here on, once per process."""
    def look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if holds_others(optimizer):
            return
        for group in list(groups):
            group.apply_step()
        if any([group.has_compressed() for group in list(groups)]):
            warn_of_adaptive(optimizer, "Take winnow.torch.attach(ddp, optimizer) for a "
                             "DistributedDataParallel, attach_hsdp with winnow.torch.AdamW for a sharded "
                             "model, or an optimizer without second moments")

    register_optimizer_step_pre_hook(look)
    step = torch.amp.GradScaler.step

    @functools.wraps(step)
    def checked(scaler: torch.amp.GradScaler, *arguments: Any, **keywords: Any) -> Any:
        for group in list(groups) if scaler.is_enabled() else ():
            group.expect_to_follow()
        return step(scaler, *arguments, **keywords)

    torch.amp.GradScaler.step = checked
