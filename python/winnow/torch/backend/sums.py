# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The sums of one group that Winnow makes: compressed where all ranks mean the same gradient, exact
elsewhere."""
import array
import functools
import queue
import threading
import weakref
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

import torch
import torch.distributed as dist

from winnow._library import CommError, UsageError
from winnow.reducer import Reducer
from winnow.segments import Segment
from winnow.torch import rows
from winnow.torch.backend.attribution import Attributed
from winnow.torch.backend.options import GroupOptions
from winnow.torch.backend.sequence import Place as Gradient
from winnow.torch.backend.updates import Delivery, reduce_updates
from winnow.torch.backend.waiting import Waiting
from winnow.torch.backend.work import GroupWork
from winnow.torch.checkpoint import Owner
from winnow.torch.completer import Completer, elsewhere
from winnow.torch.end_of_pass import EndOfPass
from winnow.torch.meeting import Base, Meeting
from winnow.torch.names import id_of, listed
from winnow.torch.norms import WIDTH
from winnow.torch.place import Place
from winnow.torch.state import State
from winnow.transports import Transport
from winnow.work import Work


OUTSIDE = "outside of backward passes"  # why sums are exact
_WIDTHS = (17, 31, 61, 127, 251, 509)  # of sketches: primes, as WIDTH


class Ranks(NamedTuple):
    """Of a group."""

    rank: int
    size: int
    first: int  # the least of their ranks in the job
    timeout: float  # seconds, of calls and of connecting
    meeting: Meeting  # by which they say something to each other


class Sum(NamedTuple):
    """One call, from the thread that makes it to the one that carries it out."""

    outputs: List[torch.Tensor]  # contiguous; summed in place, if there are no inputs
    inputs: List[torch.Tensor]  # of a reduce-scatter: scratch
    op: str
    signature: int  # equal on ranks that make the same call
    gradient: Optional[Gradient]  # None: exact on all ranks
    is_gradient: bool  # by the group's rule, on this rank
    is_of_ddp: bool  # which waits for it at the end of the backward pass
    result: List[torch.Tensor]  # what the caller gets
    is_served: bool = False  # optimizers of winnow.torch are made over the group
    attributed: Optional[Attributed] = None  # to their parameters

    @property
    def has_rows(self) -> bool:
        """Whether it is of a sparse tensor."""
        return self.outputs[0].layout != torch.strided

    @property
    def shape(self) -> int:
        """What it looks like to others, in one word: elements, operation, type, and whether it scatters."""
        count = sum(one.numel() for one in self.outputs)
        kind = _TYPES.index(self.outputs[0].dtype)
        return count << 8 | _OPERATIONS.index(self.op) << 5 | kind << 1 | bool(self.inputs)


_TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_OPERATIONS = ("sum", "average")


def _described(shape: int) -> str:
    kind = str(_TYPES[shape >> 1 & 15]).removeprefix("torch.")
    return (f"{'a reduce-scatter to' if shape & 1 else 'an all-reduce of'} {shape >> 8} elements of {kind} "
            f"({_OPERATIONS[shape >> 5 & 7]})")


def _ids(number: int, count: int) -> List[int]:
    """Of the tensors of one call."""
    return [number, *(id_of(f"{number} {index}") for index in range(1, count))]


class GroupState(State):
    """Of a group whose ranks have met otherwise than over torch's collectives, by any thread."""

    def __init__(self, options: GroupOptions, ranks: Ranks, waiting: Optional[Waiting] = None):
        super().__init__(options.compressor, timeout=ranks.timeout, **options.options)
        self._ranks, self._options = ranks, options
        self.waiting = waiting  # of a group whose sums another one may continue
        self.marks.undoes = waiting is not None
        self._base: Optional[Base] = None
        self.elements = 0  # of all parameters of the optimizers over the group
        self.sum_is_of = 1  # by how many times the sum that is prepared now is more than the mean

    @property
    def base(self) -> Base:
        """The first use is collective."""
        if self._base is None:
            self._base = Base(self._ranks.meeting, self._place.device)
        return self._base

    def make(self, compressor: str, options: Dict[str, Any]) -> Reducer:
        """One more reducer of these ranks, for gradients in the same place. Collective."""
        timeout = self._ranks.timeout
        return self._place.make_reducer(lambda _, nccl: self.base.transport(timeout, nccl), timeout, compressor,
                                        options)

    def _make_reducer(self, group: Optional[dist.ProcessGroup], options: Dict[str, Any]) -> Reducer:
        made = self.make(self.compressor, options)
        if self.marks.undoes:
            made.begin_step()
        return made

    @property
    def lossless(self) -> bool:
        return self._options.lossless

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self._ranks.size

    @property
    def is_midway(self) -> bool:
        return self.is_open and self.reducer.totals()["calls"] > 0

    def sketch_width(self, count: int) -> int:
        """Sums of all parameters share what one bucket of them would have: errors of many add up to less."""
        share = WIDTH * count / max(1, self.elements)
        return next((width for width in _WIDTHS if width >= share), WIDTH)

    def names_any(self, parameters: Set[int]) -> bool:
        """It does not know, so that a step of any is its own."""
        return True

    def begin_step(self) -> None:
        if self.is_open:  # else when ranks have met, which some may never do
            super().begin_step()

    def discard(self, parameters: Optional[Iterable[torch.Tensor]] = None) -> None:
        if parameters is not None:
            raise UsageError("one scaler has skipped the step of one optimizer and not of another, and a group does "
                             "not know whose gradients wait: give each a group and a scaler of its own, or attach "
                             "the models")
        if self.is_open:
            super().discard()
        if self.waiting is not None:
            self.waiting.take_back()

    def owner(self) -> Owner:
        return Owner(self._ranks.first, self._ranks.rank, self._ranks.size)


