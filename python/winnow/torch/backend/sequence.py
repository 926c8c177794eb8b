# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Which sum is which sum of the steps before. Of torch's own wrappers it is known whose gradients a sum is of.
Elsewhere no parameter comes through a process group, and addresses and sizes say too little: there a sum is
known by all sums before it since the last step of an optimizer."""
import collections
import functools
import inspect
import itertools
import weakref
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Set
from typing import Sequence as Sequence_

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakTensorKeyDictionary

from winnow.torch.holders import holds_others
from winnow.torch.names import id_of

_MOST = 1 << 16  # beginnings that are remembered
_REPEATS = 2  # steps that have gone the same way, or sums of the same parameters, after which the next are known


class _Steps:
    """Of all optimizers of this process, but for those within a backward pass."""

    def __init__(self) -> None:
        self.count = 0
        self.generation = 0  # how many optimizers were made, or got another state
        # Which optimizers made the last ones, by the order of their first steps; 0: none has.
        self.made_by: Deque[int] = collections.deque([0], maxlen=256)
        self._numbers: "weakref.WeakKeyDictionary[torch.optim.Optimizer, int]" = weakref.WeakKeyDictionary()
        self._next = 1

    def note(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """`optimizer` has made a step."""
        if in_backward():  # of one parameter, whose gradient is there
            return
        if holds_others(optimizer):  # which were noted
            return
        if optimizer not in self._numbers:
            self._numbers[optimizer] = self._next
            self._next += 1
        self.count += 1
        self.made_by.append(self._numbers[optimizer])

    def note_optimizer(self, _: torch.optim.Optimizer) -> None:
        """One was made, or got another state."""
        self.generation += 1

    def since(self, count: int) -> Set[int]:
        """The optimizers that have made a step since there were `count`."""
        return set(itertools.islice(reversed(self.made_by), self.count - count))


_steps = _Steps()


def steps_made() -> int:
    """By all optimizers so far."""
    return _steps.count


@functools.lru_cache(maxsize=None)
def watch_steps() -> None:
    """From here on, once per process."""
    register_optimizer_step_post_hook(_steps.note)
    for name in "__init__", "__setstate__":  # by which an optimizer comes to parameters, or to a checkpoint
        _after(torch.optim.Optimizer, name, _steps.note_optimizer)
    _after(DistributedDataParallel, "__init__", _note_wrapper)


def _after(of: type, name: str, note: Callable[[Any], None]) -> None:
    """note(self) follows each call of a method."""
    method = getattr(of, name)

    def noted(self: Any, *arguments: Any, **keywords: Any) -> None:
        method(self, *arguments, **keywords)
        note(self)

    noted.__doc__, noted.__signature__ = method.__doc__, inspect.signature(method)
    setattr(of, name, noted)


_wrapped = WeakTensorKeyDictionary()  # how often a parameter's model was wrapped: each time in other buckets


_unused = WeakTensorKeyDictionary()  # parameters of models that find unused ones


def _note_wrapper(ddp: DistributedDataParallel) -> None:
    for parameter in ddp.parameters():
        _wrapped[parameter] = _wrapped.get(parameter, 0) + 1
        if ddp.find_unused_parameters:
            _unused[parameter] = True


def finds_unused(owners: Sequence_[Any]) -> bool:
    """Whether DistributedDataParallel may throw away sums of the gradients of these."""
    return any(isinstance(owner, torch.Tensor) and owner in _unused for owner in owners)


def in_backward() -> bool:
    """Whether this thread runs a backward pass."""
    return torch._C._current_graph_task_id() >= 0


class Place(NamedTuple):
    """Which gradient a sum is of."""

    id: int  # equal where what all ranks know of it is alike
    is_known: bool  # it was there before, so that what waits of it may be in this sum
    generation: int  # of optimizers; 0: it is of parameters that are known, whatever optimizers there are
    why_not: str = "of gradients that were new or in another order"  # if it is not known


class Sequence:
    """Of the sums of one group that may be compressed. Every rank keeps its own, and compares places with
    the others' before each sum."""

    def __init__(self) -> None:
        self._step, self._context, self._generation = _steps.count, _steps.made_by[-1], _steps.generation
        self._path = 0  # the id of all sums since the last step
        self._begun: Dict[int, int] = {}  # steps that have begun so, by the id of their first sums
        self._here: List[int] = []  # ids of this step's beginnings
        self._ends: Dict[int, Set[int]] = {}  # by the id of all sums of a step: the optimizers that made it
        self.mixed: Set[int] = set()  # after these optimizers' steps it is not known what comes
        self._parameters, self._others = WeakTensorKeyDictionary(), weakref.WeakKeyDictionary()
        self._count = 0  # of both
        self._seen: Dict[int, int] = {}  # sums of an id whose owners are known
        self._wraps: Dict[int, int] = {}  # by the number of a parameter: how often it was wrapped
        self.is_wrapped_anew = False  # some parameter was, after its first sum

    def of_owners(self, owners: Sequence_[Any], signature: int) -> Place:
        """The place of a sum that looks like `signature`, of the gradients of these objects. They are known
        by the order in which they came first, which is the same on all ranks."""
        numbers = []
        for owner in owners:
            known = self._parameters if isinstance(owner, torch.Tensor) else self._others
            if owner not in known:
                self._count += 1
                known[owner] = self._count
            numbers.append(known[owner])
            if known is self._parameters:
                wraps = _wrapped.get(owner, 0)
                numbers.append(wraps)
                before = self._wraps.setdefault(known[owner], wraps)
                self.is_wrapped_anew = self.is_wrapped_anew or before != wraps
        number = id_of(f"{numbers} {signature}")
        before = self._seen.get(number, 0)
        self._seen[number] = before + 1
        if finds_unused(owners):
            return Place(number, False, 0, "of models that find unused parameters, whose sums "
                         "DistributedDataParallel throws away")
        return Place(number, before >= _REPEATS, 0)

    def has_seen(self, owner: Any) -> bool:
        """Whether there was a sum of its gradients."""
        return owner in (self._parameters if isinstance(owner, torch.Tensor) else self._others)

    def place(self, signature: int) -> Place:
        """Of the next sum of which no more is known than that it looks like `signature`."""
        if self._generation != _steps.generation:
            self._begin()
            self._begun.clear()
            self._ends.clear()
            self.mixed.clear()
        elif self._step != _steps.count:
            self._close()
        if not self._here:
            self._path = id_of(f"after {self._context}")
        self._path = id_of(f"{self._path} {signature}")
        place = Place(self._path, self._begun.get(self._path, 0) >= _REPEATS and self._context not in self.mixed,
                      1 + self._generation)
        if len(self._here) < _MOST:
            self._here.append(self._path)
        return place

    def _close(self) -> None:
        """An optimizer has made a step since the last sum."""
        if self._here:
            if len(self._begun) + len(self._here) > _MOST:  # sizes that change from step to step
                self._begun.clear()
                self._ends.clear()
            for beginning in self._here:
                self._begun[beginning] = self._begun.get(beginning, 0) + 1
            # Two models whose sums look alike would share residuals.
            made_by = _steps.since(self._step)
            known = self._ends.setdefault(self._path, made_by)
            if known.isdisjoint(made_by):
                self.mixed.add(self._context)
            known |= made_by
        self._begin()

    def _begin(self) -> None:
        self._step, self._context, self._generation = _steps.count, _steps.made_by[-1], _steps.generation
        self._here = []
