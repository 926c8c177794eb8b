# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""How Winnow comes to a model, with what else, and how it leaves."""
import copy
import functools
import gc
import os
import pickle
import threading
import warnings
import weakref

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.optim import _apply_optimizer_in_backward
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from attach_cases import COMPRESSED, KINDS, attached, explicit, train, weights
from attach_cases import plain as plain_pass
from torch_harness import (DEVICE, FIXED, SIZE, batch, expect, expect_equal_replicas,
                           expect_refused, gather, make, network, step)
from winnow.torch.attach import state_of
from winnow.torch.meeting import timeout_of
from winnow.torch.pairing import pairing_of


def expect_refusal_of(word, call):
    try:
        call()
        expect(False, f"a UsageError that names {word}")
    except winnow.UsageError as error:
        expect(word in str(error), f"'{word}' in '{error}'")


def case_timeouts():
    """Meeting leaves torch's store as it is: without addresses, which a restarted job would believe,
    and with its timeout. The group's timeout is that of calls, too."""
    store = dist.distributed_c10d._get_default_store()
    ddp = DistributedDataParallel(network())
    dist.barrier()
    before = store.timeout, store.num_keys()
    dist.barrier()
    state = winnow.torch.attach(ddp, "topk:0.01", timeout=7, **FIXED)
    step(ddp, torch.optim.SGD(ddp.parameters(), lr=0.05), 0)
    expect((store.timeout, store.num_keys()) == before, "torch's store is as it was")
    state.close()
    state = winnow.torch.State("none", timeout=7)
    expect("deadline=1800" in state.reducer.options.split(), "30 minutes, as torch has them")
    expect(timeout_of(None) == 1800, "30 minutes")
    state.close()


def held():
    """Threads of Python, threads, and files of this process."""
    gc.collect()
    return threading.active_count(), len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def case_dropped():
    """A model that nobody has any more leaves nothing, whether it was closed or not."""
    def live():
        ddp, state, optimizer = make()
        for number in range(2):
            step(ddp, optimizer, number)
        return weakref.ref(state), weakref.ref(state.reducer)

    def of_optimizer(kind, ends):
        ddp, optimizer = attached(kind)
        for number in range(2):
            step(ddp, optimizer, number)
        state = state_of(ddp)
        references = [weakref.ref(one) for one in (ddp, optimizer, state, state.reducer,
                                                   state.marks.automatic, pairing_of(optimizer))]
        if ends == "detached":
            winnow.torch.detach(ddp)
        elif ends == "waiting":
            ddp(batch(2)).square().mean().backward()
        elif ends == "scaled":
            scaler = torch.amp.GradScaler(DEVICE.type)
            winnow.torch.attach_scaler(ddp, scaler)
            optimizer.zero_grad()
            scaler.scale(ddp(batch(2)).square().mean()).backward()
            scaler.step(optimizer)  # and no update
        return references

    for one in (live, *(functools.partial(of_optimizer, kind, ends) for kind in KINDS
                        for ends in ("dropped", "detached", "waiting", "scaled")
                        if (kind, ends) != ("AdamW", "scaled"))):
        one()
        before = held()
        for _ in range(2):
            references = one()
            gc.collect()
            expect(all(reference() is None for reference in references), f"nobody holds anything: {one}")
        dist.barrier()
        now = held()
        expect(all(many <= few for many, few in zip(now, before)), f"{now} after {before}")


def case_detach():
    """From then on it is DistributedDataParallel alone, bit for bit; it can be attached again."""
    ddp, state, optimizer = make()
    for number in range(2):
        step(ddp, optimizer, number)
    ours = winnow.torch.SGD(ddp.parameters(), lr=0.05, model=ddp)
    expect_refusal_of("optimizer", lambda: winnow.torch.detach(ddp))
    del ours
    winnow.torch.detach(ddp)
    expect_refused(lambda: winnow.torch.detach(ddp), lambda: winnow.torch.report(ddp),
                   lambda: state.reducer)
    plain = DistributedDataParallel(network())
    theirs = torch.optim.SGD(plain.parameters(), lr=0.05)
    step(plain, theirs, 0)  # then it has its last buckets
    plain.module.load_state_dict(ddp.module.state_dict())
    for number in range(2, 5):
        step(ddp, optimizer, number)
        step(plain, theirs, number)
    expect(all(map(torch.equal, ddp.parameters(), plain.parameters())), "the same bits")

    again = winnow.torch.attach(ddp, "topk:0.02", **FIXED)
    step(ddp, optimizer, 5)
    expect(again.reducer.totals()["calls"] > 0, "attached again")
    expect_equal_replicas(ddp)
    winnow.torch.detach(again)
    step(ddp, optimizer, 6)