class _Vote:
    """Before a sum: whether all ranks make it, and mean the same gradient by it."""

    def __init__(self, transport: Transport, deadline: float):
        self._reducer = Reducer(transport, "none", schedule="dense", deadline=deadline)
        self._rank, self._size = transport.rank, transport.size

    def __call__(self, call: Sum) -> Tuple[Optional[int], str]:
        """The id by which it is to be compressed; None: why not."""
        place = call.gradient
        flags = call.is_gradient | place.is_known << 1 | call.is_served << 2
        owners = 0 if call.attributed is None else call.attributed.id
        mine = call.signature, call.shape, place.id, place.generation > 0, flags, owners, place.generation
        words = array.array("Q", bytes(8 * len(mine) * self._size))
        begin = len(mine) * self._rank
        words[begin:begin + len(mine)] = array.array("Q", mine)
        self._reducer.all_reduce(words, id=0, op="max")
        votes = [tuple(words[at:at + len(mine)]) for at in range(0, len(words), len(mine))]
        others = [rank for rank, vote in enumerate(votes) if vote[0] != call.signature]
        if others:
            raise UsageError(f"ranks make different sums: rank {self._rank} {_described(call.shape)}, and rank "
                             f"{listed(others)} {_described(votes[others[0]][1])}, or one of another order in memory. "
                             "All ranks of a group make the same calls in the same order")
        exact = [rank for rank, vote in enumerate(votes) if not vote[4] & 1]
        if exact:
            return None, OUTSIDE if len(exact) == self._size else f"{OUTSIDE} on rank {listed(exact)} alone"
        apart = [rank for rank, vote in enumerate(votes) if vote[2:6] != votes[0][2:6]]
        if apart:
            return None, f"of gradients that rank {listed(apart)} knows otherwise than rank 0"
        if owners != 0:
            return owners, ""
        if not place.is_known:
            return None, place.why_not
        # Optimizers of other models, or with another state, on any rank: what waited is of others.
        generations = [vote[6] for vote in votes]
        return place.id if not any(generations) else id_of(f"{place.id} {generations}"), ""

    def close(self) -> None:
        """Ends the connections."""
        self._reducer.close()


