# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""An optimizer of winnow.torch over a group of the backend."""
import weakref
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from winnow._library import UsageError
from winnow.torch.backend.group import WinnowGroup
from winnow.torch.backend.sums import GroupState
from winnow.torch.backend.updates import GroupMark
from winnow.torch.attach import Attached, state_of
from winnow.torch.norms import Norms
from winnow.torch.pairing import UNREDUCED_STEPS, Pairing, pairing_of
from winnow.torch.place import local
from winnow.torch.rules import Rule, are_updates
from winnow.torch.warn import warn
from winnow.torch.watch import warn_of_losses, watch

DIVISOR = "winnow_divisor"  # a key of param_groups: what the program divides sums by; 0 if that is not known
_WAYS = ("of p.grad or p.main_grad itself, in a hook or after the pass; of a flat tensor of which these are views; "
         "or of a copy of several p.grad, one behind the other, which may be divided by the number of ranks. "
         "Where gradients are sharded take attach_hsdp or attach_fsdp; otherwise an optimizer of torch")


class GroupPairing(Pairing):
    """As a Pairing, of sums that a program makes itself. Which of them are of the optimizer's parameters, the
    group's Attribution finds; the others are exact, and these parameters take torch's step."""

    make_mark = GroupMark
    how_to_reduce = f"Its sums over the group were known before, and this one is not. Winnow knows sums {_WAYS}"

    def __init__(self, optimizer: torch.optim.Optimizer, group: WinnowGroup, rule: Rule, *,
                 scale: Optional[float] = None):
        if not isinstance(group, WinnowGroup):
            raise UsageError(f"group= takes a group of the backend winnow, not a {type(group).__name__}: make it "
                             "by torch.distributed.new_group(backend=\"winnow\")")
        group.expect_nothing_sent()
        self._group = weakref.ref(group)
        self._size = group.rank_count
        self._assumed: Dict[int, Optional[int]] = {}  # by id() of a parameter: what its Mark has
        self._passed: Dict[int, float] = {}  # by id() of a parameter: how many times p.grad is the mean over ranks
        self._seen = (0, 0)  # known and unknown sums before this step
        self._unknown_steps = 0
        super().__init__(optimizer, group.state, rule, scale=scale)
        for one in optimizer.param_groups:
            one.setdefault(DIVISOR, 0)  # which a checkpoint brings along
        optimizer._step_supports_amp_scaling = True  # which tells of infinities
        group.attribution.serve(optimizer)
        group.state.elements = sum(p.numel() for p in group.attribution.parameters().values())
        name = type(optimizer).__name__
        group.state.name_parameters((f"parameter {number} of {name}, of shape {tuple(p.shape)}", p)
                                    for number, p in group.attribution.parameters().items())
        watch()

    def _ranks(self) -> int:
        return self._size

    def _average(self, tensor: torch.Tensor) -> None:
        group = self._group()
        if group is None:
            raise UsageError("the group of this optimizer is gone, and second moments differ between its ranks")
        mean = tensor.to(torch.promote_types(tensor.dtype, torch.float32), copy=True,
                         memory_format=torch.contiguous_format)
        group.average_exactly(mean)
        tensor.copy_(mean)

    def _put(self, parameter: torch.Tensor, mark: GroupMark) -> None:
        if self.state.marks.of(parameter) is not None:
            raise UsageError(
                f"the gradient of {self.state.name_of(parameter)} is summed a second time before "
                "optimizer.step(): sum gradients of several micro-batches once, after the last; call "
                "winnow.torch.skip_step(group) in place of a step that you leave out")
        mark.assumed = self._assumed[id(parameter)]
        self.state.marks.put(parameter, mark)

    @torch.no_grad()
    def prepare(self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor],
                norms: Norms) -> None:
        optimizer = self._optimizer()
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        for parameter, gradient in zip(parameters, gradients):
            group = groups.get(id(parameter))
            if group is None:
                continue
            known, moments = group.get(DIVISOR, 0), optimizer.state.get(parameter)
            assumed = self._assumed[id(parameter)] = known or (None if moments else 1)
            if self.rule.of_one_rank and assumed not in (None, self.state.sum_is_of):  # eps is in units of p.grad
                gradient.mul_(self.state.sum_is_of / assumed)
        super().prepare(parameters, gradients, norms)

    def reaches(self) -> List[Tuple[torch.Tensor, float, float]]:
        return [(parameter, momentum, weight * self._passed.get(id(parameter), 1.0))
                for parameter, momentum, weight in super().reaches()]

    @torch.no_grad()
    def _apply(self, optimizer: torch.optim.Optimizer) -> None:
        name = type(optimizer).__name__
        if self.state.marks.ahead:
            raise UsageError(f"{name}.step() inside of look_ahead, which would undo it: step after it")
        if hasattr(optimizer, "found_inf"):
            del optimizer.found_inf
            raise UsageError(f"{name} over a group under a GradScaler: use bf16 without one")
        self._look_for_unknown()
        if self._take_back(optimizer):
            warn_of_losses(optimizer, self, self.state)
        super()._apply(optimizer)

    def _take_back(self, optimizer: torch.optim.Optimizer) -> bool:
        """p.grad is the mean of updates, or, of a rule without second moments, what the program makes of
        gradients. Whether there are any. UsageError if it is not what was summed."""
        any_summed = False
        for group in optimizer.param_groups:
            marks = {p: mark for p in group["params"] if (mark := self.state.marks.of(p)) is not None
                     and mark.owner() is self}
            any_summed = any_summed or bool(marks)
            divisor = self._divisor(marks) or group.get(DIVISOR, 0)
            for parameter in group["params"]:
                mark, moments = marks.get(parameter), optimizer.state.get(parameter)
                was = group.get(DIVISOR, 0) if mark is None else mark.assumed
                for name in self.rule.of_one_rank if divisor and was and are_updates(moments) else ():
                    if divisor != was:
                        local(moments[name]).mul_((was / divisor) ** 2)
                if mark is not None and not self.rule.of_one_rank:
                    self._passed[id(parameter)] = mark.ranks / (divisor or 1)
                elif mark is not None and divisor not in (0, mark.ranks):
                    local(parameter.grad).mul_(divisor / mark.ranks)
            if divisor:
                group[DIVISOR] = divisor
        return any_summed

    def _divisor(self, marks: Dict[torch.Tensor, GroupMark]) -> int:
        """What the program divides the sums of one group of parameters by; 0 if all are zero."""
        found: Dict[int, torch.Tensor] = {}
        for parameter, mark in marks.items():
            possible = mark.divisors(parameter)
            if not possible:
                raise UsageError(
                    f"the gradient of {self.state.name_of(parameter)} is not what the group has summed, an update "
                    "in other units than a gradient's, nor that divided by the number of ranks. To clip, call "
                    "torch.nn.utils.clip_grad_norm_, which Winnow serves; to leave a step out, call "
                    "winnow.torch.skip_step(group). Where the program changes it otherwise take an optimizer of "
                    "torch")
            if len(possible) == 1:
                found.setdefault(possible[0], parameter)
        if len(found) > 1:
            (first, one), (second, other), *_ = found.items()
            raise UsageError(f"the program divides the sum of {self.state.name_of(one)} by {first}, and that of "
                             f"{self.state.name_of(other)} by {second}: give them to groups of parameters of their "
                             "own")
        return next(iter(found), 0)

    def _look_for_unknown(self) -> None:
        """Says where sums stay exact for long, and refuses if all do."""
        group = self._group()
        if group is None:
            return
        before, self._seen = self._seen, (group.attribution.known, group.attribution.unknown)
        count = self._seen[1] - before[1]
        self._unknown_steps = self._unknown_steps + 1 if count > 0 else 0
        if self._unknown_steps != UNREDUCED_STEPS:
            return
        text = (f"{group.described}: {count} sums of the last step, and some of each of {UNREDUCED_STEPS}, are not "
                f"of gradients that Winnow finds in the optimizers over it, and so exact. It knows sums {_WAYS}")
        if self._seen[0] == 0:
            raise UsageError(text)
        warn(f"unknown {group.described}", text)

    def _warn_of_unreduced(self, has_gradients: bool, are_reduced: bool) -> None:
        pass  # _look_for_unknown does


def pair(optimizer: torch.optim.Optimizer, rule: Rule, model: Optional[Attached],
         group: Optional[dist.ProcessGroup], scale: Optional[float] = None) -> None:
    """`optimizer` steps by what reduces the gradients of `model`, or by sums over `group`."""
    if isinstance(model, dist.ProcessGroup) and group is None:
        model, group = None, model
    if (model is None) == (group is None):
        raise UsageError(f"{type(optimizer).__name__} of winnow.torch takes either model=, what Winnow is attached "
                         "to, or group=, a group of the backend winnow over which the program sums gradients")
    if group is not None:
        GroupPairing(optimizer, group, rule, scale=scale)
        return
    state = state_of(model)
    if isinstance(state, GroupState):
        raise UsageError("model= is the state of a group: pass the group itself by group=")
    Pairing(optimizer, state, rule, scale=scale)


def group_state_of(optimizer: Any) -> Optional[GroupState]:
    """Of the group that an optimizer is made over; None for others."""
    found = pairing_of(optimizer)
    return found.state if isinstance(found, GroupPairing) else None