def hooks_of(ddp, optimizer):
    return sum(map(len, (ddp._forward_pre_hooks, ddp._forward_hooks, optimizer._optimizer_step_pre_hooks,
                         optimizer._optimizer_step_post_hooks)))


def case_detach_optimizer():
    """The optimizer that attach took makes torch's own steps, from moments in torch's units that are
    equal on all ranks; both can be attached again."""
    for kind, (torchs, _, own) in KINDS.items():
        ddp = DistributedDataParallel(network())
        optimizer = torchs(ddp.parameters(), **own)
        before = dict(vars(optimizer)), hooks_of(ddp, optimizer)
        winnow.torch.attach(ddp, optimizer, **COMPRESSED)
        for number in range(4):
            optimizer.zero_grad()
            ddp(batch(number)).square().mean().backward()
            if number == 3:
                expect_refusal_of("wait", lambda: winnow.torch.detach(ddp))
            optimizer.step()
        truth = weights(ddp)
        rule, group = pairing_of(optimizer).rule, optimizer.param_groups[0]
        scale = pairing_of(optimizer).scale
        wanted = {name: value.clone() for name, value in optimizer.state[ddp.module[0].weight].items()}
        for name in rule.of_one_rank:
            expect(len({*gather(wanted[name].sum().item())}) > 1, "moments of one rank")
            dist.all_reduce(wanted[name])
            wanted[name] /= dist.get_world_size()
        rule.to_gradients(group, wanted, scale)

        forward = ddp(batch(9))
        winnow.torch.detach(ddp)
        forward.square().mean().backward()  # of a pass before
        expect_refused(lambda: winnow.torch.detach(ddp), lambda: winnow.torch.report(ddp))
        expect(torch.equal(weights(ddp), truth), f"{kind}: the weights stay")
        expect((vars(optimizer).keys(), hooks_of(ddp, optimizer)) == (before[0].keys(), before[1]),
               f"{kind}: no trace in the optimizer, no hooks")
        expect(pairing_of(optimizer) is None and all("winnow_updates" not in moments
                                                     for moments in optimizer.state.values()), "torch's")
        moments = optimizer.state[ddp.module[0].weight]
        expect(all(torch.allclose(moments[name], value, rtol=1e-5, atol=1e-12)
                   for name, value in wanted.items()), f"{kind}: converted moments")

        plain = DistributedDataParallel(network())
        theirs = torchs(plain.parameters(), **own)
        step(plain, theirs, 0)  # then it has its last buckets
        plain.module.load_state_dict(ddp.module.state_dict())
        theirs.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        for number in range(4, 8):
            step(ddp, optimizer, number)
            step(plain, theirs, number)
        expect(torch.equal(weights(ddp), weights(plain)), f"{kind}: the same bits")
        expect_equal_replicas(ddp)

        expect(winnow.torch.attach(ddp, optimizer, **COMPRESSED) is optimizer, "attached again")
        for number in range(8, 11):
            step(ddp, optimizer, number)
        expect(state_of(ddp).reducer.totals()["wire_bytes"] > 0, "and compressed")
        expect_equal_replicas(ddp)
        winnow.torch.detach(ddp)
        step(ddp, optimizer, 11)
        expect_equal_replicas(ddp)


def case_detach_dropped():
    """Ranks agree on whether there is an optimizer, or all refuse."""
    for kind in KINDS:
        ddp, optimizer = attached(kind)
        for number in range(2):
            step(ddp, optimizer, number)
        if dist.get_rank() != 0:
            optimizer = None
        expect_refusal_of("gone on ranks 1", lambda: winnow.torch.detach(ddp))
        gc.disable()
        loop = [optimizer]
        loop.append(loop)
        del optimizer, loop
        winnow.torch.detach(ddp)
        gc.enable()
        expect_refused(lambda: winnow.torch.report(ddp))

        ddp, optimizer = attached(kind)
        if dist.get_rank() == 0:
            state_of(ddp).marks.add(ddp.module[0].weight, "0.weight", optimizer)
        expect_refusal_of("wait for optimizer.step()", lambda: winnow.torch.detach(ddp))
        state_of(ddp).marks.clear()
        winnow.torch.detach(ddp)


def case_refused_attach():
    """A refusal of attach leaves nothing behind."""
    ddp = DistributedDataParallel(network())
    bad = torch.optim.AdamW(ddp.parameters(), amsgrad=True)
    good = torch.optim.SGD(ddp.parameters(), lr=0.05)
    expect_refused(lambda: winnow.torch.attach(ddp, bad), lambda: winnow.torch.attach(ddp, good, "tokp:1"),
                   lambda: state_of(ddp))
    expect(hooks_of(ddp, bad) + hooks_of(ddp, good) == 0, "no hooks")
    state = winnow.torch.attach(ddp, "topk:0.01", **FIXED)
    step(ddp, good, 0)
    state.close()


