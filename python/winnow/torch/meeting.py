# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a process group meet: addresses travel over the group itself, once for a kind of
device, and again after an error; or through a store, where the group is Winnow's own. Each reducer gets
a duplicate of what they met by, so that none waits for another one's turn."""
import contextlib
import hashlib
import itertools
import json
import os
import secrets
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

import torch
import torch.distributed as dist

from winnow._library import CommError, Error, UsageError
from winnow.torch.agree import refuse
from winnow.torch.names import listed
from winnow.transports import (TcpListener, Transport, can_have_secret, mixed_transport,
                               nccl_available, nccl_transport)

MOST_SECONDS = 1e6  # that the library takes
Gather = Callable[[Any], List[Any]]  # what each rank of a group says, to all of them


def timeout_of(group: Optional[dist.ProcessGroup]) -> float:
    """The seconds that torch's collectives over a group wait; 300 for backends that do not say."""
    group = dist.group.WORLD if group is None else group
    devices = group._device_types or [torch.device("cpu")]
    settings = getattr(group._get_backend(devices[0]), "options", None)
    timeout = getattr(settings, "_timeout", None)
    return 300.0 if timeout is None else min(timeout.total_seconds(), MOST_SECONDS)


_SECRET, _SECRET_FILE = "WINNOW_TCP_SECRET", "WINNOW_TCP_SECRET_FILE"


def _digest_of_secret(salt: str) -> Optional[str]:
    """Of the environment's, by which ranks compare theirs. None for a file that the library will refuse."""
    secret = os.fsencode(os.environ.get(_SECRET, ""))
    if _SECRET not in os.environ:
        path = os.environ[_SECRET_FILE]
        if not os.path.isfile(path) or not os.access(path, os.R_OK):
            return None
        with open(path, "rb") as file:
            secret = file.read().rstrip(b"\r\n")
    return hashlib.sha256(b"winnow secret digest" + salt.encode() + secret).hexdigest()


def gather_over_group(group: dist.ProcessGroup) -> Gather:
    """By a collective of the group."""
    def gather(mine: Any) -> List[Any]:
        gathered = [None] * dist.get_world_size(group)
        dist.all_gather_object(gathered, mine, group=group)
        return gathered

    return gather


def gather_over_store(store: dist.Store, rank: int, size: int, timeout: float) -> Gather:
    """By keys that nobody else of the store has, so that any thread may. What was said stays there until
    the rank says the next."""
    rounds = itertools.count()

    def gather(mine: Any) -> List[Any]:
        number, begin = next(rounds), time.monotonic()
        store.set(f"winnow/{number}/{rank}", json.dumps(mine))
        keys = [f"winnow/{number}/{other}" for other in range(size)]
        while not store.check(keys):  # get waits with the store's lock, which other threads want
            if time.monotonic() > begin + timeout:
                missing = [other for other, key in enumerate(keys) if not store.check([key])]
                raise RuntimeError(f"rank {listed(missing)} did not come within {timeout:g} seconds")
            time.sleep(0.001)
        gathered = [json.loads(store.get(key)) for key in keys]
        if number > 0:
            with contextlib.suppress(RuntimeError):  # a store that deletes nothing
                store.delete_key(f"winnow/{number - 1}/{rank}")  # all have read it
        return gathered

    return gather


