# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Which sum of a step is which sum of the steps before. No name of a parameter comes through a process
group, and addresses and sizes say too little: so a sum is known by all sums before it since the last step of
an optimizer, and by which optimizers there are."""
import collections
import functools
import itertools
import weakref
from typing import Any, Deque, Dict, List, NamedTuple, Set

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from winnow.torch.names import id_of

_MOST = 1 << 16  # beginnings that are remembered
_REPEATS = 2  # steps that have gone the same way, after which the next ones are known


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
        if optimizer not in self._numbers:
            self._numbers[optimizer] = self._next
            self._next += 1
        self.count += 1
        self.made_by.append(self._numbers[optimizer])

    def since(self, count: int) -> Set[int]:
        """The optimizers that have made a step since there were `count`."""
        return set(itertools.islice(reversed(self.made_by), self.count - count))


_steps = _Steps()


@functools.lru_cache(maxsize=None)
def watch_steps() -> None:
    """From here on, once per process."""
    register_optimizer_step_post_hook(_steps.note)
    for name in "__init__", "__setstate__":
        _count_calls(name)


def _count_calls(name: str) -> None:
    """Of a method by which an optimizer comes to a state: of another model, or of a checkpoint."""
    method = getattr(torch.optim.Optimizer, name)

    @functools.wraps(method)
    def counted(*arguments: Any, **keywords: Any) -> Any:
        _steps.generation += 1
        return method(*arguments, **keywords)

    setattr(torch.optim.Optimizer, name, counted)


def in_backward() -> bool:
    """Whether this thread runs a backward pass."""
    return torch._C._current_graph_task_id() >= 0


class Place(NamedTuple):
    """Of one sum in its step."""

    number: int  # of the sums since the last step
    id: int  # equal where all sums since the last step, and this one, are alike
    is_known: bool  # steps before had the same sums so far
    generation: int  # of optimizers: what waits from an earlier one is of another model


class Sequence:
    """Of the sums of one group that may be compressed. Every rank keeps its own, and compares places with
    the others' before each sum."""

    def __init__(self) -> None:
        self._step, self._context, self._generation = _steps.count, _steps.made_by[-1], _steps.generation
        self._number, self._path = 0, 0  # sums since the last step, and the id of them all
        self._begun: Dict[int, int] = {}  # steps that have begun so, by the id of their first sums
        self._here: List[int] = []  # ids of this step's beginnings
        self._ends: Dict[int, Set[int]] = {}  # by the id of all sums of a step: the optimizers that made it
        self.mixed: Set[int] = set()  # after these optimizers' steps it is not known what comes
        self.steps = 0  # that had sums

    def place(self, signature: int) -> Place:
        """Of the next sum, which looks like `signature`."""
        if self._step != _steps.count or self._generation != _steps.generation:
            self._close()
        if self._number == 0:
            self._path = id_of(f"{self._generation} after {self._context}")
        self._path = id_of(f"{self._path} {signature}")
        place = Place(self._number, self._path, self._begun.get(self._path, 0) >= _REPEATS
                      and self._context not in self.mixed, self._generation)
        self._number += 1
        if self._number <= _MOST:
            self._here.append(self._path)
        return place

    def _close(self) -> None:
        """An optimizer has made a step since the last sum, or was made."""
        if self._here and self._step != _steps.count:
            self.steps += 1
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
        self._step, self._context, self._generation = _steps.count, _steps.made_by[-1], _steps.generation
        self._number, self._here = 0, []
