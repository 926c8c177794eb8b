# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What each rank has of its own, in a file beside a checkpoint: what it has not sent, and moments."""
import os
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence, Set, Tuple

import torch

from winnow._library import UsageError
from winnow.segments import Segment
from winnow.torch import sealed
from winnow.torch.agree import agreed, exchange
from winnow.torch.checkpoint import Owner
from winnow.torch.names import listed
from winnow.torch.pairing import Pairing, pairings_of
from winnow.torch.place import local, reals
from winnow.torch.rules import CLIP, UPDATES, Group, Moments, are_updates
from winnow.torch.state import State
from winnow.torch.wholes import whole

_SUFFIX = ".pt"
_UNSENT, _MOMENTS = "unsent", "moments"  # keys of a file
_RULE = "rule"  # a key beside a parameter's moments: which rule they are of


class _Moved(NamedTuple):
    """A parameter that an optimizer of the State moves."""

    parameter: torch.Tensor
    group: Group
    optimizer: torch.optim.Optimizer
    pairing: Pairing

    @property
    def rule(self) -> str:
        return type(self.pairing.rule).__name__


def _moved_by(state: State) -> Iterator[_Moved]:
    for optimizer, pairing in pairings_of(state):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if state.names_any({id(parameter)}):
                    yield _Moved(parameter, group, optimizer, pairing)


def _owners_in(folder: str) -> Set[Owner]:
    found = os.listdir(folder) if os.path.isdir(folder) else []
    owners = (Owner.of_key(name[:-len(_SUFFIX)]) for name in found if name.endswith(_SUFFIX))
    return {owner for owner in owners if owner is not None}


def _path(folder: str, owner: Owner) -> str:
    return os.path.join(folder, owner.key + _SUFFIX)


def write(folder: str, state: State) -> None:
    """Writes this rank's file. Not collective; every rank does it after the same step. The lowest rank
    removes files of jobs of other sizes."""
    owner = state.owner()
    moments: Dict[int, Dict[str, Any]] = {}
    for moved in _moved_by(state):
        held = moved.optimizer.state.get(moved.parameter)
        if held:
            moments[state.parameter_id(moved.parameter)] = {
                _RULE: moved.rule, **{name: local(value) for name, value in held.items()
                                      if isinstance(value, torch.Tensor)}}
    os.makedirs(folder, exist_ok=True)
    path = _path(folder, owner)
    sealed.save({_UNSENT: state.state_dict(), _MOMENTS: moments}, path + ".part")
    os.replace(path + ".part", path)
    for stale in _owners_in(folder) if owner.rank == 0 else ():
        if stale.group == owner.group and stale.size != owner.size:
            os.remove(_path(folder, stale))


def read(folder: str, state: State) -> bool:
    """Continues from the files that all ranks have written, on any number of ranks, before the first
    step and after weights and optimizers are loaded. Collective. On as many ranks each takes its own;
    otherwise all ranks share what waited, and take the means of moments that are a rank's own. False,
    on all ranks, if there are no files. UsageError on all ranks, before anything is changed, if a file is
    missing, damaged or not what its name says, and for files of another optimizer or another step.
    """
    owner = state.owner()
    wanted = _wanted(folder, state, owner)
    if not wanted:
        return False
    if state.takes_whole and (wanted[0].size != owner.size or state.lossless):
        raise UsageError(f"{folder} is of {wanted[0].size} ranks of attach_fsdp: a job continues from it on as "
                         "many ranks, and with a compressor that loses something")
    found = agreed(state.group, lambda: _found([_file(folder, one) for one in wanted], state))
    state.load_state_dict(*found.unsent)
    for moved, moments in found.moments:
        moved.optimizer.state[moved.parameter] = moments
    if state.lossless:
        _deliver(state)
    return True


def _wanted(folder: str, state: State, owner: Owner) -> List[Owner]:
    """The files that this rank reads."""
    exchange(state.group, lambda: None)  # all have written what they were about to write
    everyone = exchange(state.group, lambda: (owner, _owners_in(folder)))
    known = {one for _, found in everyone for one in found}
    groups = {one.group for one in known}
    group = groups.pop() if len(groups) == 1 else owner.group
    sizes = {one.size for one in known if one.group == group}
    if not sizes:
        return []
    if len(sizes) > 1:
        raise UsageError(f"{folder} has files of jobs of {' and of '.join(map(str, sorted(sizes)))} "
                         "ranks: a save was interrupted; take an older checkpoint")
    size = sizes.pop()
    wanted = {who: [Owner(group, rank, size) for rank in range(size)]
              if state.lossless or who.size != size else [Owner(group, who.rank, size)]
              for who, _ in everyone}
    missing = [{one for one in wanted[who] if one not in found} for who, found in everyone]
    if any(missing):
        lacking = [rank for rank, owners in enumerate(missing) if owners]
        names = listed(one.key + _SUFFIX for one in sorted(set().union(*missing)))
        raise UsageError(
            f"rank {listed(lacking)} finds no {names} in {folder}, in which ranks of a job of {size} have what "
            "they had not sent: bring the files of all ranks together")
    return wanted[owner]


