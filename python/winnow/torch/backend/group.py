# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The process group of the backend."""
import collections
import datetime
import logging
import sys
import threading
from typing import Any, Counter, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from winnow._library import UsageError
from winnow.torch import rows
from winnow.torch.agree import refuse
from winnow.torch.backend.options import GroupOptions, is_named, options_of
from winnow.torch.backend import sequence
from winnow.torch.backend.attribution import Attribution
from winnow.torch.backend.caller import Caller, caller_of, padding_of
from winnow.torch.backend.sequence import Place, watch_steps
from winnow.torch.backend.steps import groups, watch_optimizers
from winnow.torch.backend.sums import OUTSIDE, Ranks, Sum, Sums
from winnow.torch.backend.tensors import are_alike, flat_of, order_of, overlaps
from winnow.torch.backend.waiting import Waiting
from winnow.torch.backend.work import GroupWork, failed
from winnow.torch.meeting import MOST_SECONDS, Meeting, gather_over_store
from winnow.torch.names import id_of
from winnow.torch.state import State
from winnow.torch.warn import warn

_OPS = {dist.ReduceOp.SUM: "sum", dist.ReduceOp.AVG: "average", dist.ReduceOp.PREMUL_SUM: "sum"}
_COMPRESSED = (torch.float32, torch.bfloat16, torch.float16)
_SUMMED = (*_COMPRESSED, torch.float64)
_SUMS = 100  # after which a group says what it has compressed
_NOWHERE = Place(0, False, 0)
_OF_NOBODY = Place(0, False, 0, "of gradients that it does not find in optimizers over the group")
_log = logging.getLogger("winnow")


def _op_of(given: Any) -> Tuple[Any, float]:
    """Which ReduceOp, and the factor that comes before a sum."""
    kind = getattr(given, "op", given)
    if kind != dist.ReduceOp.PREMUL_SUM:
        return kind, 1.0
    return kind, given.__getstate__()[1]


class Common(NamedTuple):
    """What torch says about a group."""

    store: dist.Store
    group_rank: int
    group_size: int
    timeout: datetime.timedelta
    global_ranks_in_group: Sequence[int] = ()
    group_id: str = "winnow"


