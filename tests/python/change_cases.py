# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""What programs change once an optimizer is attached: groups, rates, settings, weights, gradients, hooks,
copies. Where all is sent, steps are those without Winnow."""
import copy

import torch
import torch._dynamo
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import winnow.torch
from attach_cases import COMPRESSED, KINDS, attached, loss_of, plain, weights
from torch_harness import DEVICE, SIZE, batch, expect, expect_equal_replicas, expect_refused, network, refused
from winnow.torch.attach import state_of

# Winnow's rule, and nothing waits.
EVERYTHING = {"compressor": "topk:0.9999999", "schedule": "balanced", "min_bytes": 0, "exempt_1d": False}


def both(train, make=network, options=None, **keywords):
    """The weights after train(ddp, attach), without Winnow and with it; attach(optimizer) attaches."""
    ends = []
    for on in False, True:
        ddp, given = DistributedDataParallel(make(), **keywords), dict(options or EVERYTHING)

        def attach(optimizer, ddp=ddp, on=on, given=given):
            if on:
                winnow.torch.attach(ddp, optimizer, **given)
                given.clear()  # of the first one, which hold for all
            return optimizer

        train(ddp, attach)
        ends.append(weights(ddp))
        expect_equal_replicas(ddp)
        if on:
            winnow.torch.detach(ddp)
    return ends


def expect_both(what, train, *arguments, **keywords):
    theirs, ours = both(train, *arguments, **keywords)
    expect(torch.allclose(theirs, ours, rtol=0, atol=1e-6), f"{what}: {(theirs - ours).abs().max()}")


def sgd(parameters, **keywords):
    return torch.optim.SGD(parameters, **{"lr": 0.05, "momentum": 0.9, **keywords})


def step(ddp, optimizer, number):
    optimizer.zero_grad()
    ddp.zero_grad()
    plain(ddp, number)
    optimizer.step()


def case_parameters_that_come_late():
    """What nobody moved yet leaves nothing that waits in other units."""
    def unfreezes(ddp, attach):
        optimizer = attach(sgd(ddp.module[3].parameters()))
        for number in range(12):
            if number == 8:
                optimizer.add_param_group({"params": list(ddp.module[0].parameters())})
            step(ddp, optimizer, number)

    def adds_an_optimizer(ddp, attach):
        first = attach(sgd(ddp.module[3].parameters()))
        for number in range(8):
            step(ddp, first, number)
        second = attach(sgd(ddp.module[0].parameters()))
        for number in range(8, 12):
            ddp.zero_grad()
            plain(ddp, number)
            first.step()
            second.step()

    def takes_away(ddp, attach):
        optimizer = attach(sgd(ddp.module.parameters()))
        for number in range(12):
            if number == 4:
                taken = optimizer.param_groups[0]["params"].pop(0)
            elif number == 8:
                optimizer.param_groups[0]["params"].insert(0, taken)
            step(ddp, optimizer, number)

    for train in unfreezes, adds_an_optimizer, takes_away:
        expect_both(train.__name__, train)
    # What is sent in part moves no further than what is sent whole.
    theirs, ours = both(unfreezes, options=COMPRESSED)
    ways = [(end - weights(DistributedDataParallel(network()))).norm() for end in (theirs, ours)]
    expect(ways[1] < 1.1 * ways[0], f"updates of the learning rate's size: {ways}")
    ddp = DistributedDataParallel(network())
    said = refused(lambda: winnow.torch.attach(ddp, sgd(network().parameters())))
    expect("moves no parameter" in said, said)


def case_rates_and_settings():
    """A rate that is set before the step counts; settings that the rule lacks are refused later, too."""
    for kind in KINDS:
        ddp, optimizer = attached(kind)
        plain(ddp, 0)
        optimizer.param_groups[0]["maximize"] = True
        expect("maximize" in refused(optimizer.step), f"{kind}: maximize")
        state_of(ddp).close()
        ddp, optimizer = attached(kind)
        optimizer.param_groups[0]["lr"] = 0.0
        plain(ddp, 0)
        optimizer.param_groups[0]["lr"] = 0.1
        expect("before the backward pass" in refused(optimizer.step), f"{kind}: a rate of 0")
        state_of(ddp).close()

    def sets_late(ddp, attach):
        optimizer = attach(sgd(ddp.parameters(), lr=1.0, momentum=0))
        for number in range(4):
            optimizer.zero_grad()
            plain(ddp, number)
            optimizer.param_groups[0]["lr"] = 0.05 / (number + 1)
            optimizer.step()

    expect_both("a rate before the step", sets_late)


class _Chooses(nn.Module):
    """A bias that the first batch chooses, as in Glow."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(SIZE, device=DEVICE))
        self.chosen = False

    def forward(self, x):
        if not self.chosen:
            self.bias.data.copy_(0.1 * torch.ones(SIZE))
            self.chosen = True
        return x + self.bias


