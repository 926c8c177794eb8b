# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""How optimizers move weights by gradients that each rank prepares before they are reduced.

A rank replaces its gradient g by its own update u. The compressor's feedback holds u, so what waits
counts with the learning rate, and the second moment, of its own step. A Rule applies the mean of u.
"""
import abc
import ctypes
import inspect
import math
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Type

import torch
from torch.optim.sgd import sgd

from winnow._library import CUDA, SecondMoment, UsageError, library
from winnow.torch.place import local, reals
from winnow.torch.wholes import shard_of

Group = Dict[str, Any]  # one of optimizer.param_groups
Moments = Dict[str, Any]  # optimizer.state of one parameter

# A key of Moments, for are_updates. After a step of an attached optimizer all moments have it, so that
# torch.distributed.checkpoint, which loads no other keys than those it finds, brings it along.
UPDATES = "winnow_updates"
CLIP = "winnow_clip"  # likewise: what Norms.keep returns
_LEGACY_STREAM = 1  # cudaStreamLegacy, CUDA's name of the default stream, which torch calls 0


def are_updates(moments: Optional[Moments]) -> bool:
    """Whether moments are of updates, as Winnow's steps make them, and not of gradients."""
    mark = moments.get(UPDATES) if moments else None
    if mark is None:
        return False
    if mark.device.type != "cpu" or mark.dtype != torch.bool:  # load_state_dict makes it like a parameter
        mark = moments[UPDATES] = local(mark).to("cpu", torch.bool)
    return bool(mark)


class Rule(abc.ABC):
    """`scale`: what updates are multiplied by, in a rule that divides by second moments."""

    # Whether updates are in proportion to gradients, so that a GradScaler can take its scale out of them.
    unscales = True
    of_one_rank: Tuple[str, ...] = ()  # the moments that differ between ranks
    changed_by_preparation: Tuple[str, ...] = ()

    @abc.abstractmethod
    def check(self, optimizer: torch.optim.Optimizer, group: Group) -> None:
        """UsageError for settings that the rule does not know."""

    @abc.abstractmethod
    def reach(self, group: Group) -> Tuple[float, float]:
        """The momentum with which updates are repeated, and the weight of one."""

    @abc.abstractmethod
    def prepare(self, group: Group, parameter: torch.Tensor, moments: Moments,
                gradient: torch.Tensor, scale: float) -> None:
        """gradient = u of this rank. Where moments of one rank are whole, and the parameter is sharded, the
        gradient is a matrix: each row holds the elements that one rank's shard has, padded."""

    def clip_first(self, moments: Moments, clip: torch.Tensor) -> bool:
        """After a preparation that did not foresee `clip`: whether moments alone should know of it."""
        return False

    @abc.abstractmethod
    def step(self, group: Group, parameters: List[torch.Tensor], moments: List[Moments]) -> None:
        """Moves the parameters by the means of u that are in their .grad."""

    @abc.abstractmethod
    def to_updates(self, group: Group, moments: Moments, scale: float) -> None:
        """Converts moments of torch's own steps."""

    @abc.abstractmethod
    def to_gradients(self, group: Group, moments: Moments, scale: float) -> None:
        """Converts moments for torch's own step. At a learning rate of 0 it begins again."""


