# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""FSDP2 over all ranks, its reduce-scatter by Winnow."""
import copy
import gc
import math
import weakref

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import winnow.torch
from hsdp_cases import expect_close, expect_one_model, expect_same_steps, uneven, whole
from torch_harness import FIXED, batch, expect, expect_refused, network, step
from winnow.torch.names import id_of
from winnow.torch.place import local


def sharded(compressor, reshard=None, **options):
    """`reshard`: whether torch gathers the weights once more for the backward pass; None: as it likes."""
    model, mesh = uneven(), init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model[0], model[4]:
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
    state = winnow.torch.attach_fsdp(model, compressor, min_bytes=0, deadline=30, **options)
    return model, state, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)


def case_fsdp():
    """At density 1 it equals DistributedDataParallel. Below, fewer bytes, and what sums lack waits:
    after a gradient whose mean is known, the shards and the residuals of all ranks add up to it."""
    model, state, optimizer = sharded("topk:1")
    expect_same_steps(model, optimizer, momentum=0.5)
    state.close()

    model, state, optimizer = sharded("topk:0.01")
    plain = uneven()
    plain(batch(0)).square().mean().backward()
    step(model, optimizer, 0)
    gradients = [p.grad.full_tensor() for p in model.parameters()]
    held = torch.as_tensor(state.reducer.residual(id_of("0/")))
    waiting = held.double().sum() / dist.get_world_size()
    dist.all_reduce(waiting)
    lacking = torch.zeros((), dtype=torch.float64)
    for theirs, ours in zip(plain[0].parameters(), gradients):
        mean = theirs.grad.double() / dist.get_world_size()
        dist.all_reduce(mean)
        lacking += (mean - ours.double()).sum()
    expect(torch.allclose(waiting, lacking, rtol=1e-3, atol=1e-6), "what is not sent waits")
    if dist.get_world_size() > 1:
        expect(held.count_nonzero() > 0, "something waits")
    for number in range(1, 4):
        step(model, optimizer, number)
    expect_one_model(model)
    stats = state.reducer.totals()
    if dist.get_world_size() > 1:
        expect(stats["wire_bytes"] * 8 < stats["dense_wire_bytes"], "fewer bytes")
    state.close()


def mean(tensor):
    """Over the ranks."""
    total = tensor.double()
    dist.all_reduce(total)
    return total / dist.get_world_size()


def groups_of(model):
    """Weights and biases at rates of their own, also within one module."""
    parameters = list(model.parameters())
    return [{"params": [p for p in parameters if p.dim() > 1], "lr": 0.01, "weight_decay": 0.1},
            {"params": [p for p in parameters if p.dim() == 1], "lr": 0.003, "weight_decay": 0.0}]


def case_fsdp_optimizers():
    """Where all elements are sent they make the steps that they make behind attach, by groups of one
    module with several rates and with parameters that are frozen."""
    for kind, settings in ((winnow.torch.SGD, {"momentum": 0.9, "nesterov": True}),
                           (winnow.torch.AdamW, {"betas": (0.8, 0.95), "eps": 1e-6})):
        plain = DistributedDataParallel(uneven().requires_grad_(True), find_unused_parameters=True)
        their_state = winnow.torch.attach(plain, "topk:0.999999", min_bytes=0, exempt_1d=False, **FIXED)
        theirs = kind(groups_of(plain), model=plain, **settings)
        model, state, _ = sharded("topk:0.999999")
        ours = kind(groups_of(model), model=model, **settings)
        for number in range(6):
            for trained in plain.module, model:
                trained[0].bias.requires_grad_(number < 2)
            step(plain, theirs, number)
            step(model, ours, number)
        expect_close(model, plain)
        expect_one_model(model)
        state.close()
        their_state.close()


