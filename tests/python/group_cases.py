# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that have no inputs left."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import winnow.torch
from attach_cases import plain, weights
from torch_harness import expect, expect_equal_replicas, network


def case_uneven():
    """ddp.join divides by all ranks, or by those that still have inputs, as without Winnow."""
    ends = []
    for winnows in False, True:
        ddp = DistributedDataParallel(network())
        if winnows:
            state = winnow.torch.attach(ddp, "none")
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        for initial in True, False:
            with ddp.join(divide_by_initial_world_size=initial):
                for number in range(2 + dist.get_rank()):
                    optimizer.zero_grad()
                    plain(ddp, number)
                    optimizer.step()
        ends.append(weights(ddp))
        expect_equal_replicas(ddp)
    state.close()
    expect(torch.allclose(*ends, rtol=1e-5, atol=1e-6), "the same steps, to rounding")
