# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Which gradients an optimizer takes for prepared, the units of its moments, and what is refused."""
import copy

import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import winnow
import winnow.torch
from attach_cases import COMPRESSED, KINDS, attached, explicit, loss_of, plain, weights
from torch_harness import DEVICE, batch, expect, expect_equal_replicas, expect_refused, network
from winnow.torch.attach import state_of
from winnow.torch.place import reals
from winnow.torch.rules import recipe_of


def case_no_look_ahead():
    """What cannot look ahead is refused, since it would cost loss."""
    def in_place(module, _):
        with torch.no_grad():
            module.weight.mul_(2)

    ddp, optimizer = attached("SGD")
    plain(ddp, 0)
    optimizer.step()
    optimizer.zero_grad()
    hidden = []
    ddp.module.register_forward_hook(lambda *arguments: hidden.append(arguments[2]) or torch.zeros(1))
    ddp(batch(1))
    expect_refused(lambda: hidden[0].square().mean().backward())

    ddp, optimizer = attached("SGD")
    expect_refused(lambda: loss_of(ddp, 0).backward(create_graph=True))
    ddp, optimizer = attached("SGD")
    plain(ddp, 0)
    optimizer.step()
    ddp.module[3].register_forward_pre_hook(in_place)
    expect_refused(lambda: loss_of(ddp, 1))


def case_reduced_twice():
    """A gradient that is reduced twice before a step names its parameter; a step that is left out
    leaves no trace."""
    def refuse(kind, make, again):
        ddp, optimizer = make(kind)
        plain(ddp, 0)
        try:
            again(ddp, optimizer)
            expect(False, f"{kind}: an error")
        except winnow.UsageError as error:
            named = any(name in str(error) for name in ("0.weight", "0.bias", "2.weight", "3.weight",
                                                        "3.bias", "2.bias"))
            expect(named and "no_sync" in str(error), f"the parameter and the way: {error}")

    def thrown_away(ddp, optimizer):
        optimizer.zero_grad()
        plain(ddp, 1)

    for kind in KINDS:
        for make in attached, explicit:
            refuse(kind, make, lambda ddp, _: plain(ddp, 1))
            refuse(kind, make, thrown_away)

    for kind in KINDS:
        ends = []
        for skips in False, True:
            ddp, optimizer = attached(kind)
            for number in range(6):
                optimizer.zero_grad()
                if number == 0:
                    plain(ddp, 99)
                    winnow.torch.skip_step(ddp)  # keeps what later ones undo
                    optimizer.state.clear()
                    optimizer.zero_grad()
                elif skips and number == 4:
                    held = copy.deepcopy(optimizer.state_dict())
                    plain(ddp, 98)
                    winnow.torch.skip_step(ddp)
                    optimizer.load_state_dict(held)
                    optimizer.zero_grad()
                plain(ddp, number)
                optimizer.step()
            ends.append(weights(ddp))
            expect_equal_replicas(ddp)
            state_of(ddp).close()
        expect(torch.equal(*ends), f"{kind}: a skipped step leaves no residual")


def case_unprepared():
    """Gradients that did not pass the hook take torch's own step."""
    for kind, (torchs, _, own) in KINDS.items():
        ddp, optimizer = attached(kind)
        lone = nn.Parameter(torch.ones(64, 4, device=DEVICE))  # of a loss
        optimizer.add_param_group({"params": [lone], "lr": 0.01})
        twin = nn.Parameter(lone.detach().clone())
        theirs = torchs([twin], **{**own, "lr": 0.01})
        for number in range(4):
            optimizer.zero_grad()
            theirs.zero_grad()
            (loss_of(ddp, number) + lone.square().mean()).backward()
            twin.square().mean().backward()
            optimizer.step()
            theirs.step()
        expect(torch.equal(lone, twin), f"{kind}: a parameter of no model")
        state_of(ddp).close()

        for make in attached, explicit:
            ddp, optimizer = make(kind)
            alone = network()
            theirs = torchs(alone.parameters(), **own)
            for number in range(4):
                optimizer.zero_grad()
                theirs.zero_grad()
                with ddp.no_sync():
                    loss_of(ddp, number).backward()
                loss_of(alone, number).backward()
                optimizer.step()
                theirs.step()
            expect(torch.equal(weights(ddp), weights(alone)), f"{kind}: steps inside of no_sync")
            for number in range(4):
                for p, q in zip(ddp.parameters(), alone.parameters()):
                    p.grad, q.grad = (torch.full_like(p, 0.1 * number) for _ in range(2))
                optimizer.step()
                theirs.step()
            expect(torch.equal(weights(ddp), weights(alone)), f"{kind}: gradients set by hand")

        first, second, third = (DistributedDataParallel(network()) for _ in range(3))
        optimizer = torchs([*first.parameters(), *second.parameters()], **own)
        winnow.torch.attach(first, optimizer, **COMPRESSED)
        theirs = torchs(third.parameters(), **own)
        for number in range(4):
            optimizer.zero_grad()
            theirs.zero_grad()
            (loss_of(first, number) + loss_of(second, number, 1)).backward()
            loss_of(third, number, 1).backward()
            optimizer.step()
            theirs.step()
        expect(torch.equal(weights(second), weights(third)), f"{kind}: a second model")
        expect_equal_replicas(first)
        state_of(first).close()


