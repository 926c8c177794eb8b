# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a process group meet over TCP: addresses travel by torch's own store."""
import datetime
from typing import Optional

import torch.distributed as dist
from torch.distributed import distributed_c10d

from winnow.transports import TcpListener, Transport

_meetings = {}  # ranks of a group -> how often they have met


def meet(group: Optional[dist.ProcessGroup], timeout: float) -> Transport:
    """A transport between the ranks of `group` (None: all), in its order. Collective: each rank
    makes the same calls in the same order."""
    group = dist.group.WORLD if group is None else group
    ranks = [dist.get_global_rank(group, r) for r in range(dist.get_world_size(group))]
    key = "-".join(map(str, ranks))
    number = _meetings[key] = _meetings.get(key, -1) + 1
    store = dist.PrefixStore(f"winnow/{key}/{number}", distributed_c10d._get_default_store())
    store.set_timeout(datetime.timedelta(seconds=timeout))

    listener = TcpListener()
    rank = dist.get_rank(group)
    store.set(str(rank), listener.address)
    addresses = [store.get(str(peer)).decode() for peer in range(len(ranks))]
    return listener.connect(rank, addresses, timeout)
