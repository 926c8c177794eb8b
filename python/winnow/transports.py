# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks, and what carries bytes between them."""
import ctypes
from typing import Any, Callable, List, Optional, Sequence, Union

from winnow._calls import Job
from winnow._handles import Bound, Handle, Made
from winnow._library import NcclOptions, TcpMeeting, TcpOptions, UsageError, library
from winnow.arguments import integer, number, path, shown, text

_INT32 = 2**31 - 1
_MOST_LOCAL = 1024  # ranks that are threads, as winnow.h has it


class Transport(Made):
    """Moves bytes between the ranks of a job: local_transports, tcp_transport and others make them.
    One transport serves one Reducer, which keeps it and closes it; its duplicates serve others.
    `threads`: whether Winnow's own threads may use it. `elsewhere`: whether another thread than the
    caller's may make its calls, which have no current GPU and belong to no thread."""

    _makers = "local_transports, tcp_transport, mpi_transport, nccl_transport or mixed_transport"
    threads: bool
    elsewhere: bool

    @classmethod
    def _of(cls, pointer: ctypes.c_void_p, threads: bool = True, elsewhere: bool = True) -> "Transport":
        self = cls.__new__(cls)
        self.threads, self.elsewhere = threads, threads and elsewhere
        self._handle = handle = Handle.of(self, pointer, library.winnow_transport_destroy)

        def stop(reason: str) -> bool:
            runs = handle.busy()
            if runs:
                handle.abort(reason)
            return runs

        handle.stop, handle.anywhere = stop, threads
        self._rank = library.winnow_transport_rank(pointer)
        self._size = library.winnow_transport_size(pointer)
        self._node = library.winnow_transport_node(pointer)
        return self

    @property
    def rank(self) -> int:
        """This rank's number, from 0 on."""
        self._handle.expect_open()
        return self._rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        self._handle.expect_open()
        return self._size

    @property
    def node(self) -> int:
        """Equal on ranks that share memory."""
        self._handle.expect_open()
        return self._node

    def call(self, function: Callable[..., Any], why: str, here: bool = False) -> Any:
        """function(pointer), a collective call for which no other one is made meanwhile; `here`: by
        this thread. If a signal handler ends it, the transport is aborted, for the reason `why`."""
        try:
            return self._handle.call(function, blocks=self.elsewhere and not here)
        except Exception:
            raise
        except BaseException:
            self._handle.abort(why)
            raise

    def duplicate(self, timeout: float = 300) -> "Transport":
        """Another transport of the same ranks, with its own order of messages, failures and thread,
        which may outlive this one. Collective; no call of a Reducer of this one may be in flight.
        Raises CommError if the ranks have not come after `timeout` seconds, and this one is then
        unusable, too; UsageError if it is of a kind that has no duplicates. Ctrl-C interrupts it and
        aborts this one."""
        seconds = number(timeout, "timeout")

        def duplicate(pointer: ctypes.c_void_p) -> Transport:
            made = ctypes.c_void_p()
            library.winnow_transport_duplicate(pointer, seconds, ctypes.byref(made))
            return Transport._of(made, self.threads, self.elsewhere)

        return self.call(duplicate, "a rank was interrupted while it made a duplicate")

    def abort(self, reason: str) -> None:
        """Makes the transport unusable and wakes peers that wait on it with a CommError that names
        the reason. Never blocks; any thread may call it, also while a Reducer uses it. In a child of a
        fork it does nothing."""
        if self._handle.foreign():
            return
        self._handle.expect_open()
        self._handle.abort(text(reason, "reason").decode())

    def close(self) -> None:
        """No call may follow. A Reducer that uses it goes on. A second close does nothing."""
        self._handle.close(waits=False)

    def __enter__(self) -> "Transport":
        self._handle.expect_open()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def made_by(make: Callable[[Any], Any], threads: bool = True) -> Transport:
    """The transport that make(pointer to a pointer) makes, without any handle that exists already. If
    a signal handler ends it, nobody gets the transport, which closes once it is made."""
    def body() -> Transport:
        made = ctypes.c_void_p()
        make(ctypes.byref(made))
        return Transport._of(made, threads)

    if not threads:
        return body()
    job = Job(body)
    try:
        return job.perform()
    finally:
        job.claim()  # a signal may have come before the call began


def _expect_transport(given: Any, what: str) -> None:
    if not isinstance(given, Transport):
        raise UsageError(f"{what} takes a Transport, not a {type(given).__name__}")


def local_transports(size: int) -> List[Transport]:
    """Transports of `size` ranks that are threads of this process: element i is rank i's."""
    made = (ctypes.c_void_p * integer(size, "size", 1, _MOST_LOCAL))()
    library.winnow_local_transports(size, made)
    return [Transport._of(ctypes.c_void_p(pointer)) for pointer in made]


