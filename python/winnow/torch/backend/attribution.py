# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Whose gradients a sum is of, where optimizers of winnow.torch are made over a group."""
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch.utils.weak import WeakTensorKeyDictionary

from winnow.torch.backend.caller import Caller
from winnow.torch.backend.sequence import steps_made
from winnow.torch.backend.tensors import flat_of
from winnow.torch.names import id_of

_MOST = 4096  # places of flat tensors that are remembered
Optimizer = Callable[[], Optional[torch.optim.Optimizer]]  # a weak reference


class Part(NamedTuple):
    """One parameter's elements in a flat tensor."""

    number: int  # of the parameter, equal on all ranks
    parameter: torch.Tensor
    offset: int

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """They, in one dimension."""
        return flat[self.offset:self.offset + self.parameter.numel()]

    def gradient(self, flat: torch.Tensor) -> torch.Tensor:
        """They, as the parameter lies."""
        return self.of(flat).as_strided(self.parameter.shape, self.parameter.stride())


class Attributed(NamedTuple):
    """The parameters whose gradients one sum is of."""

    id: int  # equal where ranks agree
    parts: List[List[Part]]  # of each tensor, by their offsets


_Places = Tuple[Tuple[int, int], ...]  # numbers of parameters, and their offsets


def _places(parts: Sequence[Part]) -> _Places:
    return tuple((part.number, part.offset) for part in parts)


class _Layout(NamedTuple):
    """Of a flat tensor that gradients are copied into."""

    places: _Places
    divide: Callable[[torch.Tensor], torch.Tensor]  # as the caller does before the sum


class Attribution:
    """Of one group. A tensor is of gradients if it is the memory of p.grad or p.main_grad; if all of it
    equals gradients bit for bit, as they are or divided by the number of ranks; or if a parameter's own hook
    sums it. Nothing else is: such sums are exact."""

    def __init__(self, ranks: int):
        self._ranks = ranks
        self._optimizers: List[Optimizer] = []
        self._numbers, self._count = WeakTensorKeyDictionary(), 0
        self._listed: Tuple[Any, Dict[int, torch.Tensor]] = (None, {})  # what parameters() has returned last
        self._found: Dict[Tuple[int, int], List[int]] = {}  # numbers, by where a flat tensor was and its size
        self._layouts: Dict[Tuple[int, torch.dtype], List[_Layout]] = {}
        self._step, self._place = -1, 0  # how many steps optimizers had made, and sums since then
        self._order: Dict[int, _Places] = {}  # what the sum at a place of the last steps was of
        self.known = self.unknown = 0  # sums, as all ranks agree

    def serve(self, optimizer: torch.optim.Optimizer) -> None:
        """From here on sums are of its parameters, too."""
        self._optimizers.append(weakref.ref(optimizer))
        weakref.finalize(optimizer, self._forget).atexit = False
        self.parameters()  # which get their numbers in the order in which optimizers are made

    @property
    def serves_any(self) -> bool:
        """Whether there are such optimizers."""
        return any(one() is not None for one in self._optimizers)

    def _forget(self) -> None:
        """An optimizer is gone, and its parameters are not held."""
        self._optimizers = [one for one in self._optimizers if one() is not None]
        self._listed = None, {}

    def parameters(self) -> Dict[int, torch.Tensor]:
        """Those of all optimizers, by their numbers."""
        every = [parameter for optimizer in filter(None, (one() for one in self._optimizers))
                 for group in optimizer.param_groups for parameter in group["params"]]
        which = list(map(id, every))
        if self._listed[0] != which:
            for parameter in every:
                if parameter not in self._numbers:
                    self._count += 1
                    self._numbers[parameter] = self._count
            self._listed = which, {self._numbers[parameter]: parameter for parameter in every}
        return self._listed[1]

    def note(self, is_known: bool) -> None:
        """What ranks have agreed about one sum."""
        self.known += is_known
        self.unknown += not is_known

    @torch.no_grad()
    def of(self, tensors: Sequence[torch.Tensor], caller: Caller) -> Optional[Attributed]:
        """None if it is not certain for all elements."""
        parameters, variable = self.parameters(), _variable(caller)
        if self._step != steps_made():
            self._step, self._place = steps_made(), 0
        every = []
        for tensor in tensors:
            flat = flat_of(tensor)
            found = self._in_memory(flat, parameters, variable)
            every.append([found] if found else [*self._copied(flat, parameters),
                                                *(self._hooked(tensor, variable) if len(tensors) == 1 else ())])
        parts = [self._choose(found) for found in every]
        if not all(parts):
            return None
        return Attributed(id_of(str(list(map(_places, parts)))), parts)

    def _choose(self, found: List[List[Part]]) -> List[Part]:
        """Where several are possible, as where gradients are zero: what the sum at this place in the step was of
        before; none if that is not among them."""
        place, before = self._place, self._order.get(self._place)
        self._place += 1
        possible = {_places(parts): parts for parts in found}
        chosen = before if before in possible else next(iter(possible), ())
        if not possible or len(possible) > 1 and chosen != before:
            return []
        if place < _MOST:
            self._order[place] = chosen
        return possible[chosen]

    def _in_memory(self, flat: torch.Tensor, parameters: Dict[int, torch.Tensor],
                   variable: Optional[torch.Tensor]) -> List[Part]:
        """Of p.grad and p.main_grad. Looks first where it has found them before."""
        place = flat.data_ptr(), flat.numel()
        numbers = [self._numbers[variable]] if variable is not None and variable in self._numbers else []
        for some in numbers, self._found.get(place, []):
            found = _lying_in(flat, {number: parameters[number] for number in some if number in parameters})
            if found:
                return found
        found = _lying_in(flat, parameters)
        if len(self._found) > _MOST:
            self._found.clear()
        if found:
            self._found[place] = [part.number for part in found]
        return found

    def _hooked(self, tensor: torch.Tensor, variable: Optional[torch.Tensor]) -> List[List[Part]]:
        """Of a hook of one parameter, before its gradient is in p.grad."""
        if (variable is None or variable not in self._numbers or variable.dtype != tensor.dtype
                or not _lies_as(tensor, variable)):
            return []
        return [[Part(self._numbers[variable], variable, 0)]]

    def _copied(self, flat: torch.Tensor, parameters: Dict[int, torch.Tensor]) -> List[List[Part]]:
        """Of copies of gradients, one behind the other: all that they may be."""
        layouts, found = self._layouts.setdefault((flat.numel(), flat.dtype), []), []
        for layout in layouts:
            parts = [Part(number, parameters[number], offset) for number, offset in layout.places
                     if number in parameters]
            if len(parts) == len(layout.places) and all(_equals(part, flat, layout.divide) for part in parts):
                found.append(parts)
        if found or not flat.any():
            return found
        ranks = {self._ranks, dist.get_world_size() if dist.is_initialized() else self._ranks}
        ways: List[Callable[[torch.Tensor], torch.Tensor]] = [lambda x: x]
        for count in sorted(ranks):
            ways += [lambda x, by=count: x / by, lambda x, by=count: x * (1 / by)]
        for divide in ways:
            parts = _walk(flat, parameters, divide)
            if parts:
                layouts[:] = [_Layout(_places(parts), divide),
                              *(one for one in layouts if one.places != _places(parts))]
                return [parts]
        return []


