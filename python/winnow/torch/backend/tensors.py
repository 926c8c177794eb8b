# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""How the tensors of one call lie."""
from typing import Any, List, Optional

import torch

_ORDINARY = (torch.Tensor, torch.nn.Parameter)


def flat_of(tensor: torch.Tensor) -> Optional[torch.Tensor]:
    """The memory of a tensor without gaps, in one dimension; None for others."""
    stride = 1
    for extent, ahead in sorted(((extent, ahead) for extent, ahead in zip(tensor.shape, tensor.stride())
                                 if extent > 1), key=lambda one: one[1]):
        if ahead != stride:
            return None
        stride *= extent
    return tensor.detach().as_strided((tensor.numel(),), (1,))


def are_alike(outputs: List[torch.Tensor], inputs: List[torch.Tensor], size: int) -> bool:
    """Whether these are ordinary tensors of one type in one place, without gaps, and inputs hold an output
    for each of `size` ranks."""
    return (len(outputs) > 0 and len(inputs) in (0, len(outputs))
            and all(_is_ordinary(one) and (one.dtype, one.device) == (outputs[0].dtype, outputs[0].device)
                    and flat_of(one) is not None for one in (*outputs, *inputs))
            and all(source.numel() == size * output.numel() and source.is_contiguous() and output.is_contiguous()
                    for source, output in zip(inputs, outputs)))


def _is_ordinary(tensor: Any) -> bool:
    return (type(tensor) in _ORDINARY and tensor.layout == torch.strided and tensor.numel() > 0
            and tensor.device.type in ("cpu", "cuda") and not tensor.is_neg() and not tensor.is_conj())


def overlaps(tensor: torch.Tensor) -> bool:
    """Whether elements share memory."""
    return tensor.layout == torch.strided and any(
        extent > 1 and ahead == 0 for extent, ahead in zip(tensor.shape, tensor.stride()))


def order_of(tensor: torch.Tensor) -> str:
    """In which order the dimensions of a tensor lie; empty for C's."""
    return "" if tensor.is_contiguous() else str(tensor.stride())
