# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""AdamW behind compressed sums."""
import ctypes
import math
import weakref
from typing import Any, Callable, Dict, Optional, Sequence

import torch

from winnow._library import CUDA, SecondMoment, UsageError, library
from winnow.torch.attach import Attached, state_of
from winnow.torch.place import local, reals
from winnow.torch.untied import Untied

LEGACY_STREAM = 1  # cudaStreamLegacy, CUDA's name of the default stream, which torch calls 0


def _divide_by(step: SecondMoment, gradient: torch.Tensor, moment: torch.Tensor) -> None:
    """A step of second moments in one pass of the library, on the current stream. What is not finite
    leaves no trace in the moment, and makes the sums on all ranks NaN."""
    places = gradient, moment
    if any(x.dtype != torch.float32 for x in places) or gradient.stride() != moment.stride():
        places = tuple(x.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
                       for x in places)
    if gradient.device.type == "cuda":
        current = torch.cuda.current_stream(gradient.device).cuda_stream
        step.place, step.stream = CUDA, current or LEGACY_STREAM
    step.threads = torch.get_num_threads()
    library.winnow_divide_by_moment(ctypes.byref(step), places[0].data_ptr(), places[1].data_ptr(),
                                    gradient.numel())
    if places[0] is not gradient:
        gradient.copy_(places[0])
        moment.copy_(places[1])


class AdamW(torch.optim.AdamW):
    """torch.optim.AdamW for gradients that Winnow reduces:

        optimizer = winnow.torch.AdamW(ddp.parameters(), lr=1e-3, model=ddp)

    Compressed sums come in bursts, of which AdamW itself makes wrong second moments. Here each rank
    makes its own update by its own second moment before that is compressed, and the first moment is
    that of the reduced updates:

        v = b2 v + (1 - b2) g^2,  u = scale lr g / (sqrt(v / (1 - b2^t)) + eps)     on each rank
        m = b1 m + (1 - b1) mean(u),  w -= m / (1 - b1^t) + lr weight_decay w

    `scale` is the root of the number of ranks by default (of nodes, under attach_hsdp). torch's
    AdamW divides by moments of the mean over ranks, whose noise is so many times less than that of
    one rank's gradient: with it a learning rate that serves torch's AdamW serves here. Where the
    gradients of ranks hardly differ it should be 1.

    The learning rate is in what waits, so that it counts with the rate of its own step: set it
    before the backward pass, as schedulers do.

    Replicas stay equal, and no byte more travels. Where the compressor loses nothing ("none",
    "topk:1") this is torch.optim.AdamW.

    `model`: what Winnow is attached to, or its State. The other arguments and the groups are those of
    torch.optim.AdamW. In state_dict() exp_avg is of updates, and exp_avg_sq differs between ranks,
    so each saves its own. p.grad holds the mean of u after the backward pass, so clip_grad_norm_
    would clip that. Raises UsageError for amsgrad, maximize and fused, and in a step under a
    GradScaler, since u has no scale to undo (bf16 needs none).

    (Momentum of normalized gradients: Ziyin et al., LaProp, 2020.)
    """

    _step_supports_amp_scaling = True  # a GradScaler leaves p.grad alone and sets found_inf instead

    def __init__(self, params: Any, lr: float = 1e-3, *, model: Attached,
                 scale: Optional[float] = None, **settings: Any):
        super().__init__(params, lr=lr, **settings)
        for group in self.param_groups:
            if group["amsgrad"] or group["maximize"] or group["fused"]:
                raise UsageError("winnow.torch.AdamW takes no amsgrad, maximize or fused")
        self._winnow, self._scale = state_of(model), scale
        self._winnow.prepare_by(weakref.WeakMethod(self._divide))

    def __getstate__(self) -> Dict[str, Any]:
        return {**super().__getstate__(), "_scale": self._scale}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)  # load_state_dict comes here, too
        self.__dict__.setdefault("_winnow", Untied())

    def _moment(self, parameter: torch.Tensor) -> dict:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0, dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return state

    @torch.no_grad()
    def _divide(self, parameters: Sequence[torch.Tensor],
                gradients: Sequence[torch.Tensor]) -> None:
        """Replaces this rank's gradients by u where this optimizer moves the parameters."""
        if self._winnow.lossless:
            return
        scale = self._scale
        if scale is None:
            scale = math.sqrt(self._winnow.reducer.transport.size)
        groups = {id(p): group for group in self.param_groups for p in group["params"]}
        for parameter, gradient in zip(parameters, gradients):
            group = groups.get(id(parameter))
            if group is None:
                continue
            state = self._moment(parameter)
            state["step"] += 1  # on all ranks
            step = SecondMoment(decay=group["betas"][1], epsilon=group["eps"],
                                rate=scale * group["lr"], steps=int(state["step"].item()))
            _divide_by(step, reals(gradient), local(state["exp_avg_sq"]))

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any:
        """One step by the sums that the backward pass has left in the gradients."""
        if hasattr(self, "found_inf"):
            del self.found_inf  # a scaler that gets an exception leaves it behind
            raise UsageError("winnow.torch.AdamW under a GradScaler: use bf16 without one")
        if self._winnow.lossless:
            return super().step(closure)
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta = group["betas"][0]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self._moment(parameter)
                first = state["exp_avg"].lerp_(parameter.grad, 1 - beta)
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                correction = 1 - beta ** max(1.0, state["step"].item())
                parameter.sub_(first, alpha=1 / correction)
        return loss
