# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""How groups of the backend are made: by torch, or by a framework."""
import datetime
from typing import Any, Optional

import torch.distributed as dist

from winnow._library import UsageError
from winnow.torch.backend.group import Common, WinnowGroup
from winnow.torch.backend.options import GroupOptions, options_of
from winnow.torch.backend.waiting import Waiting


def process_group(store: dist.Store, rank: int, size: int, options: Optional[GroupOptions] = None, *,
                  timeout: datetime.timedelta = datetime.timedelta(minutes=30),
                  after: Optional[WinnowGroup] = None) -> WinnowGroup:
    """A group of the backend that torch does not know of, for frameworks that make theirs themselves, such as
    torchft, or in a job without init_process_group. Collective: each of `size` ranks passes its own number and
    a store of which nobody else uses the keys, a PrefixStore. shutdown() ends it.

    `after`: a group that was made by this function, which it ends, aborted or not. What waited there on this
    rank after the last step of an optimizer is added to the same gradients in the new group, whatever ranks
    are in it: sums since then were not applied. A rank that was in no group passes None. For this such groups
    keep 4 bytes more for each element that waits. What waits of rows of sparse gradients (option rows), and of
    parameters of an optimizer over the group, ends with it. Raises UsageError for another group."""
    if after is not None and getattr(after, "_waiting", None) is None:
        raise UsageError("after: takes a group that winnow.torch.process_group has made")
    waiting = Waiting() if after is None else after.end()
    made = WinnowGroup(Common(store, rank, size, timeout), options_of(options), False,
                       waiting)
    if after is not None:
        made._sequence = after._sequence
    return made


def create(common: Any, options: Any) -> WinnowGroup:
    """What torch calls to make a group."""
    is_inherited = options is None and dist.is_initialized() and isinstance(dist.group.WORLD, WinnowGroup)
    return WinnowGroup(common, options_of(options), is_inherited)