class _Bounds(nn.Linear):
    """A norm that each forward pass bounds."""

    def forward(self, input):  # pylint: disable=redefined-builtin
        self.weight.data = torch.renorm(self.weight.data, 2, 0, 0.1)
        return super().forward(input)


class _Follows(nn.Module):
    """A frozen copy of a layer that forward passes move."""

    def __init__(self):
        super().__init__()
        self.layer, self.copy = nn.Linear(SIZE, 40).to(DEVICE), nn.Linear(SIZE, 40).to(DEVICE)
        self.copy.requires_grad_(False)

    def forward(self, x):
        for mine, theirs in zip(self.copy.parameters(), self.layer.parameters()):
            mine.data = 0.9 * mine.data + 0.1 * theirs.data
        return self.layer(x) - self.copy(x)


def case_weights_in_forward():
    """What forward passes write to weights is kept, or refused."""
    def trains(ddp, attach):
        optimizer = attach(sgd(p for p in ddp.parameters() if p.requires_grad))
        for number in range(4):
            step(ddp, optimizer, number)

    expect_both("chosen by the first batch", trains, lambda: nn.Sequential(_Chooses(), network()))
    for make in (lambda: nn.Sequential(_Bounds(SIZE, 40).to(DEVICE)), _Follows):
        torch.manual_seed(1)
        ddp = DistributedDataParallel(make())
        optimizer = winnow.torch.attach(ddp, sgd(p for p in ddp.parameters() if p.requires_grad), **COMPRESSED)
        said = ""
        for number in range(3):
            said = said or refused(lambda: step(ddp, optimizer, number))
        expect("was changed inside of a forward" in said, said)
        state_of(ddp).close()


