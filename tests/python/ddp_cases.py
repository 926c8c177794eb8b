# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=N ddp_cases.py [CASE...]

winnow.torch in DistributedDataParallel, on processes that torchrun starts: replicas, sums and
residuals against a plain reference, bit for bit. Without CASE: all but `killed`, whose last rank
dies. Each rank exits with 0 if and only if nothing failed; rank 0 names the cases.
"""
import hashlib
import math
import os
import pickle
import signal
import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from winnow.torch.hook import id_of

FIXED = {"schedule": "gather", "deadline": 30}
SIZE = 400


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


def expect_equal_replicas(model):
    state = b"".join(p.detach().float().numpy().tobytes() for p in model.parameters())
    expect(len(set(gather(hashlib.sha256(state).hexdigest()))) == 1, "replicas are equal")


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.LayerNorm(SIZE), nn.Linear(SIZE, 40))


def batch(step, dtype=torch.float32):
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return torch.randn(16, SIZE, generator=generator).to(dtype)


def make(model=None, compressor="topk:0.01", options=None, **keywords):
    ddp = DistributedDataParallel(network() if model is None else model, **keywords)
    state = winnow.torch.attach(ddp, compressor, **{**FIXED, **(options or {})})
    return ddp, state, torch.optim.SGD(ddp.parameters(), lr=0.05)


def step(ddp, optimizer, number, dtype=torch.float32):
    optimizer.zero_grad()
    loss = ddp(batch(number, dtype)).square().mean()
    loss.backward()
    optimizer.step()
    return loss


class Reference:
    """What `topk:0.01` over `gather` does: exact top-k of each parameter with error feedback, sums
    in rank order, one multiplication after the sum."""

    def __init__(self, model):
        self.local = {}  # this rank's gradients, by parameter
        self.residuals = {name: [torch.zeros(p.numel()) for _ in range(dist.get_world_size())]
                          for name, p in model.named_parameters()}

    def sum(self, name, parameter):
        ranks = dist.get_world_size()
        mine = self.local[name].flatten()
        everyone = [torch.empty_like(mine) for _ in range(ranks)]
        dist.all_gather(everyone, mine)
        if parameter.dim() == 1:
            return None  # travels dense, in the order of the ring
        out = torch.zeros_like(mine)
        k = max(1, math.ceil(0.01 * mine.numel()))
        for rank, gradient in enumerate(everyone):
            acc = gradient + self.residuals[name][rank]
            chosen = acc.abs().argsort(descending=True, stable=True)[:k]
            out[chosen] += acc[chosen]
            acc[chosen] = 0
            self.residuals[name][rank] = acc
        return out * (1 / ranks)


def case_reference():
    """Several small buckets, rebuilt after the first step."""
    model = network()
    reference = Reference(model)
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.3)
    state = winnow.torch.State("topk:0.01", min_bytes=0, **FIXED)
    state.name_parameters(model.named_parameters())
    names = {id(p): name for name, p in model.named_parameters()}

    def recording(state, bucket):
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
            reference.local[names[id(parameter)]] = gradient.clone()
        return winnow.torch.hook(state, bucket)

    ddp.register_comm_hook(state, recording)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for number in range(5):
        optimizer.zero_grad()
        ddp(batch(number)).square().mean().backward()
        for name, parameter in model.named_parameters():
            total = reference.sum(name, parameter)
            if total is None:
                continue
            expect(torch.equal(total, parameter.grad.flatten()), f"step {number}: sums of {name}")
            held = torch.frombuffer(state.reducer.residual(state.parameter_id(parameter)),
                                    dtype=torch.float32)
            expect(torch.equal(held, reference.residuals[name][dist.get_rank()]),
                   f"step {number}: the residual of {name}")
        optimizer.step()
    expect_equal_replicas(model)
    state.close()


def case_dense_limit():
    """Density 1 equals DistributedDataParallel alone, to rounding."""
    plain = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05)
    ddp, state, ours = make(compressor="topk:1")
    for number in range(4):
        step(plain, optimizer, number)
        step(ddp, ours, number)
    for ours_now, plain_now in zip(ddp.parameters(), plain.parameters()):
        expect(torch.allclose(ours_now, plain_now, rtol=1e-5, atol=1e-6), "equal to rounding")
    expect_equal_replicas(ddp)
    state.close()


def case_settings():
    """What DistributedDataParallel can be told."""
    for keywords in ({"static_graph": True}, {"gradient_as_bucket_view": True},
                     {"find_unused_parameters": True}):
        ddp, state, optimizer = make(**keywords)
        for number in range(4):
            step(ddp, optimizer, number)
        expect_equal_replicas(ddp)
        expect(state.reducer.totals()["wire_bytes"] * 8 < state.reducer.totals()["dense_wire_bytes"],
               f"{keywords}: fewer bytes")
        state.close()


def case_compressors():
    for compressor, schedule in (("topk:0.01,int8", "balanced"), ("topk:0.03,int4", "balanced"),
                                 ("sign", "gather"), ("none", "auto"), ("topk:0.01", "auto")):
        ddp, state, optimizer = make(compressor=compressor, options={"schedule": schedule})
        for number in range(4):
            step(ddp, optimizer, number)
        expect_equal_replicas(ddp)
        state.close()


def case_bf16():
    ddp, state, optimizer = make(network().bfloat16(), gradient_as_bucket_view=True)
    for number in range(4):
        step(ddp, optimizer, number, torch.bfloat16)
    expect_equal_replicas(ddp)
    state.close()


def case_no_sync():
    ddp, state, optimizer = make()
    for number in range(3):
        optimizer.zero_grad()
        with ddp.no_sync():
            ddp(batch(10 + number)).square().mean().backward()
        ddp(batch(number)).square().mean().backward()
        optimizer.step()
    expect_equal_replicas(ddp)
    state.close()


def case_join():
    """Ranks with different numbers of batches."""
    ddp, state, optimizer = make()
    with ddp.join():
        for number in range(2 + dist.get_rank()):
            step(ddp, optimizer, number)
    expect_equal_replicas(ddp)
    state.close()


def case_clipping():
    ddp, state, optimizer = make()
    for number in range(3):
        optimizer.zero_grad()
        ddp(batch(number)).square().mean().backward()
        norm = nn.utils.clip_grad_norm_(ddp.parameters(), 0.1)
        expect(len(set(gather(norm.item()))) == 1, "one norm on all ranks")
        optimizer.step()
    expect_equal_replicas(ddp)
    state.close()


def case_loss_scaler():
    """A step that is not finite on one rank is skipped on all, and leaves no trace in residuals; what
    waits changes its scale with the loss. Other buckets are finite where the first weight's is not."""
    ddp, state, _ = make(compressor="topk:0.01", options={"exempt_1d": False, "min_bytes": 0},
                         bucket_cap_mb=0.05)
    optimizer = winnow.torch.SGD(ddp.parameters(), lr=0.05, momentum=0.5, model=ddp)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    winnow.torch.attach_scaler(ddp, scaler)
    expect_refused(lambda: winnow.torch.attach_scaler(ddp, scaler))

    overflows = False  # in the first weight on the last rank
    ddp.module[0].weight.register_hook(lambda g: g * math.inf if overflows else g)

    def residuals():
        held = [state.reducer.residual(state.parameter_id(p)) for p in ddp.parameters()]
        return [torch.frombuffer(one, dtype=torch.float32) for one in held if one is not None]

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
        for now, then in zip(ddp.parameters(), plain.parameters()):
            expect(torch.allclose(now, then, rtol=1e-4, atol=1e-5), f"{compressor}: the same steps")
        state.close()

    ddp, state, _ = make(nn.Linear(SIZE, 40, bias=False), options={"min_bytes": 0})
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
    gradients -= torch.frombuffer(state.reducer.residual(state.parameter_id(weight)),
                                  dtype=torch.float32).view_as(gradients)
    dist.all_reduce(gradients)
    expect(torch.allclose(before - gradients / dist.get_world_size(), weight, rtol=1e-4, atol=1e-6),
           "what was sent and what waits have the rates of their steps")
    expect_equal_replicas(ddp)
    expect_refused(lambda: winnow.torch.SGD(ddp.parameters(), lr=1, model=ddp, maximize=True),
                   lambda: winnow.torch.SGD(ddp.parameters(), lr=1, model=plain))
    state.close()


