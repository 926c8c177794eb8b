# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Means over the ranks that still have inputs, in ddp.join(divide_by_initial_world_size=False)."""
import weakref
from typing import Callable, Optional, Sequence

import torch
from torch.nn.parallel import DistributedDataParallel

from winnow.segments import Segment
from winnow.torch.names import id_of
from winnow.torch.state import State


def rescale_of(ddp: DistributedDataParallel, state: State) -> Callable[[Sequence[torch.Tensor]], None]:
    """What multiplies this rank's gradients before the reducer divides their sum by all ranks."""
    model, owner = weakref.ref(ddp), weakref.ref(state)

    def rescale(gradients: Sequence[torch.Tensor]) -> None:
        found: Optional[DistributedDataParallel] = model()
        if found is None or not found._join_config.enable or found._divide_by_initial_world_size:
            return
        reducing = owner()
        # A rank that has joined stands in outside of a backward pass.
        count = torch.tensor([torch._C._current_graph_task_id() != -1], dtype=torch.int32,
                             device=gradients[0].device)
        with reducing.place_at(count.device).in_turn():
            reducing.reducer.all_reduce_bucket([Segment(count, id_of("ranks that have not joined"))],
                                               op="sum")
        factor = found.process_group.size() / count.item()
        for gradient in gradients if factor != 1 else ():
            gradient.mul_(factor)

    return rescale
