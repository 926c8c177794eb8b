# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Moments of whole parameters, each rank's own, where the parameters are sharded over all ranks."""
from typing import Optional

import torch


def _is_sharded(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "full_tensor")


def whole(moment: Optional[torch.Tensor], parameter: torch.Tensor) -> torch.Tensor:
    """A moment of all elements of a parameter, on this rank: `moment` itself if it is one, zeros if there
    is none. Of a sharded moment ranks gather the shards, which is collective."""
    if moment is None:
        return torch.zeros(parameter.shape, dtype=parameter.dtype, device=parameter.device)
    return moment.full_tensor().contiguous() if _is_sharded(moment) else moment


def shard_of(moment: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Of a whole moment the rows that this rank has of `like`, sharded as that is. `moment` itself if
    `like` is whole, or both are sharded."""
    if not _is_sharded(like) or _is_sharded(moment):
        return moment
    shard = torch.zeros_like(like)
    rows = -(-like.shape[0] // like.device_mesh.size())
    begin = rows * like.device_mesh.get_local_rank()
    shard.to_local().copy_(moment[begin:begin + shard.to_local().shape[0]])
    return shard
