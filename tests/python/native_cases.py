# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""attach_hsdp where torch itself would sum between replicas, over a group of the backend: torchtitan's way."""
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

import winnow.torch
from hsdp_cases import expect_close, expect_one_model, meshes, uneven, whole
from torch_harness import FIXED, SIZE, batch, expect, expect_refused, mesh_over_winnow, step
from winnow.torch import warn
from winnow.torch.names import id_of

OPTIONS = {"min_bytes": 0, **FIXED}


def native(compressor, *together):
    """A model over a mesh of two dimensions; `together`: of which modules one group is made."""
    mesh = mesh_over_winnow(meshes().shape, winnow.torch.GroupOptions(compressor, **OPTIONS))
    model = uneven()
    fully_shard([model[place] for place in together] if together else model[0], mesh=mesh)
    return fully_shard(model, mesh=mesh), mesh


def take_sums(model):
    """In place of averages, as torchtitan, whose loss knows how many tokens all ranks have."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo lacks PREMUL_SUM


def case_native_sums():
    """Where torch would sum between replicas, p.grad is the sum, under both optimizers, with clipping: the bits
    of a model that is sharded within nodes alone, averages between them, and has so many times the loss."""
    nodes = meshes()["between"].size()
    for make in winnow.torch.AdamW, winnow.torch.SGD:
        trained, norms = [], []
        for is_native in False, True:
            if is_native:
                model, mesh = native("topk:0.05")
                state = winnow.torch.attach_hsdp(model, mesh["between"])
            else:
                mesh = init_device_mesh("cpu", meshes().shape, mesh_dim_names=("between", "within"))
                model = uneven()
                for part in model[0], model:
                    fully_shard(part, mesh=mesh["within"])
                state = winnow.torch.attach_hsdp(model, mesh["between"], "topk:0.05", **OPTIONS)
            take_sums(model)
            optimizer = make(model.parameters(), lr=0.01, model=model)
            for number in range(6):
                optimizer.zero_grad()
                with winnow.torch.look_ahead(model, optimizer):
                    (model(batch(number)).square().mean() * (1 if is_native else nodes)).backward()
                norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.2)))
                optimizer.step()
            trained.append([p.clone() for p in whole(model)])
            state.close()
        expect(norms[:6] == norms[6:], f"norms of sums under {make.__name__}: {norms}")
        expect(all(map(torch.equal, *trained)), f"bits of sums under {make.__name__}")


def case_native_divided_afterwards():
    """torch divides a sum behind the hook, which holds updates then."""
    model, mesh = native("topk:0.05")
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
    winnow.torch.attach_hsdp(model, mesh["between"])
    expect_refused(lambda: model(batch(0)).square().mean().backward())


def case_native_given_together():
    """Each parameter of modules that fully_shard was given together has its name, and its optimizer's step, as in
    torch's own HSDP."""
    for is_native in False, True:
        plain = uneven()
        fully_shard([plain[2], plain[3]], mesh=meshes())
        fully_shard(plain, mesh=meshes())
        theirs = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.5)
        if is_native:
            model, mesh = native("topk:0.999999", 2, 3)
        else:
            mesh, model = meshes(), uneven()
            fully_shard([model[2], model[3]], mesh=mesh["within"])
            fully_shard(model, mesh=mesh["within"])
        state = winnow.torch.attach_hsdp(model, mesh["between"], "topk:0.999999", **OPTIONS)
        ours = winnow.torch.SGD(model.parameters(), lr=0.05, momentum=0.5, model=model)
        for number in range(5):
            step(plain, theirs, number)
            step(model, ours, number)
        expect_close(model, plain)
        for name in "2.weight", "3.weight":
            expect(state.reducer.residual(id_of(name)) is not None, f"a residual of {name}")
        state.close()


class Headed(nn.Module):
    """The caller runs the head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.body, self.norm, self.head = nn.Linear(SIZE, SIZE), nn.LayerNorm(SIZE), nn.Linear(SIZE, 41)

    def forward(self, inputs):
        return self.norm(self.body(inputs).relu())


def case_native_passes_of_parts():
    """A head whose loss runs a backward pass of its own before that of the rest, as torchtitan's chunks of
    the loss: its gradients are summed apart from those of the norm that fully_shard was given with it."""
    if not hasattr(torch.distributed.fsdp, "DataParallelMeshDims"):
        return  # torch 2.8 frees the head's parameters before that pass
    mesh = mesh_over_winnow(meshes().shape, winnow.torch.GroupOptions("topk:0.999999", **OPTIONS))
    plain, model = Headed(), Headed()
    fully_shard([model.norm, model.head], mesh=mesh)
    fully_shard(model, mesh=mesh)
    state = winnow.torch.attach_hsdp(model, mesh["between"])
    theirs = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.5)
    ours = winnow.torch.SGD(model.parameters(), lr=0.05, momentum=0.5, model=model)
    for number in range(5):
        for trained, optimizer in (plain, theirs), (model, ours):
            optimizer.zero_grad()
            body = trained(batch(number))
            cut = body.detach().requires_grad_()
            trained.head(cut).square().mean().backward()
            body.backward(cut.grad)
            for parameter in plain.parameters() if trained is plain else ():
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
            optimizer.step()
    expect_close(model, plain)
    expect_one_model(model)
    state.close()


class Holder(torch.optim.Optimizer):
    """As torchtitan's OptimizersContainer."""

    def __init__(self, optimizer):
        self.optimizers = [optimizer]
        super().__init__([p for group in optimizer.param_groups for p in group["params"]], {})

    def step(self, closure=None):
        for optimizer in self.optimizers:
            optimizer.step()


def case_native_held_optimizers():
    """An optimizer that another one holds makes its own step, and torch's AdamW is warned of."""
    trained = []
    for holds in (lambda optimizer: optimizer), Holder:
        model, mesh = native("topk:0.05")
        winnow.torch.attach_hsdp(model, mesh["between"])
        optimizer = holds(winnow.torch.AdamW(model.parameters(), lr=0.01, model=model))
        for number in range(4):
            step(model, optimizer, number)
        trained.append(whole(model))
    expect(all(map(torch.equal, *trained)), "bits")

    model, mesh = native("topk:0.05")
    optimizer = Holder(torch.optim.AdamW(model.parameters(), lr=0.01))
    warn._said.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for number in range(4):
            step(model, optimizer, number)
    found = [one for one in caught if "AdamW makes wrong second moments" in str(one.message)]
    expect(len(found) == (dist.get_rank() == 0), f"{len(found)} warnings")
    expect(mesh["between"].get_group()._why[""] > 0, "compressed sums")
