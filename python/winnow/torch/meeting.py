# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a process group meet: addresses travel by torch's own store."""
import datetime
from typing import Dict, List, Optional, Sequence

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from winnow.transports import (TcpListener, Transport, mixed_transport, nccl_available,
                               nccl_transport)

_meetings: Dict[str, int] = {}  # ranks of a group -> how often they have met


class _Meeting:
    """Of the ranks of `group` (None: all), in its order. Collective: each rank makes the same calls
    in the same order."""

    def __init__(self, group: Optional[dist.ProcessGroup], timeout: float):
        group = dist.group.WORLD if group is None else group
        ranks = [dist.get_global_rank(group, r) for r in range(dist.get_world_size(group))]
        key = "-".join(map(str, ranks))
        number = _meetings[key] = _meetings.get(key, -1) + 1
        self._store = dist.PrefixStore(f"winnow/{key}/{number}",
                                       distributed_c10d._get_default_store())
        self._store.set_timeout(datetime.timedelta(seconds=timeout))
        self._rank, self._timeout = dist.get_rank(group), timeout
        self.ranks = range(len(ranks))

    def tell(self, topic: str, mine: str, ranks: Sequence[int]) -> List[str]:
        """What each of `ranks`, of which this is one, says of a topic."""
        self._store.set(f"{topic}/{self._rank}", mine)
        return [self._store.get(f"{topic}/{peer}").decode() for peer in ranks]

    def connect(self, topic: str, ranks: Sequence[int]) -> Transport:
        """Between `ranks`, over TCP."""
        listener = TcpListener()
        addresses = self.tell(topic, listener.address, ranks)
        return listener.connect(ranks.index(self._rank), addresses, self._timeout)


def meet(group: Optional[dist.ProcessGroup], timeout: float) -> Transport:
    """A transport between the ranks of `group` (None: all), in its order, over TCP; within a node
    messages go by shared memory. Collective."""
    meeting = _Meeting(group, timeout)
    return meeting.connect("all", meeting.ranks)


def meet_on_gpus(group: Optional[dist.ProcessGroup], timeout: float,
                 device: torch.device) -> Transport:
    """That for gradients on `device`, the current one. Ranks of a node reach each other over NCCL
    where every rank has NCCL and a GPU of its own; what else travels is staged in host memory."""
    meeting = _Meeting(group, timeout)
    world = meeting.connect("all", meeting.ranks)
    gpu = str(torch.cuda.get_device_properties(device).uuid)
    told = meeting.tell("gpu", f"{world.node} {gpu} {nccl_available()}", meeting.ranks)
    nodes, gpus, have_nccl = zip(*(words.split() for words in told))
    alone = len(set(nodes)) == len(nodes)
    if alone or "False" in have_nccl or len(set(zip(nodes, gpus))) < len(gpus):
        return world
    here = [rank for rank in meeting.ranks if nodes[rank] == str(world.node)]
    node = nccl_transport(meeting.connect("node", here), timeout)
    return mixed_transport(world, node, timeout)
