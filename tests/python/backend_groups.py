# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Groups of the backend "winnow" for tests, and what they have done."""
import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import winnow.torch
from torch_harness import step

DENSE_STEPS = 2  # after which DistributedDataParallel, and FSDP2, have summed the same buckets twice


def options(compressor="topk:0.05", **keywords):
    return winnow.torch.GroupOptions(compressor, **{"schedule": "gather", "min_bytes": 1024, "exempt_1d": 0,
                                                    **keywords})


@contextlib.contextmanager
def group_of(compressor="topk:0.05", **keywords):
    made = dist.new_group(backend="winnow", pg_options=options(compressor, **keywords))
    yield made
    dist.destroy_process_group(made)


def counts(group):
    """How many sums were compressed, and how many went exact for which reason."""
    return dict(group._why)


def compressed(group):
    return counts(group).get("", 0)


def wire_bytes(group):
    return group.state.reducer.totals()["wire_bytes"]


def train(model, steps, optimizer=None, first=0, group=None, **keywords):
    ddp = DistributedDataParallel(model, process_group=group, **keywords)
    optimizer = optimizer or torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.5)
    for number in range(first, first + steps):
        step(ddp, optimizer, number)
    return ddp, optimizer
