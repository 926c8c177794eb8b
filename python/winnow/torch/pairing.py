# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""An optimizer of torch and the State that reduces gradients for it."""
import weakref
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist

from winnow._library import UsageError
from winnow.torch.clipping import clips_of_torch, serve
from winnow.torch.marks import Mark
from winnow.torch.norms import Norms
from winnow.torch.place import local
from winnow.torch.rules import CLIP, UPDATES, Rule, are_updates, default_scale
from winnow.torch.state import State
from winnow.torch.twins import Twins
from winnow.torch.warn import warn
from winnow.torch.wholes import whole


UNREDUCED_STEPS = 10  # after which a model is warned of
_WRAPPED_ANEW = ("if the DistributedDataParallel was made anew, call winnow.torch.detach(the old one) "
                 "before, and winnow.torch.attach(the new one, optimizer) after it")


class Pairing:
    """Lives as long as its optimizer, which stays an object of torch. Before gradients are reduced
    the rule prepares them. Before the optimizer's own step the rule applies what was prepared, and
    hides it from that step, which applies the rest: gradients that did not pass the hook.

    `scale`: as winnow.torch.AdamW says. `twins`: of the weights, if the passes look ahead by
    themselves.
    """

    make_mark = Mark
    how_to_reduce = ("Run the backward pass through the DistributedDataParallel that is attached, outside of "
                     f"no_sync, or give the parameter to another optimizer; {_WRAPPED_ANEW}")

    def __init__(self, optimizer: torch.optim.Optimizer, state: State, rule: Rule, *,
                 scale: Optional[float] = None, twins: Optional[Twins] = None):
        for group in optimizer.param_groups:
            rule.check(optimizer, group)
        self._optimizer = weakref.ref(optimizer)
        self._hidden: List[Tuple[torch.Tensor, torch.Tensor]] = []  # parameters, their gradients
        self._unreduced = 0  # steps in a row whose gradients Winnow did not reduce
        self.state, self.rule, self.twins, self._scale = state, rule, twins, scale
        _pairings[optimizer] = self
        serve(state.marks)
        state.prepare_by(weakref.WeakMethod(self.prepare),
                         None if twins is None else weakref.WeakMethod(self.leave),
                         weakref.WeakMethod(self.moves))
        if twins is not None:
            twins.move_with(weakref.WeakMethod(self.reaches))
        # Whether a GradScaler leaves gradients alone, and found_inf in the optimizer.
        self._scales_itself = vars(optimizer).get("_step_supports_amp_scaling")
        optimizer._step_supports_amp_scaling = not rule.unscales
        self._handles = (optimizer.register_step_pre_hook(self._before_step),
                         optimizer.register_step_post_hook(self._after_step))

    @property
    def scale(self) -> float:
        if self._scale is not None:
            return self._scale
        return default_scale(self._ranks())

    def _ranks(self) -> int:
        return dist.get_world_size(self.state.group)

    def _average(self, tensor: torch.Tensor) -> None:
        average(tensor, self.state.group)

    def reaches(self) -> List[Tuple[torch.Tensor, float, float]]:
        """Each parameter, with its group's momentum and the weight of an update."""
        return [(parameter, *self.rule.reach(group)) for group in self._optimizer().param_groups
                for parameter in group["params"]]

    def moves(self) -> Set[int]:
        """The id() of each parameter."""
        return {id(p) for group in self._optimizer().param_groups for p in group["params"]}

    def come_last(self) -> None:
        """Other hooks before the optimizer's step, also later ones, run before this one's, which hides
        gradients."""
        self._optimizer()._optimizer_step_pre_hooks.move_to_end(self._handles[0].id)

    @torch.no_grad()
    def prepare(self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor],
                norms: Norms) -> None:
        """Replaces this rank's gradients of the parameters that the optimizer moves by updates."""
        if self.state.lossless:
            return
        optimizer, scale = self._optimizer(), self.scale
        self._expect_known(optimizer)
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        for number, (parameter, gradient) in enumerate(zip(parameters, gradients)):
            group = groups.get(id(parameter))
            if group is None:
                continue
            moments = optimizer.state[parameter]
            clip = norms.expected(moments[CLIP]) if CLIP in moments else clips_of_torch.pop(parameter, None)
            mark = self.make_mark(self, norms, number, clip is not None, float(group["lr"]))
            self._put(parameter, mark)
            if clip is not None:
                norms.clip(number, gradient, clip)
            if not are_updates(moments):
                self.rule.to_updates(group, moments, scale)
            if self.state.takes_whole:
                moments.update((name, whole(moments.get(name), parameter)) for name in self.rule.of_one_rank)
            if self.state.marks.undoes:
                mark.before = self._moments_to_undo(moments)
            self.rule.prepare(group, parameter, moments, gradient, scale)

    def _put(self, parameter: torch.Tensor, mark: Mark) -> None:
        """The step will apply what was prepared."""
        if torch._C._current_graph_task_id() != -1:  # else a rank that has joined stands in
            self.state.marks.add(parameter, self.state.name_of(parameter), mark)

    def _expect_known(self, optimizer: torch.optim.Optimizer) -> None:
        """UsageError for settings that were changed since to what the rule does not know."""
        for group in optimizer.param_groups:
            self.rule.check(optimizer, group)

    def _moments_to_undo(self, moments: Dict[str, Any]) -> Dict[str, Optional[torch.Tensor]]:
        """Copies of what the rule's preparation changes."""
        return {name: moments[name].clone() if name in moments else None
                for name in self.rule.changed_by_preparation}

    @torch.no_grad()
    def undo(self, parameter: torch.Tensor, mark: Mark) -> None:
        """The moments are as before the pass that has set the mark."""
        moments = self._optimizer().state[parameter]
        for name, before in mark.before.items():
            if before is not None:
                moments[name] = before
            elif name in moments:
                moments[name].zero_()

    @torch.compiler.disable
    def _before_step(self, optimizer: torch.optim.Optimizer, arguments: Tuple[Any, ...],
                     keywords: Dict[str, Any]) -> Optional[Tuple[Tuple[Any, ...], Dict[str, Any]]]:
        self._show()  # what a step that failed has hidden
        closure = arguments[1] if len(arguments) > 1 else keywords.get("closure")
        if closure is None:
            self._apply(optimizer)
            return None

        def then_apply() -> Any:
            loss = closure()
            self._apply(optimizer)
            return loss

        return (arguments[0], then_apply), {}

    @torch.compiler.disable
    def _after_step(self, *_: Any) -> None:
        self._show()
        for moments in self._optimizer().state.values():
            if moments and UPDATES not in moments:
                moments[UPDATES] = torch.tensor(False)  # of the step that torch has just made
        if self.twins is not None:
            self.twins.place()
        marks = self.state.marks
        if marks.undoes and not marks:
            self.state.reducer.begin_step()

    @torch.no_grad()
    def _apply(self, optimizer: torch.optim.Optimizer) -> None:
        if self.twins is not None:
            self.twins.rest()
        if not self.rule.unscales and hasattr(optimizer, "found_inf"):
            del optimizer.found_inf  # a scaler that gets an exception leaves it behind
            raise UsageError(f"{type(optimizer).__name__} behind Winnow under a GradScaler: use bf16 "
                             "without one")
        self._expect_known(optimizer)
        if self.state.lossless:
            self._to_gradients(optimizer)
        marks, parameters = self.state.marks, [p for group in optimizer.param_groups for p in group["params"]]
        for parameter in parameters:
            marks.expect_untouched(parameter, self.state.name_of(parameter))
        marked = {id(p): mark for p in parameters if (mark := marks.take(p)) is not None}
        unused = self._unused(optimizer, marked)
        self._warn_of_unreduced(any(p.grad is not None for p in parameters), bool(marked or unused))
        self._expect_moments_of_all(optimizer, {*marked, *unused})
        self._clip_what_waits(list(marked.values()))
        for group in optimizer.param_groups:
            with_gradient = [p for p in group["params"] if p.grad is not None]
            prepared = [p for p in with_gradient if id(p) in marked or id(p) in unused]
            if prepared:
                for parameter in prepared:
                    moments = optimizer.state[parameter]
                    if id(parameter) in unused:
                        self.rule.prepare(group, parameter, moments, local(parameter.grad), self.scale)
                        continue
                    self._follow_rate(group, parameter, marked[id(parameter)])
                    self._clip(parameter, moments, marked[id(parameter)])
                self.rule.step(group, prepared, [optimizer.state[p] for p in prepared])
            for parameter in prepared:
                self._hidden.append((parameter, parameter.grad))
                parameter.grad = None
            for parameter in with_gradient:
                moments = optimizer.state.get(parameter)
                if parameter.grad is not None and are_updates(moments):
                    self.rule.to_gradients(group, moments, self.scale)

    def _warn_of_unreduced(self, has_gradients: bool, are_reduced: bool) -> None:
        """Where torch's own steps take the place of Winnow's, for long."""
        if has_gradients and not self.state.lossless:
            self._unreduced = 0 if are_reduced else self._unreduced + 1
        if self._unreduced == UNREDUCED_STEPS:
            warn("unreduced", f"Winnow has reduced no gradient of the last {UNREDUCED_STEPS} steps, which were "
                 f"torch's own: {_WRAPPED_ANEW}. Where ranks step by themselves, in no_sync, nothing is wrong")

    def _unused(self, optimizer: torch.optim.Optimizer, marked: Dict[int, Mark]) -> Set[int]:
        """The id() of parameters whose gradient was zero on all ranks, so that it was not reduced."""
        if not self.state.finds_unused:
            return set()
        return {id(p) for group in optimizer.param_groups for p in group["params"]
                if p.grad is not None and id(p) not in marked and are_updates(optimizer.state.get(p))
                and not local(p.grad).any()}

    def _follow_rate(self, group: Dict[str, Any], parameter: torch.Tensor, mark: Mark) -> None:
        """Multiplies what is reduced, an update, by what has come to the learning rate since."""
        rate = float(group["lr"])
        if rate == mark.rate:
            return
        if mark.rate == 0:
            raise UsageError(f"the learning rate of {self.state.name_of(parameter)} was 0 in the backward pass "
                             f"and is {rate} in optimizer.step(): set it before the backward pass, whose "
                             "gradients it multiplies")
        local(parameter.grad).mul_(rate / mark.rate)

    def _clip_what_waits(self, marked: List[Mark]) -> None:
        """After the model's first step, whose clipping was not foreseen: all that waits is of its
        gradients."""
        is_first, self.state.marks.is_first = self.state.marks.is_first, False
        clips = [mark.coefficient for mark in [*marked, *(mark for _, mark in self.state.marks.items())]
                 if not mark.is_foreseen]
        if is_first and clips and clips[0] is not None and all(clip is clips[0] for clip in clips):
            clip = clips[0].item()
            if self.rule.unscales and 0 < clip < 1:
                self.state.reducer.scale_residuals(clip)

    def _clip(self, parameter: torch.Tensor, moments: Dict[str, Any], mark: Mark) -> None:
        """Multiplies what is reduced by what clip_grad_norm_ says, less what ranks have foreseen of it."""
        clip = mark.coefficient
        if mark.clip is None:
            moments.pop(CLIP, None)
        else:
            moments[CLIP] = mark.norms.keep(mark.clip, moments.get(CLIP))
        if clip is not None and not mark.is_foreseen and self.rule.clip_first(moments, clip):
            return
        if mark.is_foreseen:
            clip = (1 if clip is None else clip) / mark.norms.foreseen(mark.number)
        if clip is not None and (clip.device.type != "cpu" or clip.item() != 1):
            local(parameter.grad).mul_(clip)

    def _expect_moments_of_all(self, optimizer: torch.optim.Optimizer, marked: Set[int]) -> None:
        """UsageError if torch's own step would move replicas apart."""
        if not self.rule.of_one_rank or self._ranks() == 1:
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if (parameter.grad is not None and id(parameter) not in marked
                        and are_updates(optimizer.state.get(parameter))):
                    raise UsageError(
                        f"{self.state.name_of(parameter)} has a gradient that Winnow did not reduce, and "
                        f"a second moment that is each rank's own: torch's step of "
                        f"{type(optimizer).__name__} would differ between ranks. {self.how_to_reduce}")

    @torch.no_grad()
    def leave(self) -> None:
        """From here on the optimizer makes torch's own steps, equal ones on all ranks. Collective."""
        self._show()
        optimizer = self._optimizer()
        self._to_gradients(optimizer)
        for moments in optimizer.state.values():
            moments.pop(UPDATES, None)
        for handle in self._handles:
            handle.remove()
        if self._scales_itself is None:
            del optimizer._step_supports_amp_scaling
        else:
            optimizer._step_supports_amp_scaling = self._scales_itself
        del _pairings[optimizer]

    def _to_gradients(self, optimizer: torch.optim.Optimizer) -> None:
        """Moments for torch's own steps, equal on all ranks. Collective where ranks have their own."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                moments = optimizer.state.get(parameter)
                if moments:
                    moments.pop(CLIP, None)
                if are_updates(moments):
                    for name in self.rule.of_one_rank:
                        self._average(local(moments[name]))
                    self.rule.to_gradients(group, moments, self.scale)

    def _show(self) -> None:
        for parameter, gradient in self._hidden:
            parameter.grad = gradient
        self._hidden.clear()


def average(tensor: torch.Tensor, group: Optional[dist.ProcessGroup]) -> None:
    """tensor = its mean over the ranks of the group, the same bits on all."""
    mean = tensor.to(torch.promote_types(tensor.dtype, torch.float32), copy=True,
                     memory_format=torch.contiguous_format)
    dist.all_reduce(mean, group=group)
    tensor.copy_(mean.div_(dist.get_world_size(group)))


_pairings: "weakref.WeakKeyDictionary[torch.optim.Optimizer, Pairing]" = weakref.WeakKeyDictionary()


def pairing_of(optimizer: torch.optim.Optimizer) -> Optional[Pairing]:
    """None for an optimizer whose gradients Winnow does not prepare."""
    return _pairings.get(optimizer)


def pairings_of(state: State) -> List[Tuple[torch.optim.Optimizer, Pairing]]:
    """The optimizers whose gradients `state` reduces."""
    return [(optimizer, pairing) for optimizer, pairing in _pairings.items() if pairing.state is state]