class Sums:
    """A thread that makes one sum after the other, so that the caller waits for none. What it needs of
    connections it makes with the first sum."""

    def __init__(self, options: GroupOptions, ranks: Ranks, note: Callable[[str, bool], None],
                 waiting: Optional[Waiting]):
        self.options = options
        self._ranks, self._note = ranks, note  # of why a sum is exact; empty: it is compressed
        self.state = GroupState(options, ranks, waiting)
        self._ids: Dict[int, List[int]] = {}  # of the parameters of the reducer, by the id of their sum's place
        self._completer = Completer(self.state.overlap, elsewhere)  # where callbacks may wait for other sums
        self._end = EndOfPass(self.state.overlap)
        self._calls: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None
        self._vote: Optional[_Vote] = None
        self._exact: Optional[Reducer] = None
        self._aborted = False

    def add(self, call: Sum) -> GroupWork:
        """Takes a call, in the order of the callers' calls."""
        place = self.state.place_at(call.outputs[0].device)
        future = place.future()
        for tensor in (*call.inputs, *call.outputs):
            place.follow(tensor)
        self.state.overlap.begin()
        if self._thread is None:
            self._thread = threading.Thread(target=_carry_out, args=(weakref.ref(self), self._calls),
                                            daemon=True, name="winnow sums")
            self._thread.start()
            weakref.finalize(self, self._calls.put, None).atexit = False
        self._calls.put((call, place, future))
        if call.is_of_ddp:
            self._end.wait_for(future, place.device.type == "cpu")
        return GroupWork(future, call.result, self.state.overlap)

    def carry_out(self, call: Sum, place: Place, future: torch.futures.Future) -> None:
        """By the thread."""
        try:
            if self._aborted:
                raise CommError("the group was aborted")
            if self.state.waiting is not None and call.gradient is not None and call.attributed is None:
                with place.working():
                    self.state.waiting.add_to(call.gradient.id, call.inputs or call.outputs)
            number = self._vote_on(call)
            work = self._exactly(call) if number is None else self._compressed(call, place, number)
            if work is None:
                self.state.overlap.end()
                elsewhere(functools.partial(place.complete, future, call.result))
            else:
                self._completer.add(place, work, future, call.result)
        except BaseException as error:  # pylint: disable=broad-except
            self.state.overlap.end()
            # Without its frames, which have the future and this group: they would keep each other for ever.
            elsewhere(functools.partial(future.set_exception, error.with_traceback(None)))

    def _vote_on(self, call: Sum) -> Optional[int]:
        """The id by which all ranks compress it; None: it is exact."""
        if call.gradient is None:
            return None
        if self._vote is None:
            self._vote = _Vote(self.state.base.host_transport(self._ranks.timeout), self._ranks.timeout)
        number, why = self._vote(call)
        self._note(why, call.is_served)
        return number

    def _compressed(self, call: Sum, place: Place, number: int) -> "Optional[Work | Delivery]":
        """None if it is done."""
        self.state.overlap.count(number)
        if call.attributed is not None:
            with place.working():
                return reduce_updates(self.state, place, call.outputs, call.attributed, call.op)
        reducer, ids = self.state.reducer, _ids(number, len(call.outputs))
        if call.has_rows:
            return _sum_rows(reducer, call, number)
        if self.state.waiting is not None and call.gradient is not None:
            self._ids[call.gradient.id] = ids
        if not call.inputs:
            return reducer.all_reduce_async(list(map(Segment, call.outputs, ids)), call.op)
        for source, output, one in zip(call.inputs, call.outputs, ids):
            reducer.reduce_scatter(source, output, one, call.op)
        return None

    def _exactly(self, call: Sum) -> Optional[Work]:
        """Likewise, whatever variables of the environment say."""
        if self._exact is None:
            self._exact = self.state.make("none", {"enable": 0})
        ids = _ids(call.signature, len(call.outputs))
        if call.has_rows and "enable=0" in self._exact.options.split():
            return _sum_rows(self._exact, call, call.signature)
        if call.has_rows:  # by WINNOW_ENABLE, and perhaps WINNOW_ROWS
            whole = call.outputs[0].coalesce().to_dense()
            self._exact.all_reduce_bucket([Segment(whole, call.signature, exempt=True)], call.op)
            with torch.no_grad():
                call.outputs[0].copy_(whole.to_sparse(1))
            return None
        if not call.inputs:
            return self._exact.all_reduce_async([Segment(output, one, exempt=True)
                                                 for output, one in zip(call.outputs, ids)], call.op)
        for source, output, one in zip(call.inputs, call.outputs, ids):
            if "enable=0" in self._exact.options.split():
                self._exact.reduce_scatter(source, output, one, call.op)
            else:  # by WINNOW_ENABLE
                self._exact.all_reduce_bucket([Segment(source, one, exempt=True)], call.op)
                output.copy_(source.view(self._ranks.size, -1)[self._ranks.rank])
        return None

    def close(self) -> None:
        """Finishes sums in flight and ends the connections."""
        if self._thread is not None:
            self._calls.put(None)
            self._thread.join()
        self._completer.close()
        if self.state.waiting is not None:
            self._leave(self.state.waiting)
        for one in filter(None, (self._vote, self._exact)):
            one.close()
        self.state.close()

    def _leave(self, waiting: Waiting) -> None:
        """What waits as it was after the last step."""
        self.state.discard()
        for place, ids in self._ids.items():
            residuals = [residual for one in ids if (residual := self.state.held(one)) is not None]
            if len(residuals) == len(ids):
                waiting.put(place, residuals)

    def abort(self) -> None:
        """Sums in flight fail, on the other ranks, too."""
        self._aborted = True
        reducers = [self._exact, self.state.reducer if self.state.is_open else None,
                    None if self._vote is None else self._vote._reducer]
        for reducer in filter(None, reducers):
            reducer.transport.abort("a rank has aborted the process group")


def _sum_rows(reducer: Reducer, call: Sum, number: int) -> None:
    """Of one sparse tensor, in place."""
    output, = call.outputs
    with torch.no_grad():
        output.copy_(rows.all_reduce(reducer, output, number, call.op))


def _carry_out(sums: "weakref.ref[Sums]", calls: "queue.SimpleQueue[Any]") -> None:
    """Keeps nothing of a call that is made."""
    while (call := calls.get()) is not None:
        this = sums()
        if this is None:
            return
        this.carry_out(*call)
        del call, this
