# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Norms of mean gradients, which no rank has."""
from typing import NamedTuple, Optional, Sequence, Union

import torch
import torch.distributed as dist

from winnow import _library
from winnow._library import ELEMENT_TYPES
from winnow.torch.place import reals

# Of a sketch: its norm has a standard error of 1 / sqrt(2 WIDTH), 2.2 %. A prime, so that no dimension of
# a layer is one column.
WIDTH = 1021
_ROWS = 4096  # of a gradient at a time
_EPSILON = 1e-6  # that of clip_grad_norm_


class Clip(NamedTuple):
    """A call of clip_grad_norm_."""

    bound: Union[float, torch.Tensor]
    norm: torch.Tensor

    def coefficient(self) -> torch.Tensor:
        """What gradients are multiplied by."""
        return (self.bound / (self.norm + _EPSILON)).clamp(max=1.0)


class Norms:
    """A few numbers about a bucket that are reduced with it, whole, and tell every rank the norm of the
    gradients' mean.

    The bucket's elements are the rows of a matrix with WIDTH columns, or `width`. Each row takes a random sign, the
    same on all ranks, and the sum of rows is the sketch: it is linear, so that the mean of sketches is the
    sketch of the mean, and the expectation of its squared norm is the squared norm of the gradient (Alon,
    Matias and Szegedy, The space complexity of approximating the frequency moments, 1996). The squared
    norm of each parameter's own gradient says what part of it some parameters have.
    """

    def __init__(self, number: int, buffer: torch.Tensor, parameters: int,
                 shards: Optional[dist.ProcessGroup] = None, width: int = WIDTH):
        # Of the type that travels with the bucket: the library takes buckets of one type beside gradients'.
        kind = buffer.dtype if buffer.dtype == torch.float64 else torch.float32
        as_here = {"dtype": kind, "device": buffer.device}
        seeded = torch.Generator().manual_seed(number % 2**63)
        signs = torch.randint(0, 2, (-(-buffer.numel() // width),), generator=seeded, device="cpu")
        self._signs = (2 * signs - 1).to(**as_here)
        self.id = number  # equal on all ranks
        self._width = width
        self.shards = shards  # of ranks that hold other parts of the parameters
        # What travels. A sketch; of each parameter the square of its norm, and what its gradient was
        # multiplied by; and a one, which counts the ranks where the sum is no average.
        self.reduced = torch.zeros(width + 2 * parameters + 1, **as_here)
        self._sketch, self._squares, self._foreseen, self._ones = self.reduced.split(
            [width, parameters, parameters, 1])
        self._elements = float(buffer.numel())
        self.own = torch.zeros((), **as_here)  # the norm of this rank's bucket

    def measure(self, buffer: torch.Tensor, gradients: Sequence[torch.Tensor], loss_scale: float) -> None:
        """`buffer`: this rank's bucket, flat; `gradients`: the parameters' parts of it."""
        width = self._width
        whole = buffer.numel() // width
        self._sketch.zero_()
        for begin in range(0, whole, _ROWS):
            rows = min(_ROWS, whole - begin)
            some = buffer[begin * width:(begin + rows) * width].view(rows, width)
            self._sketch.add_(self._signs[begin:begin + rows] @ some.to(self._signs.dtype))
        rest = buffer[whole * width:]
        if rest.numel() > 0:
            self._sketch[:rest.numel()].add_(rest * self._signs[-1])
        norms = torch._foreach_norm([reals(gradient) for gradient in gradients], 2, dtype=self.own.dtype)
        torch.stack(norms, out=self._squares)
        self._squares.square_()
        self._foreseen.fill_(1)
        self._ones.fill_(1)
        self.own = self._squares.sum().sqrt() / loss_scale

    def clip(self, number: int, gradient: torch.Tensor, expected: Clip) -> None:
        """Clips the gradient of a parameter, before it is reduced."""
        foreseen = expected.coefficient().to(self.own)
        foreseen = torch.where((foreseen > 0) & foreseen.isfinite(), foreseen, 1)
        self._foreseen[number] = foreseen
        if foreseen.device.type != "cpu" or foreseen.item() != 1:
            gradient.mul_(foreseen)

    def expected(self, held: torch.Tensor) -> Clip:
        """The next call, if the norm of all has changed as that of this rank's bucket has since `held` was
        kept, or not at all if that was of another bucket."""
        bound, norm, own, elements = held.to(self.own).unbind()
        change = torch.where((own > 0) & (elements == self._elements), self.own / own, 1)
        return Clip(bound, norm * change)

    def keep(self, clip: Clip, before: Optional[torch.Tensor]) -> torch.Tensor:
        """What `expected` wants of a call: bound and norm, the norm of this rank's bucket, and its
        elements. `before`: what was kept last, which serves where gradients are not finite."""
        norm = clip.norm.to(self.own)
        kept = torch.stack([torch.full_like(norm, clip.bound), norm, self.own,
                            torch.full_like(norm, self._elements)])
        return torch.where(kept.isfinite().all(), kept, kept.new_zeros(4) if before is None else before.to(kept))

    def foreseen(self, number: int) -> torch.Tensor:
        """What ranks have multiplied the gradient of a parameter by, on average."""
        return self._foreseen[number] / self._ones[0]

    @property
    def native(self) -> _library.Segment:
        """What travels, as the library takes it."""
        kind = str(self.reduced.dtype).removeprefix("torch.")
        return _library.Segment(type=ELEMENT_TYPES[kind], id=self.id, count=self.reduced.numel(),
                                data=self.reduced.data_ptr(), dimensions=1, rate=1.0, exempt=1)

    def square(self, parameters: Sequence[int]) -> torch.Tensor:
        """The squared norm of the gradients with these numbers, once the bucket is reduced."""
        whole = self._sketch.dot(self._sketch)
        if len(parameters) == self._squares.numel():
            return whole
        part = self._squares[list(parameters)].sum()
        return torch.where(part > 0, whole * part / self._squares.sum(), torch.zeros_like(whole))
