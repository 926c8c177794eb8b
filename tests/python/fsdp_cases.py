# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""FSDP2 over all ranks, its reduce-scatter by Winnow."""
import contextlib
import copy
import gc
import io
import math
import tempfile
import warnings
import weakref

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import winnow.torch
from hsdp_cases import (Around, Phase, expect_clips, expect_close, expect_marks, expect_one_model,
                        expect_order, expect_same_steps, uneven, whole)
from torch_harness import (FIXED, batch, expect, expect_parts_skipped, expect_refused, network, scaler_of,
                           step)
from winnow.torch.names import id_of
from winnow.torch.place import local


def sharded(compressor, reshard=None, **options):
    """`reshard`: whether torch gathers the weights once more for the backward pass; None: as it likes."""
    model, mesh = uneven(), init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model[0], model[4]:
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard)
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


def mean(tensor):
    """Over the ranks."""
    total = tensor.double()
    dist.all_reduce(total)
    return total / dist.get_world_size()


def groups_of(model):
    """Weights and biases at rates of their own, also within one module."""
    parameters = list(model.parameters())
    return [{"params": [p for p in parameters if p.dim() > 1], "lr": 0.01, "weight_decay": 0.1},
            {"params": [p for p in parameters if p.dim() == 1], "lr": 0.003, "weight_decay": 0.0}]


def case_fsdp_optimizers():
    """Where all elements are sent they make the steps that they make behind attach, by groups of one
    module with several rates and with parameters that are frozen."""
    for kind, settings in ((winnow.torch.SGD, {"momentum": 0.9, "nesterov": True}),
                           (winnow.torch.AdamW, {"betas": (0.8, 0.95), "eps": 1e-6})):
        plain = DistributedDataParallel(uneven().requires_grad_(True), find_unused_parameters=True)
        their_state = winnow.torch.attach(plain, "topk:0.999999", min_bytes=0, exempt_1d=False, **FIXED)
        theirs = kind(groups_of(plain), model=plain, **settings)
        model, state, _ = sharded("topk:0.999999")
        ours = kind(groups_of(model), model=model, **settings)
        for number in range(6):
            for trained in plain.module, model:
                trained[0].bias.requires_grad_(number < 2)
            step(plain, theirs, number)
            step(model, ours, number)
        expect_close(model, plain)
        expect_one_model(model)
        state.close()
        their_state.close()


def case_fsdp_adamw():
    """What is given to the compressor is each rank's update by its own second moment, of which all is
    sent or waits. It lies whole on each rank, in state_dict() too."""
    rate, decay, epsilon = 0.01, 0.95, 1e-6
    model, state, _ = sharded("topk:0.05")
    ours = winnow.torch.AdamW(model.parameters(), model=model, lr=rate, betas=(0.8, decay), eps=epsilon)
    plain = uneven()
    seconds = [torch.zeros_like(p) for p in plain.parameters()]
    waited = [torch.zeros(p.numel()) for p in plain.parameters()]
    for number in range(4):
        with torch.no_grad():
            for theirs, right in zip(plain.parameters(), whole(model)):
                theirs.copy_(right)
        plain.zero_grad()
        plain(batch(number)).square().mean().backward()
        ours.zero_grad()
        model(batch(number)).square().mean().backward()
        for index, (parameter, theirs) in enumerate(zip(model.parameters(), plain.parameters())):
            seconds[index].mul_(decay).addcmul_(theirs.grad, theirs.grad, value=1 - decay)
            root = (seconds[index] / (1 - decay ** (number + 1))).sqrt() + epsilon
            update = math.sqrt(dist.get_world_size()) * rate * theirs.grad / root
            held = state.residual(parameter)
            given = mean(update.flatten() + waited[index])
            taken = parameter.grad.full_tensor().flatten() + mean(held)
            expect(torch.allclose(taken, given, rtol=1e-3, atol=1e-6), f"step {number}: sent or waiting")
            expect(theirs.dim() < 2 or held.count_nonzero() > held.numel() / 10, "a part waits")
            waited[index] = held
            second = ours.state[parameter]["exp_avg_sq"]
            expect(second.shape == parameter.shape and not hasattr(second, "full_tensor"), "a whole moment")
            expect(torch.allclose(second, seconds[index], rtol=1e-3, atol=1e-12), "the moment of this rank")
        ours.step()
    expect_one_model(model)
    state.close()


