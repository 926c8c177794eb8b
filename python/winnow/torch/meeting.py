# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a process group meet: addresses travel by torch's own store, once for a kind of
device, and again after an error. Each reducer gets a duplicate of what they met by, so that none
waits for another one's turn."""
import datetime
import os
import secrets
import threading
import weakref
from typing import Dict, List, Mapping, Optional, Sequence

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from winnow._library import UsageError
from winnow.transports import (TcpListener, Transport, can_have_secret, mixed_transport,
                               nccl_available, nccl_transport)

_meetings: Dict[str, int] = {}  # ranks of a group -> how often they have met


class _Meeting:
    """Of the ranks of `group`, in its order. Collective: each rank makes the same calls in the same
    order."""

    def __init__(self, group: dist.ProcessGroup, timeout: float):
        ranks = [dist.get_global_rank(group, r) for r in range(dist.get_world_size(group))]
        key = "-".join(map(str, ranks))
        number = _meetings[key] = _meetings.get(key, -1) + 1
        self._store = dist.PrefixStore(f"winnow/{key}/{number}",
                                       distributed_c10d._get_default_store())
        self._store.set_timeout(datetime.timedelta(seconds=timeout))
        self._rank, self._timeout = dist.get_rank(group), timeout
        self.ranks = range(len(ranks))
        self._secret: Optional[str] = None

    def tell(self, topic: str, mine: str, ranks: Sequence[int]) -> List[str]:
        """What each of `ranks`, of which this is one, says of a topic."""
        self._store.set(f"{topic}/{self._rank}", mine)
        return [self._store.get(f"{topic}/{peer}").decode() for peer in ranks]

    def agree_on_secret(self) -> None:
        """Before connect: on that of the environment; on one that rank 0 makes, which is worth what
        torch's store is worth; or, where a rank has no libcrypto, on none."""
        named = any(name in os.environ for name in ("WINNOW_TCP_SECRET", "WINNOW_TCP_SECRET_FILE"))
        told = self.tell("secrets", "named" if named else str(can_have_secret()), self.ranks)
        without = [rank for rank in self.ranks if told[rank] != "named"]
        if "named" in told and without:
            raise UsageError(f"WINNOW_TCP_SECRET or WINNOW_TCP_SECRET_FILE is set on some ranks, and "
                             f"not on rank {', '.join(map(str, without))}: set it on all or on none")
        if named or "False" in told:
            return
        if self._rank == 0:
            self._store.set("secret", secrets.token_hex(32))
        self._secret = self._store.get("secret").decode()

    def connect(self, topic: str, ranks: Sequence[int]) -> Transport:
        """Between `ranks`, over TCP."""
        listener = TcpListener(secret=self._secret)
        addresses = self.tell(topic, listener.address, ranks)
        return listener.connect(ranks.index(self._rank), addresses, self._timeout)


class _Base:
    """Connections that only make others: of all ranks; and, for gradients on GPUs, of those of this
    node, if every rank has NCCL and a GPU of its own."""

    def __init__(self, meeting: _Meeting, device: torch.device):
        meeting.agree_on_secret()
        self._world = meeting.connect("all", meeting.ranks)
        self._node: Optional[Transport] = None
        if device.type != "cuda":
            return
        gpu = str(torch.cuda.get_device_properties(device).uuid)
        told = meeting.tell("gpu", f"{self._world.node} {gpu} {nccl_available()}", meeting.ranks)
        nodes, gpus, have_nccl = zip(*(words.split() for words in told))
        alone = len(set(nodes)) == len(nodes)
        if not alone and "False" not in have_nccl and len(set(zip(nodes, gpus))) == len(gpus):
            here = [rank for rank in meeting.ranks if nodes[rank] == str(self._world.node)]
            self._node = meeting.connect("node", here)

    def transport(self, timeout: float, nccl: Mapping[str, int]) -> Transport:
        """A new one, for one reducer. Collective."""
        world = self._world.duplicate(timeout)
        if self._node is None:
            return world
        return mixed_transport(world, nccl_transport(self._node, timeout, **nccl), timeout)


class _Group:
    """What this module keeps of a process group, as long as that lives."""

    def __init__(self) -> None:
        self.bases: Dict[torch.device, _Base] = {}
        self.lock = threading.Lock()


_groups: "weakref.WeakKeyDictionary[dist.ProcessGroup, _Group]" = weakref.WeakKeyDictionary()


def meet(group: Optional[dist.ProcessGroup], timeout: float, device: torch.device,
         nccl: Mapping[str, int]) -> Transport:
    """A transport between the ranks of `group` (None: all), in its order, for one reducer of
    gradients on `device`, the current one if it is a GPU. Ranks of a node exchange messages by
    shared memory, or over NCCL, with these options, where every rank has NCCL and a GPU of its own;
    the others over TCP. Collective: each rank makes the same calls in the same order. After an error
    ranks meet anew."""
    group = dist.group.WORLD if group is None else group
    known = _groups.setdefault(group, _Group())
    with known.lock:
        meeting, base = _Meeting(group, timeout), known.bases.pop(device, None)
        told = meeting.tell("base", str(base is not None), meeting.ranks)
        if base is None or "False" in told:  # a rank may have lost its own alone
            base = _Base(meeting, device)
        transport = base.transport(timeout, nccl)
        known.bases[device] = base
    return transport