def nccl_available() -> bool:
    """Whether this Winnow was built with NCCL, and the process has it or can load it."""
    return library.winnow_nccl_available() == 1


def nccl_transport(other: Transport, timeout: float = 300, *, min_ctas: int = 0, max_ctas: int = 0,
                   cga_cluster_size: int = 0, register_memory: bool = False) -> Transport:
    """Over a new NCCL communicator of the ranks of `other`, which serves this call alone. Each rank
    has the GPU that is current. For Reducers with a stream.

    `min_ctas`, `max_ctas`: thread blocks that one of NCCL's kernels takes; few of them leave the GPU
    to a backward pass. `cga_cluster_size`: thread blocks of a cluster, from 1, for none, to 8. Equal
    on all ranks; 0: NCCL chooses. `register_memory`: registers the device scratch of a Reducer with
    NCCL, which then moves messages without copies of its own where the hardware allows; on all ranks
    or on none.

    Collective. Raises UsageError where there is no NCCL, CommError if the ranks have not met after
    `timeout` seconds."""
    _expect_transport(other, "nccl_transport")
    seconds = number(timeout, "timeout")
    wanted = {"min_ctas": min_ctas, "max_ctas": max_ctas, "cga_cluster_size": cga_cluster_size,
              "register_memory": register_memory}
    options = NcclOptions(**{name: integer(value, name, -_INT32, _INT32)
                             for name, value in wanted.items()})

    def make(meeting: ctypes.c_void_p) -> Transport:
        made = ctypes.c_void_p()
        library.winnow_nccl_transport_with(meeting, ctypes.byref(options), seconds,
                                           ctypes.byref(made))
        return Transport._of(made, elsewhere=False)

    # In this thread, whose current GPU it takes.
    return other._handle.call(make, blocks=False)


def mixed_transport(world: Transport, node: Transport, timeout: float = 300) -> Transport:
    """Messages within a node go over `node`, the others over `world`: NCCL and TCP, say. `node` has
    the ranks whose Transport.node is this rank's, in the order of `world`, which takes host memory.
    The new transport keeps both, which are closed for others. Collective over `world`. Raises
    UsageError on every rank if some rank's `node` has others."""
    _expect_transport(world, "mixed_transport")
    _expect_transport(node, "mixed_transport")
    if world is node:
        raise UsageError("mixed_transport takes two transports, not one twice")
    seconds, threads = number(timeout, "timeout"), world.threads and node.threads
    elsewhere = world.elsewhere and node.elsewhere

    def make(between: ctypes.c_void_p) -> Transport:
        def make_of(within: ctypes.c_void_p) -> Transport:
            made = ctypes.c_void_p()
            library.winnow_mixed_transport(between, within, seconds, ctypes.byref(made))
            return Transport._of(made, threads, elsewhere)

        return node._handle.call(make_of, blocks=False)

    mixed = world.call(make, "a rank was interrupted while it made a mixed transport", not elsewhere)
    world.close()
    node.close()
    return mixed


def can_have_secret() -> bool:
    """Whether ranks that meet over TCP can have a secret: whether there is OpenSSL's libcrypto."""
    return library.winnow_tcp_can_have_secret() == 1


Tls = Union[None, str, Sequence[str]]


Secret = Union[None, str, bytes]


def _bytes_of(secret: Union[str, bytes]) -> bytes:
    """A secret for the library. No error shows it."""
    given = secret.encode(errors="replace") if isinstance(secret, str) else secret
    if not isinstance(given, bytes) or b"\0" in given:
        raise UsageError(f"secret is of type {type(secret).__name__}: must be text or bytes, without null "
                         "bytes (secrets.token_hex makes one)")
    return given


def _tcp_options(interfaces: Optional[str], secret: Secret, tls: Tls) -> TcpOptions:
    given = {"interfaces": interfaces, "tls": tls}
    if tls is not None and not isinstance(tls, str):
        files = list(tls) if isinstance(tls, (list, tuple)) else []
        if len(files) != 3:
            raise UsageError('tls is "off", "secret" or the names of three PEM files: certificate, '
                             f"key and authority, not {shown(tls)}")
        names = ("tls_certificate", "tls_key", "tls_authority")
        given.update(tls="certificates", **{name: path(file, name) for name, file in zip(names, files)})
    texts = {name: text(value, name) for name, value in given.items() if value is not None}
    return TcpOptions(**texts, **({} if secret is None else {"secret": _bytes_of(secret)}))


