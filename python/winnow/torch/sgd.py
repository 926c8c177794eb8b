# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""SGD whose learning rate is in what waits."""
import weakref
from typing import Any, Callable, Dict, Optional, Sequence

import torch

from winnow._library import UsageError
from winnow.torch.attach import Attached, state_of
from winnow.torch.untied import Untied


class SGD(torch.optim.SGD):
    """torch.optim.SGD for gradients that Winnow reduces and a learning rate that changes:

        optimizer = winnow.torch.SGD(ddp.parameters(), lr=0.1, momentum=0.9, model=ddp)

    What a rank has not sent waits for later steps. Here each rank multiplies its gradient by the
    learning rate before it is compressed, so that it counts with the rate of its own step, and not
    with that of the step in which it is sent:

        u = lr g                                  on each rank
        v = m v + (1 - dampening) (mean(u) + lr weight_decay w),  w -= v

    Set the rate before the backward pass, as schedulers do. With a constant rate this is
    torch.optim.SGD to rounding, and where the compressor loses nothing ("none", "topk:1") it is
    torch.optim.SGD. Replicas stay equal, and no byte more travels.

    `model`: what Winnow is attached to, or its State. The other arguments and the groups are those of
    torch.optim.SGD. p.grad holds the mean of u after the backward pass, so clip_grad_norm_ would
    clip that. Raises UsageError for maximize and fused.
    """

    def __init__(self, params: Any, lr: float = 1e-3, *, model: Attached, **settings: Any):
        super().__init__(params, lr=lr, **settings)
        for group in self.param_groups:
            if group["maximize"] or group["fused"]:
                raise UsageError("winnow.torch.SGD takes no maximize or fused")
        self._winnow = state_of(model)
        self._winnow.prepare_by(weakref.WeakMethod(self._multiply))

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)  # load_state_dict comes here, too
        self.__dict__.setdefault("_winnow", Untied())

    @torch.no_grad()
    def _multiply(self, parameters: Sequence[torch.Tensor],
                  gradients: Sequence[torch.Tensor]) -> None:
        """Replaces this rank's gradients by u where this optimizer moves the parameters."""
        if self._winnow.lossless:
            return
        rates = {id(p): group["lr"] for group in self.param_groups for p in group["params"]}
        for parameter, gradient in zip(parameters, gradients):
            if id(parameter) in rates:
                gradient.mul_(rates[id(parameter)])

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """One step by the sums that the backward pass has left in the gradients."""
        if self._winnow.lossless:
            return super().step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        kept = [(group["lr"], group["weight_decay"]) for group in self.param_groups]
        for group, (rate, decay) in zip(self.param_groups, kept):
            group["lr"], group["weight_decay"] = 1, rate * decay
        try:
            super().step()
        finally:
            for group, (rate, decay) in zip(self.param_groups, kept):
                group["lr"], group["weight_decay"] = rate, decay
        return loss