class WinnowGroup(dist.ProcessGroup):
    """What the backend "winnow" makes: gloo's collectives for tensors in host memory, NCCL's for those on
    GPUs, and Winnow's sums of gradients. docs/backend.md says which they are."""

    def __init__(self, common: Any, options: GroupOptions, is_inherited: bool, waiting: Optional[Waiting] = None):
        try:
            super().__init__(common.store, common.group_rank, common.group_size)
        except TypeError:  # an older torch has it for its own class alone
            super().__init__(common.group_rank, common.group_size)
        self.options, self._is_inherited = options, is_inherited
        self._sums: Optional[Sums] = None
        self._waiting = waiting  # None: what waits ends with the group
        self._sequence = sequence.Sequence()
        self.attribution = Attribution(common.group_size)
        self._lock = threading.Lock()  # so that sums are made in the order of their places
        self._why: Counter[str] = collections.Counter()  # how many sums were exact for a reason; "": compressed
        self._compresses: Optional[bool] = None
        self._asked = 0  # compressed sums, when has_compressed was called
        self._has_told = self._has_warned = False
        rank, size = common.group_rank, common.group_size
        seconds = min(common.timeout.total_seconds(), MOST_SECONDS)
        # A job may end its groups and make them again over the same store, where the old ones' keys stay.
        store = dist.PrefixStore(f"winnow/{common.store.add(f'winnow/{rank}', 1)}", common.store)
        self._common = Common(store, rank, size, common.timeout, common.global_ranks_in_group, common.group_id)
        gather = gather_over_store(store, rank, size, seconds)
        self._ranks = Ranks(rank, size, min(common.global_ranks_in_group or [0]), seconds,
                            Meeting(rank, size, seconds, gather))
        self._expect_one_mind()
        self._others = dist.ProcessGroup(store, rank, size)
        self._register(common, store)
        watch_steps()
        watch_optimizers()
        groups.add(self)

    def _expect_one_mind(self) -> None:
        gathered = self._ranks.meeting.gather((self.options.refusal, f"rule={self.options.rule} {self.options.text}"))
        refuse([refusal for refusal, _ in gathered])
        first = gathered[0][1]
        refuse([f"other options than on rank 0: {text}" if text != first else "" for _, text in gathered])

    def _register(self, common: Any, store: dist.Store) -> None:
        """torch's own backends, in this group and in the one that makes all other collectives."""
        arguments = common.group_rank, common.group_size
        kinds = dist.ProcessGroup.BackendType
        gloo = dist.ProcessGroupGloo(dist.PrefixStore("cpu", store), *arguments, common.timeout)
        backends = [(torch.device("cpu"), kinds.GLOO, gloo)]
        if torch.cuda.is_available() and dist.is_nccl_available():
            settings = dist.ProcessGroupNCCL.Options()
            settings._timeout = common.timeout
            settings.global_ranks_in_group, settings.group_name = common.global_ranks_in_group, common.group_id
            nccl = dist.ProcessGroupNCCL(dist.PrefixStore("cuda", store), *arguments, settings)
            backends.append((torch.device("cuda"), kinds.NCCL, nccl))
        for group in self, self._others:
            for backend in backends:
                group._register_backend(*backend)
            group._set_default_backend(backends[-1][1])

    def getBackendName(self) -> str:
        """What torch calls it."""
        return "winnow"

    def split_group(self, ranks: Sequence[int], timeout: Optional[datetime.timedelta] = None, opts: Any = None,
                    group_name: Optional[str] = None, group_desc: Optional[str] = None,
                    *_: Any, **__: Any) -> Optional["WinnowGroup"]:
        """What torch.distributed.split_group calls: a group of these of its ranks, by its own options if `opts`
        are None; None on the others. What waits here stays here."""
        rank, known = self._common.group_rank, list(self._common.global_ranks_in_group)
        if rank not in ranks:
            return None
        is_inherited = opts is None and (self._is_inherited or self is dist.group.WORLD)
        made = WinnowGroup(
            Common(dist.PrefixStore(f"split {group_name}", self._common.store), list(ranks).index(rank), len(ranks),
                   timeout or self._common.timeout, [known[one] for one in ranks] if known else [], str(group_name)),
            self.options if opts is None else options_of(opts), is_inherited)
        made._set_group_name(str(group_name))
        made._set_group_desc(group_desc or "undefined")
        return made

    # By the names of torch's C++ interface, which calls these.
    @torch.compiler.disable
    def allreduce(self, tensors: Any, *arguments: Any, **keywords: Any) -> Any:
        opts = [*arguments, *keywords.values(), dist.ReduceOp.SUM][0]  # or the operation itself
        given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        if len(given) != 1:
            return self._others.allreduce(tensors, *arguments, **keywords)
        caller, kind = caller_of(sys._getframe(1)), _op_of(getattr(opts, "reduceOp", opts))[0]
        if caller.take is not None and caller.take(given[0], kind, caller):
            return None  # nothing is to be waited for
        work = self._sum(given, [], opts, caller)
        if work is None and kind == dist.ReduceOp.AVG and not given[0].is_floating_point():
            return self._average_of_integers(given[0])
        return self._others.allreduce(tensors, *arguments, **keywords) if work is None else work

    def _average_of_integers(self, tensor: torch.Tensor) -> Any:
        """As NCCL's, towards zero; gloo has none."""
        if tensor.device.type != "cpu" or tensor.is_complex() or tensor.dtype == torch.bool:
            return self._others.allreduce([tensor], dist.ReduceOp.AVG)

        def divide(done: torch.futures.Future) -> List[torch.Tensor]:
            done.value()
            return [tensor.div_(self._ranks.size, rounding_mode="trunc")]

        summed = self._others.allreduce([tensor], dist.ReduceOp.SUM)
        return GroupWork(summed.get_future().then(divide), [tensor], self._made().state.overlap)

    @torch.compiler.disable
    def allreduce_coalesced(self, tensors: Any, opts: Any = dist.AllreduceCoalescedOptions()) -> Any:
        work = self._sum(list(tensors), [], opts, caller_of(sys._getframe(1)))
        return self._others.allreduce_coalesced(tensors, opts) if work is None else work

    @torch.compiler.disable
    def reduce_scatter_single(self, output: Any, input: Any, opts: Any = dist.ReduceScatterOptions()) -> Any:
        work, padding = None, padding_of(sys._getframe(1), input.numel())
        if padding is not None:
            work = self._sum([output], [input], opts, caller_of(sys._getframe(1)), padding)
        return self._others._reduce_scatter_base(output, input, opts) if work is None else work

    @torch.compiler.disable
    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = dist.ReduceScatterOptions(),
                       *more: Any) -> Any:
        work = None
        if len(outputs) == 1 and len(inputs) == 1 and all(
                type(one) is torch.Tensor and one.shape == outputs[0].shape and one.dtype == outputs[0].dtype
                for one in inputs[0]):
            stacked = torch.stack([one.detach() for one in inputs[0]])
            work = self._sum(list(outputs), [stacked], opts, caller_of(sys._getframe(1)))
        return self._others.reduce_scatter(outputs, inputs, opts, *more) if work is None else work

    @torch.compiler.disable
    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any,
                                        opts: Any = dist.ReduceScatterOptions()) -> Any:
        work = self._sum(list(outputs), list(inputs), opts, caller_of(sys._getframe(1)))
        return self._others.reduce_scatter_tensor_coalesced(outputs, inputs, opts) if work is None else work

    _reduce_scatter_base = reduce_scatter_single  # as older versions call them
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def start_coalescing(self, device: torch.device) -> None:
        """Of what follows, where torch has no call for several tensors."""
        self._others._start_coalescing(device)

    def end_coalescing(self, device: torch.device) -> Any:
        """Its Work."""
        return self._others._end_coalescing(device)

    def _sum(self, outputs: List[torch.Tensor], inputs: List[torch.Tensor], opts: Any,
             caller: Caller, padding: Sequence[Tuple[int, int]] = ()) -> Optional[GroupWork]:
        """Of what Winnow sums; None for what torch does. Types and sizes alone decide, which are equal on
        all ranks. `padding`: ranges of the input that are 0."""
        kind, factor = _op_of(getattr(opts, "reduceOp", opts))
        if any(overlaps(one) for one in outputs):
            return failed(UsageError("a tensor that is expanded, of which several elements share memory: take "
                                     "contiguous()"), outputs)
        if kind in _OPS and len(outputs) == 1 and not inputs and rows.are_rows(outputs[0]) and self.compresses:
            signature = id_of(f"rows {_OPS[kind]} {outputs[0].dtype} {outputs[0].shape}")
            return self._add(outputs, [], kind, factor, signature, caller, self.options.codes_rows)
        if kind not in _OPS or not are_alike(outputs, inputs, self._ranks.size):
            return None
        dtype, device = outputs[0].dtype, outputs[0].device
        count = sum(one.numel() for one in inputs or outputs)
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return None
        is_large = dtype in _COMPRESSED and count * dtype.itemsize >= self.options.min_bytes
        may_compress = is_large and self.compresses
        if is_large and caller.is_backward and not may_compress:
            self._tell_of_inherited()
        if not may_compress and (kind == dist.ReduceOp.SUM or device.type != "cpu"  # which torch knows
                                 or dtype not in (_COMPRESSED if inputs else _SUMMED)):
            return None
        scratch = [flat_of(one).clone() for one in inputs]
        for begin, end in padding:
            scratch[0][begin:end] = 0
        sizes = [f"{one.numel()} {order_of(one)}" for one in outputs]
        signature = id_of(" ".join([f"{len(inputs)} {_OPS[kind]} {dtype}", *sizes]))
        return self._add(outputs, scratch, kind, factor, signature, caller, may_compress)

    def _add(self, outputs: List[torch.Tensor], scratch: List[torch.Tensor], kind: Any, factor: float,
             signature: int, caller: Caller, may_compress: bool) -> GroupWork:
        """Has Winnow make a sum. `scratch`: the inputs."""
        flat = [flat_of(one) if one.layout == torch.strided else one for one in outputs]
        with self._lock:
            place, is_gradient = None, self.options.rule == "group" or caller.is_backward
            serves = self.attribution.serves_any and self.compresses and not self.options.lossless
            attributed = None
            if may_compress:
                if not is_gradient:
                    place = _NOWHERE
                elif serves:
                    place = _OF_NOBODY
                    is_dense = all(one.layout == torch.strided for one in outputs)
                    if is_dense and not scratch and not sequence.finds_unused(caller.owners):
                        attributed = self.attribution.of(outputs, caller)
                else:
                    place = (self._sequence.of_owners(caller.owners, signature) if caller.owners
                             else self._sequence.place(signature))
                self._tell()
            if factor != 1.0:
                with torch.no_grad():
                    for tensor in scratch or outputs:
                        tensor.mul_(factor)
            return self._made().add(Sum(flat, scratch, _OPS[kind], signature, place, is_gradient, caller.is_ddp,
                                        outputs, serves, attributed))

    @property
    def compresses(self) -> bool:
        """Whether any of its sums may be compressed."""
        if self._compresses is None:
            named = not self._is_inherited or is_named(self.group_desc, self.group_name)
            self._compresses = self.options.compresses and self._ranks.size > 1 and named
        return self._compresses

    def has_compressed(self) -> bool:
        """Whether it has compressed any sum of gradients, not of updates, since it was asked last."""
        before, self._asked = self._asked, self._why[""] - self.attribution.known
        return self._asked > before

    def expect_unseen(self, owners: Iterable[Any]) -> None:
        """UsageError if it has compressed sums of the gradients of some of these."""
        if self._why[""] > 0 and any(map(self._sequence.has_seen, owners)):
            raise UsageError(f"{self.described} has compressed sums of this model's gradients already, and what "
                             "waits of them would be lost: call attach_hsdp before the first backward pass")

    def expect_to_follow(self) -> None:
        """A GradScaler makes a step, or skips it. UsageError if this group has compressed its gradients, and
        knows nothing of it: skipped steps would lose what waited."""
        has_compressed = self._why[""] - self.attribution.known > self._asked
        if has_compressed and self._sums is not None and not self._sums.state.follows_scaler:
            raise UsageError(f"a GradScaler, and {self.described} compresses sums of gradients that it scales: call "
                             "winnow.torch.attach_scaler(group, scaler) before the first backward pass")

    def apply_step(self) -> None:
        """An optimizer applies what was summed: skip_step undoes it no more."""
        if self._waiting is not None:
            self._waiting.apply()
        if self._sums is not None and self._sums.state.marks.undoes:
            self._sums.state.begin_step()

    @property
    def state(self) -> State:
        """Its reducer has the statistics and residuals, once a sum was compressed."""
        return self._made().state

    def _note(self, why: str, serves: bool) -> None:
        """Of one sum, by its thread."""
        self._why[why] += 1
        if serves and not why.startswith(OUTSIDE):
            self.attribution.note(why == "")

    def expect_nothing_sent(self) -> None:
        """UsageError if it has compressed gradients, so that some wait that no optimizer has prepared."""
        if self._why[""] > self.attribution.known:
            raise UsageError(f"{self.described} has compressed sums of gradients already, and what waits of them "
                             "would be lost: make the optimizer before the first backward pass")

    def average_exactly(self, tensor: torch.Tensor) -> None:
        """tensor = its mean over the ranks."""
        self._others.allreduce([tensor], dist.AllreduceOptions()).wait()
        tensor.div_(self._ranks.size)

    @property
    def rank_count(self) -> int:
        """How many ranks it has."""
        return self._ranks.size

    def _made(self) -> Sums:
        if self._sums is None:
            self._sums = Sums(self.options, self._ranks, self._note, self._waiting)
        return self._sums

    def _tell(self, is_last: bool = False) -> None:
        """Once: what was compressed, and what not."""
        mixed = self._sequence.mixed
        if mixed and not self._has_warned:
            self._has_warned = True
            warn(f"mixed {self.group_name}", f"winnow: {self.described}: two optimizers step after backward passes "
                 "whose sums look alike, so that what waits of one model could go to the other: such sums travel "
                 "dense from here on. Give each model a group of its own")
        if self._sequence.is_wrapped_anew:
            warn(f"wrapped {self.group_name}", f"winnow: {self.described}: a model is in another "
                 "DistributedDataParallel than before, whose buckets are others: what waited of its gradients is "
                 "lost. winnow.torch.attach keeps it, by detach and attach")
        if self._has_told or not (is_last or sum(self._why.values()) >= _SUMS):
            return
        self._has_told = True
        why = dict(self._why)
        compressed = why.pop("", 0)
        exact = "; ".join(f"{count} {reason}" for reason, count in why.items())
        if (compressed or exact) and self._ranks.rank == 0:
            _log.warning("winnow: %s: compressed %d sums by %s; exact were %s and everything else", self.described,
                         compressed, self.options.in_use, exact and exact + "," or "sums of fewer than "
                         f"{self.options.min_bytes} bytes")

    def _tell_of_inherited(self) -> None:
        """Once: that sums of backward passes are exact, since nobody has named the group, or another one."""
        if (self._is_inherited and self.options.compresses and self._ranks.size > 1 and not self._has_told
                and not any(is_named(one.group_desc, one.group_name) for one in list(groups))):
            self._has_told = True
            if self._ranks.rank == 0:
                _log.warning("winnow: %s has the backend of the job, and sums exactly. If these are gradients, "
                             "give it pg_options, or name it in WINNOW_TORCH_GROUPS", self.described)

    @property
    def described(self) -> str:
        """How messages call it."""
        given = self.group_desc
        name = self.group_name if given in ("", "undefined") else given
        return f"group {name} of {self._ranks.size} ranks"

    def end(self) -> Optional[Waiting]:
        """Shuts down; what waits then."""
        self.shutdown()
        return self._waiting

    def shutdown(self) -> None:
        """Finishes what was begun, and ends the connections."""
        with self._lock:
            self._tell(is_last=True)
            sums, self._sums = self._sums, None
        if sums is not None:
            sums.close()
        self._others.shutdown()

    def abort(self) -> None:
        """Sums in flight fail."""
        if self._sums is not None:
            self._sums.abort()
        self._others.abort()


def _delegate(name: str, torchs: str) -> None:
    """A call that torch makes alone. Not by inheritance: what a class of Python inherits, C++ calls with the
    interpreter's lock held, and waits for threads of gloo that want it."""
    def call(self: WinnowGroup, *arguments: Any, **keywords: Any) -> Any:
        return getattr(self._others, torchs)(*arguments, **keywords)

    call.__name__ = name
    setattr(WinnowGroup, name, torch.compiler.disable(call))


for _name in ("_allgather_base", "all_gather_single", "all_gather_single_coalesced", "all_to_all_single",
              "allgather", "allgather_coalesced", "allgather_into_tensor_coalesced", "alltoall", "alltoall_base",
              "barrier", "broadcast", "gather", "gather_into_tensor", "gather_single", "monitored_barrier", "recv",
              "recv_anysource", "reduce", "scatter", "send"):
    if hasattr(dist.ProcessGroup, _name):
        _delegate(_name, _name)
_delegate("recvAnysource", "recv_anysource")  # as C++ calls it
