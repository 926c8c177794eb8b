# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Sums of updates in place of gradients, and how a step finds them again in p.grad."""
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Set

import torch
import torch.distributed as dist

from winnow.segments import Segment
from winnow.torch.backend.attribution import Attributed
from winnow.torch.marks import Mark, content_of
from winnow.torch.place import Place, local
from winnow.work import Work

if TYPE_CHECKING:
    from winnow.torch.backend.sums import GroupState

_factors: Dict[float, torch.Tensor] = {}


class GroupMark(Mark):
    """Of one parameter, whose update a group has summed. The program may copy the sum, and divide it by the
    number of ranks of the group or of the job, before it is p.grad at the step."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._contents: Dict[int, Set[int]] = {}  # of the sum, by what it may be divided by
        self._parameter: Any = lambda: None
        self.ranks = 1  # by whose number the sum is more than the mean
        # The divisor that updates were prepared for; None: it was not known, and moments were there.
        self.assumed: Optional[int] = 1

    def deliver(self, parameter: torch.Tensor, values: torch.Tensor, op: str, ranks: int) -> None:
        """`values`: the sum of the parameter's updates, before the program has it."""
        self._parameter = weakref.ref(parameter)
        self.ranks = ranks if op == "sum" else 1
        values = values.to(parameter.dtype)
        self._contents = {1: {content_of(values)}}
        for divisor in {ranks, dist.get_world_size() if dist.is_initialized() else ranks} - {1}:
            self._contents[divisor] = {content_of(values / divisor)}
            if divisor & (divisor - 1):  # else the other way to divide gives the same bits
                self._contents[divisor].add(content_of(values * (1 / divisor)))

    def divisors(self, parameter: torch.Tensor) -> List[int]:
        """What p.grad may be divided by since the sum: several where that is zero, none if it is something else."""
        if parameter.grad is None or not self._contents:
            return []
        found = content_of(local(parameter.grad))
        return [divisor for divisor, contents in self._contents.items() if found in contents]

    def fits(self, parameter: torch.Tensor) -> bool:
        return bool(self.divisors(parameter))

    @property
    def factor(self) -> Optional[torch.Tensor]:
        """What has come to p.grad since norms were measured."""
        parameter = self._parameter()
        possible = [] if parameter is None else self.divisors(parameter)
        factor = 1 / (self.assumed if self.assumed in possible else (possible or [1])[0])
        return None if factor == 1 else _factors.setdefault(factor, torch.tensor(factor))

    @factor.setter
    def factor(self, _: Any) -> None:
        pass  # no GradScaler is served


class Delivery:
    """A Work of the reducer, and what is to be done before the program has its sum."""

    def __init__(self, work: Work, deliver: Callable[[], None]):
        self._work, self._deliver = work, deliver

    def wait(self) -> None:
        """Returns when both are done."""
        self._work.wait()
        self._deliver()


@torch.no_grad()
def reduce_updates(state: "GroupState", place: Place, flats: Sequence[torch.Tensor], attributed: Attributed,
                   op: str) -> Delivery:
    """Each rank's updates take the place of its gradients, and are summed, by parameters."""
    segments: List[Segment] = []
    state.sum_is_of = state.ranks if op == "sum" else 1
    for flat, parts in zip(flats, attributed.parts):
        gradients = [part.gradient(flat) for part in parts]
        norms = state.prepare([part.parameter for part in parts], gradients, flat)
        segments += [Segment(part.of(flat), state.parameter_id(part.parameter), None, part.parameter.dim())
                     for part in parts]
        if norms is not None:
            segments.append(Segment(norms.reduced, norms.id, exempt=True))
    work = state.reducer.all_reduce_async(segments, op)

    @torch.no_grad()
    def deliver() -> None:
        with place.working():
            for flat, parts in zip(flats, attributed.parts):
                for part in parts:
                    mark = state.marks.of(part.parameter)
                    if isinstance(mark, GroupMark):
                        mark.deliver(part.parameter, part.of(flat), op, state.ranks)

    return Delivery(work, deliver)
