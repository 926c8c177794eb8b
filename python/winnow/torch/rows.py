# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Gradients of rows of a table, as nn.Embedding(sparse=True) makes them."""
import math
from typing import Optional

import torch

from winnow.reducer import Reducer

_SUMMED = (torch.float32, torch.bfloat16, torch.float16)


def are_rows(gradient: torch.Tensor) -> bool:
    """Whether it has rows of a table in host memory, of a type that is summed. Equal on all ranks."""
    return (gradient.layout == torch.sparse_coo and gradient.sparse_dim() == 1 and gradient.dtype in _SUMMED
            and gradient.device.type == "cpu")


def takes_rows(reducer: Reducer) -> bool:
    """Whether it does: not if it keeps the moments of an optimizer, which are of whole tables."""
    return "precondition=none" in reducer.options.split()


def all_reduce(reducer: Reducer, gradient: torch.Tensor, number: int, op: Optional[str] = None) -> torch.Tensor:
    """The sum or average of `gradient`, coalesced, of the parameter with this id."""
    mine = gradient.detach().coalesce()
    shape, kind = mine.shape, mine.dtype
    width = math.prod(shape[1:])
    rows, sums = reducer.all_reduce_rows(mine.indices().reshape(-1), mine.values().reshape(-1, width).contiguous(),
                                         shape[0], number, op)
    count = len(rows)
    indices, values = torch.empty((1, count), dtype=torch.int64), torch.empty((count, *shape[1:]), dtype=kind)
    if values.numel() > 0:
        indices = torch.frombuffer(rows, dtype=torch.int64).view(1, count)
        values = torch.frombuffer(sums, dtype=kind).view(values.shape)
    return torch.sparse_coo_tensor(indices, values, shape, is_coalesced=True, check_invariants=False)
