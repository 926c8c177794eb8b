# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The allreduce that sends only what matters."""
import ctypes
import itertools
import json
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from winnow import _library
from winnow._library import REDUCE_OPS, UsageError, library, text_of
from winnow.arrays import view
from winnow.transports import Transport


class Segment(NamedTuple):
    """One parameter's gradient in a bucket: an array of any shape (see winnow.arrays.view), which
    receives the result, and the parameter's id, which keys its residual."""

    array: Any
    id: int
    name: Optional[str] = None  # for the option `exempt`
    dimensions: Optional[int] = None  # None: the array's; 1 (norms, biases): dense by default
    input: Any = None  # the gradient, if `array` only receives the result
    rate: float = 1.0  # multiplies the gradient, such as a learning rate


def option_words(compressor: str, options: Dict[str, Any]) -> str:
    """Options as the library reads them: "compressor=topk:0.01 min_bytes=0"."""
    words = {"compressor": compressor, **options}
    for key, value in words.items():
        if isinstance(value, bool):
            words[key] = int(value)
        elif isinstance(value, (list, tuple)):
            words[key] = ",".join(map(str, value))
    return " ".join(f"{key}={value}" for key, value in words.items())


def native_segments(segments: Sequence[Segment], on_gpu: bool = False) -> "ctypes.Array":
    """Segments as the library takes them. The caller keeps `segments` while the call runs."""
    natives = (_library.Segment * len(segments))()
    for native, segment in zip(natives, segments):
        elements = view(segment.array, on_gpu)
        if not elements.writable:
            raise UsageError(f"parameter {segment.id}: an array that is read-only")
        dimensions = elements.dimensions if segment.dimensions is None else segment.dimensions
        native.__init__(type=elements.type, id=segment.id, count=elements.count,
                        data=elements.address, dimensions=dimensions, rate=segment.rate,
                        name=None if segment.name is None else segment.name.encode())
        if segment.input is not None:
            gradient = view(segment.input, on_gpu)
            if (gradient.count, gradient.type) != (elements.count, elements.type):
                raise UsageError(f"parameter {segment.id}: input and array differ in type or size")
            native.input = gradient.address
    return natives


def native_op(op: Optional[str]) -> int:
    """The number of an operation: None (the option's), sum, average, min, max or product."""
    if op not in REDUCE_OPS:
        raise UsageError(f"operation {op!r}: must be one of sum, average, min, max, product")
    return REDUCE_OPS[op]


class Work:
    """A call in flight. Keeps the arrays alive; leave them alone until wait has returned."""

    def __init__(self, handle: ctypes.c_void_p, keeps: Any):
        self._handle = handle
        self._keeps = keeps
        self._end = weakref.finalize(self, library.winnow_work_destroy, handle)

    def wait(self) -> None:
        """Returns when the call is done, or raises what all_reduce raises. Returns at once if
        called again. Other Python threads run meanwhile."""
        if self._end.alive:
            try:
                library.winnow_work_wait(self._handle)
            finally:
                self._end()
                self._keeps = None

    def on_complete(self, callback: Callable[[Optional[Exception]], Any]) -> None:
        """Has `callback` run once, when the call is done: with None, or with what wait raises. It
        runs in the reducer's own thread, so later calls wait for it; or in one that waits, if the
        transport allows no threads; or at once, if the call is done. It must not call the reducer.
        What it raises is printed and dropped. Before wait."""
        if not self._end.alive:
            raise UsageError("on_complete of a Work that has waited or is detached")
        number = next(_numbers)
        _callbacks[number] = callback
        try:
            library.winnow_work_on_complete(self._handle, _complete, number)
        except _library.Error:
            _callbacks.pop(number, None)
            raise

    def detach(self) -> None:
        """Lets go of the call without waiting for it. It goes on, and its arrays live until it is
        done. A callback learns of its error; so do later calls, or synchronize."""
        if self._end.alive:
            keeps = self._keeps
            self.on_complete(lambda _, keeps=keeps: None)
            library.winnow_work_detach(self._handle)
            self._end()
            self._keeps = None


# Callbacks that have not run. The library knows their numbers.
_callbacks: Dict[int, Callable[[Optional[Exception]], Any]] = {}
_numbers = itertools.count(1)


@_library.Completion
def _complete(number: int, status: int) -> None:
    _callbacks.pop(number)(_library.error_of(status, "all_reduce_async"))


