# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""clip_grad_norm_ where p.grad holds updates: it sees and clips norms of mean gradients."""
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_  # by its name, before Winnow is attached to anything

import winnow.torch
from torch_harness import DEVICE, batch, expect, expect_equal_replicas, expect_refused, network
from winnow.torch.attach import state_of
from winnow.torch.norms import Clip, Norms

NEAR = {"compressor": "topk:0.9", "schedule": "gather", "min_bytes": 0, "deadline": 30}
KINDS = {"SGD": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
         "AdamW": (torch.optim.AdamW, {"lr": 2e-3, "weight_decay": 0.01})}


def attached(kind, model=None, **options):
    make, settings = KINDS[kind]
    ddp = DistributedDataParallel(network() if model is None else model)
    return ddp, winnow.torch.attach(ddp, make(ddp.parameters(), **settings), **{**NEAR, **options})


def mean_gradients(ddp, number, scale=1.0):
    """What dense sums would leave in p.grad, at the weights as they are."""
    found = torch.autograd.grad(scale * ddp.module(batch(number)).square().mean(), list(ddp.parameters()))
    for gradient in found:
        dist.all_reduce(gradient)
    return [gradient / dist.get_world_size() for gradient in found]


def norm_of(tensors):
    return math.sqrt(sum(float(tensor.detach().double().square().sum()) for tensor in tensors))


def near(left, right, tolerance):
    return abs(left - right) <= tolerance * abs(right)


def passes(ddp, number, scale=1.0):
    (scale * ddp(batch(number)).square().mean()).backward()


def case_clip_norm():
    """All that clip_grad_norm_ returns is a norm of the mean gradient, of all or of some parameters,
    the same on all ranks. Ranks need not call it alike."""
    for kind in KINDS:
        ddp, optimizer = attached(kind)
        for number in range(3):
            true = mean_gradients(ddp, number)
            optimizer.zero_grad()
            passes(ddp, number)
            if dist.get_rank() == 0:
                nn.utils.get_total_norm([p.grad for p in ddp.parameters()])
            before = [p.grad.clone() for p in ddp.parameters()]
            norm = clip_grad_norm_(ddp.parameters(), math.inf)
            expect(near(norm, norm_of(true), 0.15), f"{kind}: the norm of the gradient")
            some = clip_grad_norm_(list(ddp.parameters())[:1], math.inf)
            expect(near(some, norm_of(true[:1]), 0.25), f"{kind}: that of a part")
            expect(all(torch.equal(old, p.grad) for old, p in zip(before, ddp.parameters())),
                   f"{kind}: nothing is clipped")
            expect_refused(lambda: clip_grad_norm_(ddp.parameters(), 1.0, norm_type=math.inf))
            optimizer.step()
        state_of(ddp).close()
    expect_equal_replicas(ddp)


def distance(kind, bound):
    """How far Winnow's weights are from those of dense sums, in units of the way that these went,
    with gradients that are clipped to `bound`, and are equal on all ranks."""
    make, settings = KINDS[kind]
    ours, theirs = (DistributedDataParallel(network()) for _ in range(2))
    first = [p.detach().clone() for p in theirs.parameters()]
    state = winnow.torch.attach(ours, **NEAR)
    if kind == "SGD":
        moves = winnow.torch.SGD(ours.parameters(), **settings, model=state)
    else:
        moves = winnow.torch.AdamW(ours.parameters(), **settings, model=state, scale=1)
    dense = make(theirs.parameters(), **settings)
    for number in range(30):
        inputs = torch.randn(16, 400, generator=torch.Generator().manual_seed(number)).to(DEVICE)
        scale = 10.0 if number % 7 == 3 else 1.0  # gradients of very different norms
        for model, optimizer in (ours, moves), (theirs, dense):
            optimizer.zero_grad()
            (scale * model(inputs).square().mean()).backward()
            clip_grad_norm_(model.parameters(), bound)
            optimizer.step()
    expect_equal_replicas(ours)
    state.close()
    way = norm_of(new - old for new, old in zip(theirs.parameters(), first))
    return norm_of(mine - new for mine, new in zip(ours.parameters(), theirs.parameters())) / way


def case_clip_as_dense():
    """Clipped training goes where that of dense sums goes, as it does without clipping. Some steps
    are clipped, all, or none."""
    for kind, most in ("SGD", 0.06), ("AdamW", 0.45):
        for bound in 1e-3, 0.5, math.inf:
            off = distance(kind, bound)
            expect(off < most, f"{kind} clipped to {bound}: {off} of the way apart")


