# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Look-ahead inside of forward and backward passes, and nowhere else."""
import weakref
from typing import Any, Callable, Iterator, List, MutableMapping, Optional, Set, Tuple

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.weak import WeakTensorKeyDictionary

from winnow._library import UsageError
from winnow.torch.ahead import look, share_of
from winnow.torch.place import local
from winnow.torch.state import State

Reaches = Callable[[], List[Tuple[torch.Tensor, float, float]]]


class _Pass:
    """A backward pass. The engine calls this at its end, and drops it if the pass fails."""

    def __init__(self, twins: "Twins"):
        self._twins = twins

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
        self._in_forward = False
        self._backward: "Optional[weakref.ref[_Pass]]" = None
        self._last_pass = -1  # torch's number of the last backward pass that looked ahead
        # No parameter is held between passes: its hooks may reach the model, which holds the State.
        self._twins: MutableMapping[torch.Tensor, torch.Tensor] = WeakTensorKeyDictionary()
        self._filled_at: Any = None  # weights and residuals that the twins were made of
        self._residuals = 0  # a count of their changes
        self._away: List[Tuple[torch.Tensor, torch.Tensor, int]] = []  # parameter, weights, version
        self._handles = (ddp.register_forward_pre_hook(self._before_forward, prepend=True),
                         ddp.register_forward_hook(self._after_forward, always_call=True))
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
        self._move(self._in_forward or self._backward is not None)

    # torch.compile(ddp) would trace the hooks.
    @torch.compiler.disable
    def _before_forward(self, module: torch.nn.Module, _: Any) -> None:
        self.rest()  # what an interrupted pass has left
        self._in_forward = module.training and torch.is_grad_enabled()
        self.place()

    @torch.compiler.disable
    def _after_forward(self, _: Any, __: Any, output: Any) -> None:
        trained, self._in_forward = self._in_forward, False
        self.place()
        if trained and self._state is not None:
            for tensor in _tensors_in(output, set()):
                if tensor.requires_grad:
                    tensor.register_hook(self._begin)

    def _begin(self, _: torch.Tensor) -> None:
        """A backward pass has come to what the model returned, and to no node of the model."""
        if self._backward is not None or self._state is None:
            return
        if torch.is_grad_enabled():
            raise UsageError("a backward pass with create_graph=True, whose graph would mix two sets "
                             "of weights: attach(ddp) without the optimizer, and take "
                             "winnow.torch.look_ahead around all passes of a step")
        this = _Pass(self)
        torch.autograd.Variable._execution_engine.queue_callback(this)
        self._backward, self._last_pass = weakref.ref(this), torch._C._current_graph_task_id()
        self.place()

    def end(self, this: _Pass, check: bool) -> None:
        """A backward pass is over. Its last reference may be gone, so its weak one finds nothing."""
        if self._backward is not None and self._backward() in (this, None):
            self._backward = None
            self._move(self._in_forward, check)

    def _expect_backward(self, parameters: Any, *_: Any) -> None:
        """Before gradients are reduced."""
        self._residuals += 1
        number = torch._C._current_graph_task_id()  # -1: none, since this rank has joined
        if not (number in (-1, self._last_pass) or self._in_forward or self._state.lossless):
            raise UsageError(
                f"the gradient of {self._state.name_of(parameters[0])} comes from a loss that does "
                "not depend on a tensor that the DistributedDataParallel returned: return tensors, "
                "also in tuples, lists, dicts and dataclasses; or attach(ddp) without the optimizer, "
                "and take winnow.torch.look_ahead")

    def _move(self, ahead: bool, check: bool = True) -> None:
        if ahead and not self._away and self._state is not None and self._state.is_open:
            self._fill()
            torch.clear_autocast_cache()  # casts of the other weights
            for parameter, twin in list(self._twins.items()):
                self._away.append((parameter, parameter.data, parameter._version))
                parameter.data = twin
        elif not ahead and self._away:
            away, self._away = self._away, []
            torch.clear_autocast_cache()
            for parameter, weights, _ in away:
                parameter.data = weights
            for parameter, _, version in away:
                if check and parameter._version != version:
                    raise UsageError(f"{self._state.name_of(parameter)} was changed inside of a "
                                     "forward or backward pass, where it is a copy")

    @torch.no_grad()
    def _fill(self) -> None:
        moved: List[Tuple[torch.Tensor, float]] = []
        for reference in self._movers:
            reaches = reference()
            if reaches is not None and not self._state.lossless:
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

    def _twin_of(self, parameter: torch.Tensor) -> torch.Tensor:
        twin = self._twins.get(parameter)
        fits = twin is not None and (twin.dtype, twin.device, twin.shape, twin.stride()) == (
            parameter.dtype, parameter.device, parameter.shape, parameter.stride())
        return twin if fits else torch.empty_like(parameter.data)


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
