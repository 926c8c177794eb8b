# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Look-ahead inside of forward and backward passes, and nowhere else."""
import sys
import weakref
from typing import Any, Callable, Iterator, List, MutableMapping, Optional, Set, Tuple

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.weak import WeakTensorKeyDictionary

from winnow._library import UsageError
from winnow.torch.ahead import look, share_of
from winnow.torch.marks import content_of, looks_closely
from winnow.torch.place import local
from winnow.torch.slot import expect_one_group
from winnow.torch.state import State

Reaches = Callable[[], List[Tuple[torch.Tensor, float, float]]]


class _Pass:
    """A backward pass, at twins where it is `ahead`. The engine calls this at its end, and drops it if the
    pass fails."""

    def __init__(self, twins: "Twins", ahead: bool):
        self._twins, self.ahead = twins, ahead

    def __call__(self) -> None:
        self._twins.end(self, check=True)

    def __del__(self) -> None:
        self._twins.end(self, check=False)


class Twins:
    """A second copy of a DistributedDataParallel's weights: the weights minus a share of what this
    rank has not sent, filled once a step. Parameters point to it from the beginning of a forward pass
    in training to its end, and again during the backward pass from what the forward pass returned.
    Evaluation, state_dict, copies, averages of weights and steps in between see the weights.

    A copy or a pickle of the model has twins that do nothing, since no State reduces for it. Nor do
    twins that a State does not use yet.
    """

    def __init__(self, ddp: DistributedDataParallel, state: Optional[State]):
        self._state: Optional[State] = None
        self._movers: List[Callable[[], Optional[Reaches]]] = []
        self._follows = False  # a forward pass whose backward pass may come
        self._in_forward = False  # such a pass, ahead
        self._backward: "Optional[weakref.ref[_Pass]]" = None
        self._is_ahead = False  # that pass
        self._last_pass = -1  # torch's number of the last backward pass that came to what the model returned
        self._doubtful = -1  # and of the last one that did not before gradients were reduced
        self._moves = 0  # to the twins
        self._contents: MutableMapping[torch.Tensor, int] = WeakTensorKeyDictionary()  # of twins, at times
        self._frozen: List[Tuple[torch.Tensor, Any]] = []  # parameters, as they were before a forward pass
        self._leaves: List[Any] = []  # handles of hooks on parameters that the model returns
        # No parameter is held between passes: its hooks may reach the model, which holds the State.
        self._twins: MutableMapping[torch.Tensor, torch.Tensor] = WeakTensorKeyDictionary()
        self._filled_at: Any = None  # weights and residuals that the twins were made of
        self._residuals = 0  # a count of their changes
        self._away: List[Tuple[torch.Tensor, torch.Tensor, int]] = []  # parameter, weights, version
        self._handles = [ddp.register_forward_pre_hook(self._before_forward, prepend=True),
                         ddp.register_forward_hook(self._after_forward, always_call=True)]
        self._handles += [module.register_state_dict_pre_hook(self._before_state_dict)
                          for module in (ddp, getattr(ddp, "module", None)) if module is not None]
        if state is not None:
            self.serve(state)

    def __reduce__(self) -> Tuple[Any, Tuple[Any, ...]]:
        return _asleep, ()

    def serve(self, state: State) -> None:
        """From here on `state` reduces for the model, of which a forward pass may be running."""
        self._state = state
        state.prepare_by(weakref.WeakMethod(self._expect_backward), weakref.WeakMethod(self.leave))

    def move_with(self, reaches: Callable[[], Optional[Reaches]]) -> None:
        """From here on these parameters look ahead, as long as reaches(), a weak reference, is not
        None."""
        self._movers.append(reaches)

    def leave(self) -> None:
        """From here on the parameters are the weights in all passes."""
        self.rest()
        for handle in self._handles:
            handle.remove()
        self._state = None
        self._movers.clear()
        self._twins.clear()

    def rest(self) -> None:
        """The parameters are the weights again."""
        self._move(False)

    def place(self) -> None:
        """The parameters are where the pass that runs, if one does, wants them."""
        self._move(self._in_forward or self.in_backward and self._is_ahead)

    @property
    def in_backward(self) -> bool:
        """Whether a backward pass has come to what the model returned, and is not over."""
        return self._backward is not None

    # torch.compile(ddp) would trace the hooks.
    @torch.compiler.disable
    def _before_forward(self, module: torch.nn.Module, _: Any) -> None:
        self.rest()  # what an interrupted pass has left
        if self._state is not None and torch.is_grad_enabled():
            expect_one_group(module)
        for handle in self._leaves:
            handle.remove()
        self._leaves.clear()
        self._follows = torch.is_grad_enabled()
        # Of any part: trainers that validate leave the wrapper in evaluation.
        self._in_forward = self._follows and any(part.training for part in module.modules())
        self.place()
        if self._away:
            closely = bool(self._contents)
            self._frozen = [(p, _stamp_of(p, closely)) for p in module.parameters() if not p.requires_grad]

    def _before_state_dict(self, module: torch.nn.Module, *_: Any) -> None:
        """torch calls no hook of a forward pass that a KeyboardInterrupt or SystemExit has ended."""
        if self._away and self._in_forward and not _is_called(module):
            self._follows = self._in_forward = False
            self._move(False, check=False)

    @torch.compiler.disable
    def _after_forward(self, _: Any, __: Any, output: Any) -> None:
        follows, ahead = self._follows, self._in_forward
        self._follows = self._in_forward = False
        frozen, self._frozen = self._frozen, []
        self.place()
        for parameter, stamp in frozen:
            if _stamp_of(parameter, stamp[-1] is not None) != stamp and self._state is not None:
                raise UsageError(f"{self._state.name_of(parameter)}, which is frozen, was changed inside of a "
                                 "forward pass, where the weights are another copy on each rank: change it "
                                 "after optimizer.step()")
        if follows and self._state is not None:
            for tensor in _tensors_in(output, set()):
                if tensor.requires_grad:
                    handle = tensor.register_hook(self._begin if ahead else self._begin_where_it_is)
                    if tensor.is_leaf:
                        self._leaves.append(handle)

    def _begin_where_it_is(self, tensor: torch.Tensor) -> None:
        """_begin, of a model in evaluation: at the weights themselves, as its forward pass was."""
        self._begin(tensor, False)

    def _begin(self, _: torch.Tensor, ahead: bool = True) -> None:
        """A backward pass has come to what the model returned, and to no node of the model."""
        if self._backward is not None or self._state is None:
            return
        if torch.is_grad_enabled():
            raise UsageError("a backward pass with create_graph=True, whose graph would mix two sets "
                             "of weights: attach(ddp) without the optimizer, and take "
                             "winnow.torch.look_ahead around all passes of a step")
        this = _Pass(self, ahead)
        torch.autograd.Variable._execution_engine.queue_callback(this)
        self._backward, self._last_pass = weakref.ref(this), torch._C._current_graph_task_id()
        self._is_ahead = ahead
        self.place()

    def end(self, this: _Pass, check: bool) -> None:
        """A backward pass is over. Its last reference may be gone, so its weak one finds nothing."""
        if self._backward is not None and self._backward() in (this, None):
            self._backward = None
            if check and self._state is not None:
                self._state.marks.pass_ends()
            self._move(self._in_forward, check)

    def _expect_backward(self, parameters: Any, *_: Any) -> None:
        """Before gradients are reduced."""
        self._residuals += 1
        number = torch._C._current_graph_task_id()  # -1: none, since this rank has joined
        # Checkpoints that are re-entrant run passes of their own inside of one.
        if number in (-1, self._last_pass) or self.in_backward or self._follows or self._state.lossless:
            return
        if number != self._doubtful:  # of a parameter that was used outside of the forward pass, perhaps
            self._doubtful = number
            name = self._state.name_of(parameters[0])
            torch.autograd.Variable._execution_engine.queue_callback(lambda: self._expect_begun(number, name))

    def _expect_begun(self, number: int, name: str) -> None:
        """At the end of a backward pass that has reduced gradients of the model."""
        if self._last_pass != number:
            raise UsageError(
                f"the gradient of {name} comes from a loss that does "
                "not depend on a tensor that the DistributedDataParallel returned: return tensors, "
                "also in tuples, lists, dicts and dataclasses; or attach(ddp) without the optimizer, "
                "and take winnow.torch.look_ahead")

    def _move(self, ahead: bool, check: bool = True) -> None:
        if ahead and not self._away and self._state is not None and self._state.is_open:
            are_on_their_way = self.in_backward and self._last_pass == self._doubtful
            if not are_on_their_way:  # gradients, for which the forward pass has filled the twins
                self._fill()
            torch.clear_autocast_cache()  # casts of the other weights
            twins = list(self._twins.items())
            self._contents.clear()
            if twins and looks_closely(self._moves):
                self._contents.update((parameter, content_of(twin)) for parameter, twin in twins)
            self._moves += 1 if twins else 0
            for parameter, twin in twins:
                self._away.append((parameter, parameter.data, parameter._version))
                parameter.data = twin
        elif not ahead and self._away:
            away, self._away = self._away, []
            torch.clear_autocast_cache()
            changed = [parameter for parameter, _, version in away
                       if check and self._is_changed(parameter, version)]
            for parameter, weights, _ in away:
                parameter.data = weights
            if changed:
                raise UsageError(f"{self._state.name_of(changed[0])} was changed inside of a "
                                 "forward or backward pass, where it is a copy: change it outside, after "
                                 "optimizer.step()")

    def _is_changed(self, parameter: torch.Tensor, version: int) -> bool:
        """Whether somebody has written to it where it is its twin, which it has been from this version on."""
        twin, content = self._twins.get(parameter), self._contents.get(parameter)
        return (parameter._version != version
                or twin is not None and local(parameter).data_ptr() != local(twin).data_ptr()
                or content is not None and content_of(parameter) != content)

    @torch.no_grad()
    def _fill(self) -> None:
        moved: List[Tuple[torch.Tensor, float]] = []
        for reference in self._movers:
            reaches = reference()
            if reaches is not None and not self._state.lossless and self._something_waits():
                moved.extend((parameter, share_of(self._state, momentum, weight))
                             for parameter, momentum, weight in reaches()
                             if parameter.requires_grad and self._state.names_any({id(parameter)}))
        filled_at = self._residuals, [(id(p), p._version, p.data_ptr(), share) for p, share in moved]
        if filled_at == self._filled_at:
            return
        self._filled_at = filled_at
        twins = WeakTensorKeyDictionary({p: self._twin_of(p) for p, _ in moved})
        self._twins = twins
        for parameter, share in moved:
            look(self._state, parameter, local(parameter), local(twins[parameter]), share)

    def _something_waits(self) -> bool:
        """Whether weights may differ from their twins at all. In the first forward pass, in which some
        layers choose their weights by what they see, they do not."""
        return self._residuals > 0 or not self._state.marks.is_first

    def _twin_of(self, parameter: torch.Tensor) -> torch.Tensor:
        twin = self._twins.get(parameter)
        fits = twin is not None and (twin.dtype, twin.device, twin.shape, twin.stride()) == (
            parameter.dtype, parameter.device, parameter.shape, parameter.stride())
        return twin if fits else torch.empty_like(parameter.data)


