# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What ranks have not sent, in checkpoints: a tensor of bytes for each rank, under a key of its own."""
import ctypes
import re
import struct
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

import torch
from torch.distributed.checkpoint import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from winnow._library import UsageError
from winnow.torch.names import listed
from winnow.torch.warn import warn

_NAMES = "names"  # of the parameters, by lines, equal on all ranks
_FOREIGN = "this is not what state_dict of a winnow.torch.State returns"
_KEY = re.compile(r"group(\d+)_rank(\d+)_of(\d+)")


# Bytes of what a reducer saves: the mark, the version, ranks, rank; then the number of its calls.
_CALLS, BEGINNING = 32, 40


class Owner(NamedTuple):
    """Whose state it is: `rank` of the `size` ranks that reduce together, and the lowest of their
    numbers in the job, which tells groups with other shards apart."""

    group: int
    rank: int
    size: int

    @classmethod
    def of_key(cls, key: Any) -> Optional["Owner"]:
        """None for keys that are not of a State."""
        match = _KEY.fullmatch(key) if isinstance(key, str) else None
        return cls(*map(int, match.groups())) if match else None

    @property
    def key(self) -> str:
        return f"group{self.group}_rank{self.rank}_of{self.size}"


def _tensor(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content or b"\n"), dtype=torch.uint8)


def _content(tensor: Any) -> bytes:
    if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.uint8:
        raise UsageError(_FOREIGN)
    ours = tensor.cpu().contiguous()
    return ctypes.string_at(ours.data_ptr(), ours.numel())


def pack(owner: Owner, content: bytes, names: Iterable[str]) -> Dict[str, torch.Tensor]:
    """A rank's state_dict."""
    return {owner.key: _tensor(content), _NAMES: _tensor("\n".join(sorted(names)).encode())}


def unpack(states: Sequence[Dict[str, Any]], owner: Owner) -> List[bytes]:
    """What `owner` continues from: its own state if there are as many ranks as before, otherwise those
    of all ranks of its group. UsageError if one is missing."""
    found: Dict[Owner, Any] = {}
    if not all(isinstance(state, dict) for state in states):
        raise UsageError(_FOREIGN)
    for state in states:
        found.update((theirs, tensor) for theirs, tensor in ((Owner.of_key(key), value)
                                                             for key, value in state.items()) if theirs)
    groups = {theirs.group for theirs in found}
    group = next(iter(groups)) if len(groups) == 1 else owner.group
    mine = {theirs.rank: (theirs.size, tensor) for theirs, tensor in found.items()
            if theirs.group == group}
    sizes = {size for size, _ in mine.values()}
    if not found:
        raise UsageError("this is no state of Winnow, for it is empty: load_state_dict takes what state_dict "
                         "of a winnow.torch.State has returned")
    if len(sizes) != 1:
        raise UsageError(f"states of {listed(theirs.key for theirs in found)}: load_state_dict takes those "
                         f"of one checkpoint, for group {owner.group}")
    size = sizes.pop()
    if size == owner.size and owner.rank in mine:
        return [_content(mine[owner.rank][1])]
    missing = [rank for rank in range(size) if rank not in mine]
    if missing:
        raise UsageError(f"a checkpoint of {size} ranks, loaded on {owner.size}, lacks the states of ranks "
                         f"{', '.join(map(str, missing))}: load_state_dict takes those of all old ranks; "
                         "torch.distributed.checkpoint finds them by winnow.torch.LoadPlanner()")
    return [_content(tensor) for _, tensor in mine.values()]


def expect_one_step(contents: Sequence[bytes]) -> None:
    """UsageError unless the states that ranks have loaded, given by their beginnings, are of one step."""
    calls = [struct.unpack_from("<Q", content, _CALLS)[0] for content in contents]
    others = [rank for rank, count in enumerate(calls) if count != calls[0]]
    if others:
        raise UsageError(f"states of different steps: that of rank 0 is of call {calls[0]}, that of rank "
                         f"{others[0]} of call {calls[others[0]]}")


def names_in(states: Sequence[Dict[str, Any]]) -> Set[str]:
    """Of the parameters in a checkpoint."""
    return {name for state in states if _NAMES in state
            for name in _content(state[_NAMES]).decode(errors="replace").split("\n") if name}


def warn_of_strangers(saved: Set[str], names: Iterable[str]) -> None:
    """Warns of parameters in a checkpoint that the model lacks: what waits of them stays unsent."""
    strangers = sorted(saved - set(names))
    if strangers:
        warn(f"strangers {strangers}", f"a checkpoint of Winnow has {listed(strangers)}, which this model "
             "lacks: what waits of them is never sent")


def _dictionaries(state: Dict[str, Any], path: str = "") -> Iterator[Tuple[str, Dict[str, Any]]]:
    """All dictionaries inside, with the beginning of their keys in a checkpoint."""
    yield path, state
    for key, value in list(state.items()):
        if isinstance(value, dict):
            yield from _dictionaries(value, f"{path}{key}.")


class LoadPlanner(DefaultLoadPlanner):
    """Lets torch.distributed.checkpoint load a State of winnow.torch on any number of ranks:

        dcp.save({"model": model_state, "winnow": state}, checkpoint_id=path)
        dcp.load({"model": model_state, "winnow": state}, checkpoint_id=path,
                 planner=winnow.torch.LoadPlanner())

    `state`, or its state_dict(), may lie in dictionaries at any depth. Takes what DefaultLoadPlanner
    takes, and treats the rest as it does. Every rank reads the states of its group.
    """

    def set_up_planner(self, state_dict: Dict[str, Any], metadata: Optional[Metadata] = None,
                       is_coordinator: bool = False) -> None:
        stored = metadata.state_dict_metadata if metadata is not None else {}
        for path, inside in _dictionaries(state_dict):
            owners = [owner for owner in map(Owner.of_key, map(str, inside)) if owner is not None]
            for mine in owners:
                found = [(theirs, what) for name, what in stored.items() if name.startswith(path)
                         and (theirs := Owner.of_key(name[len(path):])) is not None
                         and theirs.group == mine.group]
                if not found:
                    self._lacks_state_of(mine, path)
                    continue  # the State goes on with its own
                del inside[mine.key]
                for theirs, what in found:
                    inside[theirs.key] = torch.empty(what.size, dtype=torch.uint8)
            names = stored.get(path + _NAMES)
            if owners and isinstance(names, TensorStorageMetadata):
                inside[_NAMES] = torch.empty(names.size, dtype=torch.uint8)
        super().set_up_planner(state_dict, metadata, is_coordinator)

    def _lacks_state_of(self, owner: Owner, path: str) -> None:
        lack = f"this checkpoint has no state of Winnow under '{path.rstrip('.')}' for group {owner.group}"
        if not self.allow_partial_load:
            raise UsageError(f"{lack}: leave it out of what is loaded, or take "
                             "winnow.torch.LoadPlanner(allow_partial_load=True), by which nothing waits")
        warn(f"no state {path}", f"{lack}: nothing waits")