def case_look_ahead():
    """Gradients at the weights minus what waits; the weights are back afterwards. Parameters in
    another order of dimensions, of 16 bits, and some that another optimizer group moves."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Unflatten(1, (4, 10, 10)), nn.Conv2d(4, 20, 3), nn.Flatten(),
                          nn.Linear(20 * 64, 30), nn.Linear(30, 40)).to(
                              memory_format=torch.channels_last)
    ddp, state, _ = make(model, options={"min_bytes": 0})
    convolution, middle, last = (model[i].weight for i in (1, 3, 4))
    expect(not convolution.is_contiguous(), "a parameter in another order")
    optimizer = torch.optim.SGD([{"params": [convolution, middle], "momentum": 0.5},
                                 {"params": [last], "lr": 0.5}], lr=0.25, momentum=0)
    ranks = dist.get_world_size()
    for number in range(4):
        before = [p.detach().clone() for p in ddp.parameters()]
        optimizer.zero_grad()
        with winnow.torch.look_ahead(ddp, optimizer):
            for parameter, share in ((convolution, 0.5), (middle, 0.5), (last, 0.5)):
                held = state.reducer.residual(state.parameter_id(parameter))
                waiting = torch.zeros_like(parameter)
                if held is not None:
                    flat = torch.frombuffer(held, dtype=torch.float32)
                    waiting = torch.as_strided(flat, parameter.shape, parameter.stride())
                expect((held is None) == (number == 0), "a residual from the second step on")
                at = dict(zip(map(id, ddp.parameters()), before))[id(parameter)]
                expect(torch.allclose(parameter, at - share / ranks * waiting, rtol=1e-6,
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


def adamw_reference(model, steps, rate, decay, betas, eps):
    """winnow.torch.AdamW, written down again: second moments of each rank's own gradients, sums of
    what these divide, first moments of the sums."""
    own = [[torch.zeros_like(p), torch.zeros_like(p)] for p in model.parameters()]
    for number in range(steps):
        model.zero_grad()
        model(batch(number)).square().mean().backward()
        for parameter, (first, second) in zip(model.parameters(), own):
            gradient = parameter.grad
            second.copy_(betas[1] * second + (1 - betas[1]) * gradient * gradient)
            divided = gradient / ((second / (1 - betas[1] ** (number + 1))).sqrt() + eps)
            dist.all_reduce(divided)
            first.copy_(betas[0] * first + (1 - betas[0]) * divided / dist.get_world_size())
            with torch.no_grad():
                parameter.copy_(parameter * (1 - rate * decay)
                                - rate * first / (1 - betas[0] ** (number + 1)))


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
        for now, then in zip(ddp.parameters(), expected.parameters()):
            expect(torch.allclose(now, then, rtol=1e-4, atol=1e-5), f"{compressor}: the same steps")
        expect(state.lossless == (compressor != "topk:0.999999"), "what loses nothing")
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
        expect(all(moment.isfinite().all() for own in ours.state.values() for moment in own.values()),
               "good moments")
    expect_equal_replicas(ddp)

    scaler = torch.amp.GradScaler("cpu")
    expect_refused(lambda: winnow.torch.AdamW(ddp.parameters(), model=ddp, amsgrad=True),
                   lambda: winnow.torch.AdamW(ddp.parameters(), model=plain),
                   lambda: (scaler.scale(ddp(batch(0)).square().mean()).backward(),
                            scaler.step(ours)))
    state.close()


def case_resume():
    """From its own checkpoint a rank continues with the same bits. On half of the ranks, from all
    checkpoints, as much is waiting as before."""
    options = {"min_bytes": 0, "exempt_1d": False}  # dense sums depend on the order in a bucket

    def start(**keywords):
        ddp, state, _ = make(options=options, **keywords)
        return ddp, state, winnow.torch.AdamW(ddp.parameters(), lr=0.01, model=ddp)

    def mean_waiting(ddp, state, group=None):
        held = state.reducer.residual(state.parameter_id(next(ddp.parameters())))
        total = torch.frombuffer(held, dtype=torch.float32).clone()
        dist.all_reduce(total, group=group)
        return total / dist.get_world_size(group)

    ddp, state, optimizer = start()
    for number in range(3):
        step(ddp, optimizer, number)
    saved = pickle.dumps([ddp.module.state_dict(), optimizer.state_dict(), state.state_dict()])
    before = mean_waiting(ddp, state)
    expect(before.abs().sum() > 0, "something waits")
    for number in range(3, 6):
        step(ddp, optimizer, number)
    state.close()

    model, moments, waiting = pickle.loads(saved)
    again, state, optimizer = start()
    again.module.load_state_dict(model)
    optimizer.load_state_dict(moments)
    state.load_state_dict(waiting)
    for number in range(3, 6):
        step(again, optimizer, number)
    expect(all(map(torch.equal, ddp.parameters(), again.parameters())), "the same bits")
    state.close()

    everyone = gather(waiting)
    fewer = list(range((len(everyone) + 1) // 2))
    group = dist.new_group(fewer)
    conserved = True
    if dist.get_rank() in fewer:
        half, state, optimizer = start(process_group=group)
        state.load_state_dict(*everyone)
        conserved = torch.allclose(mean_waiting(half, state, group), before, rtol=1e-5, atol=1e-7)
        state.close()
    expect(conserved, "what waited waits")


def case_adaptive_optimizers():
    """A warning, once, of an optimizer that compressed sums mislead."""
    ddp, state, _ = make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for optimizer in (winnow.torch.AdamW(ddp.parameters(), model=ddp),
                          torch.optim.SGD(ddp.parameters(), lr=0.01)):
            step(ddp, optimizer, 0)
        told = [str(w.message) for w in caught if "second moments" in str(w.message)]
        expect(not told, "no warning of others")
        for optimizer in (torch.optim.Adam(ddp.parameters()), torch.optim.RMSprop(ddp.parameters())):
            step(ddp, optimizer, 0)
        told = [str(w.message) for w in caught if "second moments" in str(w.message)]
        expect(len(told) == 1 and told[0].startswith("Adam makes"), f"one warning: {told}")
    state.close()


def case_hsdp():
    """Shards within pairs of ranks, where there are pairs, sums between: at density 1 it equals
    DistributedDataParallel, below it the replicas are equal and residuals lie with the shards."""
    ranks = dist.get_world_size()
    within = 2 if ranks % 2 == 0 and ranks > 2 else 1
    mesh = init_device_mesh("cpu", (ranks // within, within), mesh_dim_names=("between", "within"))

    def whole(model):
        return [p.full_tensor().detach() if hasattr(p, "full_tensor") else p.detach()
                for p in model.parameters()]

    def sharded(compressor):
        model = network()
        for layer in model[0], model[3]:
            fully_shard(layer, mesh=mesh["within"])
        fully_shard(model, mesh=mesh["within"])
        state = winnow.torch.attach_hsdp(model, mesh["between"], compressor, min_bytes=0, **FIXED)
        return model, state, torch.optim.SGD(model.parameters(), lr=0.05)

    plain = DistributedDataParallel(network())
    theirs = torch.optim.SGD(plain.parameters(), lr=0.05)
    model, state, optimizer = sharded("topk:1")
    for number in range(4):
        step(plain, theirs, number)
        step(model, optimizer, number)
    for now, then in zip(whole(model), whole(plain)):
        expect(torch.allclose(now, then, rtol=1e-4, atol=1e-5), "equal to rounding")
    state.close()

    model, state, optimizer = sharded("topk:0.01")
    for number in range(4):
        step(model, optimizer, number)
    digest = hashlib.sha256(b"".join(p.numpy().tobytes() for p in whole(model))).hexdigest()
    expect(len(set(gather(digest))) == 1, "replicas are equal")
    held = state.reducer.residual(id_of("0.weight"))
    expect(len(held) == SIZE * SIZE // within, "a residual of this rank's shard")
    stats = state.reducer.totals()
    expect(stats["wire_bytes"] * 8 < stats["dense_wire_bytes"], "fewer bytes")
    expect_refused(lambda: winnow.torch.attach_hsdp(network(), mesh["between"]),
                   lambda: winnow.torch.attach_hsdp(model, mesh),
                   lambda: winnow.torch.AdamW(model.parameters(), model=state),
                   lambda: winnow.torch.look_ahead(state, optimizer).__enter__())
    state.close()


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return batch(index)[0]


def case_data_workers():
    """Forked workers of a DataLoader, while connections and threads exist."""
    ddp, state, optimizer = make()
    step(ddp, optimizer, 0)
    loader = torch.utils.data.DataLoader(Samples(), batch_size=16, num_workers=2)
    for _ in range(2):
        for inputs in loader:
            optimizer.zero_grad()
            ddp(inputs).square().mean().backward()
            optimizer.step()
    expect_equal_replicas(ddp)
    state.close()


def case_groups():
    """Two models at once, one of them on half of the ranks."""
    half = dist.new_group(list(range((dist.get_world_size() + 1) // 2)))
    ddp, state, optimizer = make()
    for number in range(2):
        step(ddp, optimizer, number)
    if dist.get_rank() < (dist.get_world_size() + 1) // 2:
        other, others_state, others_optimizer = make(process_group=half)
        for number in range(2):
            step(other, others_optimizer, number)
        others_state.close()
    for number in range(2, 4):
        step(ddp, optimizer, number)
    expect_equal_replicas(ddp)
    state.close()


def case_lazily():
    """A state that is made before anything else, and pickled, as frameworks do."""
    state = pickle.loads(pickle.dumps(winnow.torch.State("topk:0.01", **FIXED)))
    ddp = DistributedDataParallel(network())
    ddp.register_comm_hook(state, winnow.torch.hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for number in range(3):
        step(ddp, optimizer, number)
    expect_equal_replicas(ddp)
    expect("gather" in winnow.torch.report(state), "a report")
    state.close()


def case_mistakes():
    ddp, state, _ = make()
    expect_refused(lambda: winnow.torch.attach(ddp), lambda: winnow.torch.attach(network()),
                   lambda: winnow.torch.report(DistributedDataParallel(network())))
    state.close()
    ddp, state, optimizer = make(compressor="tokp:0.01")
    try:
        step(ddp, optimizer, 0)
        expect(False, "an error")
    except winnow.UsageError as error:
        expect("did you mean 'topk'" in str(error), "the library's own error")
    state.close()


def case_enable():
    """Last: all later models are attached."""
    winnow.torch.enable("topk:0.01", **FIXED)
    ddp = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for number in range(3):
        step(ddp, optimizer, number)
    expect_equal_replicas(ddp)
    expect("gather" in winnow.torch.report(ddp), "a report")


def case_killed():
    """The others get a CommError in their training loop, and their residuals."""
    ddp, state, optimizer = make()
    weight = next(ddp.parameters())
    try:
        for number in range(1000):
            step(ddp, optimizer, number)
            if number == 5 and dist.get_rank() == dist.get_world_size() - 1:
                os.kill(os.getpid(), signal.SIGKILL)
    except winnow.CommError as error:
        held = state.reducer.residual(state.parameter_id(weight))
        # In one piece: the other ranks write to the same pipe.
        os.write(1, f"rank {dist.get_rank()}: {error}; residual of {len(held)}\n".encode())
        os._exit(0)
    os._exit(1)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    cases = {name[5:]: case for name, case in globals().items() if name.startswith("case_")}
    for name in sys.argv[1:] or [name for name in cases if name != "killed"]:
        cases[name]()
        say("ok", name)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