class _Found(NamedTuple):
    """What files have for this rank."""

    unsent: List[Dict[str, Any]]
    moments: List[Tuple[_Moved, Moments]]


def _found(files: Sequence[Dict[str, Any]], state: State) -> _Found:
    moments = []
    for moved in _moved_by(state):
        held = [file[_MOMENTS].get(state.parameter_id(moved.parameter)) for file in files]
        if all(held):
            moments.append((moved, _restored(moved, held, state)))
    return _Found([file[_UNSENT] for file in files], moments)


def _file(folder: str, owner: Owner) -> Dict[str, Any]:
    """The content of a file. UsageError for anything but what `write` has written for this owner."""
    path = _path(folder, owner)
    try:
        content = sealed.load(path)
        _expect_content(content, owner)
        return content
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    except Exception as error:  # pylint: disable=broad-except  # torch raises many kinds
        raise UsageError(f"{path} cannot be read: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
                         ) from error


def _expect_content(content: Any, owner: Owner) -> None:
    unsent, moments = (content.get(key) if isinstance(content, dict) else None for key in (_UNSENT, _MOMENTS))
    if not (isinstance(unsent, dict) and isinstance(moments, dict)
            and all(map(_are_moments, moments.values()))):
        raise UsageError("it is no file of winnow.torch.save_checkpoint")
    owners = [one.key for one in map(Owner.of_key, unsent) if one is not None]
    if owners != [owner.key]:
        raise UsageError(f"it is the file of {listed(owners)}, under another name")


def _are_moments(held: Any) -> bool:
    return isinstance(held, dict) and isinstance(held.get(_RULE), str) and all(
        isinstance(value, torch.Tensor) for name, value in held.items() if name != _RULE)


def _restored(moved: _Moved, held: Sequence[Dict[str, Any]], state: State) -> Moments:
    """A parameter's moments by those of the old ranks, which differ in some."""
    name, first, rule = state.name_of(moved.parameter), held[0], moved.pairing.rule
    if first[_RULE] != moved.rule:
        raise UsageError(f"the files hold moments of {name} by {first[_RULE]}, and "
                         f"{type(moved.optimizer).__name__} moves it now")
    loaded = moved.optimizer.state.get(moved.parameter, {}).get("step")
    if loaded is not None and "step" in first and float(loaded) != float(first["step"]):
        raise UsageError(f"the files are of step {int(first['step'])}, and the optimizer's state is of "
                         f"step {int(loaded)}: both must be of one checkpoint")
    moments: Moments = {}
    for key in first:
        if key == _RULE:
            continue
        value = first[key]
        _expect_shape(value, key, moved, name)
        if key in rule.of_one_rank and len(held) > 1:
            value = torch.zeros_like(value, dtype=torch.promote_types(value.dtype, torch.float32))
            for one in held:
                value.add_(one[key], alpha=1 / len(held))
        moments[key] = _placed(value, key, moved)
    if state.lossless and are_updates(moments):
        rule.to_gradients(moved.group, moments, moved.pairing.scale)
    return moments


def _expect_shape(value: torch.Tensor, key: str, moved: _Moved, name: str) -> None:
    shapes = [(), local(moved.parameter).shape, reals(moved.parameter.detach()).shape]
    if key not in (UPDATES, CLIP) and value.shape not in shapes:
        raise UsageError(f"the files hold {key} of {name} of shape {tuple(value.shape)}, and the parameter has "
                         f"the shape {tuple(moved.parameter.shape)}: they are of another model")


def _placed(value: torch.Tensor, key: str, moved: _Moved) -> torch.Tensor:
    """A tensor of the optimizer's state, where torch has it."""
    if key == UPDATES or value.shape != local(moved.parameter).shape:
        if moved.pairing.state.takes_whole and key in moved.pairing.rule.of_one_rank:
            result = whole(None, moved.parameter)
            local(result).copy_(value)
            return result
        on_device = moved.group.get("capturable") or moved.group.get("fused")
        return value.to(moved.parameter.device if on_device and key != UPDATES else "cpu", copy=True)
    result = torch.zeros_like(moved.parameter, memory_format=torch.preserve_format)
    local(result).copy_(value)
    return result


@torch.no_grad()
def _deliver(state: State) -> None:
    """Applies to the weights what waits as updates, of parameters whose gradients are none from here
    on. Collective."""
    moved = list(_moved_by(state))
    sums = [torch.zeros(local(one.parameter).numel() + state.padding_of(one.parameter),
                        device=one.parameter.device) for one in moved]
    if not moved:
        return
    with state.place_at(sums[0].device).in_turn():
        state.reducer.all_reduce_bucket([Segment(flat, state.parameter_id(one.parameter))
                                         for flat, one in zip(sums, moved)])
    for flat, one in zip(sums, moved):
        momentum, weight = one.pairing.rule.reach(one.group)
        ours = local(one.parameter)
        ours.sub_(flat[:ours.numel()].as_strided(ours.size(), ours.stride()),
                  alpha=float(weight) / (1 - momentum))