class GpuFloats:
    """Floats on a GPU that a Reducer has: torch.as_tensor(these, device="cuda") and what else knows
    __cuda_array_interface__ reads them in place. Do not write to them; they say that one may, since
    torch takes no others."""

    def __init__(self, address: int, count: int):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": "<f4",
                                         "data": (address, False), "version": 2}


class Reducer:
    """Sums gradients over all ranks, sending only what matters and carrying the rest as residuals
    into the next call. All ranks hold the same bits after every call.

    `compressor` is SELECTION[:ARGUMENT][,VALUE][,INDEX], such as "topk:0.01,int8"; further options
    by keyword (schedule="gather", min_bytes=0, deadline=30, ...). Variables of the environment
    (WINNOW_COMPRESSOR) win. Collective: compares the options of all ranks, and raises UsageError
    on every rank if they are wrong or differ.

    `stream`: a cudaStream_t as a number, not 0. Arrays are then on the GPU that is current now. A
    call's work follows what is on the stream when the call begins, and comes before what is put
    there once it has returned or its Work has waited. Other ranks may have theirs in host memory.

    All ranks make the same calls in the same order, with the same ids and counts. Raises UsageError
    for a caller's mistake, which changes nothing, and CommError when ranks cannot finish: the
    arrays then read zero and the gradients are in the residuals.
    """

    def __init__(self, transport: Transport, compressor: str = "topk:0.01", *,
                 stream: Optional[int] = None, **options: Any):
        self.transport = transport
        self._on_gpu = stream is not None
        settings = _library.ReducerSettings(options=option_words(compressor, options).encode())
        if self._on_gpu:
            settings.place, settings.stream = _library.CUDA, stream
        self._handle = ctypes.c_void_p()
        library.winnow_reducer_create(transport._handle, ctypes.byref(settings),
                                      ctypes.byref(self._handle))
        self._end = weakref.finalize(self, library.winnow_reducer_destroy, self._handle)

    def all_reduce(self, array: Any, id: int = 0, op: Optional[str] = None) -> None:
        """Reduces one array in place. Arrays of different parameters need different ids."""
        self.all_reduce_bucket([Segment(array, id)], op)

    def all_reduce_bucket(self, segments: Sequence[Segment], op: Optional[str] = None) -> None:
        """Reduces several parameters in one call."""
        natives = native_segments(segments, self._on_gpu)
        library.winnow_all_reduce(self._handle, natives, len(natives), native_op(op))

    def reduce_scatter(self, input: Any, output: Any, id: int = 0,
                       op: Optional[str] = None) -> None:
        """`output` becomes the sum or average of all ranks' shards with this rank's number. `input`
        is one shard for each rank, in rank order, each as large as `output`; it is scratch
        afterwards, and `output` may be this rank's shard of it. float32, bfloat16 or float16. Each
        rank sends what the compressor keeps of the others' shards; the rest is the residual of
        `id`, which must not be reduced whole, too."""
        source, result = view(input, self._on_gpu), view(output, self._on_gpu)
        ranks = self.transport.size
        if source.type != result.type or source.count != ranks * result.count:
            raise UsageError(f"reduce_scatter takes an input of {ranks} shards as large as the "
                             "output, of one type")
        if not (source.writable and result.writable):
            raise UsageError("reduce_scatter: an array that is read-only")
        scatter = _library.Scatter(type=source.type, id=id, shard=result.count,
                                   input=source.address, output=result.address)
        library.winnow_reduce_scatter(self._handle, ctypes.byref(scatter), native_op(op))

    def all_reduce_async(self, segments: Sequence[Segment], op: Optional[str] = None) -> Work:
        """Returns at once."""
        return self.start(native_segments(segments, self._on_gpu), op, list(segments))

    def start(self, natives: "ctypes.Array", op: Optional[str], keeps: Any) -> Work:
        """all_reduce_async of segments as the library takes them; the Work keeps `keeps`."""
        handle = ctypes.c_void_p()
        library.winnow_all_reduce_async(self._handle, natives, len(natives), native_op(op),
                                        ctypes.byref(handle))
        return Work(handle, keeps)

    def synchronize(self) -> None:
        """Returns when all calls are done; raises CommError if one has failed."""
        library.winnow_reducer_synchronize(self._handle)

    def residual(self, id: int) -> "memoryview | GpuFloats | None":
        """What this rank has not sent of a parameter, as float32; None if there is none. A copy; on a
        GPU where it lies, valid until the next call. Not while calls are in flight."""
        where, count = ctypes.c_void_p(), ctypes.c_uint64()
        library.winnow_reducer_residual(self._handle, id, ctypes.byref(where), ctypes.byref(count))
        if count.value == 0:
            return None
        if self._on_gpu:
            return GpuFloats(where.value, count.value)
        return memoryview(bytearray(ctypes.string_at(where.value, 4 * count.value))).cast("f")

    def begin_step(self) -> None:
        """A step begins that discard_step may undo: until the next begin_step, the first call of
        each parameter keeps what it finds, 4 bytes for each element with a residual. Not while calls
        are in flight."""
        library.winnow_reducer_begin_step(self._handle)

    def discard_step(self) -> None:
        """Undoes what the calls since begin_step did to the residuals, as if their gradients had
        never been. On all ranks between the same calls. Not while calls are in flight."""
        library.winnow_reducer_discard_step(self._handle)

    def scale_residuals(self, factor: float) -> None:
        """Multiplies all residuals of this rank, and what discard_step would bring back, by a number
        above 0: for gradients whose scale changes from here on. Not while calls are in flight."""
        library.winnow_reducer_scale_residuals(self._handle, factor)

    def look_ahead(self, id: int, weights: Any, ahead: Any, share: float) -> None:
        """ahead = weights - share * residual, or a copy where there is no residual: where this rank
        takes its gradient, so that what it has not sent counts already. The sums are then applied
        to `weights`. Both are float32 arrays of the parameter's count of elements, apart or the
        same. Local; on a GPU the work is put on the stream. Not while calls are in flight."""
        source, result = view(weights, self._on_gpu), view(ahead, self._on_gpu)
        float32 = _library.ELEMENT_TYPES["float32"]
        if (source.type, result.type) != (float32, float32) or source.count != result.count:
            raise UsageError("look_ahead takes two float32 arrays of one size")
        if not result.writable:
            raise UsageError("look_ahead: an array that is read-only")
        library.winnow_reducer_look_ahead(self._handle, id, source.address, result.address,
                                          source.count, share)

    def look_ahead_share(self, momentum: float, op: Optional[str] = None) -> float:
        """The share that served training best: 1 / (2 sqrt(max(P, 4)) (1 - momentum)) for averages
        over P ranks, P times that for sums. Multiply it by the learning rate."""
        share = ctypes.c_float()
        library.winnow_reducer_look_ahead_share(self._handle, momentum, native_op(op),
                                                ctypes.byref(share))
        return share.value

    def save(self) -> bytes:
        """This rank's state, for a checkpoint: its residuals (4 bytes an element) and what else
        decides the bits of later calls. Not while calls are in flight."""
        state = ctypes.c_void_p()
        library.winnow_reducer_save(self._handle, ctypes.byref(state))
        try:
            return ctypes.string_at(library.winnow_state_data(state),
                                    library.winnow_state_bytes(state))
        finally:
            library.winnow_state_destroy(state)

    def load(self, *states: bytes) -> None:
        """Continues from states that a job has saved after the same call on each of its ranks: this
        rank's own, which gives the bits that it would have given (name a schedule: "auto" may
        choose another one); or those of all old ranks, in any order, if there were more or fewer.
        What waited is then applied once all the same. On every rank, before its first call. Raises
        UsageError for anything else."""
        data = (ctypes.c_char_p * len(states))(*states)
        sizes = (ctypes.c_size_t * len(states))(*map(len, states))
        library.winnow_reducer_load(self._handle, data, sizes, len(states))

    @property
    def options(self) -> str:
        """All options as "key=value" words, as they are in use."""
        return text_of(library.winnow_reducer_options, self._handle)

    def last(self) -> Dict[str, Any]:
        """Statistics of the last call: the members of Stats in docs/options.md."""
        return self._stats(_library.LAST_CALL)

    def totals(self) -> Dict[str, Any]:
        """Of all calls."""
        return self._stats(_library.ALL_CALLS)

    def bucket_stats(self) -> List[Dict[str, Any]]:
        """Of each bucket, in the order of first calls."""
        return self._stats(_library.BUCKETS)

    def _stats(self, which: int) -> Any:
        return json.loads(text_of(library.winnow_reducer_stats, self._handle, which))

    def close(self) -> None:
        """Finishes calls in flight and lets go of the transport. No call may follow."""
        self._end()
        self.transport._end()

    def __enter__(self) -> "Reducer":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
