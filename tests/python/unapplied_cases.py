# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""attach(ddp, "topk:0.01") with optimizers of torch: sums that no step applies."""
import torch
from torch.nn.parallel import DistributedDataParallel

import winnow.torch
from attach_cases import loss_of, plain, weights
from torch_harness import DEVICE, FIXED, expect, expect_equal_replicas, make, network, refused


def stepped(**keywords):
    """A model that torch.optim.SGD has moved."""
    ddp, state, optimizer = make(**keywords)
    for number in range(2):
        optimizer.zero_grad()
        plain(ddp, number)
        optimizer.step()
    return ddp, state, optimizer


def case_thrown_away():
    """A gradient that is reduced, and gone before the next backward pass, names a parameter."""
    for keywords in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
        for to_none in True, False:
            for late in False, True:
                ddp, state, optimizer = stepped(**keywords)
                optimizer.zero_grad()
                plain(ddp, 2)  # as a generator's step through its discriminator
                if not late:
                    optimizer.zero_grad(set_to_none=to_none)
                loss = loss_of(ddp, 3)
                if late:
                    optimizer.zero_grad(set_to_none=to_none)
                said = refused(loss.backward)
                named = any(name in said for name in ("3.bias", "3.weight", "0.weight", "2.weight"))
                expect(named and "no_sync" in said, f"{keywords}, {to_none}, {late}: {said}")
                state.close()


def case_applied():
    """What applies its gradients by itself, keeps them, or undoes them, goes on."""
    def accumulates(ddp, optimizer):
        plain(ddp, 2)
        plain(ddp, 3)
        optimizer.step()

    def keeps_back(ddp, optimizer):
        with ddp.no_sync():
            plain(ddp, 2)
        optimizer.zero_grad()
        plain(ddp, 3)
        optimizer.step()

    def by_hand(ddp, optimizer):
        for number in range(2, 5):
            plain(ddp, number)
            with torch.no_grad():
                for parameter in ddp.parameters():
                    parameter.sub_(parameter.grad, alpha=0.01)
            optimizer.zero_grad()

    def skips(ddp, optimizer):
        plain(ddp, 2)
        winnow.torch.skip_step(ddp)
        optimizer.zero_grad()
        plain(ddp, 3)
        optimizer.step()

    def searches(ddp, _):
        solver = torch.optim.LBFGS(ddp.parameters(), lr=0.01, max_iter=3)

        def closure():
            solver.zero_grad()
            loss = loss_of(ddp, 2)
            loss.backward()
            return loss

        for _ in range(2):
            solver.step(closure)

    def scales(ddp, optimizer):
        scaler = torch.amp.GradScaler(DEVICE.type)
        winnow.torch.attach_scaler(ddp, scaler)
        for number in range(2, 5):
            optimizer.zero_grad()
            loss = loss_of(ddp, number)
            scaler.scale(loss * (float("inf") if number == 2 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()

    for way in accumulates, keeps_back, by_hand, skips, searches, scales:
        ddp, state, optimizer = stepped()
        optimizer.zero_grad()
        said = refused(lambda way=way: way(ddp, optimizer))
        expect(not said, f"{way.__name__}: {said}")
        expect_equal_replicas(ddp)
        state.close()

    ddp = DistributedDataParallel(network())
    state = winnow.torch.attach(ddp, "topk:0.01", **FIXED)
    for number in range(4):  # without any optimizer of torch
        plain(ddp, number)
        for parameter in ddp.parameters():
            parameter.data -= 0.01 * parameter.grad
        ddp.zero_grad()
    state.close()
    ddp, state, optimizer = stepped(compressor="none")
    for number in range(2):
        optimizer.zero_grad()
        plain(ddp, number)
    state.close()


def case_skipped_exactly():
    """Once skip_step was called before training, each step that is left out leaves no trace, and those
    that were made stay."""
    ends = []
    for skips in False, True:
        # Dense sums would depend on the order in a bucket.
        ddp, state, optimizer = make(options={"min_bytes": 0, "exempt_1d": False})
        winnow.torch.skip_step(ddp)
        for number in range(6):
            optimizer.zero_grad()
            if skips and number in (0, 4):
                plain(ddp, 90 + number)
                winnow.torch.skip_step(ddp)
                optimizer.zero_grad()
            plain(ddp, number)
            optimizer.step()
        ends.append((weights(ddp), *[state.residual(p) for p in ddp.parameters()
                                     if state.residual(p) is not None]))
        state.close()
    expect(len(ends[0]) == len(ends[1]) > 1 and all(map(torch.equal, *ends)), "the same bits")
