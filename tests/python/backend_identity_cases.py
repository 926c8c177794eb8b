# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Which sum is which: a group of the backend keeps apart what waits of different gradients."""
import contextlib
import copy
import datetime
import math

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import winnow.torch
from backend_groups import compressed, counts, group_of, options, train
from torch_harness import (SIZE, batch, expect, expect_equal_replicas, gather, mesh_over_winnow, network,
                           refused, step)
from winnow.torch.backend.sequence import Sequence, _steps
from winnow.torch.names import id_of


def case_backend_accumulation():
    """Micro-batches in no_sync make no sum; those that are summed share what waits of their parameters."""
    with group_of() as group:
        ddp = DistributedDataParallel(network(), process_group=group)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        for number in range(6):
            optimizer.zero_grad()
            with ddp.no_sync():
                ddp(batch(number)).square().mean().backward()
            ddp(batch(20 + number)).square().mean().backward()
            optimizer.step()
        expect(compressed(group) == 4, f"one sum a step: {counts(group)}")
        before = compressed(group)
        for number in range(8):
            optimizer.zero_grad()
            for part in range(2):
                ddp(batch(20 * part + number)).square().mean().backward()
            optimizer.step()
        expect(compressed(group) - before == 8 + 8, f"two sums a step: {counts(group)}")
        expect_equal_replicas(ddp)


def case_backend_models_of_one_shape():
    """Share nothing, in whatever turn they are trained, and however often optimizers are copied on one rank."""
    import random

    def trained(turns, group):
        models = [network(), network()]
        ddps = [DistributedDataParallel(model, process_group=group) for model in models]
        optimizers = [torch.optim.SGD(ddp.parameters(), lr=0.05) for ddp in ddps]
        for number, which in enumerate(turns):
            step(ddps[which], optimizers[which], 40 * which + turns[:number].count(which))
            if dist.get_rank() == 0 and number % 5 == 0:
                copy.deepcopy(optimizers[which])
        return models

    turns = random.Random(1).choices((0, 1), k=20)
    with group_of() as group:
        mixed = trained(turns, group)
        expect(compressed(group) == 20 - 2 * 2, f"{counts(group)}")
    for which in 0, 1:
        with group_of() as group:
            alone = trained([which] * turns.count(which), group)[which]
        expect(all(map(torch.equal, alone.parameters(), mixed[which].parameters())), f"model {which}")

    sequence, optimizers = Sequence(), [torch.optim.SGD([torch.zeros(1)], lr=0.1) for _ in range(2)]
    known = []
    for which in [0, 0, 0, 0, 0, 1] * 3:
        known.append(sequence.place(7).is_known)
        optimizers[which].step()
    expect(known[:4] == [False, False, False, True] and not any(known[7:12]), f"sums of which nothing is known: {known}")


def case_backend_layers_of_one_shape():
    """Blocks of an FSDP2 model that take turns keep what waits apart."""
    mesh = mesh_over_winnow((dist.get_world_size(), 1), options("topk:0.05"))
    blocks = nn.Sequential(*(nn.Linear(SIZE, SIZE, bias=False) for _ in range(3)))
    for block in blocks:
        nn.init.zeros_(block.weight)
        fully_shard(block, mesh=mesh)
    optimizer = torch.optim.SGD(blocks.parameters(), lr=1.0)
    for number in range(12):  # each block has a gradient in rows of its own alone
        which = (number * number) % 3
        inputs = torch.randn(4, SIZE, generator=torch.Generator().manual_seed(9 * number + dist.get_rank()))
        optimizer.zero_grad()
        (blocks[which](inputs)[:, 100 * which:100 * which + 100] ** 2 + inputs[:, :100]).sum().backward()
        blocks[which](inputs)[:, 100 * which:100 * which + 100].sum().backward()
        optimizer.step()
    for which, block in enumerate(blocks):
        weight = block.weight.full_tensor().clone()
        weight[100 * which:100 * which + 100] = 0
        expect(not weight.any(), f"nothing of others in block {which}")
    group = mesh["between"].get_group()
    expect(compressed(group) > 6, f"{counts(group)}")
    dist.destroy_process_group(group)


def case_backend_groups_at_once():
    """Several groups make their connections at the same time, in another order on each rank."""
    with contextlib.ExitStack() as stack:
        groups = [stack.enter_context(group_of(timeout=datetime.timedelta(seconds=30))) for _ in range(3)]
        tensors = [torch.ones(5000) for _ in groups]
        order = range(3) if dist.get_rank() % 2 == 0 else reversed(range(3))
        works = [dist.all_reduce(tensors[which], group=groups[which], async_op=True) for which in order]
        for work in works:
            work.wait()
        expect(all((one == dist.get_world_size()).all() for one in tensors), "sums")