def case_fsdp_look_ahead():
    """Passes inside see the weights less a share of what this rank has not sent, in both passes, and
    others see the weights."""
    for reshard in True, False:
        for kind in torch.optim.SGD, winnow.torch.SGD, winnow.torch.AdamW:
            look_ahead_steps(kind, reshard)


def copy_to(model, values):
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), values):
            parameter.copy_(value)


def look_ahead_steps(kind, reshard):
    model, state, _ = sharded("topk:0.01", reshard)
    ours = kind(groups_of(model), **({} if kind is torch.optim.SGD else {"model": model}))
    share = 1 / (2 * math.sqrt(max(4, dist.get_world_size())))
    rates = {id(p): group["lr"] for group in ours.param_groups for p in group["params"]}
    parameters, plain, ahead = list(model.parameters()), uneven(), uneven()
    for number in range(4):
        weights = [p.full_tensor() for p in parameters]
        copy_to(plain, weights)
        with torch.no_grad():
            expect(torch.allclose(model(batch(50)), plain(batch(50)), rtol=1e-5), "weights before")
        expected = []
        for parameter, right in zip(parameters, weights):
            held = state.residual(parameter) if number > 0 else torch.zeros(right.numel())
            reach = rates[id(parameter)] if kind is torch.optim.SGD else 1
            expected.append(right - share * reach * held.view_as(right))
        copy_to(ahead, expected)
        ours.zero_grad()
        before, backward = [local(p).clone() for p in parameters], []
        if number == 2:
            model[0].unshard(async_op=True)  # which brings the weights
        with winnow.torch.look_ahead(model, ours):
            outputs = model(batch(number))
            expect(torch.allclose(outputs, ahead(batch(number)), rtol=1e-4, atol=1e-6), f"step {number}: ahead")
            expect(number == 0 or not torch.allclose(outputs, plain(batch(number)), rtol=1e-4, atol=1e-6),
                   f"step {number}: ahead is elsewhere")
            outputs.register_hook(lambda _: model[4].unshard() or backward.append(model[4].weight.clone()))
            outputs.square().mean().backward()
            if number == 3:
                model[0].unshard(async_op=True)  # which brings what is ahead
        expect(torch.allclose(backward[0], ahead[4].weight, rtol=1e-6, atol=1e-7)
               and (number == 0 or not torch.equal(backward[0], plain[4].weight)),
               f"step {number}: ahead in the backward pass")
        expect(all(map(torch.equal, before, map(local, parameters))), "shards as they were")
        ours.step()
    expect_one_model(model)
    with winnow.torch.look_ahead(model, ours):
        loss = model(batch(9)).square().mean()
    copy_to(plain, whole(model))
    with torch.no_grad():
        expect(torch.allclose(model(batch(50)), plain(batch(50)), rtol=1e-5), "weights after half a pass")
    try:
        loss.backward()
    except RuntimeError as error:
        expect("inplace" in str(error), "torch's own message")
    else:
        expect(False, "a backward pass by other weights")
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


def looking_step(model, optimizer, number):
    optimizer.zero_grad()
    with winnow.torch.look_ahead(model, optimizer):
        model(batch(number)).square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()


