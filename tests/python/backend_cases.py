# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The backend "winnow" of torch.distributed: what it compresses, and what it leaves as it is."""
import contextlib
import copy
import datetime
import gc
import itertools
import logging
import math
import os
import weakref

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from torch_harness import (SIZE, batch, expect, expect_equal_replicas, gather, mesh_over_winnow, network, refused,
                           replicate, step)
from winnow.torch.backend.sequence import Sequence, _steps
from winnow.torch.backend.waiting import Waiting
from winnow.torch.names import id_of

DENSE_STEPS = 2  # after which DistributedDataParallel, and FSDP2, have summed the same buckets twice


def options(compressor="topk:0.05", **keywords):
    return winnow.torch.GroupOptions(compressor, **{"schedule": "gather", "min_bytes": 1024, "exempt_1d": 0,
                                                    **keywords})


@contextlib.contextmanager
def group_of(compressor="topk:0.05", **keywords):
    made = dist.new_group(backend="winnow", pg_options=options(compressor, **keywords))
    yield made
    dist.destroy_process_group(made)


def counts(group):
    """How many sums were compressed, and how many went exact for which reason."""
    return dict(group._why)


def compressed(group):
    return counts(group).get("", 0)


def wire_bytes(group):
    return group.state.reducer.totals()["wire_bytes"]


def train(model, steps, optimizer=None, first=0, group=None, **keywords):
    ddp = DistributedDataParallel(model, process_group=group, **keywords)
    optimizer = optimizer or torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.5)
    for number in range(first, first + steps):
        step(ddp, optimizer, number)
    return ddp, optimizer


def expect_close(models, what):
    for mine, right in zip(*(model.parameters() for model in models)):
        mine, right = (p.full_tensor() if hasattr(p, "full_tensor") else p for p in (mine, right))
        expect(torch.allclose(mine, right, rtol=1e-4, atol=1e-5), what)


def gloo_averages():
    """Whether it scatters averages where it is told to: in torch 2.8 these are sums."""
    ranks, shard = dist.get_world_size(), torch.zeros(1)
    dist.reduce_scatter_tensor(shard, torch.ones(ranks), op=dist.ReduceOp.AVG)
    return shard.item() == 1


def case_backend_ddp():
    """A lossless compressor trains as gloo does; another one keeps replicas equal and saves bytes."""
    plain, lossless, lossy = network(), network(), network()
    train(plain, 8)
    with group_of("topk:1") as group:
        train(lossless, 8, group=group)
        expect(compressed(group) == 6, f"sums of a lossless group: {counts(group)}")
    expect_close((lossless, plain), "a lossless group trains as gloo")
    with group_of() as group:
        train(lossy, 8, group=group)
        totals = group.state.reducer.totals()
        expect(compressed(group) == 6 and totals["dense_wire_bytes"] > 5 * totals["wire_bytes"], "bytes are saved")
    expect_equal_replicas(lossy)


def case_backend_same_bits_as_attach():
    """Where each bucket holds one parameter, and on as many ranks as a power of two."""
    model = nn.Sequential(*(nn.Linear(SIZE, SIZE, bias=False) for _ in range(3)))
    twin = nn.Sequential(*(nn.Linear(SIZE, SIZE, bias=False) for _ in range(3)))
    for weight in model.parameters():
        torch.manual_seed(3)
        nn.init.normal_(weight, std=0.05)
    one_each = {"bucket_cap_mb": 0.1}
    with group_of() as group:
        ddp, optimizer = train(model, DENSE_STEPS + 1, group=group, **one_each)  # the first in one bucket
        begun, moments = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
        for number in range(4):
            step(ddp, optimizer, 9 + number)
        expect(compressed(group) == 4 * 3, f"sums are compressed: {counts(group)}")
    twin.load_state_dict(begun)
    attached = DistributedDataParallel(twin, **one_each)
    winnow.torch.attach(attached, "topk:0.05", schedule="gather", min_bytes=0, deadline=30)
    theirs = torch.optim.SGD(attached.parameters(), lr=0.05, momentum=0.5)
    theirs.load_state_dict(moments)
    for number in range(4):
        step(attached, theirs, 9 + number)
    expect(all(map(torch.equal, model.parameters(), twin.parameters())), "bits")
    winnow.torch.detach(attached)


