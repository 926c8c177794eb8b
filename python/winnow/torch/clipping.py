# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""torch's clip_grad_norm_ for gradients that ranks prepare: it sees norms of gradients where p.grad
holds an update."""
import functools
import sys
import weakref
from typing import Any, Dict, Iterable, List, MutableMapping, Tuple, Union

import torch
import torch.distributed as dist
from torch.nn.utils import clip_grad
from torch.utils.weak import WeakTensorKeyDictionary

from winnow._library import UsageError
from winnow.torch.marks import Mark, Marks
from winnow.torch.norms import Clip, Norms

_Tensors = Union[torch.Tensor, Iterable[torch.Tensor]]
_served: "weakref.WeakSet[Marks]" = weakref.WeakSet()
# The last ones of gradients that are torch's own.
clips_of_torch: MutableMapping[torch.Tensor, Clip] = WeakTensorKeyDictionary()


def serve(marks: Marks) -> None:
    """From here on clip_grad_norm_, get_total_norm and clip_grads_with_norm_ know these."""
    _served.add(marks)
    follow()
    _follow_deepspeed()


@functools.lru_cache(maxsize=None)
def follow() -> None:
    """From here on, once per process. What clip_grad_norm_ calls is replaced, so that it may have
    been imported by its name before."""
    total_norm, clip = clip_grad._get_total_norm, clip_grad._clip_grads_with_norm_

    @functools.wraps(total_norm)
    def total_norm_of_all(tensors: _Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                          foreach: Any = None) -> torch.Tensor:
        given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        known = {id(parameter.grad): mark for parameter, mark in _marked() if parameter.grad is not None}
        prepared = [known[id(tensor)] for tensor in given if id(tensor) in known]
        rest = [tensor for tensor in given if id(tensor) not in known]
        if not prepared:
            return total_norm(given, norm_type, error_if_nonfinite, foreach)
        if float(norm_type) != 2:
            raise UsageError(f"a norm of type {norm_type} of gradients that Winnow reduces: it knows norms "
                             "of type 2 alone")
        with torch.no_grad():
            norm = _norm(prepared, [total_norm(rest, 2.0, False, foreach)] if rest else [])
        if error_if_nonfinite and not norm.isfinite():
            raise RuntimeError("the norm of the gradients is not finite, so they cannot be clipped "
                               "(error_if_nonfinite=True)")
        return norm

    @functools.wraps(clip)
    def clip_all(parameters: _Tensors, max_norm: float, total_norm: torch.Tensor,
                 foreach: Any = None) -> None:
        given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        marked = {id(parameter): mark for parameter, mark in _marked()}
        rest = [parameter for parameter in given if id(parameter) not in marked]
        clip(rest, max_norm, total_norm, foreach)
        norm = total_norm.full_tensor() if hasattr(total_norm, "full_tensor") else total_norm
        call = Clip(float(max_norm), norm)
        coefficient = call.coefficient()
        for parameter in given:
            mark = marked.get(id(parameter))
            if mark is None:
                clips_of_torch[parameter] = call
                continue
            mark.clip = call
            mark.coefficient = coefficient if mark.coefficient is None else mark.coefficient * coefficient

    for name, ours in ("get_total_norm", total_norm_of_all), ("clip_grads_with_norm_", clip_all):
        setattr(clip_grad, "_" + name, ours)
        setattr(torch.nn.utils, name, ours)
    _follow_scalers()


def _follow_scalers() -> None:
    unscale = torch.amp.GradScaler._unscale_grads_

    @functools.wraps(unscale)
    def unscale_all(self: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, inv_scale: torch.Tensor,
                    *arguments: Any) -> Any:
        moved = {id(p) for group in optimizer.param_groups for p in group["params"]}
        ours = [pair for pair in _marked() if id(pair[0]) in moved and pair[1].fits(pair[0])]
        owners = {mark.owner() for _, mark in ours} - {None}
        if any(not owner.state.follows_scaler for owner in owners) and inv_scale.item() != 1:
            raise UsageError(f"{type(optimizer).__name__} under a GradScaler that the model does not follow, "
                             "though what waits is in units of the scaled loss: call "
                             "winnow.torch.attach_scaler(model, scaler) before training")
        found = unscale(self, optimizer, inv_scale, *arguments)
        for parameter, mark in ours:
            mark.unscaled(parameter, inv_scale)
        return found

    torch.amp.GradScaler._unscale_grads_ = unscale_all


def _follow_deepspeed() -> None:
    """An engine clips by a function of its own, to a norm of 1 where nothing is configured."""
    engine = getattr(sys.modules.get("deepspeed.runtime.engine"), "DeepSpeedEngine", None)
    of_deepspeed = getattr(engine, "clip_fp32_gradients", None)
    if of_deepspeed is None or hasattr(of_deepspeed, "follows"):
        return

    @functools.wraps(of_deepspeed)
    def clip_fp32_gradients(self: Any) -> None:
        parameters = list(self.module.parameters())
        marked = {id(parameter) for parameter, _ in _marked()}
        if self.mpu is None and any(id(parameter) in marked for parameter in parameters):
            torch.nn.utils.clip_grad_norm_(parameters, self.gradient_clipping())
        else:
            of_deepspeed(self)

    clip_fp32_gradients.follows = True  # type: ignore[attr-defined]
    engine.clip_fp32_gradients = clip_fp32_gradients  # type: ignore[union-attr]


def _marked() -> List[Tuple[torch.Tensor, Mark]]:
    return [pair for marks in _served for pair in marks.items()]


def _norm(prepared: List[Mark], others: List[torch.Tensor]) -> torch.Tensor:
    """Of all together. Collective where parameters are sharded, as torch's is."""
    squares = [(other.full_tensor() if hasattr(other, "full_tensor") else other).square()
               for other in others]
    parts: Dict[Tuple[Norms, int], List[Mark]] = {}
    for mark in prepared:
        parts.setdefault((mark.norms, id(mark.factor)), []).append(mark)
    shards: Dict[Any, List[torch.Tensor]] = {}
    for (norms, _), marks in parts.items():
        square = norms.square([mark.number for mark in marks])
        if marks[0].factor is not None:
            square = square * marks[0].factor.to(square.device).square()
        shards.setdefault(norms.shards, []).append(square)
    for group, found in shards.items():
        together = torch.stack(found).sum()
        if group is not None:
            dist.all_reduce(together, group=group)
        squares.append(together)
    device = squares[0].device
    return torch.stack([square.to(device, torch.float32) for square in squares]).sum().sqrt()
