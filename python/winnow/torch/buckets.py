# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""How the gradients of parameters lie in a bucket of DistributedDataParallel."""
from typing import List, NamedTuple

import torch
import torch.distributed as dist

from winnow._library import UsageError


class Span(NamedTuple):
    """One parameter's numbers in a bucket's buffer; a complex one is two."""

    offset: int
    count: int


def spans_of(bucket: dist.GradBucket) -> List[Span]:
    """Those of a bucket's parameters. bucket.gradients() counts complex elements, the buffer the real
    numbers that they are made of."""
    buffer, gradients = bucket.buffer(), bucket.gradients()
    elements = sum(gradient.numel() for gradient in gradients)
    numbers = 2 if any(parameter.is_complex() for parameter in bucket.parameters()) else 1
    if numbers * elements != buffer.numel():
        raise UsageError(f"a bucket of {buffer.numel()} numbers for {elements} elements of parameters: "
                         "winnow.torch does not know how they lie")
    start = buffer.storage_offset()
    return [Span(numbers * (gradient.storage_offset() - start), numbers * gradient.numel())
            for gradient in gradients]


def gradients_of(bucket: dist.GradBucket) -> List[torch.Tensor]:
    """bucket.gradients(), but of the parameters' types, and in the order of dimensions in which
    DistributedDataParallel has put them there: their parameters', if these lie without gaps."""
    buffer, found = bucket.buffer(), []
    for parameter, span in zip(bucket.parameters(), spans_of(bucket)):
        flat = buffer[span.offset:span.offset + span.count]
        if parameter.is_complex():
            flat = torch.view_as_complex(flat.view(-1, 2))
        strides = torch.empty_like(parameter).stride()
        if parameter.is_contiguous() or strides != parameter.stride():
            found.append(flat.view(parameter.shape))
        else:
            found.append(flat.as_strided(parameter.shape, strides))
    return found