def case_fsdp_adamw():
    """What is given to the compressor is each rank's update by its own second moment, of which all is
    sent or waits. It lies whole on each rank, in state_dict() too."""
    rate, decay, epsilon = 0.01, 0.95, 1e-6
    model, state, _ = sharded("topk:0.05")
    ours = winnow.torch.AdamW(model.parameters(), model=model, lr=rate, betas=(0.8, decay), eps=epsilon)
    plain = uneven()
    seconds = [torch.zeros_like(p) for p in plain.parameters()]
    waited = [torch.zeros(p.numel()) for p in plain.parameters()]
    for number in range(4):
        with torch.no_grad():
            for theirs, right in zip(plain.parameters(), whole(model)):
                theirs.copy_(right)
        plain.zero_grad()
        plain(batch(number)).square().mean().backward()
        ours.zero_grad()
        model(batch(number)).square().mean().backward()
        for index, (parameter, theirs) in enumerate(zip(model.parameters(), plain.parameters())):
            seconds[index].mul_(decay).addcmul_(theirs.grad, theirs.grad, value=1 - decay)
            root = (seconds[index] / (1 - decay ** (number + 1))).sqrt() + epsilon
            update = math.sqrt(dist.get_world_size()) * rate * theirs.grad / root
            held = state.residual(parameter)
            given = mean(update.flatten() + waited[index])
            taken = parameter.grad.full_tensor().flatten() + mean(held)
            expect(torch.allclose(taken, given, rtol=1e-3, atol=1e-6), f"step {number}: sent or waiting")
            expect(theirs.dim() < 2 or held.count_nonzero() > held.numel() / 10, "a part waits")
            waited[index] = held
            second = ours.state[parameter]["exp_avg_sq"]
            expect(second.shape == parameter.shape and not hasattr(second, "full_tensor"), "a whole moment")
            expect(torch.allclose(second, seconds[index], rtol=1e-3, atol=1e-12), "the moment of this rank")
        ours.step()
    expect_one_model(model)
    state.close()


def case_fsdp_look_ahead():
    """Passes inside see the weights less a share of what this rank has not sent, in both passes, and
    others see the weights."""
    for reshard in True, False:
        for kind in torch.optim.SGD, winnow.torch.SGD, winnow.torch.AdamW:
            look_ahead_steps(kind, reshard)


def copy_to(model, values):
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values):
            parameter.copy_(value)


def look_ahead_steps(kind, reshard):
    model, state, _ = sharded("topk:0.01", reshard)
    ours = kind(groups_of(model), **({} if kind is torch.optim.SGD else {"model": model}))
    share = 1 / (2 * math.sqrt(max(4, dist.get_world_size())))
    rates = {id(p): group["lr"] for group in ours.param_groups for p in group["params"]}
    parameters, plain, ahead = list(model.parameters()), uneven(), uneven()
    for number in range(4):
        weights = [p.full_tensor() for p in parameters]
        copy_to(plain, weights)
        with torch.no_grad():
            expect(torch.allclose(model(batch(50)), plain(batch(50)), rtol=1e-5), f"step {number}: weights before")
        expected = []
        for parameter, right in zip(parameters, weights):
            held = state.residual(parameter) if number > 0 else torch.zeros(right.numel())
            reach = rates[id(parameter)] if kind is torch.optim.SGD else 1
            expected.append(right - share * reach * held.view_as(right))
        copy_to(ahead, expected)
        ours.zero_grad()
        before, backward = [local(p).clone() for p in parameters], []
        with winnow.torch.look_ahead(model, ours):
            outputs = model(batch(number))
            expect(torch.allclose(outputs, ahead(batch(number)), rtol=1e-4, atol=1e-6), f"step {number}: ahead")
            expect(number == 0 or not torch.allclose(outputs, plain(batch(number)), rtol=1e-4, atol=1e-6),
                   f"step {number}: ahead is elsewhere")
            outputs.register_hook(lambda _: model[4].unshard() or backward.append(model[4].weight.clone()))
            outputs.square().mean().backward()
        expect(torch.allclose(backward[0], ahead[4].weight, rtol=1e-6, atol=1e-7)
               and (number == 0 or not torch.equal(backward[0], plain[4].weight)), "ahead in the backward pass")
        expect(all(map(torch.equal, before, map(local, parameters))), "shards as they were")
        ours.step()
    expect_one_model(model)
    with winnow.torch.look_ahead(model, ours):
        loss = model(batch(9)).square().mean()
    copy_to(plain, whole(model))
    with torch.no_grad():
        expect(torch.allclose(model(batch(50)), plain(batch(50)), rtol=1e-5), "weights after half a pass")
    try:
        loss.backward()
    except RuntimeError as error:
        expect("inplace" in str(error), "torch's own message")
    else:
        expect(False, "a backward pass by other weights")
    state.close()


