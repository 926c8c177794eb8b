# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Who reduces the gradients of a model."""
from typing import (Any, Callable, Dict, FrozenSet, Iterable, List, NamedTuple, Optional, Sequence, Set,
                    Tuple)

import torch
import torch.distributed as dist

from winnow._library import UsageError
from winnow.arguments import integer, number
from winnow.reducer import Reducer
from winnow.torch.agree import agree_to_detach, exchange
from winnow.torch.checkpoint import (BEGINNING, Owner, expect_one_step, names_in, pack, unpack,
                                     warn_of_strangers)
from winnow.torch.hook import BucketReducer
from winnow.torch.marks import Marks
from winnow.torch.meeting import meet, timeout_of
from winnow.torch.names import id_of, listed, unwrapped, warn_of_unmatched
from winnow.torch.norms import WIDTH, Norms
from winnow.torch.overlap import Overlap
from winnow.torch.place import Place, place_of

Prepare = Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor], Optional[Norms]], None]
Leave = Callable[[], None]
Moves = Callable[[], Set[int]]


class _Preparing(NamedTuple):
    """Who changes gradients before they are reduced, by weak references."""

    prepare: Callable[[], Optional[Prepare]]
    leave: Optional[Callable[[], Optional[Leave]]]
    moves: Optional[Callable[[], Optional[Moves]]]


