# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers behind compressed sums, look-ahead, and scaled losses."""
import copy
import math
import pickle
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from torch_harness import (DEVICE, SIZE, adamw_reference, batch, expect, expect_equal_replicas,
                           expect_refused, make, network, step)


def case_loss_scaler():
    """A step that is not finite on one rank is skipped on all, and leaves no trace in residuals; what
    waits changes its scale with the loss. Other buckets are finite where the first weight's is not."""
    ddp, state, _ = make(compressor="topk:0.01", options={"exempt_1d": False, "min_bytes": 0},
                         bucket_cap_mb=0.05)
    optimizer = winnow.torch.SGD(ddp.parameters(), lr=0.05, momentum=0.5, model=ddp)
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=1024.0, growth_interval=3)
    winnow.torch.attach_scaler(ddp, scaler)
    expect_refused(lambda: winnow.torch.attach_scaler(ddp, scaler))

    overflows = False  # in the first weight on the last rank
    ddp.module[0].weight.register_hook(lambda g: g * math.inf if overflows else g)

    def residuals():
        held = [state.residual(p) for p in ddp.parameters()]
        return [one for one in held if one is not None]

    for number, scale in enumerate((1024, 1024, 512, 512, 512, 1024)):
        optimizer.zero_grad()
        overflows = number == 2 and dist.get_rank() == dist.get_world_size() - 1
        weights, waited = [p.detach().clone() for p in ddp.parameters()], residuals()
        with winnow.torch.look_ahead(ddp, optimizer):
            moved = [(a - b).abs().max().item() for a, b in zip(ddp.parameters(), weights)]
            expect(max(moved) < 1, "a look-ahead without the scale of the loss")
            scaler.scale(ddp(batch(number)).square().mean()).backward()
        finite = [bool(p.grad.isfinite().all()) for p in ddp.parameters()]
        expect(all(finite) if number != 2 else any(finite) and not all(finite), "some of them finite")
        scaler.step(optimizer)
        before = residuals()
        scaler.update()
        skipped = all(map(torch.equal, weights, ddp.parameters()))
        expect(skipped == (number == 2), f"step {number}: skipped or not")
        expect(scaler.get_scale() == scale, f"step {number}: a scale of {scaler.get_scale()}")
        factor = {2: 0.5, 5: 2}.get(number, 1)
        expected = [factor * one for one in (waited if skipped else before)]
        expect(len(expected) == 6 and all(map(torch.equal, residuals(), expected)),
               f"step {number}: what waits")
    expect_equal_replicas(ddp)
    state.close()


