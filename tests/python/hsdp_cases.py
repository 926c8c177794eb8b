# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""FSDP2 within nodes, Winnow between them."""
import contextlib
import gc
import hashlib
import itertools
import math
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from torch_harness import (FIXED, SIZE, adamw_reference, batch, expect, expect_parts_skipped,
                           expect_refused, gather, mesh_over_winnow, network, replicate, scaler_of, step)
from winnow.torch.names import id_of
from winnow.torch.place import local


def uneven():
    """Rows that two ranks cannot share equally."""
    return network().append(nn.Linear(40, 41))


def meshes():
    """Pairs of ranks, where there are pairs, and what is between them."""
    ranks = dist.get_world_size()
    within = 2 if ranks % 2 == 0 and ranks > 2 else 1
    return init_device_mesh("cpu", (ranks // within, within), mesh_dim_names=("between", "within"))


def whole(model):
    return [p.full_tensor().detach() if hasattr(p, "full_tensor") else p.detach()
            for p in model.parameters()]


def sharded(mesh, compressor):
    model = uneven()
    for layer in model[0], model[4]:
        fully_shard(layer, mesh=mesh["within"])
    fully_shard(model, mesh=mesh["within"])
    state = winnow.torch.attach_hsdp(model, mesh["between"], compressor, min_bytes=0, **FIXED)
    return model, state, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)


def expect_close(model, expected):
    for mine, right in zip(whole(model), whole(expected)):
        expect(torch.allclose(mine, right, rtol=1e-4, atol=1e-5), "equal to rounding")


def expect_same_steps(model, optimizer, momentum):
    """Those of torch.optim.SGD on all ranks."""
    plain = DistributedDataParallel(uneven())
    theirs = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=momentum)
    for number in range(5):
        step(plain, theirs, number)
        step(model, optimizer, number)
    expect_close(model, plain)


def expect_one_model(model):
    digest = hashlib.sha256(b"".join(p.numpy().tobytes() for p in whole(model))).hexdigest()
    expect(len(set(gather(digest))) == 1, "replicas are equal")


def expect_clips(model, state):
    """clip_grad_norm_ sees norms over all shards, and clips as in DistributedDataParallel."""
    plain = DistributedDataParallel(uneven())
    theirs = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.5)
    ours = winnow.torch.SGD(model.parameters(), lr=0.05, momentum=0.5, model=state)
    first = [p.detach().clone() for p in plain.parameters()]
    for number in range(6):
        norms = []
        for trained, optimizer in (plain, theirs), (model, ours):
            optimizer.zero_grad()
            trained(batch(number)).square().mean().backward()
            norms.append(float(nn.utils.clip_grad_norm_(trained.parameters(), 0.2)))
            optimizer.step()
        expect(abs(norms[1] - norms[0]) < 0.15 * norms[0], f"a norm of {norms[1]} for {norms[0]}")
    way = sum(float((p - old).square().sum()) for p, old in zip(plain.parameters(), first))
    off = sum(float((mine - p).square().sum()) for mine, p in zip(whole(model), plain.parameters()))
    expect(off < 0.01 * way, f"clipped steps as of dense sums: {off} of {way}")
    expect_one_model(model)
    model(batch(7)).square().mean().backward()
    next(model.parameters()).grad.mul_(2)
    expect_refused(ours.step)
    state.close()


def case_hsdp_scaler_of_parts():
    """Two optimizers of one model under one scaler, which skips one: undone are the parameters that it
    moves, or refused where a pass gives some parameters of a module no gradient, so that it is reduced as
    one."""
    mesh = meshes()
    model, state, _ = sharded(mesh, "topk:0.05")
    expect_parts_skipped(model, state, model[0])
    state.close()

    model = uneven()
    model.spare = nn.Parameter(torch.zeros(8, 8))  # which no pass uses
    fully_shard(model, mesh=mesh["within"])
    state = winnow.torch.attach_hsdp(model, mesh["between"], "topk:0.05", min_bytes=0, **FIXED)
    scaler = scaler_of(model)
    norm = list(model[2].parameters())
    for parts in ((norm, [p for p in model.parameters() if all(p is not one for one in norm)]),
                  (list(model.parameters()), [])):
        optimizers = [torch.optim.SGD(part, lr=0.05) for part in parts if part]
        model.zero_grad()
        scaler.scale(model(batch(0)).square().mean()).backward()
        for parameter in norm:
            parameter.grad.mul_(math.inf)
        for optimizer in optimizers:
            scaler.step(optimizer)
        if parts[1]:
            expect_refused(scaler.update)
        else:
            scaler.update()
    state.close()


