# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Ranks that have no inputs left, and ranks that leave."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import winnow.torch
from attach_cases import KINDS, attached, plain, weights
from torch_harness import (batch, expect, expect_equal_replicas, expect_refused, gather, make, network,
                           refused)
from winnow.torch.attach import state_of


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


def half():
    """A group of the last ranks, and whether this rank belongs to it."""
    ranks = list(range(dist.get_world_size() // 2, dist.get_world_size()))
    return dist.new_group(ranks), dist.get_rank() in ranks, len(ranks)


def case_regroup():
    """Ranks leave: names and what waits stay, and Winnow never reduces over other ranks than the
    model."""
    ddp, state, optimizer = make(options={"min_bytes": 0, "exempt_1d": False})
    for number in range(3):
        optimizer.zero_grad()
        plain(ddp, number)
        optimizer.step()
    before = [state.residual(p) for p in ddp.parameters()]
    waits = sum(residual.abs().sum().item() for residual in before)
    expect(waits > 0, "something waits")
    group, stays, size = half()
    ddp._update_process_group(group)
    good = True
    if stays and size < dist.get_world_size():
        try:
            plain(ddp, 3)
            good = False
        except winnow.UsageError as error:
            good = "winnow.torch.regroup" in str(error)
    expect(good, "an error names the call")
    ddp._update_process_group(group)
    optimizer.zero_grad()
    found = []
    if stays:
        if size < dist.get_world_size():
            good = "_update_process_group" in refused(lambda: state.regroup(None))
        winnow.torch.regroup(ddp)
        share = size / dist.get_world_size()
        found.append(all(torch.equal(share * held, state.residual(p))
                         for held, p in zip(before, ddp.parameters())))
        for number in range(3, 6):
            optimizer.zero_grad()
            plain(ddp, number)
            optimizer.step()
        bits = [None] * size
        dist.all_gather_object(bits, weights(ddp).cpu().numpy().tobytes(), group=group)
        found.append(len(set(bits)) == 1)
        found.append(state.reducer.transport.size == size)
        found.append(good)
    expect(all(found), f"what waited waits, and replicas are equal: {gather(found)}")
    state.close()


def case_regroup_optimizer():
    """The optimizer that is attached goes on, and lossless steps are torch's bit for bit."""
    for kind, (torchs, _, own) in KINDS.items():
        ddp, optimizer = attached(kind)
        for number in range(3):
            optimizer.zero_grad()
            plain(ddp, number)
            expect_refused(lambda: winnow.torch.regroup(ddp))
            optimizer.step()
        group, stays, size = half()
        ddp._update_process_group(group)
        equal = True
        if stays:
            if size < dist.get_world_size():  # before it is too late for the model
                equal = "winnow.torch.regroup" in refused(lambda: ddp(batch(3)))
            winnow.torch.regroup(ddp)
            for number in range(3, 6):
                optimizer.zero_grad()
                plain(ddp, number)
                optimizer.step()
            bits = [None] * size
            dist.all_gather_object(bits, weights(ddp).cpu().numpy().tobytes(), group=group)
            equal = equal and len(set(bits)) == 1
        expect(equal, f"{kind}: replicas are equal")
        state_of(ddp).close()

    ends = []
    for winnows in False, True:
        ddp = DistributedDataParallel(network())
        if winnows:
            state = winnow.torch.attach(ddp, "none")
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        group, stays, _ = half()
        for number in range(6):
            if number == 3:
                ddp._update_process_group(group)
                if not stays:
                    break
                if winnows:
                    winnow.torch.regroup(ddp)
            optimizer.zero_grad()
            plain(ddp, number)
            optimizer.step()
        ends.append(weights(ddp))
    state.close()
    expect(torch.allclose(*ends, rtol=1e-5, atol=1e-6), "the same steps, to rounding")
    expect_refused(lambda: winnow.torch.regroup(network()), lambda: winnow.torch.regroup(state))