def case_fsdp_restart():
    """The same bits by state_dict of each rank, and by files, with look-ahead and clipping."""
    def start():
        model, state, _ = sharded("topk:0.05,int8")
        return model, state, winnow.torch.AdamW(groups_of(model), model=model)

    model, state, optimizer = start()
    with tempfile.TemporaryDirectory() as mine:
        folders = [mine]
        dist.broadcast_object_list(folders)
        for number in range(3):
            looking_step(model, optimizer, number)
        held = io.BytesIO()
        torch.save([state.state_dict(), optimizer.state_dict(), model.state_dict()], held)
        winnow.torch.save_checkpoint(model, folders[0])
        for number in range(3, 5):
            looking_step(model, optimizer, number)
        expected = whole(model)
        dist.barrier()
        for by_file in False, True:
            state.close()
            model, state, optimizer = start()
            held.seek(0)
            saved = torch.load(held, weights_only=False)
            model.load_state_dict(saved[2])
            if by_file:
                winnow.torch.load_checkpoint(model, folders[0])
            else:
                optimizer.load_state_dict(saved[1])
                state.load_state_dict(saved[0])
            for number in range(3, 5):
                looking_step(model, optimizer, number)
            expect(all(map(torch.equal, whole(model), expected)), "the same bits")
        state.close()
        if dist.get_world_size() > 1:
            model, state, _ = sharded("topk:1")
            _ours = winnow.torch.AdamW(model.parameters(), model=model)
            expect_refused(lambda: winnow.torch.load_checkpoint(model, folders[0]))
            state.close()
        dist.barrier()


def case_fsdp_clip():
    """Norms over all ranks."""
    model, state, _ = sharded("topk:0.9")
    expect_clips(model, state)


def case_fsdp_marks():
    """Marks of shards over all ranks."""
    expect_marks(lambda: sharded("topk:0.1"))


