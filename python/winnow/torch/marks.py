# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What an optimizer must know of the passes since its last step."""
import weakref
from typing import Any, Dict, Iterable, List, MutableMapping, Optional, Tuple

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from winnow._library import UsageError
from winnow.torch.norms import Clip, Norms
from winnow.torch.place import local, reals

_Stamp = Optional[Tuple[int, int, Optional[int]]]


def looks_closely(count: int) -> bool:
    """Whether the pass with this number is one of those in which writes are looked for that torch does
    not count, by .data or a view in numpy: the first few, and then seldom, since all is read for it."""
    return count < 4 or count % 64 == 0


def content_of(tensor: torch.Tensor) -> int:
    """Of its bits: other content has another one, but for rare cases."""
    bits = reals(local(tensor.detach())).contiguous().view(-1)
    return int(bits.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[
        bits.element_size()]).sum(dtype=torch.int64))


def _stamp_of(gradient: Optional[torch.Tensor], closely: bool) -> _Stamp:
    """Changes with each write to a gradient that torch counts, with another one in its place, and where
    one looks closely with its content."""
    if gradient is None:
        return None
    return local(gradient).data_ptr(), gradient._version, content_of(gradient) if closely else None


class Mark:
    """Of one parameter, whose gradient was prepared and reduced, and waits for its step."""

    def __init__(self, owner: Any, norms: Norms, number: int, is_foreseen: bool, rate: float):
        self.owner = weakref.ref(owner)  # who has prepared it
        self.rate = rate  # the learning rate in the update
        self.before: Dict[str, Optional[torch.Tensor]] = {}  # moments, if skip_step may want them
        self.norms, self.number = norms, number  # of its bucket, and which of its parameters this is
        self.is_foreseen = is_foreseen  # it is multiplied by what its clipping was thought to be
        self.stamp: _Stamp = None  # of p.grad when the pass was over
        self.factor: Optional[torch.Tensor] = None  # by which p.grad was unscaled
        self.clip: Optional[Clip] = None  # the last call
        self.coefficient: Optional[torch.Tensor] = None  # by which it is clipped

    def fits(self, parameter: torch.Tensor) -> bool:
        """Whether p.grad is still what the pass has left there."""
        return self.stamp is None or self.stamp == _stamp_of(parameter.grad, self.stamp[2] is not None)

    def unscaled(self, parameter: torch.Tensor, factor: torch.Tensor) -> None:
        """A GradScaler has multiplied p.grad."""
        self.factor, self.stamp = factor, _stamp_of(parameter.grad, False)


class Marks:
    """Of one State. A backward pass sets them, a step clears those of the parameters that it moves."""

    def __init__(self) -> None:
        # No parameter is held: its hooks may reach the model, which holds the State.
        self._marks: MutableMapping[torch.Tensor, Mark] = WeakTensorKeyDictionary()
        self._pass = -1  # torch's number of the backward pass at whose end gradients are stamped
        self._awaited = False  # the end of a pass that looks ahead, for the same
        self._passes = 0  # at whose end gradients were stamped
        self.is_first = True  # no step has applied any
        self.ahead = False  # the weights are inside of look_ahead now
        self.looked = False  # some pass has been inside of look_ahead
        self.automatic: Any = None  # the Twins of a model that is attached with an optimizer
        self.undoes = False  # the reducer keeps what discard_step needs

    def __bool__(self) -> bool:
        return bool(self._marks)

    def add(self, parameter: torch.Tensor, name: str, mark: Mark) -> None:
        """Its owner prepares this gradient for the next step."""
        if parameter not in self._marks:
            self._marks[parameter] = mark
            self._stamp_at_the_end()
            return
        other = self._marks[parameter].owner()
        if other not in (mark.owner(), None):
            raise UsageError(f"two optimizers of winnow.torch move {name}: drop one, with all that "
                             "refers to it")
        raise UsageError(
            f"the gradient of {name} is reduced a second time before optimizer.step(). Run all passes "
            "but the last before a step, forward and backward, inside ddp.no_sync(), or of a sharded model "
            "after set_requires_all_reduce(False), also those whose gradients you throw away; call "
            "winnow.torch.skip_step(ddp) in place of a step that you leave out, or attach_scaler if a "
            "GradScaler does")

    def put(self, parameter: torch.Tensor, mark: Mark) -> None:
        """As add, of a mark that has no stamp."""
        self._marks[parameter] = mark

    def of(self, parameter: torch.Tensor) -> Optional[Mark]:
        """That of a parameter; None if it has none."""
        return self._marks.get(parameter)

    def any_of(self, parameters: Iterable[torch.Tensor]) -> Optional[torch.Tensor]:
        """One whose gradient is prepared."""
        return next((p for p in parameters if p in self._marks), None)

    def items(self) -> List[Tuple[torch.Tensor, Mark]]:
        """Those of all parameters that have one."""
        return list(self._marks.items())

    def expect_untouched(self, parameter: torch.Tensor, name: str) -> None:
        """UsageError if its gradient was prepared, and somebody has changed or dropped it since."""
        mark = self._marks.get(parameter)
        if mark is not None and not mark.fits(parameter):
            raise UsageError(
                f"the gradient of {name} was changed between the backward pass and optimizer.step(), where "
                "p.grad holds an update in other units than a gradient's. To clip, call "
                "torch.nn.utils.clip_grad_norm_, which Winnow serves; to accumulate, run all passes but the "
                "last inside ddp.no_sync(); to leave a step out, call winnow.torch.skip_step(ddp). Other "
                "changes take attach(ddp) without the optimizer, by which p.grad holds a gradient")

    def take(self, parameter: torch.Tensor) -> Optional[Mark]:
        """That of a parameter, which has none from here on."""
        return self._marks.pop(parameter, None)

    def clear(self) -> None:
        """No step will apply the gradients that were reduced last."""
        self._marks.clear()

    def _stamp_at_the_end(self) -> None:
        if self.automatic is not None and self.automatic.in_backward:
            self._awaited = True  # of the pass around those that re-entrant checkpoints run
            return
        number = torch._C._current_graph_task_id()
        if number != self._pass:
            self._pass = number
            self._stamp_later()

    def pass_ends(self) -> None:
        """A backward pass that looked ahead has come to its end, in a callback of the engine."""
        if self._awaited:
            self._awaited = False
            self._stamp_later()

    def _stamp_later(self) -> None:
        queue = torch.autograd.Variable._execution_engine.queue_callback

        def stamp() -> None:
            closely = looks_closely(self._passes)
            self._passes += 1
            for parameter, mark in self.items():
                if mark.stamp is None:
                    mark.stamp = _stamp_of(parameter.grad, closely)

        queue(lambda: queue(stamp))  # behind what DistributedDataParallel queues for p.grad
