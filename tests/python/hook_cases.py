# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""The hook in DistributedDataParallel: sums and residuals against a plain reference, bit for bit."""
import contextlib
import gc
import math
import os
import pickle
import re
import tempfile
import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from winnow.torch import meeting
from winnow.torch.pairing import pairing_of
from torch_harness import (DEVICE, FIXED, SIZE, batch, expect, expect_equal_replicas,
                           expect_refused, gather, make, network, refused, step)


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
            reference.local[names[id(parameter)]] = gradient.cpu().clone()
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
            expect(torch.equal(total, parameter.grad.cpu().flatten()),
                   f"step {number}: sums of {name}")
            expect(torch.equal(state.residual(parameter).cpu(), reference.residuals[name][dist.get_rank()]),
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


def case_two_models():
    """In one backward pass, with options of their own: each as if it were alone. Ranks meet once,
    and one model's failure is its own."""
    kinds, alone = ("topk:0.01", "sign"), []
    for compressor in kinds:
        ddp, state, optimizer = make(compressor=compressor)
        for number in range(3):
            step(ddp, optimizer, number)
        alone.append(ddp)
        state.close()
    bases = meeting._groups[dist.group.WORLD].bases
    before = dict(bases)
    both = [make(compressor=compressor) for compressor in kinds]
    for number in range(3):
        for _, _, optimizer in both:
            optimizer.zero_grad()
        sum(ddp(batch(number)).square().mean() for ddp, _, _ in both).backward()
        for _, _, optimizer in both:
            optimizer.step()
    for (ddp, _, _), reference in zip(both, alone):
        expect(all(map(torch.equal, ddp.parameters(), reference.parameters())), "the same bits")

    (one, ones_state, ones_optimizer), (other, others_state, others_optimizer) = both
    ones_state.reducer.transport.abort("this model is done for")
    try:
        step(one, ones_optimizer, 3)
        expect(False, "an error")
    except winnow.CommError as error:
        expect("done for" in str(error), "the reason")
    step(other, others_optimizer, 3)
    expect_equal_replicas(other)
    third, thirds_state, optimizer = make()
    step(third, optimizer, 0)
    expect_equal_replicas(third)
    expect(bases == before, "no meeting but the first")
    for state in (ones_state, others_state, thirds_state):
        state.close()


def case_meetings():
    """A group's connections end with it, and ranks that have lost them meet anew."""
    group = dist.new_group()
    states = [winnow.torch.State("none", group=group, timeout=30) for _ in range(4)]
    states[0].reducer
    bases, place = meeting._groups[group].bases, torch.device("cpu")
    bases[place]._world.abort("the connections are lost")
    try:
        states[1].reducer
        expect(False, "an error")
    except winnow.CommError as error:
        expect("are lost" in str(error), "the reason")
    states[1].reducer
    met = bases[place]
    states[2].reducer
    expect(bases[place] is met, "the same connections")
    if dist.get_rank() == 0:
        del bases[place]  # as where one rank alone has met an error
    states[3].reducer
    expect(bases[place] is not met, "new connections, on all ranks")
    met = bases = None
    ones = torch.ones(1000)
    for state in states:
        state.reducer.all_reduce(ones, 0, op="sum")
    expect(ones.eq(dist.get_world_size() ** 4).all(), "old connections serve, and new ones")
    end = weakref.ref(meeting._groups[group])
    dist.destroy_process_group(group)
    del group
    for state in states:
        state.close()
        state.group = None
    gc.collect()
    expect(end() is None, "no connection is left")


def case_wrong_environment():
    """What is wrong on one rank alone is an error on all, which names it; then they meet."""
    group, last = dist.new_group(), dist.get_world_size() - 1
    state = winnow.torch.State("none", group=group, timeout=600)
    with tempfile.NamedTemporaryFile() as secret:
        secret.write(b"of the job")
        secret.flush()
        rests = {"WINNOW_SOCKET_IFNAME": "lo", "WINNOW_TCP_PORTS": "", "WINNOW_TCP_TLS": "off",
                 "WINNOW_TCP_SECRET_FILE": secret.name}
        wrongs = {"WINNOW_SOCKET_IFNAME": "winnow-none", "WINNOW_TCP_PORTS": "29600",
                  "WINNOW_TCP_TLS": "on", "WINNOW_TCP_SECRET_FILE": "/nowhere/at/all"}
        before = {name: os.environ.get(name) for name in rests}
        os.environ.update(rests)
        for name, wrong in wrongs.items():
            if dist.get_rank() == last:
                os.environ[name] = wrong
            try:
                state.reducer
                text = "nothing"
            except winnow.UsageError as error:
                text = str(error)
            expect(f"rank {last}: " in text and wrong in text, f"'{wrong}' of rank {last} in '{text}'")
            os.environ[name] = rests[name]
        ones = torch.ones(1000)
        state.reducer.all_reduce(ones, 0, op="sum")
        expect(ones.eq(dist.get_world_size()).all(), "a sum")
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
    state.close()
    dist.destroy_process_group(group)


@contextlib.contextmanager
def environment_of(**variables):
    """These, and no other WINNOW_TCP_* than these."""
    before = {name: os.environ.pop(name) for name in list(os.environ)
              if name.startswith("WINNOW_TCP_") or name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update(before)


def case_secrets():
    """Other secrets than rank 0's are an error on all ranks at once, which shows none; then they meet."""
    group, last, ranks = dist.new_group(), dist.get_world_size() - 1, dist.get_world_size()
    state, is_last = winnow.torch.State("none", group=group, timeout=20), dist.get_rank() == last
    secret, file, other = "WINNOW_TCP_SECRET", "WINNOW_TCP_SECRET_FILE", tempfile.NamedTemporaryFile()
    with other:
        other.write(b"Orange\r\n\n")
        other.flush()
        empty = f"^rank {last}: WINNOW_TCP_SECRET is empty: unset it"
        different = f"different secrets: on rank {last} .*not that of rank 0"
        for rest, mine, why in (
                ({secret: "Apple"}, {secret: "Orange"}, different),
                ({secret: "Apple"}, {file: other.name}, different),
                ({secret: "Apple"}, {secret: "Apple "}, different),
                ({secret: "Apple"}, {secret: ""}, empty), ({}, {secret: ""}, empty),
                ({secret: ""}, {secret: ""}, "^WINNOW_TCP_SECRET is empty"),
                ({secret: "Apple"}, {}, f"not on rank {last}: set it")):
            with environment_of(WINNOW_SOCKET_IFNAME="lo", **(mine if is_last else rest)):
                text = refused(lambda: state.reducer)
            expect(re.search(why, text), f"'{why}' in '{text}'")
            expect("Apple" not in text and "Orange" not in text, "no secret in a message")
        with environment_of(WINNOW_SOCKET_IFNAME="lo",
                            **({file: other.name} if is_last else {secret: "Orange"})):
            ones = torch.ones(1000)
            state.reducer.all_reduce(ones, 0, op="sum")
            expect(ones.eq(ranks).all(), "a sum")
    state.close()
    dist.destroy_process_group(group)


def case_lazily():
    """A state that is made before anything else, and pickled, as frameworks do."""
    state = pickle.loads(pickle.dumps(winnow.torch.State(
        "topk:0.01", stream_priority=-1, nccl=dict(max_ctas=4), **FIXED)))
    expect((state.stream_priority, state.nccl) == (-1, {"max_ctas": 4}), "what is for GPUs is kept")
    ddp = DistributedDataParallel(network())
    ddp.register_comm_hook(state, winnow.torch.hook)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for number in range(3):
        step(ddp, optimizer, number)
    expect_equal_replicas(ddp)
    expect("gather" in winnow.torch.report(state), "a report")
    state.close()


def case_mistakes():
    ddp, state, optimizer = make()
    expect_refused(lambda: winnow.torch.attach(ddp), lambda: winnow.torch.attach(network()),
                   lambda: winnow.torch.report(DistributedDataParallel(network())),
                   lambda: winnow.torch.State(timeout="5"), lambda: winnow.torch.State(timeout=[1, 2]),
                   lambda: winnow.torch.State(stream_priority="5"),
                   lambda: winnow.torch.State(stream_priority=1.5),
                   *(lambda scale=scale: winnow.torch.AdamW(ddp.parameters(), model=ddp, scale=scale)
                     for scale in ("2", 0, -1, math.inf, math.nan)),
                   *(winnow.torch.look_ahead(ddp, optimizer, share).__enter__ for share in ("1", [1])))
    state.close()


class Branches(nn.Module):
    """One or two of two layers are used."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.always, self.sometimes = nn.Linear(SIZE, 40).to(DEVICE), nn.Linear(SIZE, 40).to(DEVICE)

    def forward(self, inputs, both):
        out = self.always(inputs)
        return out + self.sometimes(inputs) if both else out


def case_unused():
    """What waits of a parameter that no rank uses in a step waits on, and nothing is lost."""
    for keywords in ({}, {"bucket_cap_mb": 0.01, "gradient_as_bucket_view": True}):
        model = Branches()
        ddp, state, optimizer = make(model, options={"min_bytes": 0}, find_unused_parameters=True,
                                     **keywords)
        for group in optimizer.param_groups:
            group["lr"] = 1.0
        weight = model.sometimes.weight
        before, gradients = weight.detach().clone(), torch.zeros_like(weight)
        users = [range(9), [], [0], [], range(9)]  # ranks, by steps
        for number, ranks in enumerate(users):
            both = dist.get_rank() in ranks
            local = Branches()
            local.load_state_dict(model.state_dict())
            local(batch(number), both).square().mean().backward()
            if both:
                gradients += local.sometimes.weight.grad
            held = state.residual(weight) if number > 0 else None
            optimizer.zero_grad()
            ddp(batch(number), both).square().mean().backward()
            expect(number == 0 or bool(ranks) or torch.equal(held, state.residual(weight)),
                   f"step {number}: nothing is sent")
            optimizer.step()
        gradients -= state.residual(weight).view_as(gradients)
        dist.all_reduce(gradients)
        expect(torch.allclose(before - gradients / dist.get_world_size(), weight, rtol=1e-4,
                              atol=1e-5), "what was sent and what waits are all that there was")
        expect_equal_replicas(ddp)
        state.close()


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.full((SIZE,), index / 64)  # no work on a device in a fork


def case_data_workers():
    """Forked workers of a DataLoader, while connections and threads exist."""
    ddp, state, optimizer = make()
    step(ddp, optimizer, 0)
    loader = torch.utils.data.DataLoader(Samples(), batch_size=16, num_workers=2)
    for _ in range(2):
        for inputs in loader:
            optimizer.zero_grad()
            ddp(inputs.to(DEVICE)).square().mean().backward()
            optimizer.step()
    expect_equal_replicas(ddp)
    state.close()


def case_enable():
    """Last: all later models are attached, to the optimizer that moves them, after its first step."""
    winnow.torch.enable("topk:0.01", only=lambda ddp: not ddp._comm_hooks, min_bytes=0, **FIXED)
    expect_refused(winnow.torch.enable)
    for kind, settings in ((torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
                           (torch.optim.AdamW, {"lr": 1e-3})):
        ddp, plain = (DistributedDataParallel(network()) for _ in range(2))
        optimizer = kind(ddp.parameters(), **settings)
        step(ddp, optimizer, 0)
        bare = network()
        bare(batch(0)).square().mean().backward()
        for parameter in bare.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        kind(bare.parameters(), **settings).step()
        expect(all(torch.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in
                   zip(ddp.parameters(), bare.parameters())), "a first step by dense sums")
        for number in range(1, 4):
            step(ddp, optimizer, number)
        expect_equal_replicas(ddp)
        expect("gather" in winnow.torch.report(ddp), "a report")
        expect(pairing_of(optimizer) is not None, "Winnow's rule")
        expect_refused(lambda: winnow.torch.report(plain),
                       lambda: step(plain, torch.optim.RMSprop(plain.parameters()), 0))
        winnow.torch.detach(ddp)
        for number in range(4, 6):
            step(ddp, optimizer, number)
        expect_equal_replicas(ddp)
        expect(pairing_of(optimizer) is None, "what is detached stays so")
        expect_refused(lambda: winnow.torch.report(ddp))

    ddp = DistributedDataParallel(network())
    ddp.register_comm_hook(None, fp16_compress_hook)
    step(ddp, torch.optim.RMSprop(ddp.parameters()), 0)
    expect_refused(lambda: winnow.torch.report(ddp))
    expect_equal_replicas(ddp)

    ddp = DistributedDataParallel(network())
    two = [torch.optim.SGD(part.parameters(), lr=0.05) for part in (ddp.module[0], ddp.module[3])]
    for number in range(3):
        ddp(batch(number)).square().mean().backward()
        for optimizer in two:
            optimizer.step()
            optimizer.zero_grad()
    expect(all(pairing_of(optimizer) is not None for optimizer in two), "several optimizers")
    expect_equal_replicas(ddp)

    winnow.torch.attach(ddp := DistributedDataParallel(network()), "topk:0.01", **FIXED)
    step(ddp, optimizer := torch.optim.SGD(ddp.parameters(), lr=0.05), 0)
    expect(pairing_of(optimizer) is None, "a model that the program attaches by itself")
