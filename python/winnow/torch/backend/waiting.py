# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What waits of gradients when their group ends, on its way into the sums of the next one."""
from typing import Dict, List, Sequence

import torch


class Waiting:
    """Of this rank, by the id of a sum's place. Sums of the next group add it to their gradients, so no
    group needs to know how another one kept it. Used by one thread at a time."""

    def __init__(self) -> None:
        self._held: Dict[int, List[torch.Tensor]] = {}  # float32, one for each tensor of the sum
        self._added: Dict[int, List[torch.Tensor]] = {}  # to gradients that no step has applied yet

    def put(self, place: int, residuals: Sequence[torch.Tensor]) -> None:
        """A group leaves these."""
        held = self._held.get(place)
        if held is not None and [one.numel() for one in held] == [one.numel() for one in residuals]:
            residuals = [one + more.to(one.device) for one, more in zip(residuals, held)]
        self._held[place] = list(residuals)

    @torch.no_grad()
    def add_to(self, place: int, gradients: Sequence[torch.Tensor]) -> None:
        """gradients += what waits of them. What 16 bits miss of it waits on."""
        held = self._held.get(place)
        if held is None or [one.numel() for one in held] != [one.numel() for one in gradients]:
            return
        del self._held[place]
        added, missed = [], []
        for gradient, residual in zip(gradients, held):
            before, residual = gradient.float(), residual.to(gradient.device)
            gradient.add_(residual)
            rounded = gradient.float() - before
            is_whole = gradient.dtype == torch.float32 or not rounded.isfinite().all()  # of such a sum no step is made
            added.append(residual if is_whole else rounded)
            missed.append(residual - added[-1])
        if any(one.any() for one in missed):
            self._held[place] = missed
        known = self._added.get(place)
        self._added[place] = added if known is None else [one + more for one, more in zip(known, added)]

    def apply(self) -> None:
        """An optimizer applies the sums so far."""
        self._added.clear()

    def take_back(self) -> None:
        """No step will apply the sums since the last one."""
        added, self._added = self._added, {}
        for place, residuals in added.items():
            self.put(place, residuals)