def case_backend_unused():
    """What DistributedDataParallel would throw away is not compressed."""
    with group_of() as group:
        train(network(), 5, group=group, find_unused_parameters=True)
        expect(compressed(group) == 0 and any("find unused" in why for why in counts(group)), f"{counts(group)}")


def case_backend_next_model():
    """A model of equal shape that is trained after another one, by an optimizer of its own, gets nothing that
    waited of that."""
    alone, after = network(), network()
    with group_of() as group:
        train(alone, 6, group=group)
    with group_of() as group:
        train(nn.Sequential(*network()), 6, first=30, group=group)
        train(after, 6, group=group)
    expect(all(map(torch.equal, alone.parameters(), after.parameters())), "as if it were the first")


def case_backend_wrapped_anew():
    """A model in another DistributedDataParallel has other buckets: nothing that waited of the old ones is in
    their sums."""
    models = [network(), network()]
    for model, wraps in zip(models, (1, 2)):
        with group_of() as group:
            weights = copy.deepcopy(model.state_dict())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            for _ in range(wraps):
                model.load_state_dict(weights)
                train(model, 5, optimizer, group=group)
    expect(all(map(torch.equal, *(model.parameters() for model in models))), "as if it were the first")


def case_backend_skipped_steps():
    """A step that a scaler skips, or the program, leaves no trace."""
    trained = []
    for skips in False, True:
        with group_of() as group:
            winnow.torch.skip_step(group)
            ddp = DistributedDataParallel(network(), process_group=group)
            optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
            for number in (0, 1, 2, 3, *([4] if skips else []), 5, 6, 7):
                optimizer.zero_grad()
                ddp(batch(number)).square().mean().backward()
                if number == 4:
                    winnow.torch.skip_step(group)
                else:
                    optimizer.step()
            trained.append([p.clone() for p in ddp.parameters()])
    for overflows in False, True:
        with group_of() as group:
            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
            winnow.torch.attach_scaler(group, scaler)
            ddp = DistributedDataParallel(network(), process_group=group)
            optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
            for number in (0, 1, 2, 3, *([4] if overflows else []), 5, 6, 7):
                optimizer.zero_grad()
                loss = ddp(batch(number)).square().mean()
                if number == 4 and dist.get_rank() == 0:
                    loss = loss * math.inf
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            expect(compressed(group) > 4, f"{counts(group)}")
            trained.append([p.clone() for p in ddp.parameters()])
    with group_of() as group:
        ddp, optimizer = train(network(), 4, group=group)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        expect("before the first backward pass" in refused(lambda: winnow.torch.attach_scaler(group, scaler)), "late")
        scaler.scale(ddp(batch(5)).square().mean()).backward()
        expect("attach_scaler" in refused(lambda: scaler.step(optimizer)), "a scaler that nobody follows")
    for first, second in zip(trained[::2], trained[1::2]):
        expect(all(map(torch.equal, first, second)), "as if it had not been")


def case_backend_steps_that_differ():
    """A sum that has another place in the step than before is exact, and does not touch what waits."""
    with group_of() as group:
        ddp = DistributedDataParallel(network(), process_group=group)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        weight = nn.Parameter(torch.ones(SIZE, SIZE))
        weight.register_hook(lambda gradient: dist.all_reduce(gradient, group=group) or gradient)
        for number in range(8):
            optimizer.zero_grad()
            if number == 5:
                (weight * 2).sum().backward()
            ddp(batch(number)).square().mean().backward()
            optimizer.step()
        expect(compressed(group) == 6 and counts(group)["of gradients that were new or in another order"] == 3,
               f"a sum that nobody knows is exact: {counts(group)}")
        expect((weight.grad == 2 * dist.get_world_size()).all(), "an exact sum")
        expect_equal_replicas(ddp)


def case_backend_residuals():
    """What is not sent waits: over all steps sums lose nothing but what still waits."""
    with group_of("topk:0.1", rule="group") as group:
        optimizer, total, right = torch.optim.SGD([torch.zeros(1)], lr=0.1), torch.zeros(5000), torch.zeros(5000)
        for number in range(12):
            gradient = torch.randn(5000, generator=torch.Generator().manual_seed(20 * number + dist.get_rank()))
            dense = gradient.clone()
            dist.all_reduce(dense)
            right += dense
            dist.all_reduce(gradient, group=group)
            total += gradient
            optimizer.step()
        begun = group._sequence._begun
        number = id_of(f"{max(begun, key=begun.get)} {gather(1 + _steps.generation)}")
        waiting = torch.frombuffer(group.state.reducer.residual(number), dtype=torch.float32)
        dist.all_reduce(waiting)
        expect(torch.allclose(total + waiting, right, atol=1e-4), "what was sent and what waits are everything")
        expect(waiting.norm() > 0.1 * right.norm(), "a part waits")