def _is_called(module: torch.nn.Module) -> bool:
    """Whether this thread is inside of a call of the module, or of one that holds it."""
    frame = sys._getframe()
    while frame is not None:
        caller = frame.f_locals.get("self") if frame.f_code.co_name == "_wrapped_call_impl" else None
        if caller is not None and (caller is module or getattr(caller, "module", None) is module):
            return True
        frame = frame.f_back
    return False


def _stamp_of(parameter: torch.Tensor, closely: bool) -> Tuple[int, int, Optional[int]]:
    """Changes with what is written to a parameter."""
    return parameter.data_ptr(), parameter._version, content_of(parameter) if closely else None


def _asleep() -> Twins:
    return Twins(torch.nn.Module(), None)


def _tensors_in(output: Any, seen: Set[int]) -> Iterator[torch.Tensor]:
    """Those of tuples, lists, dicts and objects with attributes, such as dataclasses."""
    if isinstance(output, torch.Tensor):
        yield output
    elif id(output) not in seen and not isinstance(output, (str, bytes, int, float, type,
                                                            torch.nn.Module)):
        seen.add(id(output))
        items = list(getattr(output, "__dict__", {}).values())
        if isinstance(output, dict):
            items.extend(output.values())
        elif isinstance(output, (list, tuple, set)):
            items.extend(output)
        for item in items:
            yield from _tensors_in(item, seen)