class TcpListener(Bound):
    """Where one rank of a new TCP world can be reached. Make one on each rank, pass its address to
    all ranks by any store, and connect:

        listener = TcpListener()
        store.set(f"winnow/{rank}", listener.address)
        transport = listener.connect(rank, [store.get(f"winnow/{r}") for r in range(size)])

    If none can be made, pass the text of the error in place of the address: the others' connect then
    raises a UsageError that shows it, instead of waiting for this rank.

    `interfaces` names network interfaces, comma-separated; None: those of WINNOW_SOCKET_IFNAME, or
    all that are up. An address holds a random number by which ranks know each other. `secret`: of the
    job, text or bytes, equal on all ranks, by which they prove who they are; None: that of
    WINNOW_TCP_SECRET or of the file that WINNOW_TCP_SECRET_FILE names, or none. `tls` encrypts what
    goes between hosts by TLS 1.3: "secret", by keys from the secret; or the names of three PEM files,
    this rank's certificate and key and the authority that all ranks trust; "off"; None: what
    WINNOW_TCP_TLS says, or off. Raises UsageError for an interface that does not exist, and where there
    is no OpenSSL for these.
    """

    def __init__(self, interfaces: Optional[str] = None, secret: Secret = None, *,
                 tls: Tls = None):
        made = ctypes.c_void_p()
        library.winnow_tcp_listen_with(ctypes.byref(_tcp_options(interfaces, secret, tls)),
                                       ctypes.byref(made))
        self._address = library.winnow_tcp_address(made).decode()
        self._handle = Handle.of(self, made, library.winnow_tcp_listener_destroy)

    @property
    def address(self) -> str:
        """One line of text without blanks."""
        self._handle.expect_open()
        return self._address

    def connect(self, rank: int, addresses: Sequence[str], timeout: float = 300) -> Transport:
        """The transport of rank `rank`, where addresses[r] is that of rank r. Collective, and once.
        Raises CommError if the ranks have not come after `timeout` seconds, UsageError if they
        pass different lists."""
        self._handle.expect_open()
        try:
            given = [None] if isinstance(addresses, (str, bytes)) else list(addresses)
        except TypeError:
            given = [None]
        if None in given:
            raise UsageError("connect takes a list of addresses, one for each rank, not "
                             f"{shown(addresses)}")
        size, mine = len(given), integer(rank, "rank", 0, _INT32)
        seconds = number(timeout, "timeout")
        all_ranks = (ctypes.c_char_p * size)(*[text(address, "an address") for address in given])

        def connect(pointer: ctypes.c_void_p) -> Transport:
            made = ctypes.c_void_p()
            library.winnow_tcp_connect(pointer, mine, size, all_ranks, seconds, ctypes.byref(made))
            return Transport._of(made)

        return self._handle.call(connect)

    def close(self) -> None:
        """Nobody can connect from here on. A second close does nothing."""
        self._handle.close(waits=False)

    def __enter__(self) -> "TcpListener":
        self._handle.expect_open()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def tcp_transport(rank: Optional[int] = None, size: Optional[int] = None,
                  host: Optional[str] = None, port: int = 0, job: str = "",
                  timeout: float = 300, *, interfaces: Optional[str] = None,
                  secret: Secret = None, tls: Tls = None) -> Transport:
    """A transport between ranks that meet at `host`, rank 0's, and `port` (0: a free one of the 16 from
    29555 on). Without rank, size and host: those of RANK, WORLD_SIZE and MASTER_ADDR, as torchrun sets
    them, WINNOW_TCP_PORT and WINNOW_TCP_JOB. `job` is equal on the ranks of one job, and no other's; "":
    what launchers say. `interfaces`, `secret` and `tls` as in TcpListener. Collective. Raises CommError if the
    ranks have not come after `timeout` seconds; UsageError on all of them if options or variables of one do
    not let it listen. Ctrl-C ends the meeting, and its port is free again."""
    meeting, seconds = None, number(timeout, "timeout")
    options = _tcp_options(interfaces, secret, tls)
    if (rank, size, host) != (None, None, None):
        if None in (rank, size, host):
            raise TypeError("tcp_transport takes all of rank, size and host, or none of them")
        meeting = ctypes.byref(TcpMeeting(rank=integer(rank, "rank", 0, _INT32),
                                          size=integer(size, "size", 1, _INT32),
                                          port=integer(port, "port", 0, 65535),
                                          host=text(host, "host"), job=text(job, "job")))
    elif (port, job) != (0, ""):
        raise UsageError("tcp_transport takes port and job with rank, size and host alone; without "
                         "them set WINNOW_TCP_PORT and WINNOW_TCP_JOB")
    stop = ctypes.c_int32()
    options.stop = ctypes.pointer(stop)
    try:
        return made_by(lambda made: library.winnow_tcp_transport_with(meeting, ctypes.byref(options),
                                                                      seconds, made))
    except BaseException:  # a signal handler's, perhaps: the meeting would go on and keep its port
        stop.value = 1
        raise