def case_backend_hsdp():
    """Native HSDP and replicate, of which Winnow has the dimension between nodes."""
    ranks = dist.get_world_size()
    within = 2 if ranks > 2 else 1
    plain = network()
    ddp, _ = train(plain, 6)
    for compressor, wrap in itertools.product(("topk:1", "topk:0.05"), ("hsdp", "replicate")):
        if wrap == "replicate" and replicate is None:
            continue
        mesh = mesh_over_winnow((ranks // within, within) if wrap == "hsdp" else (ranks,), options(compressor))
        model = network()
        for layer in (model[0], model[3], model):
            fully_shard(layer, mesh=mesh) if wrap == "hsdp" else replicate(layer, mesh=mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
        for number in range(6):
            step(model, optimizer, number)
        group = mesh["between"].get_group()
        expect(compressed(group) >= 4, f"{wrap}: {counts(group)}")
        if compressor == "topk:1" and gloo_averages():
            expect_close((model, plain), f"{wrap} trains as DistributedDataParallel over gloo")
        else:
            expect(wire_bytes(group) * 5 < group.state.reducer.totals()["dense_wire_bytes"], "bytes are saved")
        digest = [float(p.full_tensor().double().sum()) for p in model.parameters()]
        expect(gather(digest)[0] == digest, f"{wrap}: replicas are equal")
        dist.destroy_process_group(group)


def case_backend_exact_elsewhere():
    """Sums outside of backward passes are exact, whatever their type and layout, as gloo's are."""
    layouts = [lambda x: x, lambda x: x.view(64, 64).t(), lambda x: x.view(64, 64)[:, ::2], lambda x: x[:0],
               lambda x: x.view(4, 4, 16, 16).to(memory_format=torch.channels_last), lambda x: x[3:],
               lambda x: x[0].clone(), lambda x: x.clone().requires_grad_(x.dtype.is_floating_point),
               lambda x: x.view(64, 64).to_sparse(), lambda x: nn.Parameter(x, requires_grad=False)]
    types = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8,
             torch.int8, torch.bool, torch.complex64]
    generator = torch.Generator().manual_seed(dist.get_rank())
    numbers = torch.randint(0, 3, (4096,), generator=generator)

    def outcome(tensor, op, group):
        try:
            dist.all_reduce(tensor, op=op, group=group)
        except (RuntimeError, ValueError) as error:
            return type(error)
        return tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()

    with group_of("topk:0.1") as group:
        for layout, kind, op in itertools.product(layouts, types, (dist.ReduceOp.SUM, dist.ReduceOp.MAX)):
            mine, right = (outcome(layout(numbers.to(kind)), op, one) for one in (group, dist.group.WORLD))
            expect(mine is right or isinstance(mine, torch.Tensor) and torch.equal(mine, right),
                   f"{kind}, layout {layouts.index(layout)}, {op}")
        for op, factor in (dist.ReduceOp.AVG, 1 / dist.get_world_size()), (dist._make_nccl_premul_sum(0.5), 0.5):
            for kind in types[:4]:
                for count in 64, 4096:
                    tensor = torch.full((count,), 6.0, dtype=kind)
                    dist.all_reduce(tensor, op=op, group=group)
                    expect((tensor == 6 * factor * dist.get_world_size()).all(), f"{op} of {count} {kind}")
        tensor = torch.tensor([7, -7, dist.get_rank()])
        dist.all_reduce(tensor, op=dist.ReduceOp.AVG, group=group)
        expect(tensor.tolist() == [7, -7, (dist.get_world_size() - 1) // 2], "averages of integers")
        everyone = [torch.zeros(5) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, torch.full((5,), float(dist.get_rank())), group=group)
        expect([int(one[0]) for one in everyone] == list(range(dist.get_world_size())), "an all-gather")
        dist.barrier(group=group)
        expect(compressed(group) == 0, f"nothing is compressed: {counts(group)}")


def case_backend_rows():
    """Sparse sums are exact, by the rows that ranks have; and as int8 what is not sent waits."""
    rank, ranks = dist.get_rank(), dist.get_world_size()

    def rows_of(number, kind=torch.float32):
        generator = torch.Generator().manual_seed(10 * number + rank)
        ids = torch.randint(0, 40, (1, 0 if (rank + number) % 3 == 1 else 30), generator=generator)
        values = torch.randn(ids.shape[1], 4, 3, generator=generator).to(kind)
        return torch.sparse_coo_tensor(ids, values, (40, 4, 3), check_invariants=True)

    with group_of("topk:0.1") as group:
        for kind in torch.float32, torch.bfloat16, torch.float16:
            for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
                mine, right = rows_of(1, kind), rows_of(1).to(kind).coalesce().to_dense().float()
                work = dist.all_reduce(mine, op=op, group=group, async_op=True)
                everyone = [torch.empty_like(right) for _ in range(ranks)]
                dist.all_gather(everyone, right)
                expect(work.wait() and work.is_completed() and mine.is_coalesced(), "the sum is made")
                right = sum(everyone, torch.zeros_like(right)) * (1 / ranks if op == dist.ReduceOp.AVG else 1)
                expect(torch.equal(mine.to_dense(), right.to(kind)), f"{op} of rows of {kind}")
        used = group._sums._exact.schedule_stats()
        expect([one["schedule"] for one in used] == ["rows"], f"Winnow sums them: {used}")
        twice = rows_of(2)
        dist.all_reduce(twice, op=dist._make_nccl_premul_sum(0.5), group=group)
        once = rows_of(2)
        dist.all_reduce(once, group=group)
        expect(torch.allclose(twice.to_dense(), 0.5 * once.to_dense()), "PREMUL_SUM of rows")

    def model():
        torch.manual_seed(3)
        return nn.Sequential(nn.EmbeddingBag(50, 8, sparse=True), nn.Linear(8, 3))

    def train_rows(group=None):
        ddp = DistributedDataParallel(model(), process_group=group)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.2)
        for number in range(6):
            optimizer.zero_grad()
            ids = (torch.arange(12) * (rank + 2 + number) % 50).view(4, 3)
            ddp(ids).square().mean().backward()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in ddp.parameters()])

    plain = train_rows()
    with group_of("topk:0.1") as group:
        expect(torch.allclose(train_rows(group), plain, rtol=1e-5), "DistributedDataParallel of rows")
    with group_of("topk:0.1", rows="int8") as group:
        expect(torch.allclose(train_rows(group), plain, atol=2e-3), "rows as int8")
        expect(any(one["schedule"] == "rows" and one["calls"] == 4
                   for one in group.state.reducer.schedule_stats()), "coded from the third sum on")


def case_backend_none():
    """With the compressor none torch sums everything."""
    plain, model = network(), network()
    train(plain, 3)
    with group_of("none") as group:
        train(model, 3, group=group)
        expect(group._sums is None, "Winnow makes no connection")
    expect(all(map(torch.equal, model.parameters(), plain.parameters())), "gloo's bits")


def case_backend_join():
    """A rank without inputs shadows sums outside of a backward pass, while the others are inside: all of
    them are exact then, on all ranks."""
    with group_of() as group:
        model = network()
        ddp, optimizer = train(model, 5, group=group)
        before = compressed(group)
        with ddp.join():
            for number in range(2 if dist.get_rank() == 0 else 4):
                optimizer.zero_grad()
                ddp(batch(number)).square().mean().backward()
                optimizer.step()
        expect(compressed(group) - before == 2 or dist.get_rank() == 0, f"steps of all: {counts(group)}")
        apart = "outside of backward passes on rank 0 alone"
        expect(dist.get_rank() == 0 or counts(group).get(apart) == 2, f"steps without rank 0: {counts(group)}")


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


def case_backend_rule_group():
    """Sums after the backward pass, one by one, coalesced, without waiting, and scattered."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    for compressor in "topk:1", "topk:0.05":
        with group_of(compressor, rule="group") as group:
            weights = [nn.Parameter(torch.ones(count)) for count in (5000, 3000)]
            optimizer = torch.optim.SGD(weights, lr=0.1)
            for number in range(6):
                generator = torch.Generator().manual_seed(10 * number + rank)
                gradients = [torch.randn(weight.numel(), generator=generator) for weight in weights]
                right = [gradient.clone() for gradient in gradients]
                for one in right:
                    dist.all_reduce(one)
                whole = torch.cat([torch.full((2000,), float(one + rank)) for one in range(ranks)])
                kept, shard = whole.clone(), torch.empty(2000)
                works = [dist.all_reduce(gradients[0], group=group, async_op=True)]
                with dist._coalescing_manager(group, async_ops=True) as coalesced:
                    for gradient in gradients[1:]:
                        dist.all_reduce(gradient, group=group)
                works.append(dist.reduce_scatter_tensor(shard, whole, group=group, async_op=True))
                for work in (*works, coalesced):
                    work.wait()
                expect(torch.equal(whole, kept), "the input of a reduce-scatter is as it was")
                if compressor == "topk:1" or number < 3:
                    expect(all(torch.allclose(*pair, atol=1e-4) for pair in zip(gradients, right)),
                           f"sums of step {number}")
                    expect((shard == ranks * rank + sum(range(ranks))).all(), "a shard")
                optimizer.step()
            expect(compressed(group) == 3 * 3, f"all are compressed: {counts(group)}")


def case_backend_environment():
    """WINNOW_COMPRESSOR names the compressor, and sums that are exact stay exact."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    for variables in {}, {"WINNOW_ENABLE": "1"}:
        os.environ.update(variables, WINNOW_COMPRESSOR="topk:0.02", WINNOW_SCHEDULE="gather")
        try:
            with group_of("topk:0.5") as group:
                for _ in range(3):
                    tensor, whole, shard = torch.ones(50000), torch.ones(50000 * ranks), torch.empty(50000)
                    dist.all_reduce(tensor, group=group)
                    dist.reduce_scatter_tensor(shard, whole * (rank + 1), group=group)
                    expect((tensor == ranks).all(), "an exact sum")
                    expect((shard == ranks * (ranks + 1) / 2).all(), "an exact shard")
                train(network(), 4, group=group)
                words = group.state.reducer.options.split()
                expect(compressed(group) == 2 and "compressor=topk:0.02" in words, f"{words}, {counts(group)}")
        finally:
            for name in ("WINNOW_COMPRESSOR", "WINNOW_SCHEDULE", *variables):
                del os.environ[name]


def case_backend_functional():
    """Functional collectives, as compiled programs make them, go the same way."""
    with group_of("topk:1", rule="group") as group:
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
        for _ in range(4):
            mine = torch.full((4000,), float(dist.get_rank() + 1))
            total = functional.all_reduce(mine, "sum", group)
            expect((total == sum(range(1, dist.get_world_size() + 1))).all(), "a functional sum")
            optimizer.step()
        expect(compressed(group) == 1, f"functional sums are compressed: {counts(group)}")


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


def case_backend_errors():
    """Come on all ranks, in the Work and not in the call."""
    last = dist.get_rank() == dist.get_world_size() - 1
    text = refused(lambda: dist.new_group(backend="winnow", pg_options=options("topk:0.05" if last else "int8")))
    expect("other options than on rank 0" in text, text)
    expect("must be a winnow.torch.GroupOptions" in refused(
        lambda: dist.new_group(backend="winnow", pg_options=object())), "other options")
    for wrong, why in (options(rule="always"), "must be backward or group"), (options("topk:2"), "topk:2"):
        for given in wrong, wrong if last else options():
            text = refused(lambda given=given: dist.new_group(backend="winnow", pg_options=given))
            expect(why in text, text)
    numbers = torch.ones(1).expand(50)
    with group_of() as group:
        expect("expanded" in refused(lambda: dist.all_reduce(numbers, group=group)), "memory that is shared")
    with group_of() as group:
        work = dist.all_reduce(torch.ones(4000 if last else 5000), group=group, async_op=True)
        text = refused(work.wait)
        expect("ranks make different sums" in text and "4000 elements of float32 (sum)" in text
               and "5000 elements of float32 (sum)" in text, text)
        expect(work.is_completed() and not work.is_success() and isinstance(work.exception(), winnow.UsageError),
               "a Work that has failed")
        try:
            work.get_future().wait()
            failed = ""
        except RuntimeError as error:
            failed = str(error)
        expect("ranks make different sums" in failed, failed)
    with group_of() as group:
        if last:
            tensor = torch.ones(5000)
            work = dist.all_reduce(tensor, group=group, async_op=True)
            late = ""
            try:
                work.wait(datetime.timedelta(milliseconds=50))
            except winnow.CommError as error:
                late = str(error)
        dist.barrier()
        if not last:
            tensor, late = torch.ones(5000), "deadline"
            work = dist.all_reduce(tensor, group=group, async_op=True)
        expect("deadline" in late, late)
        work.wait()
        expect((tensor == dist.get_world_size()).all() and work.result()[0] is tensor, "a sum that came late")


def case_default_group():
    """Run alone, in a job whose backend is winnow: its own group is compressed, and groups that merely have the
    backend of the job are exact unless WINNOW_TORCH_GROUPS or their options name them."""
    def sums(group):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
        for _ in range(4):
            class Doubled(torch.autograd.Function):
                @staticmethod
                def forward(_, x):
                    return x.clone()

                @staticmethod
                def backward(_, gradient):
                    total = gradient.repeat(20000)
                    dist.all_reduce(total, group=group)
                    return total[:1]

            Doubled.apply(torch.ones(1, requires_grad=True)).sum().backward()
            optimizer.step()
        return compressed(dist.group.WORLD if group is None else group)

    told = []
    handler = logging.Handler()
    handler.emit = lambda record: told.append("has the backend of the job" in record.getMessage())
    logging.getLogger("winnow").addHandler(handler)
    expect(sums(None) == 1, f"the job's group: {counts(dist.group.WORLD)}")
    expect(sums(dist.new_group()) == 0, "a group of tensor parallelism")
    expect(sum(told) == (dist.get_rank() == 0), "its first rank says so")
    expect(sums(dist.new_group(pg_options=options())) == 1, "a group with options")
    os.environ["WINNOW_TORCH_GROUPS"] = "data*,other"
    expect(sums(dist.new_group(group_desc="tensor")) == 0, "a group that no pattern names")
    expect(sums(dist.new_group(group_desc="data parallel")) == 1, "a group that a pattern names")
    told.clear()
    expect(sums(dist.new_group(group_desc="another")) == 0 and not any(told), "nobody is told where a group is named")
    logging.getLogger("winnow").removeHandler(handler)


def case_backend_without_torch():
    """A group that torch does not know of, over a store of the program, and another one over the same store."""
    store = dist.PrefixStore("of the program", dist.distributed_c10d._get_default_store())
    for more in {}, {"seed": 3}:
        group = winnow.torch.process_group(store, dist.get_rank(), dist.get_world_size(),
                                           options(rule="group", **more))
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
        for _ in range(4):
            ones = torch.ones(5000)
            group.allreduce([ones], dist.AllreduceOptions()).wait()
            optimizer.step()
        group.barrier().wait()
        expect(compressed(group) == 1, f"{counts(group)}")
        group.shutdown()


def case_backend_ends():
    """A group that is destroyed takes its threads and connections along."""
    with group_of() as group:
        train(network(), 4, group=group)
        thread, gone = group._sums._thread, weakref.ref(group._sums)
    del group
    gc.collect()
    expect(not thread.is_alive() and gone() is None, "a destroyed group is gone")


def case_backend_other_sums():
    """torch sums statistics of batches, and what PowerSGD makes of gradients, in backward passes, too."""
    with group_of(min_bytes=0) as group:
        model = nn.Sequential(nn.Linear(SIZE, SIZE), nn.BatchNorm1d(SIZE)).to("cpu")
        ddp = DistributedDataParallel(model, process_group=group)
        state = powerSGD_hook.PowerSGDState(group, start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        for number in range(6):
            step(ddp, optimizer, number)
        expect(compressed(group) == 0, f"PowerSGD's sums are exact: {counts(group)}")
        expect_equal_replicas(model)


def case_backend_attach():
    """A DistributedDataParallel over the backend takes attach as over gloo, bit for bit."""
    trained = []
    with group_of() as group:
        for over in None, group:
            ddp = DistributedDataParallel(network(), process_group=over)
            optimizer = winnow.torch.attach(ddp, torch.optim.AdamW(ddp.parameters(), lr=1e-3), "topk:0.05",
                                            schedule="gather", min_bytes=0)
            for number in range(5):
                step(ddp, optimizer, number)
            trained.append([p.clone() for p in ddp.parameters()])
            winnow.torch.detach(ddp)
        expect(compressed(group) == 0, f"the hook sums: {counts(group)}")
    expect(all(map(torch.equal, *trained)), "bits")


def case_backend_failed_pass():
    """A failed sum ends a backward pass by an error that says why."""
    with group_of(timeout=datetime.timedelta(seconds=20)) as group:
        ddp, optimizer = train(network(), 5, group=group)
        dist.barrier()  # the sums so far are done on all ranks
        if dist.get_rank() == 0:
            group.abort()
        text = ""
        try:
            step(ddp, optimizer, 6)
        except winnow.CommError as error:
            text = str(error)
        expect("abort" in text, f"an aborted sum: {text}")


def case_backend_says():
    """Once a group, on its first rank: what was compressed, and what not."""
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    log = logging.getLogger("winnow")
    log.addHandler(handler)
    try:
        with group_of() as group:
            train(network(), 6, group=group)
            dist.all_reduce(torch.ones(5000), group=group)
    finally:
        log.removeHandler(handler)
    expect(len(lines) == (dist.get_rank() == 0), f"one line: {lines}")
    expect(not lines or ("compressed 4 sums by topk:0.05" in lines[0]
                         and "1 outside of backward passes" in lines[0]), f"{lines}")



def case_backend_failed_ends():
    """So does one whose sums have failed, though somebody keeps an error, and another one a Work."""
    last, errors = dist.get_rank() == dist.get_world_size() - 1, []
    with group_of() as group:
        train(network(), 4, group=group)
        work = dist.all_reduce(torch.ones(4000 if last else 5000), group=group, async_op=True)
        expect("different sums" in refused(work.wait) and "different sums" in refused(work.wait), "a sum that fails")
        errors.append(work.exception())
        thread, gone = group._sums._thread, weakref.ref(group._sums)
    del group
    gc.collect()
    thread.join(30)
    expect(not thread.is_alive() and gone() is None, "a group that has failed is gone")


def case_backend_split():
    """split_group makes a group that compresses as the one that it splits, or by options of its own."""
    if not hasattr(dist.ProcessGroup, "split_group"):
        return
    half = [[rank] for rank in range(dist.get_world_size() - 2)] + [list(range(dist.get_world_size()))[-2:]]
    with group_of(rule="group") as group:
        for more in {}, {"pg_options": options("topk:0.1", rule="group")}:
            part = dist.split_group(group, half, **more)
            mine = next(ranks for ranks in half if dist.get_rank() in ranks)
            expect(dist.get_backend(part) == "winnow" and dist.get_process_group_ranks(part) == mine, "its ranks")
            optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
            for _ in range(4):
                gradient = torch.ones(5000)
                dist.all_reduce(gradient, group=part)
                optimizer.step()
            expect(compressed(part) == (len(mine) > 1), f"{counts(part)}")
            expect(part.options.compressor == ("topk:0.1" if more else "topk:0.05"), "options")
            exact = torch.full((3,), float(dist.get_rank()))
            dist.all_reduce(exact, group=part)
            expect(exact[0] == sum(mine), "what is small")
            dist.destroy_process_group(part)


def group_after(name, ranks, after):
    store = dist.PrefixStore(f"after {name}", dist.distributed_c10d._get_default_store())
    return winnow.torch.process_group(store, ranks.index(dist.get_rank()), len(ranks), options(rule="group"),
                                      timeout=datetime.timedelta(seconds=60), after=after)


def case_backend_after():
    """What waits outlives its group: all that ranks put into applied sums comes out of them, or waits in the
    end, whatever groups there are, and whatever steps are left out."""
    rank, size = dist.get_rank(), dist.get_world_size()
    everyone, fewer = list(range(size)), list(range(size - 1))
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    generator = torch.Generator().manual_seed(rank)
    for dtype in torch.float32, torch.bfloat16:
        given, taken = torch.zeros(5000, dtype=torch.float64), torch.zeros(5000, dtype=torch.float64)
        plan = [(everyone, 6, None), (fewer, 5, "refused"), (everyone, 0, "aborted"), (everyone, 6, "aborted"),
                (everyone, 3, None), (everyone, 6, "refused")]
        group = None
        for number_of, (ranks, steps, how) in enumerate(plan):
            if rank not in ranks:
                continue
            group = group_after(f"{number_of} {dtype}", ranks, group)
            for number in range(steps + (how is not None)):
                values = torch.randint(-8, 9, (5000,), generator=generator).to(dtype)
                gradient = values.clone()
                group.allreduce([gradient], dist.AllreduceOptions()).wait()
                if number == steps - 2 and how == "refused":
                    winnow.torch.skip_step(group)
                elif number == steps and how == "aborted":
                    group.barrier().wait()
                    group.abort()
                else:
                    optimizer.step()
                    given += values.double()
                    if ranks.index(rank) == 0:
                        taken += gradient.double()
        known = [one for ones in group.end()._held.values() for one in ones]
        expect(any(one.any() for one in known), "something waits")
        taken += sum(one.double() for one in known)
        for total in given, taken:
            dist.all_reduce(total)
        expect(torch.equal(given, taken), f"{dtype}: {(given - taken).abs().sum()} of {given.abs().sum()} are lost")
    waiting, small = Waiting(), torch.tensor([0.001])
    waiting.put(1, [small])
    ones = torch.ones(1, dtype=torch.bfloat16)
    waiting.add_to(1, [ones])
    expect(waiting._held[1][0] == small and ones == 1, "what 16 bits miss waits on")
    waiting.add_to(1, [torch.zeros(2)])
    expect(waiting._held[1][0] == small, "it is not added to other tensors")
    expect("process_group has made" in refused(lambda: group_after("wrong", everyone, dist.group.WORLD)),
           "another group")