def case_fsdp_converted():
    """Moments that torch's own steps have made go on, whole, and ours go on under torch's AdamW."""
    model, state, _ = sharded("topk:0.999999")
    settings = {"lr": 0.01, "weight_decay": 0.1}
    theirs = torch.optim.AdamW(model.parameters(), **settings)
    for number in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            step(model, theirs, number)
    before = [theirs.state[p]["exp_avg_sq"].full_tensor() for p in model.parameters()]
    ours = winnow.torch.AdamW(model.parameters(), model=model, **settings)
    ours.load_state_dict(theirs.state_dict())
    model(batch(3)).square().mean().backward()
    for parameter, old in zip(model.parameters(), before):
        expect((ours.state[parameter]["exp_avg_sq"] >= 0.99 * dist.get_world_size() * 0.999 * old).all(),
               "as many times the moments of the means")
    ours.step()
    theirs = torch.optim.AdamW(model.parameters(), **settings)
    theirs.load_state_dict(ours.state_dict())
    was = [ours.state[p]["exp_avg_sq"] for p in model.parameters()]
    ours = None
    gc.collect()
    model.zero_grad()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    theirs.step()
    for parameter, moment in zip(model.parameters(), was):
        shard = theirs.state[parameter]["exp_avg_sq"]
        rows = -(-parameter.shape[0] // dist.get_world_size())
        begin = rows * dist.get_rank()
        right = 0.999 * moment[begin:begin + rows] / dist.get_world_size()
        expect(torch.allclose(shard.to_local(), right, rtol=1e-5), "this rank's rows")
    expect_one_model(model)
    state.close()


def case_fsdp_micro_batches():
    """set_requires_gradient_sync(False) keeps gradients back, and look-ahead spans all passes of a step."""
    reference = DistributedDataParallel(uneven())
    their_state = winnow.torch.attach(reference, "topk:0.999999", min_bytes=0, exempt_1d=False, **FIXED)
    theirs = winnow.torch.AdamW(reference.parameters(), lr=0.01, model=reference)
    model, state, _ = sharded("topk:0.999999")
    ours = winnow.torch.AdamW(model.parameters(), lr=0.01, model=model)
    for number in range(3):
        theirs.zero_grad()
        ours.zero_grad()
        with winnow.torch.look_ahead(model, ours):
            for part in range(3):
                with contextlib.nullcontext() if part == 2 else reference.no_sync():
                    reference(batch(3 * number + part)).square().mean().backward()
                model.set_requires_gradient_sync(part == 2)
                model(batch(3 * number + part)).square().mean().backward()
        theirs.step()
        ours.step()
    expect_close(model, reference)
    state.close()
    their_state.close()


def case_fsdp_skip():
    """A step that is left out leaves no trace, also where a GradScaler does it."""
    model, state, _ = sharded("topk:0.05")
    ours = winnow.torch.SGD(model.parameters(), lr=0.05, momentum=0.5, model=model)
    winnow.torch.skip_step(model)
    looking_step(model, ours, 0)
    before = [state.residual(p) for p in model.parameters()]
    model(batch(1)).square().mean().backward()
    expect(not all(map(torch.equal, before, map(state.residual, model.parameters()))), "it is reduced")
    winnow.torch.skip_step(model)
    expect(all(map(torch.equal, before, map(state.residual, model.parameters()))), "and taken back")
    looking_step(model, ours, 2)
    expect_one_model(model)
    ours = None
    state.close()

    model, state, _ = sharded("topk:0.05")
    ours = winnow.torch.SGD(model.parameters(), lr=0.05, momentum=0.5, model=model)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    winnow.torch.attach_scaler(model, scaler)
    for number, scale in enumerate((1024, 1024, 512, 512)):
        weights, before = whole(model), [state.residual(p) for p in model.parameters()]
        ours.zero_grad()
        factor = math.inf if number == 2 and dist.get_rank() == 0 else 1.0
        with winnow.torch.look_ahead(model, ours):
            scaler.scale(model(batch(number)).square().mean() * factor).backward()
        scaler.step(ours)
        scaler.update()
        expect(scaler.get_scale() == scale, f"step {number}: a scale of {scaler.get_scale()}")
        expect(all(map(torch.equal, weights, whole(model))) == (number == 2), f"step {number}: skipped or not")
        if number == 2:
            after = [2 * state.residual(p) for p in model.parameters()]
            expect(all(map(torch.equal, before, after)), "what waits has followed the scale")
    expect_one_model(model)
    state.close()


def case_fsdp_scaler_of_parts():
    """Two optimizers of one model under one scaler, which skips one: undone are the modules that it moves.
    Two of one module, of which one is skipped, are refused, also where fully_shard made one of two."""
    model, state, _ = sharded("topk:0.05")
    scaler = expect_parts_skipped(model, state, model[0])

    def update_skips(parts):
        """The first one's step is skipped."""
        optimizers = [torch.optim.SGD(part, lr=0.05) for part in parts]
        model.zero_grad()
        scaler.scale(model(batch(9)).square().mean()).backward()
        for parameter in parts[0]:
            parameter.grad.mul_(math.inf)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update(1024.0)

    weight, bias = model[0].parameters()
    expect_refused(lambda: update_skips(([weight], [bias])))
    state.close()

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = uneven()
    fully_shard([model[0], model[4]], mesh=mesh)
    fully_shard(model, mesh=mesh)
    state = winnow.torch.attach_fsdp(model, "topk:0.05", min_bytes=0, deadline=30)
    both = [*model[0].parameters(), *model[4].parameters()]
    step(model, torch.optim.SGD(model.parameters(), lr=0.05), 0)
    scaler = scaler_of(model)
    waited = [state.reducer.residual(number).tolist() for number in state._together]
    update_skips((both, list(model[2].parameters())))
    same = [state.reducer.residual(number).tolist() == held for number, held in zip(state._together, waited)]
    expect(sorted(same) == [False, True], "what waits of both modules is as it was")
    expect_refused(lambda: update_skips((list(model[0].parameters()), list(model[4].parameters()))))
    state.close()


def case_fsdp_bfloat16():
    """Passes in bf16, whose weights are ahead in their type."""
    model, mesh = uneven(), init_device_mesh("cpu", (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model[0], model[4]:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    state = winnow.torch.attach_fsdp(model, "topk:0.05", min_bytes=0, deadline=30)
    ours = winnow.torch.AdamW(groups_of(model), model=model)
    for number in range(3):
        looking_step(model, ours, number)
    share, plain = 1 / (2 * math.sqrt(max(4, dist.get_world_size()))), uneven().bfloat16()
    inputs, waiting = batch(3, torch.bfloat16), [state.residual(p) for p in model.parameters()]
    with torch.no_grad():
        copy_to(plain, whole(model))
        other = plain(inputs)
        copy_to(plain, [p - share * held.view_as(p) for p, held in zip(whole(model), waiting)])
        right = plain(inputs)
        with winnow.torch.look_ahead(model, ours):
            outputs = model(inputs)
    off, way = (outputs - right).float().norm(), (other - right).float().norm()
    expect(way == 0 if dist.get_world_size() == 1 else off < 0.1 * way, f"ahead in bf16: {off} of {way}")
    expect_one_model(model)
    state.close()


def case_fsdp_order():
    """A module's own parameters travel behind those of its children."""
    plain, model = DistributedDataParallel(Around()), Around()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    state = winnow.torch.attach_fsdp(model, "topk:0.999999", min_bytes=0, deadline=30)
    expect_order(plain, model, state)


def case_fsdp_complex():
    """Both parts of complex elements, by torch's SGD."""
    plain, model = DistributedDataParallel(Phase()), Phase()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    state = winnow.torch.attach_fsdp(model, "topk:0.999999", min_bytes=0, deadline=30)
    theirs, optimizer = (torch.optim.SGD(one.parameters(), lr=0.05) for one in (plain, model))
    for number in range(4):
        step(plain, theirs, number)
        optimizer.zero_grad()
        with winnow.torch.look_ahead(model, optimizer):
            model(batch(number)).square().mean().backward()
        optimizer.step()
    expect_close(model, plain)
    if dist.get_world_size() > 1:
        ours = winnow.torch.AdamW(model.parameters(), model=model)
        expect_refused(lambda: step(model, ours, 4))
    state.close()


def case_fsdp_refuses():
    """What it cannot do is an error of every rank."""
    expect_refused(lambda: winnow.torch.attach_fsdp(network()))
    if dist.get_world_size() == 4:
        model, state, optimizer = sharded("topk:0.05", 2)
        step(model, optimizer, 0)
        expect_refused(lambda: looking_step(model, optimizer, 1))
        state.close()
    model, state, optimizer = sharded("topk:0.05")
    state.close()
    if dist.get_world_size() == 1:
        return
    model, state, optimizer = sharded("topk:0.05")
    model.set_gradient_divide_factor(5.0)
    expect_refused(lambda: step(model, optimizer, 0))
    state.close()
    model, state, optimizer = sharded("topk:0.05")
    ours = winnow.torch.AdamW(model.parameters(), model=state)
    model.set_gradient_divide_factor(1.0)  # sums, of which Adam's would be larger
    model.set_force_sum_reduction_for_comms(True)
    expect_refused(lambda: step(model, ours, 0))
    state.close()
    model, state, optimizer = sharded("topk:0.05")
    ours = winnow.torch.SGD(model.parameters(), model=state, lr=0.05)
    step(model, ours, 0)
    model(batch(1)).square().mean().backward()
    expect_refused(lambda: model(batch(2)).square().mean().backward())  # a second one before a step
    state.close()
    model = uneven()
    model.unused = torch.nn.Parameter(torch.ones(8))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    state = winnow.torch.attach_fsdp(model, "topk:0.05", min_bytes=0, deadline=30)
    ours = winnow.torch.SGD(model.parameters(), model=state, lr=0.05)
    expect_refused(lambda: step(model, ours, 0))
    model.unused.requires_grad_(False)
    ours = None
    state.close()


def case_fsdp_unfrozen():
    """Layers that are frozen and unfrozen in mid-run, and a model that is detached and dropped."""
    model, state, optimizer = sharded("topk:0.01")
    for number, learns in enumerate((False, True, False, True)):
        model[2].requires_grad_(learns)
        model[0].bias.requires_grad_(learns)
        step(model, optimizer, number)
    expect_one_model(model)
    model[2].weight.requires_grad_(False)
    step(model, optimizer, 4)
    waiting = state.residual(model[2].bias)
    model[2].weight.requires_grad_(True)
    model[2].bias.requires_grad_(False)  # as many, but others
    step(model, optimizer, 5)
    model[2].weight.requires_grad_(False)
    model[2].bias.requires_grad_(True)
    expect(torch.equal(state.residual(model[2].bias), waiting), "a residual of its own")
    winnow.torch.detach(model)
    step(model, optimizer, 6)
    expect_one_model(model)
    model, state, _ = sharded("topk:0.01")
    optimizer = winnow.torch.AdamW(model.parameters(), model=model)
    for number in range(2):
        looking_step(model, optimizer, number)
    reference = weakref.ref(state)
    del model, state, optimizer
    gc.collect()
    expect(reference() is None, "nobody holds the state")