class Overflowing(nn.Module):
    """A layer whose gradient is infinite on the last rank, if it is told so."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.layer, self.overflows = nn.Linear(SIZE, 40).to(DEVICE), False
        self.layer.weight.register_hook(lambda g: g * math.inf if self._is_here() else g)

    def _is_here(self):
        return self.overflows and dist.get_rank() == dist.get_world_size() - 1

    def forward(self, inputs):
        return self.layer(inputs)


def case_scaler_of_two():
    """One scaler for two models, of which one overflows: only its step is undone, also where the scale
    stays as it was, or is set by hand."""
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=1024.0)
    scaler.set_backoff_factor(1.0)
    both = [make(Overflowing(), options={"min_bytes": 0}) for _ in range(2)]
    for ddp, _, _ in both:
        winnow.torch.attach_scaler(ddp, scaler)
        expect_refused(lambda: winnow.torch.attach_scaler(ddp, scaler))
    for number in range(6):
        first = both[0][0].module
        first.overflows = number == 3
        before = [state.residual(ddp.module.layer.weight) for ddp, state, _ in both]
        for ddp, _, optimizer in both:
            optimizer.zero_grad()
            scaler.scale(ddp(batch(number)).square().mean()).backward()
        for index, (_, _, optimizer) in enumerate(both):
            if index == 1:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
        middle = [state.residual(ddp.module.layer.weight) for ddp, state, _ in both]
        scaler.update(512.0) if number == 4 else scaler.update()
        after = [state.residual(ddp.module.layer.weight) for ddp, state, _ in both]
        factor = 0.5 if number == 4 else 1
        for index in range(2):
            skipped = first.overflows and index == 0
            expected = before[index] if skipped else middle[index] * factor
            expect(torch.equal(after[index], expected), f"step {number}, model {index}: what waits")
            expect(number == 0 or not torch.equal(before[index], middle[index]) or skipped, "a step")
    both[0][1].close()
    ddp, state, optimizer = both[1]
    step(ddp, optimizer, 6)
    scaler.update(256.0)  # the other is closed
    state.close()


def case_scaler_of_parts():
    """Two optimizers of one model, whose buckets are apart, and one scaler: of a step that is skipped for
    one of them, what waits of its parameters is undone, and what waits of the others' stays."""
    class Parts(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([Overflowing(), Overflowing()])

        def forward(self, inputs):
            return sum(part(inputs) for part in self.parts)

    for make_optimizer in (lambda p, ddp: torch.optim.SGD(p, lr=0.05),
                           lambda p, ddp: winnow.torch.SGD(p, lr=0.05, model=ddp)):
        ddp, state, _ = make(Parts(), options={"min_bytes": 0}, bucket_cap_mb=0.01)
        parts = list(ddp.module.parts)
        optimizers = [make_optimizer(part.parameters(), ddp) for part in parts]
        scaler = torch.amp.GradScaler(DEVICE.type, init_scale=1024.0)
        winnow.torch.attach_scaler(ddp, scaler)
        for number in range(6):
            parts[0].overflows, parts[1].overflows = number in (2, 4), number in (3, 4)
            before = [state.residual(part.layer.weight) for part in parts]
            weights = [part.layer.weight.detach().clone() for part in parts]
            for optimizer in optimizers:
                optimizer.zero_grad()
            scaler.scale(ddp(batch(number)).square().mean()).backward()
            for optimizer in optimizers:
                scaler.step(optimizer)
            middle = [state.residual(part.layer.weight) for part in parts]
            scaler.update()
            factor = 0.5 if number in (2, 3, 4) else 1
            for index, part in enumerate(parts):
                after = state.residual(part.layer.weight)
                expect(torch.equal(weights[index], part.layer.weight) == part.overflows, "skipped or not")
                right = before[index] if part.overflows else middle[index]
                expect(torch.equal(after, right * factor), f"step {number}, part {index}: what waits")
        expect_equal_replicas(ddp)
        state.close()


def case_scaler_of_shared_optimizer():
    """An optimizer moves parameters of two models, and a scaler skips it for one's: of the other, whose rest
    another optimizer moves, its own parameters' step is undone, and it takes no parameter for its own."""
    both = [make(Overflowing(), options={"min_bytes": 0}) for _ in range(2)]
    scaler = torch.amp.GradScaler(DEVICE.type, init_scale=1024.0)
    for ddp, _, _ in both:
        winnow.torch.attach_scaler(ddp, scaler)
    layers, (state, other) = [ddp.module.layer for ddp, _, _ in both], [state for _, state, _ in both]
    optimizers = [torch.optim.SGD([layers[0].weight, *layers[1].parameters()], lr=0.05),
                  torch.optim.SGD([layers[0].bias], lr=0.05)]
    for number in range(2):
        both[1][0].module.overflows = number == 1
        before = state.residual(layers[0].weight)
        for ddp, _, _ in both:
            ddp.zero_grad()
            scaler.scale(ddp(batch(number)).square().mean()).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        expect(number == 0 or not torch.equal(state.residual(layers[0].weight), before), "a step")
        scaler.update(1024.0)
    expect(torch.equal(state.residual(layers[0].weight), before), "is undone")
    expect(not state.names_any({id(p) for p in layers[1].parameters()}), "which are the other model's")
    state.close()
    other.close()


def case_sgd():
    """Without loss it is torch's SGD; with all elements sent and a constant rate too, to rounding;
    with a rate that changes, what waits counts with the rate of its own step."""
    settings = {"momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}
    plain = DistributedDataParallel(network())
    theirs = torch.optim.SGD(plain.parameters(), lr=0.05, **settings)
    for number in range(5):
        step(plain, theirs, number)
    for compressor in ("none", "topk:1", "topk:0.999999"):
        ddp, state, _ = make(compressor=compressor, options={"min_bytes": 0})
        ours = winnow.torch.SGD(ddp.parameters(), lr=0.05, model=ddp, **settings)
        for number in range(5):
            step(ddp, ours, number)
        for mine, right in zip(ddp.parameters(), plain.parameters()):
            expect(torch.allclose(mine, right, rtol=1e-4, atol=1e-5), f"{compressor}: the same steps")
        state.close()

    ddp, state, _ = make(nn.Linear(SIZE, 40, bias=False).to(DEVICE), options={"min_bytes": 0})
    ours = winnow.torch.SGD(ddp.parameters(), lr=1.0, model=ddp)
    weight = next(ddp.parameters())
    before = weight.detach().clone()
    gradients = torch.zeros_like(weight)
    for number, rate in enumerate((1.0, 0.5, 0.25)):
        ours.param_groups[0]["lr"] = rate
        local = weight.detach().clone().requires_grad_()
        nn.functional.linear(batch(number), local).square().mean().backward()
        gradients += rate * local.grad
        step(ddp, ours, number)
    gradients -= state.residual(weight).view_as(gradients)
    dist.all_reduce(gradients)
    expect(torch.allclose(before - gradients / dist.get_world_size(), weight, rtol=1e-4, atol=1e-6),
           "what was sent and what waits have the rates of their steps")
    expect_equal_replicas(ddp)
    expect_refused(lambda: winnow.torch.SGD(ddp.parameters(), lr=1, model=ddp, maximize=True),
                   lambda: winnow.torch.SGD(ddp.parameters(), lr=1, model=plain))
    state.close()


def case_copies():
    """Copies of optimizers belong to no model and say so; one of the model goes on from their state with
    the same bits. Steps are counted whatever the default type is."""
    for kind, settings in (winnow.torch.SGD, {"momentum": 0.9}), (winnow.torch.AdamW, {"scale": 1.0}):
        for copied in copy.deepcopy, lambda optimizer: pickle.loads(pickle.dumps(optimizer)):
            after = []
            for restarts in False, True:
                ddp, state, _ = make(options={"min_bytes": 0, "exempt_1d": False})
                ours = kind(ddp.parameters(), lr=0.01, model=ddp, **settings)
                for number in range(4):
                    if restarts and number == 2:
                        other = copied(ours)
                        expect_refused(other.step, other.step)
                        del ours
                        ours = kind(ddp.parameters(), lr=0.01, model=ddp, **settings)
                        ours.load_state_dict(other.state_dict())
                    step(ddp, ours, number)
                after.append([p.detach().clone() for p in ddp.parameters()])
                state.close()
            expect(all(map(torch.equal, *after)), f"{kind.__name__}: the same bits")
    torch.set_default_dtype(torch.bfloat16)
    try:
        ddp, state, _ = make(nn.Linear(SIZE, 4).to(DEVICE, torch.float32))
        ours = winnow.torch.AdamW(ddp.parameters(), lr=0.01, model=ddp)
        step(ddp, ours, 0)
        expect({ours.state[p]["step"].dtype for p in ddp.parameters()} == {torch.float32}, "a counter")
        state.close()
    finally:
        torch.set_default_dtype(torch.float32)


def case_look_ahead():
    """Gradients at the weights minus what waits; the weights are back afterwards. Parameters in
    another order of dimensions, of 16 bits, and some that another optimizer group moves."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Unflatten(1, (4, 10, 10)), nn.Conv2d(4, 20, 3), nn.Flatten(),
                          nn.Linear(20 * 64, 30), nn.Linear(30, 40)).to(
                              DEVICE, memory_format=torch.channels_last)
    ddp, state, _ = make(model, options={"min_bytes": 0})
    convolution, middle, last = (model[i].weight for i in (1, 3, 4))
    expect(not convolution.is_contiguous(), "a parameter in another order")
    optimizer = torch.optim.SGD([{"params": [convolution, middle], "momentum": 0.5},
                                 {"params": [last], "lr": 0.5}], lr=0.25, momentum=0)
    for number in range(4):
        before = [p.detach().clone() for p in ddp.parameters()]
        optimizer.zero_grad()
        own = 0.125 if number == 3 else None  # a share of the caller's
        root = 2 * math.sqrt(max(4, dist.get_world_size())) if own is None else 1 / own
        with winnow.torch.look_ahead(ddp, optimizer, own):
            for parameter, share in ((convolution, 0.5), (middle, 0.5), (last, 0.5)):
                held = state.residual(parameter)
                waiting = torch.zeros_like(parameter)
                if held is not None:
                    waiting = torch.as_strided(held, parameter.shape, parameter.stride())
                expect((held is None) == (number == 0), "a residual from the second step on")
                at = dict(zip(map(id, ddp.parameters()), before))[id(parameter)]
                expect(torch.allclose(parameter, at - share / root * waiting, rtol=1e-6,
                                      atol=1e-7), f"step {number}: ahead")
                expect(number == 0 or not torch.equal(parameter, at), "ahead is elsewhere")
            ddp(batch(number)).square().mean().backward()
        expect(all(map(torch.equal, before, ddp.parameters())), "the weights are back")
        optimizer.step()
    expect_equal_replicas(ddp)
    state.close()

    ddp, state, optimizer = make(network().bfloat16(), options={"min_bytes": 0})
    for number in range(3):
        optimizer.zero_grad()
        with winnow.torch.look_ahead(state, optimizer):
            ddp(batch(number, torch.bfloat16)).square().mean().backward()
        optimizer.step()
    expect_equal_replicas(ddp)
    before = [p.detach().clone() for p in ddp.parameters()]
    for wrong in (torch.optim.Adam(ddp.parameters()),
                  torch.optim.SGD(ddp.parameters(), lr=1, maximize=True)):
        expect_refused(winnow.torch.look_ahead(state, wrong).__enter__)
    expect(all(map(torch.equal, before, ddp.parameters())), "the weights stay")
    state.close()


def case_adamw():
    """Without loss it is torch's AdamW, with all elements sent the reference, both to rounding;
    replicas are equal with compression."""
    settings = {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-6}
    reference = network()
    adamw_reference(reference, 5, 0.01, 0.1, (0.8, 0.95), 1e-6)
    plain = DistributedDataParallel(network())
    theirs = torch.optim.AdamW(plain.parameters(), **settings)
    for compressor, expected in (("topk:1", plain), ("none", plain), ("topk:0.999999", reference)):
        ddp, state, _ = make(compressor=compressor, options={"min_bytes": 0})
        ours = winnow.torch.AdamW(ddp.parameters(), model=ddp, **settings)
        for number in range(5):
            if compressor == "topk:1":
                step(plain, theirs, number)
            step(ddp, ours, number)
        for mine, right in zip(ddp.parameters(), expected.parameters()):
            expect(torch.allclose(mine, right, rtol=1e-4, atol=1e-5), f"{compressor}: the same steps")
        expect(state.lossless == (compressor != "topk:0.999999"), "what loses nothing")
        state.close()

    torch.manual_seed(3)  # of 16 bits, and in another order of dimensions
    model = nn.Sequential(nn.Unflatten(1, (4, 10, 10)), nn.Conv2d(4, 20, 3), nn.Flatten(),
                          nn.Linear(20 * 64, 40)).to(DEVICE, torch.bfloat16,
                                                     memory_format=torch.channels_last)
    ddp, state, _ = make(model, options={"min_bytes": 0})
    ours = winnow.torch.AdamW(ddp.parameters(), model=ddp, lr=0.01, betas=(0.9, 0.75))
    alone = torch.autograd.grad(model(batch(0, torch.bfloat16)).square().mean(), model.parameters())
    step(ddp, ours, 0, torch.bfloat16)
    for parameter, gradient in zip(model.parameters(), alone):
        expect(torch.allclose(ours.state[parameter]["exp_avg_sq"], 0.25 * gradient.square(), rtol=0.02,
                              atol=1e-12), "second moments of 16 bits")
    expect_equal_replicas(ddp)
    state.close()

    ddp, state, _ = make(compressor="topk:0.03,int4", options={"schedule": "balanced"})
    ours = winnow.torch.AdamW(ddp.parameters(), model=state, lr=0.01)
    for number in range(5):
        ours.zero_grad()
        inputs = batch(number)
        if number == 2 and dist.get_rank() == dist.get_world_size() - 1:
            inputs[0, 0] = math.inf
        before = [p.detach().clone() for p in ddp.parameters()]
        with winnow.torch.look_ahead(ddp, ours):
            expect((number > 0) != all(map(torch.equal, before, ddp.parameters())), "looks ahead")
            ddp(inputs).square().mean().backward()
        gradients = [p.grad for p in ddp.parameters()]
        finite = all(gradient.isfinite().all() for gradient in gradients)
        expect(finite == (number != 2), "what is not finite goes on")
        if finite:
            ours.step()
        else:
            winnow.torch.skip_step(ddp)
        expect(all(moment.isfinite().all() for own in ours.state.values() for moment in own.values()),
               "good moments")
    expect_equal_replicas(ddp)

    scaler = torch.amp.GradScaler(DEVICE.type)
    expect_refused(lambda: winnow.torch.AdamW(ddp.parameters(), model=ddp, amsgrad=True),
                   lambda: winnow.torch.AdamW(ddp.parameters(), model=plain),
                   lambda: (scaler.scale(ddp(batch(0)).square().mean()).backward(),
                            scaler.step(ours)))
    state.close()