class Meeting:
    """Of ranks that can say something to each other. Collective: each rank makes the same calls in the
    same order. What `gather` carries are texts, numbers, None, and lists of such."""

    def __init__(self, rank: int, size: int, timeout: float, gather: Gather):
        self._rank, self._timeout, self._gather = rank, timeout, gather
        self.ranks = range(size)
        self._secret: Optional[str] = None

    def gather(self, mine: Any) -> List[Any]:
        """What each rank says."""
        try:
            return self._gather(mine)
        except RuntimeError as error:
            raise CommError(f"the ranks of a process group cannot meet: {error}") from error

    def agree_on_secret(self) -> None:
        """Before connect: on that of the environment, which does not travel; on one that rank 0 makes,
        which is worth what the process group is worth; or, where a rank has no libcrypto, on none."""
        refuse(self.gather(f"{_SECRET} is empty: unset it, or set it" if os.environ.get(_SECRET) == "" else ""))
        named = _SECRET in os.environ or _SECRET_FILE in os.environ
        made = secrets.token_hex(32) if self._rank == 0 else ""
        gathered = self.gather((named, can_have_secret(), made))
        without = [rank for rank in self.ranks if not gathered[rank][0]]
        if without and len(without) < len(gathered):
            raise UsageError(f"{_SECRET} or {_SECRET_FILE} is set on some ranks, and not on rank "
                             f"{listed(without)}: set it on all or on none")
        if named:
            self._compare_secrets(salt=gathered[0][2])
        elif all(can for _, can, _ in gathered):
            self._secret = gathered[0][2]

    def _compare_secrets(self, salt: str) -> None:
        digests = self.gather(_digest_of_secret(salt))
        different = [rank for rank in self.ranks if None not in (digests[0], digests[rank])
                     and digests[rank] != digests[0]]
        if different:
            raise UsageError(f"ranks have different secrets: on rank {listed(different)} that of {_SECRET} "
                             f"or {_SECRET_FILE} is not that of rank 0")

    def connect(self, ranks: Sequence[int]) -> Transport:
        """Between `ranks`, over TCP. All ranks call it, each with those that it belongs to."""
        listener, failure = None, None
        try:
            listener = TcpListener(secret=self._secret)
        except Error as error:
            failure = isinstance(error, UsageError), str(error)
        gathered = self.gather((listener.address if listener else None, failure))
        for rank, (_, theirs) in enumerate(gathered):
            if theirs is not None:
                raise (UsageError if theirs[0] else CommError)(f"rank {rank}: {theirs[1]}")
        return listener.connect(ranks.index(self._rank), [gathered[rank][0] for rank in ranks],
                                self._timeout)


class Base:
    """Connections that only make others: of all ranks; and, for gradients on GPUs, of those of this
    node, if every rank has NCCL and a GPU of its own."""

    def __init__(self, meeting: Meeting, device: torch.device):
        meeting.agree_on_secret()
        self._world = meeting.connect(meeting.ranks)
        self._node: Optional[Transport] = None
        if device.type != "cuda":
            return
        gpu = str(torch.cuda.get_device_properties(device).uuid)
        gathered = meeting.gather((self._world.node, gpu, nccl_available()))
        nodes = [node for node, _, _ in gathered]
        alone = len(set(nodes)) == len(nodes)
        gpus = {(node, theirs) for node, theirs, _ in gathered}
        if not alone and all(have for _, _, have in gathered) and len(gpus) == len(gathered):
            here = [rank for rank in meeting.ranks if nodes[rank] == self._world.node]
            self._node = meeting.connect(here)

    def transport(self, timeout: float, nccl: Mapping[str, int]) -> Transport:
        """A new one, for one reducer. Collective."""
        world = self._world.duplicate(timeout)
        if self._node is None:
            return world
        return mixed_transport(world, nccl_transport(self._node, timeout, **nccl), timeout)

    def host_transport(self, timeout: float) -> Transport:
        """A new one for messages in host memory. Collective."""
        return self._world.duplicate(timeout)


class _Group:
    """What this module keeps of a process group, as long as that lives."""

    def __init__(self) -> None:
        self.bases: Dict[torch.device, Base] = {}
        self.lock = threading.Lock()


_groups: "weakref.WeakKeyDictionary[dist.ProcessGroup, _Group]" = weakref.WeakKeyDictionary()


def meet(group: Optional[dist.ProcessGroup], timeout: float, device: torch.device,
         nccl: Mapping[str, int]) -> Transport:
    """A transport between the ranks of `group` (None: all), in its order, for one reducer of
    gradients on `device`, the current one if it is a GPU. Ranks of a node exchange messages by
    shared memory, or over NCCL, with these options, where every rank has NCCL and a GPU of its own;
    the others over TCP, for which they have `timeout` seconds to connect. Collective: each rank makes
    the same calls in the same order, among those of torch over this group. After an error ranks meet
    anew."""
    group = dist.group.WORLD if group is None else group
    known = _groups.setdefault(group, _Group())
    with known.lock:
        meeting = Meeting(dist.get_rank(group), dist.get_world_size(group), timeout, gather_over_group(group))
        base = known.bases.pop(device, None)
        gathered = meeting.gather(base is not None)
        if base is None or not all(gathered):  # a rank may have lost its own alone
            base = Base(meeting, device)
        transport = base.transport(timeout, nccl)
        known.bases[device] = base
    return transport