def case_hsdp_clip():
    """Norms over all nodes and their shards."""
    model, state, _ = sharded(meshes(), "topk:0.9")
    expect_clips(model, state)


def case_hsdp():
    """Shards within nodes, sums between: at density 1 it equals DistributedDataParallel, below it the
    replicas are equal and residuals lie with the shards."""
    mesh = meshes()
    model, state, optimizer = sharded(mesh, "topk:1")
    expect_same_steps(model, optimizer, momentum=0.5)
    state.close()

    model, state, optimizer = sharded(mesh, "topk:0.01")
    for number in range(4):
        step(model, optimizer, number)
    expect_one_model(model)
    held = state.reducer.residual(id_of("0.weight"))
    expect(len(held) == SIZE * SIZE // mesh["within"].size(), "a residual of this rank's shard")
    stats = state.reducer.totals()
    expect(stats["wire_bytes"] * 8 < stats["dense_wire_bytes"], "fewer bytes")
    expect_refused(lambda: winnow.torch.attach_hsdp(network(), mesh["between"]),
                   lambda: winnow.torch.attach_hsdp(model, mesh))
    state.close()


def case_hsdp_look_ahead():
    """Each rank looks ahead in its shards, padded or not, and has its weights back afterwards."""
    mesh = meshes()
    model, state, optimizer = sharded(mesh, "topk:0.01")
    share = 0.05 / (1 - 0.5) / (2 * math.sqrt(max(4, mesh["between"].size())))
    for number in range(4):
        before = [local(p).clone() for p in model.parameters()]
        optimizer.zero_grad()
        with winnow.torch.look_ahead(model, optimizer):
            for parameter, weights in zip(model.parameters(), before):
                held = state.residual(parameter)
                waiting = torch.zeros_like(weights)
                if held is not None:
                    waiting = held[:weights.numel()].view_as(weights)
                expect(torch.allclose(local(parameter), weights - share * waiting, rtol=1e-6,
                                      atol=1e-7), f"step {number}: ahead")
            expect((number > 0) != all(map(torch.equal, before, map(local, model.parameters()))),
                   f"step {number}: ahead is elsewhere")
            model(batch(number)).square().mean().backward()
        expect(all(map(torch.equal, before, map(local, model.parameters()))), "the weights are back")
        optimizer.step()
    expect_one_model(model)
    state.close()


def case_hsdp_optimizers():
    """winnow.torch.AdamW by second moments of a node's means, and winnow.torch.SGD as torch's, where
    all elements are sent; with compression, equal replicas."""
    mesh = meshes()
    reference = uneven()
    adamw_reference(reference, 5, 0.01, 0.1, (0.8, 0.95), 1e-6, mesh["within"].get_group())
    model, state, _ = sharded(mesh, "topk:0.999999")
    ours = winnow.torch.AdamW(model.parameters(), model=model, lr=0.01, weight_decay=0.1,
                              betas=(0.8, 0.95), eps=1e-6)
    for number in range(5):
        step(model, ours, number)
    expect_close(model, reference)
    state.close()

    model, state, _ = sharded(mesh, "topk:0.999999")
    ours = winnow.torch.SGD(model.parameters(), model=state, lr=0.05, momentum=0.9)
    expect_same_steps(model, ours, momentum=0.9)
    state.close()

    model, state, _ = sharded(mesh, "topk:0.03,int4")
    ours = winnow.torch.AdamW(model.parameters(), model=model, lr=0.01)
    for number in range(4):
        ours.zero_grad()
        with winnow.torch.look_ahead(model, ours):
            model(batch(number)).square().mean().backward()
        ours.step()
    expect_one_model(model)
    state.close()


def case_hsdp_refuses():
    """What torch sums itself, and meshes of ranks with other shards."""
    mesh = meshes()
    expect_refused(lambda: winnow.torch.attach_hsdp(fully_shard(uneven(), mesh=mesh), mesh["between"]))
    if replicate is not None:
        expect_refused(lambda: winnow.torch.attach_hsdp(replicate(uneven(), mesh=mesh["between"]), mesh["between"]))
    model = fully_shard(uneven(), mesh=mesh["within"])
    expect_refused(lambda: winnow.torch.attach_hsdp(model, mesh["between"], "tokp:0.01"))
    if mesh["within"].size() > 1:
        expect_refused(lambda: winnow.torch.attach_hsdp(model, mesh["within"]))
    winnow.torch.attach_hsdp(model, mesh["between"]).close()


def case_hsdp_native():
    """A model that torch would sum over a group of the backend takes the steps, bit for bit, of one that is
    sharded within nodes alone: with look-ahead, clipping, micro-batches and both optimizers."""
    options = {"min_bytes": 0, **FIXED}
    for wrap, make in itertools.product(("hsdp", "replicate"), (winnow.torch.AdamW, winnow.torch.SGD)):
        ranks = dist.get_world_size()
        shape = meshes().shape if wrap == "hsdp" else (ranks, 1)
        trained = []
        if wrap == "replicate" and replicate is None:
            continue
        for is_native in False, True:
            mesh = (mesh_over_winnow(shape, winnow.torch.GroupOptions("topk:0.05", **options)) if is_native else
                    init_device_mesh("cpu", shape, mesh_dim_names=("between", "within")))
            model = uneven()
            for part in model[0], model[4], model:
                if wrap == "hsdp" or not is_native:
                    fully_shard(part, mesh=mesh if is_native else mesh["within"])
                else:
                    replicate(part, mesh=mesh["between"])
            if not is_native:
                state = winnow.torch.attach_hsdp(model, mesh["between"], "topk:0.05", **options)
            else:
                state = winnow.torch.attach_hsdp(model, mesh["between"])  # the group's options
            optimizer = make(model.parameters(), lr=0.01, model=model)
            for number in range(6):
                optimizer.zero_grad()
                with winnow.torch.look_ahead(model, optimizer):
                    for part in range(2):
                        model.set_requires_all_reduce(part == 1)
                        model(batch(20 * part + number)).square().mean().backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.2)
                optimizer.step()
            trained.append([p.clone() for p in whole(model)])
            expect(state.reducer.totals()["wire_bytes"] * 5 < state.reducer.totals()["dense_wire_bytes"], "bytes")
            if is_native:
                expect(mesh["between"].get_group()._sums is None, "the group sums nothing itself")
                del optimizer
                gc.collect()
                winnow.torch.detach(model)
                step(model, torch.optim.SGD(model.parameters(), lr=0.05), 9)  # by torch
                expect_one_model(model)
            else:
                state.close()
        expect(all(map(torch.equal, *trained)), f"bits of {wrap} under {make.__name__}")