class _Checkpoints(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.layers = nn.ModuleList(nn.Linear(SIZE, SIZE) for _ in range(3)).to(DEVICE)

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(lambda y, layer=layer: torch.tanh(layer(y)), x.requires_grad_(), use_reentrant=True)
        return x


class _OutsideOfForward(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.scale = nn.Parameter(torch.ones(64, device=DEVICE))
        self.layer = nn.Linear(SIZE, 64).to(DEVICE)

    def forward(self, x):
        return self.layer(x), self.scale


def case_other_passes():
    """Checkpoints that are re-entrant, models in evaluation, and parameters that a loss takes."""
    def trains(ddp, attach):
        optimizer = attach(sgd(ddp.parameters()))
        for number in range(4):
            optimizer.zero_grad()
            out = ddp(batch(number))
            if isinstance(out, tuple):
                out = out[0] * ddp.module.scale
            out.square().mean().backward()
            optimizer.step()

    def in_evaluation(ddp, attach):
        ddp.eval()
        trains(ddp, attach)

    for megabytes in 25, 0.01:
        expect_both(f"re-entrant, {megabytes}", trains, _Checkpoints, bucket_cap_mb=megabytes)
        expect_both(f"outside, {megabytes}", trains, _OutsideOfForward, bucket_cap_mb=megabytes)
    expect_both("evaluation", in_evaluation)
    ddp = DistributedDataParallel(_OutsideOfForward())
    optimizer = winnow.torch.attach(ddp, sgd(ddp.parameters()), **COMPRESSED)
    for number in range(3):
        optimizer.zero_grad()
        out, scale = ddp(batch(number))
        (out * scale).square().mean().backward()
        optimizer.step()
    expect(len(ddp.module.scale._backward_hooks or ()) <= 1, "a hook for each forward pass")
    state_of(ddp).close()


def case_gradients_that_change():
    """Edits of p.grad are seen, whoever makes them; hooks before the step see gradients."""
    def by_data(optimizer):
        optimizer.param_groups[0]["params"][0].grad.data.clamp_(-1e-4, 1e-4)

    def by_numpy(optimizer):
        optimizer.param_groups[0]["params"][0].grad.cpu().numpy()[:] *= 0.5

    for change in (by_data, by_numpy) if DEVICE.type == "cpu" else (by_data,):
        ddp, optimizer = attached("SGD")
        plain(ddp, 0)
        change(optimizer)
        expect("was changed between" in refused(optimizer.step), change.__name__)
        state_of(ddp).close()
    ddp, optimizer = attached("SGD")
    seen = []
    optimizer.register_step_pre_hook(
        lambda one, *_: seen.extend(p.grad is not None for p in one.param_groups[0]["params"]))
    plain(ddp, 0)
    optimizer.step()
    expect(seen and all(seen), "a hook sees gradients")
    state_of(ddp).close()


def case_gradients_of_zero():
    """find_unused_parameters: a gradient that is zero on all ranks is no gradient that is missing."""
    def network_of_two():
        torch.manual_seed(4)
        return nn.ModuleList([nn.Linear(SIZE, 40), nn.Linear(SIZE, 40)]).to(DEVICE)

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.share = network_of_two(), 1.0

        def forward(self, x):
            return self.layers[0](x) + self.share * self.layers[1](x)

    for kind, (torchs, _, own) in KINDS.items():
        ddp = DistributedDataParallel(Two(), find_unused_parameters=True)
        optimizer = winnow.torch.attach(ddp, torchs(ddp.parameters(), **own), **COMPRESSED)
        for number in range(5):
            ddp.module.share = 0.0 if number == 3 else 1.0
            optimizer.zero_grad(set_to_none=number % 2 == 0)
            ddp(batch(number)).square().mean().backward()
            optimizer.step()
        expect_equal_replicas(ddp)
        expect(all(p.isfinite().all() for p in ddp.parameters()), kind)
        state_of(ddp).close()


def case_other_numbers():
    """Double precision trains, and so do sparse gradients, which are exact."""
    def doubles():
        torch.manual_seed(7)
        return nn.Sequential(nn.Linear(SIZE, 40, dtype=torch.float64)).to(DEVICE)

    def trains(ddp, attach):
        optimizer = attach(sgd(ddp.parameters()))
        for number in range(3):
            optimizer.zero_grad()
            ddp(batch(number).double()).square().mean().backward()
            optimizer.step()

    expect_both("float64", trains, doubles)

    def rows():
        torch.manual_seed(7)
        return nn.Sequential(nn.EmbeddingBag(50, 8, sparse=True), nn.Linear(8, 3)).to(DEVICE)

    models = []
    for attach in (lambda _, optimizer: optimizer,
                   lambda ddp, optimizer: winnow.torch.attach(ddp, optimizer, "none"),
                   lambda ddp, optimizer: winnow.torch.attach(ddp, optimizer, "none", rows="int8")):
        ddp = DistributedDataParallel(rows())
        optimizer = attach(ddp, sgd(ddp.parameters(), momentum=0))
        for number in range(4):
            optimizer.zero_grad()
            ids = (torch.arange(6) * (dist.get_rank() + 2 + number) % 50).view(2, 3).to(DEVICE)
            ddp(ids).square().mean().backward()
            optimizer.step()
        expect_equal_replicas(ddp)
        models.append(ddp)
    plainly, exact, coded = ([p.detach() for p in ddp.parameters()] for ddp in models)
    expect(all(torch.allclose(*pair, rtol=1e-5) for pair in zip(plainly, exact)), "rows train as without Winnow")
    expect(all(torch.allclose(*pair, atol=1e-3) for pair in zip(plainly, coded)), "rows train as int8")
    for ddp, leaves in zip(models[1:], (False, True)):
        reducer = state_of(ddp).reducer
        by = {stats["schedule"]: stats["calls"] for stats in reducer.schedule_stats()}
        expect(DEVICE.type != "cpu" or by.get("rows") == 4, f"rows were summed by {by}")
        number = state_of(ddp).parameter_id(next(ddp.parameters()))
        expect(DEVICE.type != "cpu" or (reducer.residual(number) is not None) == leaves, "what waits of rows")
    expect_refused(lambda: winnow.torch.attach(DistributedDataParallel(network()), timeout=-1.0))


def case_copies_of_adam():
    """Copies of an optimizer and its state in another one make equal steps on all ranks."""
    ddp, optimizer = attached("AdamW")
    for number in range(3):
        optimizer.zero_grad()
        plain(ddp, number)
        optimizer.step()
    held = copy.deepcopy(optimizer.state_dict())
    winnow.torch.detach(ddp)
    other = DistributedDataParallel(network())
    theirs = torch.optim.AdamW(other.parameters(), lr=1e-3)
    theirs.load_state_dict(held)
    for number in range(2):
        theirs.zero_grad()
        plain(other, number)
        theirs.step()
    expect_equal_replicas(other)

    third = DistributedDataParallel(network())
    optimizer = winnow.torch.attach(third, torch.optim.AdamW(third.parameters(), lr=1e-3), compressor="none")
    optimizer.load_state_dict(held)  # of ranks' own moments, where sums lose nothing
    for number in range(2):
        optimizer.zero_grad()
        plain(third, number)
        optimizer.step()
    expect_equal_replicas(third)
    state_of(third).close()


def case_scalers_unfollowed():
    """What waits is in units of the scaled loss: a scaler that the model does not follow is refused."""
    ddp, optimizer = attached("SGD")
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(loss_of(ddp, 0)).backward()
    expect("attach_scaler" in refused(lambda: scaler.step(optimizer)), "a scaler")
    state_of(ddp).close()


def case_skipped_spikes():
    """A step that is skipped leaves no trace in second moments, and the first call says that it does."""
    ends = []
    for spikes in False, True:
        ddp, optimizer = attached("AdamW")
        winnow.torch.skip_step(ddp)
        for number in range(6):
            optimizer.zero_grad()
            if spikes and number == 3:
                (1000 * loss_of(ddp, 98)).backward()
                winnow.torch.skip_step(ddp)
                optimizer.zero_grad()
            plain(ddp, number)
            optimizer.step()
        ends.append(weights(ddp))
        state_of(ddp).close()
    expect(torch.equal(*ends), "a spike that was skipped")


def case_training_inside_of_evaluation():
    """Trainers that validate leave the wrapper in evaluation: what counts is the model inside. A backward
    pass inside of a forward pass, as in manual optimization, is none of a foreign loss then either."""
    class Seen(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.at = network(), []

        def forward(self, inputs):
            self.at.append(weights(self))
            return self.inner(inputs)

    for train, looks in ((lambda ddp: (ddp.eval(), ddp.module.train()), True), (lambda ddp: ddp.eval(), False)):
        ddp, optimizer = attached("SGD", Seen())
        train(ddp)
        ahead = []
        for number in range(4):
            optimizer.zero_grad()
            loss_of(ddp, number).backward()
            ahead.append((ddp.module.at[-1] - weights(ddp)).abs().max().item())
            optimizer.step()
        expect((max(ahead) > 0) == looks, f"the forward pass looks ahead: {ahead}")
        expect_equal_replicas(ddp)
        winnow.torch.detach(ddp)

    class Manual(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.around = network(), []

        def forward(self, inputs):
            ddp, loss = self.around[0], self.inner(inputs).square().mean()
            ddp.require_backward_grad_sync = True  # as Lightning prepares for it
            ddp.reducer._rebuild_buckets()
            ddp.reducer.prepare_for_backward([])
            loss.backward()
            ddp.require_backward_grad_sync = False
            return loss.detach()

    for train in (lambda ddp: ddp.eval(), lambda ddp: (ddp.eval(), ddp.module.train())):
        ddp, optimizer = attached("SGD", Manual())
        ddp.module.around.append(ddp)
        ddp.require_backward_grad_sync = False
        train(ddp)
        before = weights(ddp)
        for number in range(3):
            optimizer.zero_grad()
            ddp(batch(number))
            optimizer.step()
        expect((weights(ddp) - before).abs().max() > 0, "it trains")
        expect_equal_replicas(ddp)
        ddp.module.around.clear()
        winnow.torch.detach(ddp)


def case_optimizers_that_hold_another():
    """Of one that holds others, as torch's ZeroRedundancyOptimizer does, anyway=True takes both. One of
    each rank's own parameters is refused, with a name, and leaves the model as it was."""
    ddp = DistributedDataParallel(network())
    zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.AdamW, lr=1e-3)
    why = refused(lambda: winnow.torch.attach(ddp, zero))
    expect("anyway=True" in why and "optimizer.optim" not in why, why)
    if torch.distributed.get_world_size() > 1:
        why = refused(lambda: winnow.torch.attach(ddp, zero.optim, **COMPRESSED))
        expect("ZeroRedundancyOptimizer" in why, why)
    expect(winnow.torch.attach(ddp, zero, anyway=True, **COMPRESSED) is zero, "it is attached after that")
    before = weights(ddp)
    for number in range(3):
        zero.zero_grad()
        plain(ddp, number)
        zero.step()
    expect((weights(ddp) - before).abs().max() > 0, "it steps")
    expect_equal_replicas(ddp)
    winnow.torch.detach(ddp)

    ddp = DistributedDataParallel(network())
    around = PostLocalSGDOptimizer(torch.optim.SGD(ddp.parameters(), lr=0.01), PeriodicModelAverager(4))
    why = refused(lambda: winnow.torch.attach(ddp, around))
    expect("attach(ddp, optimizer.optim)" in why, why)
    expect(winnow.torch.attach(ddp, around.optim, **COMPRESSED) is around.optim, "as that says")
    for number in range(3):
        around.zero_grad()
        plain(ddp, number)
        around.step()
    expect_equal_replicas(ddp)
    winnow.torch.detach(ddp)


def case_reducer_without_hooks():
    """torch.compile can put its own code in place of what calls Winnow."""
    with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
        ddp = DistributedDataParallel(network())
    for attach in (lambda: winnow.torch.attach(ddp), lambda: winnow.torch.attach(ddp, sgd(ddp.parameters()))):
        expect("optimize_ddp" in refused(attach), "a UsageError names it")
