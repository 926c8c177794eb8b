# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Who makes a sum. A process group sees tensors; whose gradients they are, torch's own frames know."""
from types import FrameType
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import torch

from winnow.torch.backend.sequence import in_backward

# Modules of torch that sum statistics, activations and factors of gradients in a backward pass.
_OTHER_SUMS = ("torch.nn.modules._functions", "torch.distributed.tensor",
               "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook")


class Caller(NamedTuple):
    """Of one sum."""

    is_backward: bool = False  # it is made in a backward pass, for gradients
    # FSDP2's records of the parameters, in their order; or, of a bucket of DistributedDataParallel, the
    # parameter whose gradient came last, which is in no other bucket.
    owners: Sequence[Any] = ()
    is_ddp: bool = False
    # The method of the hook of attach_hsdp that comes next: (tensor, operation, this caller).
    take: Optional[Callable[[torch.Tensor, Any, Any], bool]] = None
    divisor: float = 1.0  # by which FSDP2 divides the sum afterwards


def caller_of(frame: Optional[FrameType]) -> Caller:
    """`frame`: that which called the process group."""
    if not in_backward():
        return Caller()
    while frame is not None and _module_of(frame).startswith("torch._dynamo"):
        frame = frame.f_back  # of torch.compiler.disable
    if frame is None or frame.f_code.co_name == "_engine_run_backward":  # DistributedDataParallel, from C++
        last = getattr(torch._C._current_autograd_node(), "variable", None)
        return Caller(True, () if last is None else (last,), last is not None)
    while frame is not None:
        name = _module_of(frame)
        if name.startswith(_OTHER_SUMS):
            return Caller()
        if frame.f_code.co_name == "foreach_reduce" and name.startswith("torch.distributed.fsdp"):
            found = frame.f_locals
            return Caller(True, tuple(found.get("fsdp_params", ())), False,
                          getattr(found.get("all_reduce_hook"), "take", None),
                          found.get("postdivide_factor") or 1.0)
        if name.partition(".")[0] not in ("torch", "winnow"):
            break
        frame = frame.f_back
    return Caller(True)


def padding_of(frame: Optional[FrameType], count: int) -> Optional[List[Tuple[int, int]]]:
    """The ranges of a reduce-scatter of `count` elements that nobody has written: DeepSpeed's ZeRO 3 pads
    what the number of ranks does not divide with memory as it finds it, which may hold NaN, or the largest
    of all elements. None: they cannot be known."""
    while frame is not None and frame.f_code.co_name != "reduce_scatter_coalesced":
        if _module_of(frame).partition(".")[0] not in ("torch", "deepspeed"):
            return []
        frame = frame.f_back
    if frame is None or not _module_of(frame).startswith("deepspeed."):
        return []
    found, begin, ranges = frame.f_locals, 0, []
    for rank in range(found.get("world_sz", 0)):
        for parts, padded in zip(found.get("partition_lst_for_each_tensor", ()),
                                 found.get("padded_partition_sz_for_each_tensor", ())):
            ranges.append((begin + parts[rank].numel(), begin + padded))
            begin += padded
    return [one for one in ranges if one[0] < one[1]] if begin == count else None


def _module_of(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "")