class Sgd(Rule):
    """u = lr g; v = m v + (1 - dampening) (mean(u) + lr weight_decay w), w -= v."""

    def check(self, optimizer: torch.optim.Optimizer, group: Group) -> None:
        if group["maximize"]:
            raise UsageError("Winnow's SGD takes no maximize: negate the loss")

    def reach(self, group: Group) -> Tuple[float, float]:
        return group["momentum"], 1 - group["dampening"] if group["momentum"] != 0 else 1

    def prepare(self, group: Group, parameter: torch.Tensor, moments: Moments,
                gradient: torch.Tensor, scale: float) -> None:
        gradient.mul_(float(group["lr"]))

    def step(self, group: Group, parameters: List[torch.Tensor], moments: List[Moments]) -> None:
        buffers = [held.get("momentum_buffer") for held in moments]
        sgd(parameters, [p.grad for p in parameters], buffers, foreach=group["foreach"], lr=1,
            weight_decay=float(group["lr"]) * group["weight_decay"], momentum=group["momentum"],
            dampening=group["dampening"], nesterov=group["nesterov"], maximize=False)
        if group["momentum"] != 0:
            for held, buffer in zip(moments, buffers):
                held.update({"momentum_buffer": buffer, UPDATES: torch.tensor(True)})

    def to_updates(self, group: Group, moments: Moments, scale: float) -> None:
        if moments.get("momentum_buffer") is not None:
            moments["momentum_buffer"].mul_(float(group["lr"]))
            moments[UPDATES] = torch.tensor(True)

    def to_gradients(self, group: Group, moments: Moments, scale: float) -> None:
        del moments[UPDATES]
        rate = float(group["lr"])
        moments["momentum_buffer"].mul_(1 / rate if rate != 0 else 0)


def _divide_by(step: SecondMoment, gradient: torch.Tensor, moment: torch.Tensor) -> None:
    """A step of second moments in one pass of the library, on the current stream. What is not finite
    leaves no trace in the moment, and makes the sums on all ranks NaN."""
    places = gradient, moment
    if any(x.dtype != torch.float32 for x in places) or gradient.stride() != moment.stride():
        places = tuple(x.to(torch.float32, memory_format=torch.contiguous_format, copy=True)
                       for x in places)
    if gradient.device.type == "cuda":
        current = torch.cuda.current_stream(gradient.device).cuda_stream
        step.place, step.stream = CUDA, current or _LEGACY_STREAM
    step.threads = torch.get_num_threads()
    library.winnow_divide_by_moment(ctypes.byref(step), places[0].data_ptr(), places[1].data_ptr(),
                                    gradient.numel())
    if places[0] is not gradient:
        gradient.copy_(places[0])
        moment.copy_(places[1])


def _parts(gradient: torch.Tensor, moment: torch.Tensor) -> List[Tuple[torch.Tensor, torch.Tensor]]:
    """What of a gradient and of a moment lies in one order: all, or the rows of a gradient that is a
    matrix of shards, without their padding."""
    if gradient.shape == moment.shape:
        return [(gradient, moment)]
    moments = moment.view(-1).split(gradient.shape[1])
    return [(row[:held.numel()], held) for row, held in zip(gradient, moments)]


