# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What ranks exchange before a call that waits for all of them."""
import gc
from typing import Any, Callable, List, Optional

import torch.distributed as dist

from winnow._library import UsageError


def _gather(mine: Any, group: Optional[dist.ProcessGroup]) -> List[Any]:
    everyone = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, mine, group=group)
    return everyone


def agree_to_detach(group: Optional[dist.ProcessGroup], refusal: str,
                    living: Callable[[], List[bool]]) -> None:
    """UsageError on all ranks if one refuses, or if some have an optimizer that attach took and others
    have it no more. Collective. `living()`: which optimizers this rank has."""
    refusals = _gather(refusal, group)
    if any(refusals):
        rank = next(rank for rank, text in enumerate(refusals) if text)
        raise UsageError(refusal or f"rank {rank}: {refusals[rank]}")
    everyone = _gather(living(), group)
    if any(theirs != everyone[0] for theirs in everyone):
        gc.collect()  # a rank may have dropped it in a cycle
        everyone = _gather(living(), group)
    missing = [rank for rank, theirs in enumerate(everyone) if sum(theirs) < max(map(sum, everyone))]
    if missing:
        raise UsageError("an optimizer that attach took is gone on ranks "
                         f"{', '.join(map(str, missing))}, and others have it, whose moments detach would "
                         "average over all ranks: keep it everywhere until then, or drop it everywhere")
