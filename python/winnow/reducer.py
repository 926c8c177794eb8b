# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The allreduce that sends only what matters."""
import collections.abc
import ctypes
import json
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from winnow import _library
from winnow._handles import Bound, Handle
from winnow._library import UsageError, library, text_of
from winnow.arguments import integer, named, native_op, number, option_words
from winnow.arrays import GpuFloats, copied, expect_apart, view
from winnow.segments import Segment, native_segments
from winnow.transports import Transport
from winnow.work import Call, Calls, Work


class Reducer(Bound):
    """Sums gradients over all ranks, sending only what matters and carrying the rest as residuals
    into the next call. All ranks hold the same bits after every call.

    `compressor` is SELECTION[:ARGUMENT][,VALUE][,INDEX], such as "topk:0.01,int8"; further options
    by keyword (schedule="gather", min_bytes=0, deadline=30, ...), as text, numbers of Python or
    numpy, lists or enumerations. Variables of the environment (WINNOW_COMPRESSOR) win. Collective:
    compares the options of all ranks, and raises UsageError on every rank if they are wrong or differ.

    `stream`: a cudaStream_t as a number, not 0. Arrays are then on the GPU that is current now. A
    call's work follows what is on the stream when the call begins, and comes before what is put
    there once it has returned or its Work has waited. Other ranks may have theirs in host memory.

    All ranks make the same calls in the same order, with the same ids and counts. Raises UsageError
    for a caller's mistake, which changes nothing, and CommError when ranks cannot finish: the
    arrays then read zero and the gradients are in the residuals.

    Any thread may make calls; one that comes during a call of another waits for it. Arrays that would
    grow during a call raise BufferError or ValueError. Ctrl-C interrupts a
    call with arrays in host memory, which goes on by itself; leave its array alone. A Reducer that
    ends then, is dropped, or is open at the interpreter's exit, aborts calls in flight, so that the
    other ranks get a CommError at once.
    """

    def __init__(self, transport: Transport, compressor: str = "topk:0.01", *,
                 stream: Optional[int] = None, **options: Any):
        if not isinstance(transport, Transport):
            raise UsageError(f"a Reducer takes a Transport, not a {type(transport).__name__}")
        self.transport = transport
        self._rank, self._size = transport.rank, transport.size
        self._on_gpu = stream is not None
        # Otherwise calls are made where the caller has a current GPU, or where MPI wants them.
        self._elsewhere = transport.elsewhere and not self._on_gpu
        self.interrupted = False  # by a signal handler, in the last call that blocked
        settings = _library.ReducerSettings()
        try:
            settings.options = option_words(compressor, options).encode()
            if self._on_gpu:
                settings.place, settings.stream = _library.CUDA, integer(stream, "stream")
        except Exception as error:  # pylint: disable=broad-except
            settings.refusal = str(error).encode(errors="replace")  # which the others get, too

        def create(over: ctypes.c_void_p) -> None:
            made = ctypes.c_void_p()
            library.winnow_reducer_create(over, ctypes.byref(settings), ctypes.byref(made))
            self._adopt(made, transport)

        transport.call(create, "a rank's constructor of a Reducer was interrupted", self._on_gpu)

    def _adopt(self, made: ctypes.c_void_p, transport: Transport) -> None:
        calls, over = Calls(transport.threads), transport._handle

        def destroy(pointer: ctypes.c_void_p) -> None:
            calls.settle()
            library.winnow_reducer_destroy(pointer)
            over.release()

        def stop(reason: str) -> bool:
            runs = handle.busy() or calls.any_runs()
            if runs:
                over.abort(reason)
            return runs

        over.keep()
        self._calls = calls
        self._handle = handle = Handle.of(self, made, destroy)
        handle.stop, handle.anywhere = stop, transport.threads

    def _call(self, function: Callable[..., Any], *arguments: Any, blocks: bool = True) -> Any:
        """function(the pointer, *arguments), where the rules of calls allow it."""
        self._calls.expect_outside_callbacks()
        try:
            found = self._handle.call(function, *arguments, blocks=blocks and self._elsewhere)
            self.interrupted = False
            return found
        except BaseException as error:
            self.interrupted = not isinstance(error, Exception)
            raise

    def all_reduce(self, array: Any, id: Optional[int] = None, op: Any = None) -> None:
        """Reduces one array in place: a bucket of one parameter, `id`, whose number all ranks know it
        by in all steps. It is compressed also if it is flat. `op`: sum, average (or mean, avg), min,
        max, product, or one of mpi4py's; None: that of the option `op`, the average unless set."""
        if id is None:
            raise UsageError("all_reduce(array, id) needs the id of the parameter, a number that is "
                             "equal on all ranks and in all steps: it keys what has not been sent")
        self.all_reduce_bucket([Segment(array, id)], op)

    def all_reduce_bucket(self, segments: Sequence[Segment], op: Any = None) -> None:
        """Reduces several parameters in one call."""
        self._handle.expect_open()
        natives, keeps = native_segments(segments, self._on_gpu)

        def reduce(pointer: ctypes.c_void_p, chosen: int) -> None:
            try:
                library.winnow_all_reduce(pointer, natives, len(natives), chosen)
            finally:
                keeps.clear()  # a traceback would hold it

        self._call(reduce, native_op(op), blocks=self._size > 1)

    def reduce_scatter(self, input: Any, output: Any, id: Optional[int] = None,
                       op: Any = None) -> None:
        """`output` becomes the sum or average of all ranks' shards with this rank's number. `input`
        is one shard for each rank, in rank order, each as large as `output`; it is scratch
        afterwards, and `output` may be this rank's shard of it. float32, bfloat16 or float16. Each
        rank sends what the compressor keeps of the others' shards; the rest is the residual of
        `id`, which must not be reduced whole, too."""
        self._handle.expect_open()
        if id is None:
            raise UsageError("reduce_scatter(input, output, id) needs the id of the parameter")
        with named(f"reduce_scatter of parameter {id}, input"):
            source = view(input, self._on_gpu).expect_writable()
        with named(f"reduce_scatter of parameter {id}, output"):
            result = view(output, self._on_gpu).expect_writable()
        ranks = self._size
        if source.type != result.type or source.count != ranks * result.count:
            raise UsageError(f"reduce_scatter takes an input of {ranks} shards as large as the "
                             "output, of one type")
        first, *others = result.shape or (1,)
        shapes = ((ranks, *result.shape), (ranks * first, *others))
        if 1 not in (len(source.shape), len(result.shape)) and source.shape not in shapes:
            raise UsageError(f"reduce_scatter takes an input of shape {shapes[0]} or {shapes[1]} for an "
                             f"output of shape {result.shape}, not {source.shape}; or a flat array")
        if result.address != source.address + self._rank * result.bytes:
            expect_apart([source, result], "reduce_scatter: input and output, which may only be this "
                                           "rank's shard of it,")
        scatter = _library.Scatter(type=source.type, id=integer(id, "id"), shard=result.count,
                                   input=source.address, output=result.address)

        def reduce(pointer: ctypes.c_void_p, chosen: int) -> None:
            try:
                library.winnow_reduce_scatter(pointer, ctypes.byref(scatter), chosen)
            finally:
                source.keeps.clear()
                result.keeps.clear()

        self._call(reduce, native_op(op))

    def all_reduce_rows(self, rows: Any, values: Any, table_rows: int, id: Optional[int] = None,
                        op: Any = None, width: Optional[int] = None) -> Tuple[memoryview, memoryview]:
        """Sums or averages what ranks have of some rows of a table, as of an embedding's gradient.
        `rows`: which of `table_rows` this rank has, 64-bit integers in any order; those repeated add
        up. `values`: of shape (rows, width), or flat if `width` is given; float32, bfloat16 or float16.
        A rank without rows passes both without elements. Returns the rows that any rank has, ascending, and their sums:
        memoryviews of uint64, and of float32 or the bits of 16-bit floats as uint16. numpy and torch
        take them without a copy. Exact, unless the option `rows` says otherwise. In host
        memory."""
        self._handle.expect_open()
        if id is None:
            raise UsageError("all_reduce_rows(rows, values, table_rows, id) needs the id of the parameter")
        what = f"all_reduce_rows of parameter {id}"
        with named(f"{what}, rows"):
            numbers = view(rows, False).expect_integers()
        with named(f"{what}, values"):
            elements = view(values, False)
        if width is None:
            if len(elements.shape) != 2:
                raise UsageError(f"{what}: values have shape {elements.shape}: must be (rows, width), or "
                                 "flat with width=")
            width = elements.shape[1]
        count, width = numbers.count, integer(width, "width")
        if elements.count != count * width or len(elements.shape) == 2 and elements.shape != (count, width):
            raise UsageError(f"{what}: values of shape {elements.shape} are not {count} rows of {width} "
                             "elements")
        mine = _library.Rows(type=elements.type, id=integer(id, "id"), width=width, count=count,
                             table_rows=integer(table_rows, "table_rows"), rows=numbers.address,
                             values=elements.address)

        def reduce(pointer: ctypes.c_void_p, chosen: int) -> Tuple[memoryview, memoryview]:
            where, sums, found = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
            try:
                library.winnow_all_reduce_rows(pointer, ctypes.byref(mine), chosen, ctypes.byref(where),
                                               ctypes.byref(sums), ctypes.byref(found))
            finally:
                numbers.keeps.clear()
                elements.keeps.clear()
            return (copied(where.value, _library.ELEMENT_TYPES["uint64"], (found.value,)),
                    copied(sums.value, elements.type, (found.value, width)))

        return self._call(reduce, native_op(op))

    def all_reduce_async(self, segments: Sequence[Segment], op: Any = None) -> Work:
        """Returns at once."""
        self._handle.expect_open()
        return self.start(*native_segments(segments, self._on_gpu), op=op)

    def start(self, natives: "ctypes.Array", keeps: Any, op: Any = None) -> Work:
        """all_reduce_async of segments as the library takes them. `keeps`: whatever owns the arrays."""
        def begin(pointer: ctypes.c_void_p, chosen: int) -> Work:
            call = Call(self._calls, (natives, keeps))
            try:
                library.winnow_all_reduce_async(pointer, natives, len(natives), chosen,
                                                ctypes.byref(call.pointer))
                return Work._of(call, self)
            except BaseException:
                call.give_up()
                raise

        return self._call(begin, native_op(op), blocks=False)

    def synchronize(self) -> None:
        """Returns when all calls are done; raises CommError if one has failed."""
        self._call(library.winnow_reducer_synchronize)

    def residual(self, id: int) -> "memoryview | GpuFloats | None":
        """What this rank has not sent of a parameter, as float32; None if there is none. A copy; on a
        GPU where it lies, valid until the next call. Not while calls are in flight."""
        def copy(pointer: ctypes.c_void_p, number_of: int) -> "memoryview | GpuFloats | None":
            where, count = ctypes.c_void_p(), ctypes.c_uint64()
            library.winnow_reducer_residual(pointer, number_of, ctypes.byref(where),
                                            ctypes.byref(count))
            if count.value == 0:
                return None
            if self._on_gpu:
                return GpuFloats(where.value, count.value, self)
            return memoryview(bytearray(ctypes.string_at(where.value, 4 * count.value))).cast("f")

        return self._call(copy, integer(id, "id"), blocks=False)

    def begin_step(self) -> None:
        """A step begins that discard_step may undo: until the next begin_step, the first call of
        each parameter keeps what it finds, 4 bytes for each element with a residual. Not while calls
        are in flight."""
        self._call(library.winnow_reducer_begin_step)

    def discard_step(self, ids: Optional[Iterable[int]] = None) -> None:
        """Undoes what the calls since begin_step did to the residuals, as if their gradients had
        never been: of the parameters with these ids, or of all. Ids that no call has had are ignored.
        On all ranks between the same calls. Not while calls are in flight."""
        if ids is None:
            self._call(library.winnow_reducer_discard_step)
        else:
            if not isinstance(ids, collections.abc.Iterable):
                raise UsageError(f"ids: a sequence of numbers, not {ids!r}")
            given = [integer(id, "ids") for id in ids]
            self._call(library.winnow_reducer_discard_step_of, (ctypes.c_uint64 * len(given))(*given),
                       len(given))

    def scale_residuals(self, factor: float) -> None:
        """Multiplies all residuals of this rank, and what discard_step would bring back, by a number
        above 0: for gradients whose scale changes from here on. Not while calls are in flight."""
        self._call(library.winnow_reducer_scale_residuals, number(factor, "factor"))

    def look_ahead(self, id: int, weights: Any, ahead: Any, share: float) -> None:
        """ahead = weights - share * residual, or a copy where there is no residual: where this rank
        takes its gradient, so that what it has not sent counts already. The sums are then applied
        to `weights`. Both are float32 arrays of the parameter's count of elements, apart or the
        same. Local; on a GPU the work is put on the stream. Not while calls are in flight."""
        self._handle.expect_open()
        with named(f"look_ahead of parameter {id}, weights"):
            source = view(weights, self._on_gpu)
        with named(f"look_ahead of parameter {id}, ahead"):
            result = view(ahead, self._on_gpu).expect_writable()
        float32 = _library.ELEMENT_TYPES["float32"]
        if (source.type, result.type) != (float32, float32) or source.count != result.count:
            raise UsageError("look_ahead takes two float32 arrays of one size")
        if not source.has_shape_of(result):
            raise UsageError(f"look_ahead takes weights of shape {source.shape} and ahead of "
                             f"{result.shape}: must be equal, or one of them flat")
        self.look_ahead_at(id, source.address, result.address, source.count, share)

    def look_ahead_at(self, id: int, weights: int, ahead: int, count: int, share: float) -> None:
        """look_ahead of `count` floats at these addresses, which the caller answers for."""
        self._call(library.winnow_reducer_look_ahead, integer(id, "id"), weights, ahead, count,
                   number(share, "share"), blocks=False)

    def look_ahead_share(self, momentum: float, op: Any = None) -> float:
        """The share that served training best: 1 / (2 sqrt(max(P, 4)) (1 - momentum)) for averages
        over P ranks, P times that for sums. Multiply it by the learning rate."""
        share = ctypes.c_float()
        self._call(library.winnow_reducer_look_ahead_share, number(momentum, "momentum"),
                   native_op(op), ctypes.byref(share), blocks=False)
        return share.value

    def save(self) -> bytes:
        """This rank's state, for a checkpoint: its residuals (4 bytes an element) and what else
        decides the bits of later calls. Not while calls are in flight."""
        def copy(pointer: ctypes.c_void_p) -> bytes:
            state = ctypes.c_void_p()
            library.winnow_reducer_save(pointer, ctypes.byref(state))
            try:
                return ctypes.string_at(library.winnow_state_data(state),
                                        library.winnow_state_bytes(state))
            finally:
                library.winnow_state_destroy(state)

        return self._call(copy)

    def load(self, *states: Optional[bytes]) -> None:
        """Continues from states that a job has saved after the same call on each of its ranks: this
        rank's own, which gives the bits that it would have given (name a schedule: "auto" may
        choose another one); or those of all old ranks, in any order, if there were more or fewer.
        What waited is then applied once all the same. Or its own with None in the place of every other
        old rank's: what the others held is left to them. On every rank, before its first call. Raises
        UsageError for anything else."""
        try:
            given = [None if state is None else bytes(memoryview(state)) for state in states]
        except TypeError as error:
            raise UsageError("load takes what save has returned, as bytes, one argument for each "
                             "state") from error
        data = (ctypes.c_char_p * len(given))(*given)
        sizes = (ctypes.c_size_t * len(given))(*(len(state or b"") for state in given))
        self._call(library.winnow_reducer_load, data, sizes, len(given))

    @property
    def options(self) -> str:
        """All options as "key=value" words, as they are in use."""
        return self._call(lambda pointer: text_of(library.winnow_reducer_options, pointer),
                          blocks=False)

    def last(self) -> Dict[str, Any]:
        """Statistics of the last call: the members of Stats in docs/options.md."""
        return self._stats(_library.LAST_CALL)

    def totals(self) -> Dict[str, Any]:
        """Of all calls."""
        return self._stats(_library.ALL_CALLS)

    def bucket_stats(self) -> List[Dict[str, Any]]:
        """Of each bucket, in the order of first calls: also whether a trial of schedules goes on."""
        return self._stats(_library.BUCKETS)

    def schedule_stats(self) -> List[Dict[str, Any]]:
        """Of all calls by each schedule; a bucket's calls may have gone by several."""
        return self._stats(_library.SCHEDULES)

    def _stats(self, which: int) -> Any:
        return self._call(lambda pointer: json.loads(text_of(library.winnow_reducer_stats, pointer,
                                                             which)), blocks=False)

    def close(self) -> None:
        """Finishes calls in flight, whose Works may still be asked, and closes the transport. No call
        may follow; a second close does nothing. If Ctrl-C has interrupted a call that still runs, it
        is aborted. UsageError in a callback."""
        self._calls.expect_outside_callbacks()
        if self.interrupted and not self._handle.foreign():
            self._handle.stop("a rank was interrupted in a call")
        try:
            self._handle.close(waits=True, blocks=self._elsewhere)
        except BaseException as error:
            self.interrupted = not isinstance(error, Exception)
            raise
        self.transport.close()

    def __enter__(self) -> "Reducer":
        self._handle.expect_open()
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None and not issubclass(kind, Exception):  # Ctrl-C, or the process ends
            self.interrupted = True
        self.close()
