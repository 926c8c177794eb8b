# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What the cases of winnow.torch share. They run on every process of a group."""
import hashlib
import inspect
import math
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch

try:
    from torch.distributed._composable.replicate_with_fsdp import replicate
except ImportError:  # of an older torch
    replicate = None

FIXED = {"schedule": "gather", "deadline": 30}
SIZE = 400
# Where models are: CASES_ON, cpu or cuda, whose GPUs the ranks of a node share.
DEVICE = torch.device(os.environ.get("CASES_ON", "cpu"))
if DEVICE.type == "cuda":
    DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(DEVICE)


def mesh_over_winnow(shape, options):
    """A mesh between nodes, over the backend winnow, and, if it has two dimensions, within them."""
    names = ("between", "within")[:len(shape)]
    if "backend_override" in inspect.signature(init_device_mesh).parameters:
        return init_device_mesh("cpu", shape, mesh_dim_names=names, backend_override={"between": ("winnow", options)})
    plain, groups = init_device_mesh("cpu", shape, mesh_dim_names=names), []
    for ranks in plain.mesh.view(shape[0], -1).t().tolist():
        made = dist.new_group(ranks, backend="winnow", pg_options=options)
        groups += [made] if dist.get_rank() in ranks else []
    groups += [plain.get_group(name) for name in names[1:]]
    return DeviceMesh.from_group(groups if len(shape) > 1 else groups[0], "cpu", plain.mesh, mesh_dim_names=names)


def say(*words):
    if dist.get_rank() == 0:
        print(*words, flush=True)


def gather(mine):
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return everyone


def expect(holds, what):
    """On all ranks, or none: a rank that fails alone would leave the others waiting."""
    failed = [rank for rank, good in enumerate(gather(bool(holds))) if not good]
    if failed:
        raise AssertionError(f"{what}: not on ranks {failed}")


def expect_refused(*calls):
    for number, call in enumerate(calls):
        try:
            call()
        except winnow.UsageError:
            continue
        expect(False, f"call {number} is a UsageError")


def refused(call):
    """The text of its UsageError; empty if there is none."""
    try:
        call()
    except winnow.UsageError as error:
        return str(error)
    return ""


def expect_equal_replicas(model):
    parts = (torch.view_as_real(p) if p.is_complex() else p for p in map(torch.detach, model.parameters()))
    state = b"".join(part.float().cpu().numpy().tobytes() for part in parts)
    expect(len(set(gather(hashlib.sha256(state).hexdigest()))) == 1, "replicas are equal")


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.LayerNorm(SIZE),
                         nn.Linear(SIZE, 40)).to(DEVICE)


def batch(step, dtype=torch.float32):
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return torch.randn(16, SIZE, generator=generator).to(DEVICE, dtype)


def make(model=None, compressor="topk:0.01", options=None, **keywords):
    ddp = DistributedDataParallel(network() if model is None else model, **keywords)
    state = winnow.torch.attach(ddp, compressor, **{**FIXED, **(options or {})})
    return ddp, state, torch.optim.SGD(ddp.parameters(), lr=0.05)


def adamw_reference(model, steps, rate, decay, betas, eps, node=None):
    """winnow.torch.AdamW, written down again: second moments of each rank's own gradients, or of the
    means over its node, sums of what these divide, first moments of the sums."""
    reducing = dist.get_world_size() / (1 if node is None else dist.get_world_size(node))
    own = [[torch.zeros_like(p), torch.zeros_like(p)] for p in model.parameters()]
    for number in range(steps):
        model.zero_grad()
        model(batch(number)).square().mean().backward()
        for parameter, (first, second) in zip(model.parameters(), own):
            gradient = parameter.grad
            if node is not None:
                dist.all_reduce(gradient, group=node)
                gradient /= dist.get_world_size(node)
            second.copy_(betas[1] * second + (1 - betas[1]) * gradient * gradient)
            corrected = second / (1 - betas[1] ** (number + 1))
            divided = math.sqrt(reducing) * gradient / (corrected.sqrt() + eps)
            dist.all_reduce(divided)
            first.copy_(betas[0] * first + (1 - betas[0]) * divided / dist.get_world_size())
            with torch.no_grad():
                parameter.copy_(parameter * (1 - rate * decay)
                                - rate * first / (1 - betas[0] ** (number + 1)))


def step(ddp, optimizer, number, dtype=torch.float32):
    optimizer.zero_grad()
    loss = ddp(batch(number, dtype)).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def scaler_of(model):
    """A GradScaler that the model follows."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    winnow.torch.attach_scaler(model, scaler)
    return scaler


def expect_parts_skipped(model, state, module):
    """Two optimizers of one sharded model, of which a scaler skips the one that moves `module`: what waits
    of its parameters is as it was, and the others' step stays. Returns the scaler."""
    first = list(module.parameters())
    others = [p for p in model.parameters() if all(p is not one for one in first)]
    optimizers, scaler = [torch.optim.SGD(part, lr=0.05) for part in (first, others)], scaler_of(model)
    overflows = False

    def overflow(_, __, output):
        output.register_hook(lambda gradient: gradient * math.inf if overflows else gradient)

    module.register_forward_hook(overflow)

    def waiting():
        return [[state.residual(p) for p in part] for part in (first, others)]

    for number in range(4):
        overflows, before = number == 2, waiting()
        for optimizer in optimizers:
            optimizer.zero_grad()
        scaler.scale(model(batch(number)).square().mean()).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        middle = waiting()
        scaler.update(1024.0)
        expected = [before[0] if overflows else middle[0], middle[1]]
        for part, right in zip(waiting(), expected):
            expect(number == 0 or all(map(torch.equal, part, right)), f"step {number}: what waits")
        expect(number != 2 or not all(map(torch.equal, before[1], middle[1])), "the others' step")
    return scaler
