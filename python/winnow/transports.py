# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks, and what carries bytes between them."""
import ctypes
import weakref
from typing import List, Optional, Sequence

from winnow._library import NcclOptions, TcpMeeting, library


class Transport:
    """Moves bytes between the ranks of a job. One transport serves one Reducer, which keeps it; its
    duplicates serve others."""

    def __init__(self, handle: ctypes.c_void_p):
        self._handle = handle
        self._end = weakref.finalize(self, library.winnow_transport_destroy, handle)

    @property
    def rank(self) -> int:
        """This rank's number, from 0 on."""
        return library.winnow_transport_rank(self._handle)

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return library.winnow_transport_size(self._handle)

    @property
    def node(self) -> int:
        """Equal on ranks that share memory."""
        return library.winnow_transport_node(self._handle)

    def duplicate(self, timeout: float = 300) -> "Transport":
        """Another transport of the same ranks, with its own order of messages, failures and thread,
        which may outlive this one. Collective; no call of a Reducer of this one may be in flight.
        Raises CommError if the ranks have not come after `timeout` seconds, and this one is then
        unusable, too; UsageError if it is of a kind that has no duplicates."""
        handle = ctypes.c_void_p()
        library.winnow_transport_duplicate(self._handle, timeout, ctypes.byref(handle))
        return Transport(handle)

    def abort(self, reason: str) -> None:
        """Makes the transport unusable and wakes peers that wait on it with a CommError that names
        the reason. Never blocks; any thread may call it."""
        library.winnow_transport_abort(self._handle, reason.encode())


def local_transports(size: int) -> List[Transport]:
    """Transports of `size` ranks that are threads of this process: element i is rank i's."""
    handles = (ctypes.c_void_p * size)()
    library.winnow_local_transports(size, handles)
    return [Transport(ctypes.c_void_p(handle)) for handle in handles]


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
    options = NcclOptions(min_ctas=min_ctas, max_ctas=max_ctas, cga_cluster_size=cga_cluster_size,
                          register_memory=register_memory)
    handle = ctypes.c_void_p()
    library.winnow_nccl_transport_with(other._handle, ctypes.byref(options), timeout,
                                       ctypes.byref(handle))
    return Transport(handle)


def mixed_transport(world: Transport, node: Transport, timeout: float = 300) -> Transport:
    """Messages within a node go over `node`, the others over `world`: NCCL and TCP, say. `node` has
    the ranks whose Transport.node is this rank's, in the order of `world`, which takes host memory.
    The new transport keeps both; use neither from here on. Collective over `world`. Raises
    UsageError on every rank if some rank's `node` has others."""
    handle = ctypes.c_void_p()
    library.winnow_mixed_transport(world._handle, node._handle, timeout, ctypes.byref(handle))
    return Transport(handle)


class TcpListener:
    """Where one rank of a new TCP world can be reached. Make one on each rank, pass its address to
    all ranks by any store, and connect:

        listener = TcpListener()
        store.set(f"winnow/{rank}", listener.address)
        transport = listener.connect(rank, [store.get(f"winnow/{r}") for r in range(size)])

    `interfaces` names network interfaces, comma-separated; None: those of WINNOW_SOCKET_IFNAME, or
    all that are up. An address holds a random number by which ranks know each other; nothing is
    encrypted. Raises UsageError for an interface that does not exist.
    """

    def __init__(self, interfaces: Optional[str] = None):
        self._handle = ctypes.c_void_p()
        library.winnow_tcp_listen(None if interfaces is None else interfaces.encode(),
                                  ctypes.byref(self._handle))
        self._end = weakref.finalize(self, library.winnow_tcp_listener_destroy, self._handle)

    @property
    def address(self) -> str:
        """One line of text without blanks."""
        return library.winnow_tcp_address(self._handle).decode()

    def connect(self, rank: int, addresses: Sequence[str], timeout: float = 300) -> Transport:
        """The transport of rank `rank`, where addresses[r] is that of rank r. Collective, and once.
        Raises CommError if the ranks have not come after `timeout` seconds, UsageError if they
        pass different lists."""
        all_ranks = (ctypes.c_char_p * len(addresses))(*[a.encode() for a in addresses])
        handle = ctypes.c_void_p()
        library.winnow_tcp_connect(self._handle, rank, len(addresses), all_ranks, timeout,
                                   ctypes.byref(handle))
        return Transport(handle)


def tcp_transport(rank: Optional[int] = None, size: Optional[int] = None,
                  host: Optional[str] = None, port: int = 0, job: str = "",
                  timeout: float = 300) -> Transport:
    """A transport between ranks that meet at `host`, rank 0's, and `port` (0: 29555). Without rank,
    size and host: those of RANK, WORLD_SIZE and MASTER_ADDR, as torchrun sets them. `job` is equal
    on the ranks of one job. Collective. Raises CommError if the ranks have not come after `timeout`
    seconds."""
    meeting = None
    if (rank, size, host) != (None, None, None):
        if None in (rank, size, host):
            raise TypeError("tcp_transport takes all of rank, size and host, or none of them")
        meeting = ctypes.byref(TcpMeeting(rank=rank, size=size, port=port, host=host.encode(),
                                          job=job.encode()))
    handle = ctypes.c_void_p()
    library.winnow_tcp_transport(meeting, timeout, ctypes.byref(handle))
    return Transport(handle)