class State:
    """What `hook` needs. Made on every rank before training; ranks meet at the first bucket, so it
    can be made before the process group, and pickled: a copy has the options, not the connections.
    Whoever drops it, closes it.

    `compressor` and the keywords are the options of winnow.Reducer. `group`: the process group
    whose ranks reduce; None: all. `timeout`: seconds in which ranks connect to each other; None: the
    group's own timeout, which is also the default of the option `deadline` for gradients in host memory.
    On GPUs, `stream_priority`: that of Winnow's stream, lower numbers first, as for
    torch.cuda.Stream; `nccl`: keywords of winnow.nccl_transport, such as dict(max_ctas=4).
    """

    takes_whole = False  # gradients are of whole parameters though each rank has a shard

    def __init__(self, compressor: str = "topk:0.01", *,
                 group: Optional[dist.ProcessGroup] = None, timeout: Optional[float] = None,
                 stream_priority: int = 0, nccl: Optional[Dict[str, int]] = None, **options: Any):
        self.compressor, self.options = compressor, options
        self.stream_priority = integer(stream_priority, "stream_priority", -2**31, 2**31 - 1)
        self.nccl = dict(nccl or {})
        self.group, self.timeout = group, None if timeout is None else number(timeout, "timeout")
        if self.timeout is not None and not self.timeout > 0:
            raise UsageError(f"timeout is {timeout}: must be seconds above 0")
        self._forget()

    def _forget(self) -> None:
        self._reducer: Optional[Reducer] = None
        self._place: Optional[Place] = None  # that of the parameters that came first
        self._names: Dict[int, Tuple[int, str]] = {}  # id() of a parameter -> its id and name
        self._together: Dict[int, Tuple[str, FrozenSet[int]]] = {}  # by the id of what waits of several
        self._norms: Dict[Tuple[int, ...], Norms] = {}  # by the ids of a bucket's parameters
        self.overlap = Overlap()
        self.buckets = BucketReducer(self.overlap)
        self._preparing: List[_Preparing] = []
        self.marks = Marks()
        self.finds_unused = False  # whether parameters may have no gradient in a backward pass
        self.rescale: Callable[[Sequence[torch.Tensor]], None] = lambda _: None  # this rank's share
        self.loss_scale: Callable[[], float] = lambda: 1.0  # of gradients, and so of residuals
        self.release: Optional[Callable[[], None]] = None  # gives the sums back to torch
        self.group_of_model: Callable[[], Optional[dist.ProcessGroup]] = lambda: None  # if it has one
        self.is_detached = False
        self.follows_scaler = False  # attach_scaler has set loss_scale

    def __getstate__(self) -> Dict[str, Any]:
        return {name: getattr(self, name)
                for name in ("compressor", "options", "timeout", "stream_priority", "nccl")}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state, group=None)
        self._forget()

    def name_parameters(self, named: Iterable[Tuple[str, torch.nn.Parameter]]) -> None:
        """Gives the model's parameters ids that last, made of their qualified names without those of
        wrappers. Otherwise they are numbered as they come, and no option sees names."""
        for wrapped, parameter in named:
            name = unwrapped(wrapped)
            self._names[id(parameter)] = (id_of(name), name)
            self.place_at(parameter.device)

    def begin(self) -> None:
        """Ranks meet and compare options, once all parameters have their names. Collective."""
        self.reducer  # pylint: disable=pointless-statement
        warn_of_unmatched(self.options.get("exempt", ""), self.names)

    def place_at(self, device: torch.device) -> Place:
        """Where gradients lie: `device`, on which all are. UsageError if others are elsewhere."""
        if self._place is None:
            self._place = place_of(device, self.stream_priority, self.nccl)
        if self._place.device != device:
            raise UsageError(f"gradients on {self._place.device} and on {device}: one State reduces "
                             "gradients in one place")
        return self._place

    @property
    def reducer(self) -> Reducer:
        """The reducer behind the hook. The first use is collective: ranks meet. UsageError once the
        model is detached."""
        if self.is_detached:
            raise UsageError("Winnow is detached from this model")
        if self._reducer is None:
            if self._place is None:
                self.place_at(torch.device("cpu"))
            options = {"links": "measured", **self.options}  # for report's estimate of dense
            self._reducer = self._make_reducer(self.group, options)
        return self._reducer

    def _make_reducer(self, group: Optional[dist.ProcessGroup], options: Dict[str, Any]) -> Reducer:
        deadline = timeout_of(group)
        timeout = deadline if self.timeout is None else self.timeout
        return self._place.make_reducer(lambda device, nccl: meet(group, timeout, device, nccl), deadline,
                                        self.compressor, options)

    @property
    def is_open(self) -> bool:
        """Whether ranks have met, so that `reducer` is not collective, and it was not closed since."""
        return self._reducer is not None

    @property
    def is_on_host(self) -> bool:
        """Whether gradients lie in host memory, as they do until some are seen elsewhere."""
        return self._place is None or self._place.device.type == "cpu"

    def residual(self, parameter: torch.nn.Parameter) -> Optional[torch.Tensor]:
        """A copy of what this rank has not sent of a parameter: float32 on its device, in one
        dimension, in the order of the parameter's memory, two for a complex element; None if there is
        nothing. Between a backward pass and the next."""
        return self.held(self.parameter_id(parameter))

    def held(self, number: int) -> Optional[torch.Tensor]:
        """A copy of the residual with this id."""
        reducer = self.reducer
        with self._place.in_turn():
            held = reducer.residual(number)
        if held is None:
            return None
        if isinstance(held, memoryview):
            return torch.frombuffer(held, dtype=torch.float32)
        return torch.as_tensor(held, device=self._place.device).clone()

    def begin_step(self) -> None:
        """What comes from here on is what discard undoes."""
        self.reducer.begin_step()

    def discard(self, parameters: Optional[Iterable[torch.Tensor]] = None) -> None:
        """Undoes what passes since reducer.begin_step did to what waits: of these parameters, or of all."""
        self.reducer.discard_step(None if parameters is None else self._residuals_of(parameters))

    def note_together(self, number: int, name: str, parameters: Iterable[torch.Tensor]) -> None:
        """The residual with this id is of those of these parameters together that are not frozen.
        Messages call them `name`."""
        self._together[number] = (name, frozenset(id(p) for p in parameters if p.requires_grad))

    def _residuals_of(self, parameters: Iterable[torch.Tensor]) -> List[int]:
        """Their ids. UsageError if one is of other parameters, too."""
        given = set(map(id, parameters))
        for name, together in self._together.values():
            if not together.isdisjoint(given) and not together <= given:
                raise UsageError(f"module '{name}' is reduced as one, and the steps of some of its parameters "
                                 "alone are skipped: give all parameters of a module to one optimizer, or "
                                 "call fully_shard on parts of it")
        alone = [number for one, (number, _) in self._names.items() if one in given]
        return alone + [number for number, (_, together) in self._together.items()
                        if together and together <= given]

    def names_any(self, parameters: Set[int]) -> bool:
        """Whether one of these, given by id(), belongs to the model."""
        return not parameters.isdisjoint(self._names)

    def given_name(self, parameter: torch.nn.Parameter) -> str:
        """The name of a parameter in its model; empty if it was given none."""
        return self._names.get(id(parameter), (0, ""))[1]

    def name_of(self, parameter: torch.nn.Parameter) -> str:
        """How messages call a parameter."""
        return self.given_name(parameter) or f"a parameter of shape {tuple(parameter.shape)}"

    @property
    def lossless(self) -> bool:
        """Whether sums lose nothing, by the compressor or since Winnow is detached, so that nothing
        waits. The first use is collective."""
        if self.is_detached:
            return True
        words = self.reducer.options.split()
        return "enable=0" in words or not {"compressor=none", "compressor=topk:1"}.isdisjoint(words)

    def prepare_by(self, prepare: Callable[[], Optional[Prepare]],
                   leave: Optional[Callable[[], Optional[Leave]]] = None,
                   moves: Optional[Callable[[], Optional[Moves]]] = None) -> None:
        """From here on prepare()(parameters, gradients, norms) may first change this rank's gradients, as
        long as prepare(), a weak reference, is not None. leave()(), if given, ends that when the model
        is detached, and is collective; without it detach refuses while prepare() lives. moves()(): the id()
        of each parameter that it moves."""
        self._preparing.append(_Preparing(prepare, leave, moves))

    def unmoved(self, parameters: Sequence[torch.Tensor]) -> FrozenSet[int]:
        """The places of those that no optimizer of Winnow moves, in a model of which some do: nobody
        brings their gradients into the units of updates. Nothing of them may wait."""
        if self.lossless:
            return frozenset()
        alive = [moves() for moves in (one.moves() for one in self._preparing if one.moves is not None)
                 if moves is not None]
        return frozenset(place for place, parameter in enumerate(parameters)
                         if alive and not any(id(parameter) in moved for moved in alive))

    def expect_moved(self, parameters: Sequence[torch.Tensor]) -> None:
        """UsageError if there are such."""
        unmoved = self.unmoved(parameters)
        if unmoved:
            names = listed(self.name_of(parameters[place]) for place in sorted(unmoved))
            raise UsageError(
                f"no optimizer of winnow.torch moves {names} on this rank, whose gradients are reduced: give "
                "them to the one that moves the others, or freeze them by requires_grad_(False). "
                "ZeroRedundancyOptimizer, which gives each rank some parameters, does not go with it: shard by "
                "attach_hsdp")

    @property
    def is_paired(self) -> bool:
        """Whether an optimizer of Winnow is there, which prepares gradients."""
        return any(one.prepare() is not None for one in self._preparing)

    @property
    def is_midway(self) -> bool:
        """Whether gradients may be reduced that no step has applied yet."""
        return bool(self.marks)

    @property
    def is_prepared(self) -> bool:
        """Whether somebody changes gradients before they are reduced."""
        return not self.lossless and self.is_paired

    def prepare(self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor],
                buffer: torch.Tensor, shards: Optional[dist.ProcessGroup] = None) -> Optional[Norms]:
        """Before a bucket is reduced: `buffer`, of which the gradients are views. Where parameters are
        sharded, over the ranks of `shards`, these are local parts. Returns what is to be reduced with the
        bucket, whole, if somebody changes gradients."""
        norms = None
        if self.is_prepared:
            ids = tuple(map(self.parameter_id, parameters))
            if ids not in self._norms:
                number = id_of("norms of " + " ".join(map(str, ids)))
                self._norms[ids] = Norms(number, buffer, len(ids), shards, self.sketch_width(buffer.numel()))
            norms = self._norms[ids]
            norms.measure(buffer, gradients, self.loss_scale())
        for one in self._preparing:
            prepare = one.prepare()
            if prepare is not None:
                prepare(parameters, gradients, norms)
        return norms

    def sketch_width(self, count: int) -> int:
        """That of the sketch of a bucket of `count` elements."""
        return WIDTH

    def parameter_id(self, parameter: torch.nn.Parameter) -> int:
        """The id of a parameter, for reducer.residual."""
        return self._names.setdefault(id(parameter), (len(self._names), ""))[0]

    def padding_of(self, parameter: torch.nn.Parameter) -> int:
        """Elements behind this rank's shard of a parameter that are reduced with it."""
        return 0

    def owner(self) -> Owner:
        """Whose state_dict this rank's is. The first use is collective."""
        group = dist.group.WORLD if self.group is None else self.group
        transport = self.reducer.transport
        return Owner(min(dist.get_process_group_ranks(group)), transport.rank, transport.size)

    @property
    def names(self) -> List[str]:
        """Of the parameters that have one."""
        return [name for _, name in self._names.values() if name]

    def state_dict(self) -> Dict[str, torch.Tensor]:
        """What this rank has not sent, for its checkpoint beside the model and the optimizer: tensors of
        bytes under a key for each rank, so that torch.distributed.checkpoint keeps all of them. Every
        rank saves its own, after the same step."""
        return pack(self.owner(), self.reducer.save(), self.names)

    def load_state_dict(self, *states: Dict[str, Any]) -> None:
        """Continues from a checkpoint, before the first step: from this rank's own state_dict, or,
        with another number of ranks, from those of all old ranks, in any order or in one dictionary.
        Collective. UsageError on all ranks, with nothing loaded, if a state is missing, damaged or of
        another step than the others; a warning names parameters that the model lacks."""
        owner, loaded = self.owner(), False
        saved: Set[str] = set()

        def load() -> bytes:
            nonlocal loaded
            if self.reducer.totals()["calls"] > 0:
                raise UsageError("State.load_state_dict comes before the first backward pass: load into a "
                                 "model that was just attached, or winnow.torch.detach(model) and attach it again")
            contents = unpack(states, owner)
            saved.update(names_in(states))
            self.reducer.load(*contents)
            loaded = True
            return contents[0][:BEGINNING]

        try:
            expect_one_step(exchange(self.group, load))
        except UsageError:
            if any(exchange(self.group, lambda: loaded)):
                self._begin_anew()
            raise
        self.marks.is_first = False
        if self.names:
            warn_of_strangers(saved, self.names)

    def _begin_anew(self) -> None:
        """In the place of a reducer that has made no call. Collective."""
        self._reducer.close()
        self._reducer = None
        self.reducer  # pylint: disable=pointless-statement
        if self.marks.undoes:
            self.reducer.begin_step()

    def regroup(self, group: Optional[dist.ProcessGroup]) -> None:
        """From here on the ranks of `group` (None: all) reduce, all of which were in the group so far:
        after DistributedDataParallel has another one, as by its _update_process_group. Names and what
        waits on these ranks stay, and averages apply it once, as before. What waits on the ranks that
        have left is theirs: save their state_dict() where that counts. Every rank of `group` makes
        this call, between a step and the next forward pass; the others close their State. UsageError if
        gradients that were reduced wait for their step. CommError if a call has failed: ranks may then
        be apart by a call, so detach, and attach anew."""
        if self.marks:
            raise UsageError("gradients that were reduced wait for optimizer.step(): regroup after it, or "
                             "after winnow.torch.skip_step")
        of_model = self.group_of_model()
        if of_model not in (None, dist.group.WORLD if group is None else group):
            raise UsageError("the DistributedDataParallel has another process group: give it this one first, by "
                             "its _update_process_group, and then call winnow.torch.regroup(ddp)")
        if self.is_open:
            held, was = self._reducer.save(), self._reducer.transport
            made = self._make_reducer(group, self.options)
            made.load(*(held if rank == was.rank else None for rank in range(was.size)))
            if self.marks.undoes:
                made.begin_step()
            self._reducer.close()
            self._reducer = made
        self.group = group

    def close(self) -> None:
        """Finishes calls in flight and closes the connections."""
        self.buckets.close()
        if self._reducer is not None:
            self._reducer.close()
        self._forget()

    def detach(self) -> None:
        """Closes it for good, and torch sums again. UsageError on all ranks if this model's gradients are
        in the units of one of Winnow's optimizers on one."""
        if self.release is None:
            raise UsageError("this State is not that of a model that Winnow is attached to")
        refusal = self._why_not_detach()
        if any(one.leave for one in self._preparing):  # on all ranks or on none
            agree_to_detach(self.group, refusal, lambda: [one.prepare() is not None for one in self._preparing
                                                          if one.leave])
        elif refusal:
            raise UsageError(refusal)
        release, leaving = self.release, [one.leave() for one in self._preparing if one.leave]
        for leave in filter(None, leaving):
            leave()
        self.close()
        self.is_detached = True
        release()

    def _why_not_detach(self) -> str:
        """Empty if nothing is against it."""
        if self.marks:
            return ("gradients that were reduced wait for optimizer.step(): detach after it, or after "
                    "winnow.torch.skip_step")
        if self.is_prepared and any(one.leave is None and one.prepare() is not None
                                    for one in self._preparing):
            return ("an optimizer of winnow.torch moves this model, in units of its own: drop it before "
                    "detach, and make one of torch's afterwards")
        if any(word.startswith("op=") for word in self.reducer.options.split() if word != "op=average"):
            return ("op= is not the average, and torch's own sums are averages: detach would change them")
        return ""
