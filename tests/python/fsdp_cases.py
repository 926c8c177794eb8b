# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""FSDP2 over all ranks, its reduce-scatter by Winnow."""
import copy
import gc
import weakref

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import winnow.torch
from hsdp_cases import expect_one_model, expect_same_steps, uneven, whole
from torch_harness import batch, expect, expect_refused, network, step
from winnow.torch.names import id_of


def sharded(compressor, **options):
    model, mesh = uneven(), init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model[0], model[4]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
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
    ours = winnow.torch.SGD(model.parameters(), model=state, lr=0.05)
    expect_refused(lambda: step(model, ours, 0))
    state.close()
    if dist.get_world_size() > 1:
        model, state, optimizer = sharded("topk:0.05")
        model.set_gradient_divide_factor(3.0)
        expect_refused(lambda: step(model, optimizer, 0))
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