class Adam(Rule):
    """u = scale lr g / (sqrt(v / (1 - b2^t)) + eps), v of this rank; m = b1 m + (1 - b1) mean(u),
    w -= m / (1 - b1^t) + lr weight_decay w."""

    unscales = False
    of_one_rank = ("exp_avg_sq",)
    changed_by_preparation = ("exp_avg_sq", "step")

    def check(self, optimizer: torch.optim.Optimizer, group: Group) -> None:
        if group["amsgrad"] or group["maximize"]:
            raise UsageError("Winnow's AdamW takes no amsgrad and no maximize")
        decoupled = isinstance(optimizer, torch.optim.AdamW) or group.get("decoupled_weight_decay")
        if group["weight_decay"] != 0 and not decoupled:
            raise UsageError("Winnow has no Adam with weight_decay in the gradient: take "
                             "torch.optim.AdamW, whose decay is apart, or weight_decay=0")

    def reach(self, group: Group) -> Tuple[float, float]:
        return 0, 1  # first moments are means: all repetitions of an update make one

    def prepare(self, group: Group, parameter: torch.Tensor, moments: Moments,
                gradient: torch.Tensor, scale: float) -> None:
        if "step" not in moments:
            on_device = group["capturable"] or group["fused"]  # where torch's own step wants it
            moments["step"] = torch.zeros((), dtype=torch.float32,
                                          device=parameter.device if on_device else None)
            for name in ("exp_avg", "exp_avg_sq"):
                if name not in moments:
                    moments[name] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            moments[UPDATES] = torch.tensor(True)
        moments["step"] += 1
        step = SecondMoment(decay=group["betas"][1], epsilon=group["eps"],
                            rate=scale * float(group["lr"]), steps=int(moments["step"].item()))
        for part, moment in _parts(reals(gradient), local(moments["exp_avg_sq"])):
            _divide_by(step, part, moment)

    def clip_first(self, moments: Moments, clip: torch.Tensor) -> bool:
        is_first = moments["step"].item() <= 1  # where any gradient makes an update of the rate's size
        if is_first:
            moments["exp_avg_sq"].mul_(clip * clip)
        return is_first

    def step(self, group: Group, parameters: List[torch.Tensor], moments: List[Moments]) -> None:
        beta, decay = group["betas"][0], float(group["lr"]) * group["weight_decay"]
        for parameter, held in zip(parameters, moments):  # one at a time stays in the cache
            first = held["exp_avg"].lerp_(parameter.grad, 1 - beta)
            parameter.mul_(1 - decay)
            parameter.sub_(first, alpha=1 / (1 - beta ** max(1.0, held["step"].item())))

    @staticmethod
    def _root(group: Group, moments: Moments) -> torch.Tensor:
        """What torch divides by, of a second moment in its units. Real numbers, as all of Adam."""
        corrected = local(moments["exp_avg_sq"]) / (1 - group["betas"][1] ** max(1.0, moments["step"].item()))
        return corrected.sqrt_().add_(group["eps"])

    def to_updates(self, group: Group, moments: Moments, scale: float) -> None:
        if "exp_avg" in moments:  # of the mean over ranks, whose squares are smaller
            local(moments["exp_avg"]).div_(self._root(group, moments)).mul_(float(group["lr"]))
            moments["exp_avg_sq"].mul_(scale * scale)
            moments[UPDATES] = torch.tensor(True)

    def to_gradients(self, group: Group, moments: Moments, scale: float) -> None:
        del moments[UPDATES]
        rate = float(group["lr"])
        moments["exp_avg_sq"] = shard_of(moments["exp_avg_sq"], moments["exp_avg"])
        moments["exp_avg_sq"].div_(scale * scale)
        local(moments["exp_avg"]).mul_(self._root(group, moments)).mul_(1 / rate if rate != 0 else 0)


def as_of_torch(rule: Rule, group: Group, moments: Optional[Moments], scale: float) -> None:
    """Before torch's own step: moments in its units, which they may not have, since steps or a
    checkpoint of Winnow made them."""
    if are_updates(moments):
        rule.to_gradients(group, moments, scale)


class Recipe(NamedTuple):
    """What serves an optimizer best, by docs/convergence.md."""

    kinds: Tuple[Type[torch.optim.Optimizer], ...]
    rule: Rule
    compressor: str
    schedule: str
    fewer: str  # bytes a step
    loss: str  # beside dense sums


def _read_recipes() -> Iterator[Recipe]:
    rules: Dict[str, Rule] = {"SGD": Sgd(), "Adam": Adam()}
    for line in Path(__file__).with_name("recipes.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            names, *words = (word.strip() for word in line.split("|"))
            kinds = names.split(", ")
            yield Recipe(tuple(getattr(torch.optim, kind) for kind in kinds), rules[kinds[0]], *words)


RECIPES = tuple(_read_recipes())


def recipe_of(optimizer: torch.optim.Optimizer) -> Optional[Recipe]:
    """None for an optimizer whose step is not torch's SGD, Adam or AdamW."""
    for recipe in RECIPES:
        if isinstance(optimizer, recipe.kinds) and inspect.unwrap(type(optimizer).step) in [
                inspect.unwrap(kind.step) for kind in recipe.kinds]:
            return recipe
    return None


def default_scale(ranks: int) -> float:
    """Moments of one rank's gradients hold noise that those of the mean over ranks have not."""
    return math.sqrt(ranks)