def case_moments_of_one_rank():
    """Adam divides by second moments that differ between ranks, also in a step without the hook."""
    for make in attached, explicit:
        for kind in KINDS:
            ddp, optimizer = make(kind)
            loss_of(ddp, 0).backward()
            optimizer.step()
            before = weights(ddp)
            for parameter in ddp.parameters():
                parameter.grad = torch.full_like(parameter, 0.1)
            if recipe_of(optimizer).rule.of_one_rank:
                expect_refused(optimizer.step)
                expect(torch.equal(weights(ddp), before), f"{kind}: nothing has moved")
            else:
                optimizer.step()
            expect_equal_replicas(ddp)
            state_of(ddp).close()


def case_moments():
    """A run that changes over keeps its momentum, whatever units that has: from torch's steps to
    Winnow's and back, by a checkpoint too."""
    for kind, (torchs, _, own) in KINDS.items():
        ddp = DistributedDataParallel(network())
        dense = torchs(ddp.parameters(), **own)
        for number in range(8):
            dense.zero_grad()
            plain(ddp, number)
            dense.step()
        losses = [loss_of(ddp, 50).item()]
        held = {name: value.clone() for name, value in dense.state[ddp.module[0].weight].items()
                if value is not None}

        again = DistributedDataParallel(network())
        again.load_state_dict(ddp.state_dict())
        ours = winnow.torch.attach(again, torchs(again.parameters(), **own), **COMPRESSED)
        ours.load_state_dict(copy.deepcopy(dense.state_dict()))
        for number in range(8, 11):
            ours.zero_grad()
            plain(again, number)
            ours.step()
            losses.append(loss_of(again, 50).item())
        expect(max(losses) < 1.5 * losses[0], f"{kind}: no jump to Winnow's steps: {losses}")

        back = DistributedDataParallel(network())
        back.load_state_dict(again.state_dict())
        theirs = torchs(back.parameters(), **own)  # not attached
        theirs.load_state_dict(copy.deepcopy(ours.state_dict()))
        for number in range(11, 14):
            theirs.zero_grad()
            plain(back, number)
            theirs.step()
            losses.append(loss_of(back, 50).item())
        expect(max(losses) < 1.5 * losses[0], f"{kind}: no jump back: {losses}")
        expect("winnow_updates" not in theirs.state[back.module[0].weight], "torch's units again")
        state_of(again).close()

        recipe = recipe_of(dense)
        converted = {name: value.clone() for name, value in held.items()}
        recipe.rule.to_updates(dense.param_groups[0], converted, 2.0)
        recipe.rule.to_gradients(dense.param_groups[0], converted, 2.0)
        expect(all(torch.allclose(converted[name], value, rtol=1e-5, atol=1e-12)
                   for name, value in held.items()), f"{kind}: there and back")

    torch.set_default_dtype(torch.bfloat16)
    try:
        ddp, optimizer = attached("AdamW")
    finally:
        torch.set_default_dtype(torch.float32)
    ddp, optimizer = attached("AdamW")
    torch.set_default_dtype(torch.bfloat16)
    try:
        loss_of(ddp, 0).backward()
        optimizer.step()
    finally:
        torch.set_default_dtype(torch.float32)
    counter = optimizer.state[ddp.module[0].weight]["step"]
    expect(counter.dtype == torch.float32, "a counter that counts beyond 256")