def case_hsdp_native_refuses():
    """What would lose what waits, or reduce twice."""
    mesh = mesh_over_winnow(meshes().shape, winnow.torch.GroupOptions("topk:0.05", min_bytes=0, **FIXED))
    model = fully_shard(uneven(), mesh=mesh)
    plain = torch.optim.SGD(model.parameters(), lr=0.05)
    for number in range(4):
        step(model, plain, number)
    expect_refused(lambda: winnow.torch.attach_hsdp(model, mesh["between"]))
    model = fully_shard(uneven(), mesh=mesh)
    winnow.torch.attach_hsdp(model, mesh["between"])
    optimizer = winnow.torch.SGD(model.parameters(), lr=0.05, model=model)
    expect_refused(lambda: winnow.torch.attach_hsdp(model, mesh["between"]))
    step(model, optimizer, 0)
    expect_one_model(model)


def case_hsdp_micro_batches():
    """set_requires_all_reduce(False) keeps gradients back, and one call has them all."""
    mesh = meshes()
    for kind in torch.optim.SGD, winnow.torch.SGD:
        reference = DistributedDataParallel(uneven())
        theirs = torch.optim.SGD(reference.parameters(), lr=0.05)
        model, state, _ = sharded(mesh, "topk:0.999999")
        ours = kind(model.parameters(), lr=0.05,
                    **({"model": model} if kind is winnow.torch.SGD else {}))
        for number in range(3):
            theirs.zero_grad()
            ours.zero_grad()
            calls = state.reducer.totals()["calls"]
            for part in range(3):
                with contextlib.nullcontext() if part == 2 else reference.no_sync():
                    reference(batch(3 * number + part)).square().mean().backward()
                model.set_requires_all_reduce(part == 2)
                model(batch(3 * number + part)).square().mean().backward()
            expect(state.reducer.totals()["calls"] == calls + 3, "a call for each module")
            theirs.step()
            ours.step()
        expect_close(model, reference)
        state.close()


