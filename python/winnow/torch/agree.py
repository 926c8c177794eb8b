# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What ranks exchange before a call that waits for all of them."""
import gc
from typing import Any, Callable, List, Optional, Sequence, TypeVar

import torch.distributed as dist

from winnow._library import UsageError
from winnow.torch.names import listed

Made = TypeVar("Made")


def _gather(mine: Any, group: Optional[dist.ProcessGroup]) -> List[Any]:
    everyone = [None] * dist.get_world_size(group)
    dist.all_gather_object(everyone, mine, group=group)
    return everyone


def refuse(texts: Sequence[str], cause: Optional[Exception] = None) -> None:
    """UsageError if one of the texts, a rank's each, is not empty: the first of them, and whose they are.
    All ranks call it with the same texts. `cause`: what this rank has met."""
    refusing = [rank for rank, text in enumerate(texts) if text]
    if not refusing:
        return
    first = texts[refusing[0]]
    alike = [rank for rank in refusing if texts[rank] == first]
    others = [rank for rank in refusing if texts[rank] != first]
    where = "" if len(alike) == len(texts) else f"rank {listed(alike)}: "
    raise UsageError(f"{where}{first}{f'; and an error on rank {listed(others)}, too' if others else ''}"
                     ) from cause


def exchange(group: Optional[dist.ProcessGroup], make: Callable[[], Made]) -> List[Made]:
    """make() of each rank. If it fails on one, that is a UsageError on all, which says where. Collective."""
    mine, text, cause = None, "", None
    try:
        mine = make()
    except UsageError as error:
        text, cause = str(error), error
    except Exception as error:  # pylint: disable=broad-except  # whatever it is, the others wait
        text, cause = f"{type(error).__name__}: {error}", error
    everyone = _gather((mine, text), group)
    refuse([theirs for _, theirs in everyone], cause)
    return [made for made, _ in everyone]


def agreed(group: Optional[dist.ProcessGroup], make: Callable[[], Made]) -> Made:
    """make() of this rank, once it has succeeded on all: as exchange, for what does not travel."""
    made: List[Made] = []
    exchange(group, lambda: made.append(make()))
    return made[0]


def agree_to_detach(group: Optional[dist.ProcessGroup], refusal: str,
                    living: Callable[[], List[bool]]) -> None:
    """UsageError on all ranks if one refuses, or if some have an optimizer that attach took and others
    have it no more. Collective. `living()`: which optimizers this rank has."""
    refuse(_gather(refusal, group))
    everyone = _gather(living(), group)
    if any(theirs != everyone[0] for theirs in everyone):
        gc.collect()  # a rank may have dropped it in a cycle
        everyone = _gather(living(), group)
    missing = [rank for rank, theirs in enumerate(everyone) if sum(theirs) < max(map(sum, everyone))]
    if missing:
        raise UsageError("an optimizer that attach took is gone on ranks "
                         f"{', '.join(map(str, missing))}, and others have it, whose moments detach would "
                         "average over all ranks: keep it everywhere until then, or drop it everywhere")
