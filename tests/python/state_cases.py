# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What outlives a job, and a rank."""
import os
import pickle
import signal

import torch
import torch.distributed as dist

import winnow
import winnow.torch
from torch_harness import expect, gather, make, step


def case_resume():
    """From its own checkpoint a rank continues with the same bits. On half of the ranks, from all
    checkpoints, as much is waiting as before."""
    options = {"min_bytes": 0, "exempt_1d": False}  # dense sums depend on the order in a bucket

    def start(**keywords):
        ddp, state, _ = make(options=options, **keywords)
        return ddp, state, winnow.torch.AdamW(ddp.parameters(), lr=0.01, model=ddp)

    def mean_waiting(ddp, state, group=None):
        total = state.residual(next(ddp.parameters()))
        dist.all_reduce(total, group=group)
        return total / dist.get_world_size(group)

    ddp, state, optimizer = start()
    for number in range(3):
        step(ddp, optimizer, number)
    saved = pickle.dumps([ddp.module.state_dict(), optimizer.state_dict(), state.state_dict()])
    before = mean_waiting(ddp, state)
    expect(before.abs().sum() > 0, "something waits")
    for number in range(3, 6):
        step(ddp, optimizer, number)
    state.close()

    model, moments, waiting = pickle.loads(saved)
    again, state, optimizer = start()
    again.module.load_state_dict(model)
    optimizer.load_state_dict(moments)
    state.load_state_dict(waiting)
    for number in range(3, 6):
        step(again, optimizer, number)
    expect(all(map(torch.equal, ddp.parameters(), again.parameters())), "the same bits")
    state.close()

    everyone = gather(waiting)
    fewer = list(range((len(everyone) + 1) // 2))
    group = dist.new_group(fewer)
    conserved = True
    if dist.get_rank() in fewer:
        half, state, optimizer = start(process_group=group)
        state.load_state_dict(*everyone)
        conserved = torch.allclose(mean_waiting(half, state, group), before, rtol=1e-5, atol=1e-7)
        state.close()
    expect(conserved, "what waited waits")


def case_killed():
    """The others get a CommError in their training loop, and their residuals."""
    ddp, state, optimizer = make()
    weight = next(ddp.parameters())
    try:
        for number in range(1000):
            step(ddp, optimizer, number)
            if number == 5 and dist.get_rank() == dist.get_world_size() - 1:
                os.kill(os.getpid(), signal.SIGKILL)
    except winnow.CommError as error:
        held = state.residual(weight)
        # In one piece: the other ranks write to the same pipe.
        os.write(1, f"rank {dist.get_rank()}: {error}; residual of {len(held)}\n".encode())
        os._exit(0)
    os._exit(1)