def _variable(caller: Caller) -> Optional[torch.Tensor]:
    """The parameter whose hook makes a sum; None if none does."""
    node = torch._C._current_autograd_node() if caller.is_backward and not caller.is_ddp else None
    return getattr(node, "variable", None)


def _is_plain(gradient: Any) -> bool:
    return (type(gradient) in (torch.Tensor, torch.nn.Parameter) and gradient.layout == torch.strided
            and gradient.is_floating_point() and gradient.numel() > 0)


def _lying_in(flat: torch.Tensor, parameters: Dict[int, torch.Tensor]) -> List[Part]:
    """The gradients that lie in `flat`, if they are all of it but for zeros between them."""
    begin, width = flat.data_ptr(), flat.element_size()
    end, found = begin + flat.numel() * width, []
    for number, parameter in parameters.items():
        for gradient in (parameter.grad, getattr(parameter, "main_grad", None)):
            if _is_plain(gradient) and gradient.device == flat.device and begin <= gradient.data_ptr() < end:
                offset = (gradient.data_ptr() - begin) // width
                if (gradient.dtype != flat.dtype or not _lies_as(gradient, parameter)
                        or offset + gradient.numel() > flat.numel()):
                    return []
                found.append(Part(number, parameter, offset))
                break
    found.sort(key=lambda part: part.offset)
    at = 0
    for part in found:
        if part.offset < at or flat[at:part.offset].any():
            return []
        at = part.offset + part.parameter.numel()
    return [] if flat[at:].any() else found


def _lies_as(gradient: torch.Tensor, parameter: torch.Tensor) -> bool:
    """Whether its memory has the parameter's elements in their order, without gaps."""
    return (gradient.shape == parameter.shape and flat_of(parameter) is not None
            and (gradient.stride() == parameter.stride()
                 or gradient.is_contiguous() and parameter.is_contiguous()))


def _equals(part: Part, flat: torch.Tensor, divide: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Whether these elements are the parameter's gradient, by the same bits."""
    gradient = part.parameter.grad
    return (_is_plain(gradient) and part.parameter.is_contiguous() and gradient.is_contiguous()
            and torch.equal(_bits(part.of(flat)), _bits(divide(gradient.detach().view(-1).to(flat.dtype)))))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view({2: torch.int16, 4: torch.int32}[tensor.element_size()])


def _walk(flat: torch.Tensor, parameters: Dict[int, torch.Tensor],
          divide: Callable[[torch.Tensor], torch.Tensor]) -> List[Part]:
    """Gradients that follow each other in `flat`; none where two would fit in one place."""
    first = {number: divide(p.grad.detach().reshape(-1)[:1].to(flat.dtype)).item()
             for number, p in parameters.items()
             if _is_plain(p.grad) and p.grad.device == flat.device and p.grad.numel() <= flat.numel()}
    found: List[Part] = []
    at = 0
    while at < flat.numel():
        begins = flat[at].item()
        fits = [part for part in (Part(number, parameters[number], at) for number, value in first.items()
                                  if value == begins)
                if part.parameter.numel() <= flat.numel() - at and _equals(part, flat, divide)]
        if len(fits) != 1:
            break
        found += fits
        del first[fits[0].number]
        at += fits[0].parameter.numel()
    return found if at == flat.numel() else []