def case_fsdp_state():
    """A restarted job makes the same steps."""
    model, state, optimizer = sharded("topk:0.05,int8")
    for number in range(2):
        step(model, optimizer, number)
    weights = [p.detach().to_local().clone() for p in model.parameters()]
    saved = state.state_dict(), copy.deepcopy(optimizer.state_dict())
    step(model, optimizer, 2)
    expected = whole(model)
    state.close()

    model, state, optimizer = sharded("topk:0.05,int8")
    with torch.no_grad():
        for parameter, held in zip(model.parameters(), weights):
            parameter.to_local().copy_(held)
    optimizer.load_state_dict(saved[1])
    state.load_state_dict(saved[0])
    step(model, optimizer, 2)
    expect(all(map(torch.equal, whole(model), expected)), "the same bits")
    state.close()


def case_fsdp_refuses():
    """What it cannot do is an error of every rank."""
    expect_refused(lambda: winnow.torch.attach_fsdp(network()))
    model, state, optimizer = sharded("topk:0.05")
    state.close()
    if dist.get_world_size() == 1:
        return
    model, state, optimizer = sharded("topk:0.05")
    model.set_gradient_divide_factor(3.0)
    expect_refused(lambda: step(model, optimizer, 0))
    state.close()
    model, state, optimizer = sharded("topk:0.05")
    ours = winnow.torch.AdamW(model.parameters(), model=state)
    model.set_gradient_divide_factor(1.0)  # sums, of which Adam's would be larger
    model.set_force_sum_reduction_for_comms(True)
    expect_refused(lambda: step(model, ours, 0))
    state.close()
    model, state, optimizer = sharded("topk:0.05")
    ours = winnow.torch.SGD(model.parameters(), model=state, lr=0.05)
    step(model, ours, 0)
    model(batch(1)).square().mean().backward()
    expect_refused(lambda: model(batch(2)).square().mean().backward())  # a second one before a step
    state.close()
    model = uneven()
    model.unused = torch.nn.Parameter(torch.ones(8))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    state = winnow.torch.attach_fsdp(model, "topk:0.05", min_bytes=0, deadline=30)
    ours = winnow.torch.SGD(model.parameters(), model=state, lr=0.05)
    expect_refused(lambda: step(model, ours, 0))
    model.unused.requires_grad_(False)
    ours = None
    state.close()


def case_fsdp_unfrozen():
    """Layers that are frozen and unfrozen in mid-run, and a model that is detached and dropped."""
    model, state, optimizer = sharded("topk:0.01")
    for number, learns in enumerate((False, True, False, True)):
        model[2].requires_grad_(learns)
        model[0].bias.requires_grad_(learns)
        step(model, optimizer, number)
    expect_one_model(model)
    winnow.torch.detach(model)
    step(model, optimizer, 4)
    expect_one_model(model)
    model, state, optimizer = sharded("topk:0.01")
    step(model, optimizer, 0)
    reference = weakref.ref(state)
    del model, state, optimizer
    gc.collect()
    expect(reference() is None, "nobody holds the state")