def case_clip_by_hand():
    """Whoever changes p.grad before the step, which holds an update, learns it."""
    def doubled(ddp):
        next(ddp.parameters()).grad.mul_(2)

    def clamped(ddp):
        nn.utils.clip_grad_value_(ddp.parameters(), 1e-4)

    def replaced(ddp):
        for parameter in ddp.parameters():
            parameter.grad = parameter.grad * 0.5

    def dropped(ddp):
        ddp.zero_grad()

    def zeroed(ddp):
        ddp.zero_grad(set_to_none=False)

    def accumulated(ddp):
        with ddp.no_sync():
            passes(ddp, 77)

    for kind in KINDS:
        for change in doubled, clamped, replaced, dropped, zeroed, accumulated:
            ddp, optimizer = attached(kind)
            passes(ddp, 0)
            change(ddp)
            expect_refused(optimizer.step)
            state_of(ddp).close()


def case_clip_scaled():
    """Under a GradScaler, after unscale_."""
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=2.0**10, growth_interval=2)
    ddp, optimizer = attached("SGD")
    winnow.torch.attach_scaler(ddp, scaler)
    for number in range(6):
        true = mean_gradients(ddp, number)
        optimizer.zero_grad()
        scaler.scale(ddp(batch(number)).square().mean()).backward()
        if number % 2 == 0:
            scaler.unscale_(optimizer)
            expect(near(clip_grad_norm_(ddp.parameters(), 0.5), norm_of(true), 0.15), "an unscaled norm")
        scaler.step(optimizer)
        scaler.update()
    expect_equal_replicas(ddp)
    state_of(ddp).close()


def case_clip_half():
    """Buckets of bf16: their norms are float32."""
    ddp, optimizer = attached("SGD", network().bfloat16())
    ddp(batch(0, torch.bfloat16)).float().square().mean().backward()
    norm = clip_grad_norm_(ddp.parameters(), 0.1)
    exact = DistributedDataParallel(network().bfloat16())
    exact(batch(0, torch.bfloat16)).float().square().mean().backward()
    expect(near(norm, norm_of(p.grad for p in exact.parameters()), 0.15), "a norm of bf16")
    before = [p.detach().clone() for p in ddp.parameters()]
    optimizer.step()
    way = norm_of((new.float() - old.float()) for new, old in zip(ddp.parameters(), before))
    expect(way < 0.05 * 0.1 * 1.3, "a step of a clipped gradient")
    state_of(ddp).close()


def waiting(ddp):
    """What this rank has not sent, of each parameter."""
    found = (state_of(ddp).residual(p) for p in ddp.parameters())
    return [torch.zeros_like(p).flatten() if held is None else held for held, p in zip(found, ddp.parameters())]


def case_clip_first():
    """The first clipping, which no rank foresaw, is that of what waits, too."""
    ddp, optimizer = attached("SGD", compressor="topk:0.01")
    true, before = mean_gradients(ddp, 0), [p.detach().clone() for p in ddp.parameters()]
    passes(ddp, 0)
    bound = 0.3 * norm_of(true)
    clip = bound / clip_grad_norm_(ddp.parameters(), bound)
    optimizer.step()
    for parameter, old, held, gradient in zip(ddp.parameters(), before, waiting(ddp), true):
        dist.all_reduce(held)
        moved = (old - parameter.detach()).flatten() + held / dist.get_world_size()
        wanted = KINDS["SGD"][1]["lr"] * clip * gradient.flatten()
        off = norm_of([moved - wanted]) / norm_of([wanted])
        expect(off < 1e-3, f"moved + waiting = clipped gradient, but for {off} of it")
    state_of(ddp).close()


def case_clip_resumed():
    """The first clipping after a restart is that of its own gradients, not of what waited."""
    ddp, optimizer = attached("SGD", compressor="topk:0.01")
    for number in range(3):
        optimizer.zero_grad()
        passes(ddp, number)
        optimizer.step()
    saved, held = state_of(ddp).state_dict(), waiting(ddp)
    moments, weights = optimizer.state_dict(), ddp.module.state_dict()
    ddp, optimizer = attached("SGD", compressor="topk:0.01")
    ddp.module.load_state_dict(weights)
    optimizer.load_state_dict(moments)
    state_of(ddp).load_state_dict(saved)
    passes(ddp, 3)
    clip_grad_norm_(ddp.parameters(), 1e-6)
    optimizer.step()
    expect(norm_of(waiting(ddp)) > 0.5 * norm_of(held), "what waited still waits")
    state_of(ddp).close()


def case_clip_other_bucket():
    """DistributedDataParallel puts parameters into other buckets after its first step: the norm of one
    says nothing of another's."""
    def measured(count, value):
        buffer = torch.full((count,), value, device=DEVICE)
        norms = Norms(7, buffer, 1)
        norms.measure(buffer, [buffer], 1.0)
        return norms

    clip = Clip(1.0, torch.tensor(8.0, device=DEVICE))
    kept = measured(3000, 1.0).keep(clip, None)
    expect(near(measured(3000, 2.0).expected(kept).norm, 16.0, 1e-5), "twice the gradient, twice the norm")
    expect(near(measured(6000, 2.0).expected(kept).norm, 8.0, 1e-5), "of another bucket: as it was")