def case_hsdp_detach():
    """Dense averages of torch afterwards; a model that is dropped takes its State along."""
    mesh = meshes()
    model, state, optimizer = sharded(mesh, "topk:1")
    plain = DistributedDataParallel(uneven())
    theirs = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.5)
    for number in range(4):
        if number == 2:
            winnow.torch.detach(model)
        step(plain, theirs, number)
        step(model, optimizer, number)
    expect_close(model, plain)
    again = winnow.torch.attach_hsdp(model, mesh["between"], "topk:0.01", min_bytes=0, **FIXED)
    step(model, optimizer, 4)
    reference = weakref.ref(again)
    del model, again, state, optimizer
    gc.collect()
    expect(reference() is None, "nobody holds the state")


def case_hsdp_unfrozen():
    """Layers that are frozen and unfrozen in mid-run keep their ids."""
    model, state, optimizer = sharded(meshes(), "topk:0.01")
    for number, learns in enumerate((False, True, False, True)):
        model[2].requires_grad_(learns)
        model[0].bias.requires_grad_(learns)
        step(model, optimizer, number)
        held = state.reducer.residual(id_of("0.weight"))
        expect(held is not None and any(held), "a residual of its own")
    expect_one_model(model)
    state.close()


class Around(nn.Module):
    """Parameters of its own, besides those of a child."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(7)
        self.factor, self.layer = nn.Parameter(torch.ones(SIZE)), nn.Linear(SIZE, SIZE)

    def forward(self, inputs):
        return self.layer(inputs * self.factor)


def expect_order(plain, model, state):
    """Each parameter has its own rate."""
    theirs, ours = ([{"params": [trained.factor], "lr": 0.5}, {"params": list(trained.layer.parameters())}]
                    for trained in (plain.module, model))
    theirs, ours = torch.optim.SGD(theirs, lr=0.01), winnow.torch.SGD(ours, lr=0.01, model=state)
    for number in range(4):
        step(plain, theirs, number)
        step(model, ours, number)
    expect_close(model, plain)
    state.close()


def case_hsdp_order():
    """A module's own parameters travel behind those of its children."""
    plain, model, mesh = DistributedDataParallel(Around()), Around(), meshes()
    fully_shard(model, mesh=mesh["within"])
    state = winnow.torch.attach_hsdp(model, mesh["between"], "topk:0.999999", min_bytes=0, **FIXED)
    expect_order(plain, model, state)


class Phase(nn.Module):
    """Complex weights alone, as fully_shard wants one type in a module."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.weight = nn.Parameter(torch.randn(SIZE, 5, dtype=torch.complex64) / SIZE)

    def forward(self, inputs):
        return torch.view_as_real(inputs.to(torch.complex64) @ self.weight)


def case_hsdp_complex():
    """Both parts of complex shards are reduced, and wait."""
    mesh = meshes()
    plain, model = DistributedDataParallel(Phase()), Phase()
    fully_shard(model, mesh=mesh["within"])
    state = winnow.torch.attach_hsdp(model, mesh["between"], "topk:0.999999", min_bytes=0, **FIXED)
    theirs = torch.optim.SGD(plain.parameters(), lr=0.05)
    ours = winnow.torch.SGD(model.parameters(), lr=0.05, model=model)
    for number in range(4):
        step(plain, theirs, number)
        ours.zero_grad()
        with winnow.torch.look_ahead(model, ours, share=0.0):
            model(batch(number)).square().mean().backward()
        ours.step()
    expect_close(model, plain)
    held = state.residual(model.weight)
    expect(len(held) == 2 * 5 * SIZE // mesh["within"].size(), "two numbers for an element")
    state.close()


def case_hsdp_marks():
    """Marks of shards within nodes."""
    expect_marks(lambda: sharded(meshes(), "topk:0.1"))


def expect_marks(make):
    """A gradient that is reduced twice before a step is refused, one that never was takes torch's own
    step, and moments follow. `make` returns a model and its State."""
    for ours, theirs, settings in (
            (winnow.torch.SGD, torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
            (winnow.torch.AdamW, torch.optim.AdamW, {"lr": 0.01})):
        model, state, _ = make()
        optimizer = ours(model.parameters(), model=model, **settings)
        alone = [local(p).clone() for p in model.parameters()]
        plain = theirs(alone, **settings)
        for number in range(3):
            for parameter, shard in zip(model.parameters(), alone):
                shard.grad = torch.full_like(shard, 0.1 * (number + 1))
                parameter.grad = torch.full_like(parameter, 0.1 * (number + 1))
            optimizer.step()
            plain.step()
        expect(all(map(torch.equal, map(local, model.parameters()), alone)), "gradients set by hand")
        for number in range(3):
            step(model, optimizer, number)
        expect_one_model(model)
        model(batch(4)).square().mean().backward()
        expect_refused(lambda: model(batch(5)).square().mean().backward())
        state.close()