def case_copied():
    """A copy of a model is torch's alone, and can be attached."""
    ddp, state, optimizer = make()
    step(ddp, optimizer, 0)
    for copied in copy.deepcopy(ddp), pickle.loads(pickle.dumps(ddp)):
        step(copied, torch.optim.SGD(copied.parameters(), lr=0.05), 1)
        expect_refused(lambda copied=copied: winnow.torch.report(copied))
        again = winnow.torch.attach(copied, "topk:0.02", **FIXED)
        step(copied, torch.optim.SGD(copied.parameters(), lr=0.05), 2)
        expect(again.reducer.totals()["calls"] > 0, "attached")
        again.close()
    step(ddp, optimizer, 1)
    expect_equal_replicas(ddp)
    state.close()


def case_beside():
    """What reduces or applies gradients itself is refused by its name, and wrong options at once."""
    ddp = DistributedDataParallel(network())
    expect_refusal_of("did you mean 'topk'", lambda: winnow.torch.attach(ddp, "tokp:0.01"))
    expect_refusal_of("schedule", lambda: winnow.torch.attach(ddp, "topk:0.01", schedule="gahter"))
    expect_refusal_of("timeout", lambda: winnow.torch.attach(ddp, "none", timeout="soon"))
    winnow.torch.attach(ddp, "topk:0.01", **FIXED).close()  # neither left anything behind

    ddp = DistributedDataParallel(network())
    ddp.register_comm_hook(None, fp16_compress_hook)
    expect_refusal_of("fp16_compress_hook", lambda: winnow.torch.attach(ddp))
    ddp = DistributedDataParallel(network())
    ddp._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    expect_refusal_of("hook", lambda: winnow.torch.attach(ddp))

    model = network()
    _apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.05})
    expect_refusal_of("backward pass",
                      lambda: winnow.torch.attach(DistributedDataParallel(model)))
    if DEVICE.type == "cuda":
        from torch.nn.parallel.distributed import _MixedPrecision
        mixed = DistributedDataParallel(network(), mixed_precision=_MixedPrecision(torch.bfloat16))
        expect_refusal_of("mixed_precision", lambda: winnow.torch.attach(mixed))


def case_profiler():
    """Both threads say when they reduce, and torch's log names the hook."""
    ddp, state, optimizer = make()
    step(ddp, optimizer, 0)
    everywhere = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                experimental_config=everywhere) as profile:
        step(ddp, optimizer, 1)
    found = {event.thread for event in profile.events() if event.name == "winnow::all_reduce"}
    expect(len(found) == 2, "the profiler sees reductions in two threads")
    expect(ddp._get_ddp_logging_data()["comm_hook"] == "winnow_hook", "a name in torch's log")
    state.close()


