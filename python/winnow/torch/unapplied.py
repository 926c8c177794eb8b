# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Sums that no step of torch's optimizer applies. What was not sent of them would come later."""
import weakref
from typing import Any, Callable, Dict, Optional, Sequence, Union

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from winnow._library import UsageError
from winnow.torch.place import local
from winnow.torch.state import State


class Unapplied:
    """Of a model that is attached without an optimizer. A gradient that is reduced, and is gone when
    the next backward pass begins though no step has moved its parameter, was thrown away.

    Only programs whose model a torch optimizer has moved before are checked, so those that apply
    gradients themselves are left alone. One parameter is looked at, the first that each backward pass
    comes to; the others only where that one's sum waits.
    """

    def __init__(self, ddp: DistributedDataParallel, state: State):
        self._model, self._state = weakref.ref(ddp), weakref.ref(state)
        self._first: Callable[[], Optional[torch.Tensor]] = lambda: None
        self._handle: Any = None
        self._stepped = False
        self.clear()

    def clear(self) -> None:
        """A step has applied the sums, or skip_step has undone them."""
        self._pass = -1  # torch's number of the backward pass whose sums wait; -1: none do

    def step(self) -> None:
        """An optimizer of torch moves the model."""
        self._stepped = True
        self.clear()

    def reduce(self, bucket: dist.GradBucket) -> None:
        """The sums of a bucket wait from here on."""
        self._pass = torch._C._current_graph_task_id()
        if bucket.index() != 0:
            return
        first = bucket.parameters()[0]
        if self._first() is not first:
            if self._handle is not None:
                self._handle.remove()
            this = weakref.WeakMethod(self._begin)
            self._first = weakref.ref(first)
            self._handle = first.register_hook(lambda _: None if this() is None else this()())
        self._version = first._version

    @torch.compiler.disable
    def _begin(self) -> None:
        """A backward pass has come to the first parameter, whose gradient it has not added yet."""
        first, model = self._first(), self._model()
        if (not self._stepped or self._pass in (-1, torch._C._current_graph_task_id())
                or first is None or model is None or first._version != self._version
                or any(p.grad is not None and p.grad.any() for p in model.parameters())):
            return
        state = self._state()
        if state is None or state.lossless:
            return
        self.clear()  # said once
        raise _error(state.name_of(first))


def _error(name: str) -> UsageError:
    return UsageError(
        f"the gradient of {name} was reduced and then thrown away, without "
        "optimizer.step(): what was not sent of it would be applied later. Run passes whose gradients "
        "you throw away inside ddp.no_sync(), forward and backward; call winnow.torch.skip_step(ddp) "
        "in place of a step that you leave out, or attach_scaler if a GradScaler does")


class UnappliedShards:
    """Likewise of a model whose parameters are sharded, and get their gradients from FSDP."""

    def __init__(self, state: State):
        self._state, self._stepped = weakref.ref(state), False
        self._versions: Dict[int, int] = {}  # id() of a parameter -> its version when its gradient was reduced
        self.clear()

    def clear(self) -> None:
        self._pass = -1

    def step(self) -> None:
        self._stepped = True
        self.clear()

    def reduce(self, parameters: Sequence[torch.Tensor]) -> None:
        """The sums of these wait from here on, before FSDP gives them to the parameters."""
        state, number = self._state(), torch._C._current_graph_task_id()
        thrown_away = [p for p in parameters if p.grad is None
                       and self._versions.get(id(p)) == local(p)._version]
        if self._stepped and self._pass not in (-1, number) and thrown_away and not state.lossless:
            self.clear()
            raise _error(state.name_of(thrown_away[0]))
        self._pass = number
        self._versions.update((id(p), local(p)._version) for p in parameters)


_unapplied: "weakref.WeakKeyDictionary[State, Union[Unapplied, UnappliedShards]]" = weakref.WeakKeyDictionary()


def watch_shards(state: State) -> None:
    """From here on what is reduced by `state` for a sharded model must be applied."""
    _unapplied[state] = UnappliedShards(state)


def watch_sums(ddp: DistributedDataParallel, state: State) -> None:
    """From here on what is reduced by `state` for `ddp` must be applied."""
    _unapplied[state] = Unapplied(ddp, state)


def unapplied_of(state: State) -> "Optional[Union[Unapplied, UnappliedShards]]":
    """None where an optimizer that is attached knows more."""
    return _unapplied.get(state)
