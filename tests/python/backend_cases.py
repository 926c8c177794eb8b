# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The backend "winnow" of torch.distributed: what it compresses, and what it leaves as it is."""
import copy
import itertools
import os

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import winnow.torch
from backend_groups import DENSE_STEPS, compressed, counts, group_of, options, train, wire_bytes
from torch_harness import (SIZE, batch, expect, expect_equal_replicas, gather, mesh_over_winnow, network,
                           replicate, step)


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