class Phases(torch.nn.Module):
    """Complex weights, one of them in another order of dimensions."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        one = torch.randn(SIZE, 4, dtype=torch.complex64, device=DEVICE) / SIZE
        other = torch.randn(30, 20, dtype=torch.complex64, device=DEVICE).t()
        self.one, self.other = torch.nn.Parameter(one), torch.nn.Parameter(other)
        self.last = torch.nn.Linear(4, 20, device=DEVICE)

    def forward(self, inputs):
        phases = inputs.to(torch.complex64) @ self.one
        hidden = self.last(phases.real * phases.imag) + phases.abs().sum(1, keepdim=True)
        return torch.view_as_real(hidden.to(torch.complex64) @ self.other)


def case_complex():
    """Both parts of complex parameters are reduced, look ahead and wait."""
    for keywords in ({}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}):
        for compressor in ("none", "topk:0.999999"):
            for ours in (torch.optim.SGD, winnow.torch.SGD, winnow.torch.AdamW):
                plain = DistributedDataParallel(Phases())
                kind = torch.optim.AdamW if ours is winnow.torch.AdamW else torch.optim.SGD
                if kind is torch.optim.AdamW and compressor != "none":
                    continue  # by other moments
                theirs = kind(plain.parameters(), lr=0.01)
                ddp, state, _ = make(Phases(), compressor, {"min_bytes": 0}, **keywords)
                of_winnow = {} if ours is torch.optim.SGD else {"model": ddp}
                optimizer = ours(ddp.parameters(), lr=0.01, **of_winnow)
                for number in range(3):
                    step(plain, theirs, number)
                    step(ddp, optimizer, number)
                for mine, right in zip(ddp.parameters(), plain.parameters()):
                    expect(torch.allclose(mine, right, rtol=1e-4, atol=1e-5),
                           f"{keywords}, {compressor}, {ours.__name__}: the same steps")
                expect(ddp.module.one.is_complex(), "complex")
                state.close()

    for kind in KINDS:
        ends = []
        for make_one, looks in (attached, False), (explicit, True):
            ddp, optimizer = make_one(kind, Phases(), lr=1e-3)
            ends.append(train(ddp, optimizer, plain_pass, 4, looks))
        expect(torch.equal(*ends), f"{kind}: attach(ddp, optimizer), the same bits")
        ddp, optimizer = attached(kind, Phases(), lr=1e-3)
        for number in range(6):
            if number == 3:
                winnow.torch.detach(ddp)
            step(ddp, optimizer, number)
        expect(all(p.isfinite().all() for p in ddp.parameters()), f"{kind}: finite")
        expect_equal_replicas(ddp)

    ddp, state, _ = make(Phases(), "topk:0.05", {"min_bytes": 0})
    optimizer = winnow.torch.AdamW(ddp.parameters(), lr=0.01, model=ddp)
    for number in range(3):
        before = [p.detach().clone() for p in ddp.parameters()]
        with winnow.torch.look_ahead(ddp, optimizer, share=1.0):
            if number > 0:
                for weights, parameter in zip(before, ddp.parameters()):
                    flat = torch.empty_like(weights)
                    waits = state.residual(parameter)
                    if waits is None:
                        continue
                    numbers = torch.view_as_real(flat) if flat.is_complex() else flat
                    numbers.copy_(waits.as_strided(numbers.shape, numbers.stride()))
                    expect(torch.allclose(parameter, weights - flat, atol=1e-6), "ahead, in both parts")
            optimizer.zero_grad()
            ddp(batch(number)).square().mean().backward()
        expect(all(map(torch.equal, before, ddp.parameters())), "the weights are back")
        optimizer.step()
    waits = state.residual(ddp.module.one)
    expect(len(waits) == 2 * ddp.module.one.numel(), "two numbers for an element")
    parts = torch.view_as_real(ddp.module.one)
    expect(len({part.sum().item() for part in parts.unbind(-1)}) == 2, "parts of their own")
    state_bytes = torch.cat([torch.view_as_real(p.detach()).flatten() if p.is_complex()
                             else p.detach().flatten() for p in ddp.parameters()])
    everyone = [torch.empty_like(state_bytes) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, state_bytes)
    expect(all(torch.equal(state_bytes, theirs) for theirs in everyone), "replicas are equal")
    state.close()


class Wrapped(torch.nn.Module):
    """What torch.compile makes of a module's names."""

    def __init__(self, module):
        super().__init__()
        self._orig_mod = module

    def forward(self, inputs):
        return self._orig_mod(inputs)


def waits_of(state, parameter):
    """Whether something waits."""
    held_of_it = state.residual(parameter)
    return held_of_it is not None and bool(held_of_it.any())


def case_names():
    """Wrappers change neither ids nor patterns; what has no match is said aloud."""
    options = {"min_bytes": 0, "exempt": "3.weight"}
    ddp, state, optimizer = make(options=options)
    for number in range(2):
        step(ddp, optimizer, number)
    saved, waits = state.state_dict(), state.residual(ddp.module[0].weight)
    expect(not waits_of(state, ddp.module[3].weight), "exempt")
    state.close()

    inside = torch.nn.Sequential(*[Wrapped(layer) for layer in network()])
    ddp, state, optimizer = make(Wrapped(inside), options=options)
    state.load_state_dict(saved)
    first = inside[0]._orig_mod.weight
    expect(torch.equal(state.residual(first), waits), "what waited waits")
    step(ddp, optimizer, 2)
    expect(not torch.equal(state.residual(first), waits), "and is sent")
    expect(not waits_of(state, inside[3]._orig_mod.weight), "exempt")
    state.close()

    def warnings_of(call):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            call()
        return " ".join(str(one.message) for one in found)

    said = warnings_of(lambda: make(options={"exempt": ["*.weight", "heads.*"]}))
    told = dist.get_rank() == 0
    expect(not told or "heads.*" in said and "*.weight matches" not in said and "0.weight" in said, said)
    other = torch.nn.Sequential(torch.nn.Linear(SIZE, SIZE)).to(DEVICE)
    ddp, state, optimizer = make(other)
    said = warnings_of(lambda: state.load_state_dict(saved))
    expect(not told or "3.weight" in said and "0.weight" not in said, said)
    state.close()