@torch.no_grad()
def case_complex_moments():
    """A complex parameter moves as its two parts do, by torch's steps and Winnow's."""
    for kind, (torchs, _, own) in KINDS.items():
        torch.manual_seed(7)
        begin = torch.randn(6, 5, 2, device=DEVICE)
        gradients, ends = torch.randn(5, 6, 5, 2, device=DEVICE), []
        for view in torch.view_as_complex, torch.clone:
            parameter = nn.Parameter(view(begin.clone()))
            optimizer = torchs([parameter], **own)
            rule, group = recipe_of(optimizer).rule, optimizer.param_groups[0]
            for number, gradient in enumerate(gradients.clone()):
                parameter.grad, moments = view(gradient), optimizer.state[parameter]
                if number in (2, 3):
                    if number == 2:
                        rule.to_updates(group, moments, 2.0)
                    rule.prepare(group, parameter, moments, parameter.grad, 2.0)
                    rule.step(group, [parameter], [moments])
                else:
                    if number == 4:
                        rule.to_gradients(group, moments, 2.0)
                    optimizer.step()
            ends.append(reals(parameter.detach()))
        expect(torch.allclose(*ends, rtol=1e-5, atol=1e-6), f"{kind}: the same steps")


class Foreign(torch.optim.SGD):
    """Whose step is its own."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(parameter.grad.sign(), alpha=group["lr"])


def case_attach_refuses():
    def refused(words, call):
        try:
            call()
        except winnow.UsageError as error:
            expect(all(word in str(error) for word in words), f"{words}: {error}")
        else:
            expect(False, f"a UsageError: {words}")

    ddp = DistributedDataParallel(network())
    for kind in torch.optim.RMSprop, torch.optim.NAdam, Foreign:
        refused((kind.__name__, "anyway=True", "32 %"),
                lambda kind=kind: winnow.torch.attach(ddp, kind(ddp.parameters(), lr=0.1)))
    zero = ZeroRedundancyOptimizer
    expect_refused(
        lambda: winnow.torch.attach(ddp, zero(ddp.parameters(), torch.optim.SGD, lr=0.1)),
        lambda: winnow.torch.attach(ddp, torch.optim.AdamW(ddp.parameters(), amsgrad=True)),
        lambda: winnow.torch.attach(ddp, torch.optim.Adam(ddp.parameters(), weight_decay=0.1)),
        lambda: winnow.torch.attach(ddp, torch.optim.SGD(ddp.parameters(), lr=1, maximize=True)),
        lambda: winnow.torch.attach(ddp, [1, 2]),
        lambda: winnow.torch.attach(ddp, Foreign(ddp.parameters(), lr=1e-3), anyway="no"),
        lambda: winnow.torch.enable(anyway=1), lambda: winnow.torch.enable(only="ddp"),
        lambda: winnow.torch.attach(network(), torch.optim.SGD(ddp.parameters(), lr=1)))

    ddp = DistributedDataParallel(network())
    optimizer = winnow.torch.attach(ddp, Foreign(ddp.parameters(), lr=1e-3), anyway=True, **COMPRESSED)
    for number in range(3):
        optimizer.zero_grad()
        plain(ddp, number)
        optimizer.step()
    expect_equal_replicas(ddp)

    ddp, optimizer = attached("SGD")
    other = torch.optim.SGD(ddp.parameters(), lr=0.1)
    ddp.module[0].weight.grad = torch.ones_like(ddp.module[0].weight)
    refused(("SGD", "for each of them"), other.step)
    optimizer.zero_grad()
    plain(ddp, 0)
    expect_refused(other.step, lambda: winnow.torch.attach(ddp, optimizer),
                   lambda: winnow.torch.attach(ddp, other, "sign"), lambda: winnow.torch.attach(ddp),
                   winnow.torch.look_ahead(ddp, optimizer).__enter__)

    for own in (lambda ddp: torch.optim.SGD(ddp.parameters(), lr=0.1),
                lambda ddp: winnow.torch.AdamW(ddp.parameters(), model=ddp)):
        ddp = DistributedDataParallel(network())
        winnow.torch.attach(ddp, **COMPRESSED)
        optimizer, before = own(ddp), weights(ddp)
        with winnow.torch.look_ahead(ddp, optimizer):
            plain(ddp, 0)
            expect_refused(optimizer.step, winnow.torch.look_ahead(ddp, optimizer).__enter__)
        optimizer.step()
        expect(not torch.equal(weights(ddp), before), "a step behind look_ahead")

    ddp = DistributedDataParallel(network())
    winnow.torch.attach(ddp, **COMPRESSED)
    sharded = zero(ddp.parameters(), winnow.torch.SGD, lr=0.1, model=ddp)
    refused(("ZeroRedundancyOptimizer", "attach_hsdp"), lambda: plain(ddp, 0))
    del sharded

    ddp = DistributedDataParallel(network())
    winnow.torch.attach(ddp, **COMPRESSED)
    both = [winnow.torch.SGD(ddp.parameters(), lr=0.1, model=ddp) for _ in range(2)]
    refused(("two optimizers", "drop one"), lambda: plain(ddp, 0))
    both.clear()
