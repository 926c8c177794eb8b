# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Optimizers of winnow.torch over a group of the backend, behind trainers that sum gradients themselves."""
import copy
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow.torch
from backend_groups import compressed, counts, group_of
from group_trainers import (TRAINERS, Averages, Copies, CopiesDivided, Hooks, One, Undivided, Views, Wrapped,
                            loss_of)
from torch_harness import FIXED, batch, expect, expect_equal_replicas, network, refused
from winnow.torch import warn

SETTINGS = {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-3}
NONE_ELSE = {"min_bytes": 0, "exempt_1d": 0}


def same(models, tolerance=1e-5):
    return all(torch.allclose(mine, right, rtol=1e-4, atol=tolerance)
               for mine, right in zip(*(model.parameters() for model in models)))


def reference(steps, first, later):
    """winnow.torch.AdamW in float64, of all elements: second moments of each rank's gradient, in the units of the
    program's p.grad, which are known after the first step."""
    model, (beta1, beta2), rate = network().double(), SETTINGS["betas"], SETTINGS["lr"]
    held = [[torch.zeros_like(p), torch.zeros_like(p)] for p in model.parameters()]
    unit = {"mean": 1, "sum": dist.get_world_size()}
    for number in range(1, steps + 1):
        model.zero_grad()
        loss_of(model, number - 1).backward()
        with torch.no_grad():
            for parameter, (first_moment, second) in zip(model.parameters(), held):
                gradient = parameter.grad * unit[first if number == 1 else later]
                second.mul_(beta2).add_((1 - beta2) * gradient * gradient)
                update = gradient * rate * dist.get_world_size() ** 0.5
                update /= (second / (1 - beta2 ** number)).sqrt() + SETTINGS["eps"]
                if number == 1:
                    second.mul_((unit[later] / unit[first]) ** 2)
                dist.all_reduce(update)
                first_moment.lerp_(update / dist.get_world_size(), 1 - beta1)
                parameter.mul_(1 - rate * SETTINGS["weight_decay"]).sub_(first_moment / (1 - beta1 ** number))
    return model.float()


def case_group_adamw():
    """With all elements sent, winnow.torch.AdamW behind each trainer is the reference, to rounding, from the
    first step on."""
    references = {units: reference(6, *units) for units in sorted({kind.units for kind in TRAINERS})}
    for kind in TRAINERS:
        with group_of("topk:0.999999", rule=kind.rule, **NONE_ELSE) as group:
            trainer = kind(group)
            optimizer = winnow.torch.AdamW(trainer.parameters, group=group, **SETTINGS)
            for number in range(6):
                trainer.step(optimizer, number)
            expect(same((trainer.model, references[kind.units])), f"{kind.__name__}: the same steps")
            expect(list(counts(group)) == [""], f"{kind.__name__}: all sums are compressed, {counts(group)}")
            expect_equal_replicas(trainer.model)


def case_group_sgd():
    """Behind each trainer the steps are torch's, of what the trainer makes of sums."""
    settings = {"lr": 0.05, "weight_decay": 0.01}
    for kind in TRAINERS:
        with group_of("none") as exact, group_of("topk:0.999999", rule=kind.rule, **NONE_ELSE) as group:
            right, trainer = kind(exact), kind(group)
            theirs = torch.optim.SGD(right.parameters, **settings)
            ours = winnow.torch.SGD(trainer.parameters, group=group, **settings)
            for number in range(5):
                for one in theirs, ours:
                    one.param_groups[0]["lr"] = 0.05 / (1 + number)
                right.step(theirs, number)
                trainer.step(ours, number)
            expect(same((trainer.model, right.model)), f"{kind.__name__}: the same steps")
            expect(list(counts(group)) == [""], f"{kind.__name__}: all sums are compressed, {counts(group)}")


def case_group_same_bits_as_attach():
    """Where each sum is of one parameter, on as many ranks as a power of two, with look-ahead."""
    for kind in Hooks, One:
        with group_of("topk:0.05", rule=kind.rule, **NONE_ELSE) as group:
            trainer, twin = kind(group), network()
            attached = DistributedDataParallel(twin, bucket_cap_mb=1e-4)
            winnow.torch.attach(attached, "topk:0.05", **FIXED, **NONE_ELSE)
            ours = winnow.torch.AdamW(trainer.parameters, group=group, **SETTINGS)
            theirs = winnow.torch.AdamW(attached.parameters(), model=attached, **SETTINGS)
            for number in range(8):
                with winnow.torch.look_ahead(group, ours):
                    trainer.zero()
                    trainer.backward(number)
                    trainer.sum()
                theirs.zero_grad()
                with winnow.torch.look_ahead(attached, theirs):
                    loss_of(attached, number, twin).backward()
                ours.step()
                theirs.step()
                equal = all(map(torch.equal, trainer.parameters, twin.parameters()))
                expect(equal, f"{kind.__name__}, step {number}: the same bits")
            winnow.torch.state_of(attached).close()


def case_group_clipping():
    """clip_grad_norm_ has the norm of what the program makes of gradients, and clips by it."""
    for kind in Views, Undivided, Copies, Hooks, Wrapped:
        with group_of("none") as exact, group_of("topk:0.999999", rule=kind.rule, **NONE_ELSE) as group:
            right, trainer = kind(exact), kind(group)
            theirs = torch.optim.SGD(right.parameters, lr=0.05)
            ours = winnow.torch.SGD(trainer.parameters, lr=0.05, group=group)
            for number in range(3):
                norms = []
                for one in right, trainer:
                    one.zero()
                    one.backward(number)
                    one.sum()
                    norms.append(nn.utils.clip_grad_norm_(one.parameters, 0.2))
                theirs.step()
                ours.step()
                expect(norms[0] > 0.2 and torch.allclose(*norms, rtol=0.1), f"{kind.__name__}: norms {norms}")
            expect(same((trainer.model, right.model), 2e-3), f"{kind.__name__}: steps that are clipped")
            expect_equal_replicas(trainer.model)


def case_group_small():
    """Sums of fewer than min_bytes are exact, and their parameters take torch's step."""
    with group_of("topk:0.05", rule="backward", min_bytes=2048) as group:
        trainer, right = Hooks(group), network()
        ours = winnow.torch.AdamW(trainer.parameters, group=group, **SETTINGS)
        trainer.step(ours, 0)
        right(batch(0)).square().mean().backward()
        theirs = torch.optim.AdamW(right.parameters(), **SETTINGS)
        for parameter in right.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()
        theirs.step()
        for mine, expected in zip(trainer.parameters, right.parameters()):
            large = mine.numel() * 4 >= 2048
            expect(large or torch.allclose(mine, expected, atol=1e-7), "torch's step of a small one")
            expect(bool(ours.state[mine]["winnow_updates"]) == large, "whose moments are of updates")
        expect(compressed(group) == 2, f"the others are compressed: {counts(group)}")


def case_group_two_rates():
    """Parameters of one sum have each its own rate, and two optimizers share a sum."""
    with group_of("topk:0.999999", rule="group", **NONE_ELSE) as group:
        trainer, twin = Copies(group), network()
        halves = [trainer.parameters[::2], trainer.parameters[1::2]]
        ours = [winnow.torch.SGD(halves[0], lr=0.05, group=group),
                winnow.torch.SGD([{"params": halves[1][:1], "lr": 0.1}, {"params": halves[1][1:]}], lr=0.2,
                                 group=group)]
        parameters = list(twin.parameters())
        theirs = torch.optim.SGD([{"params": parameters[::2], "lr": 0.05}, {"params": parameters[1:2], "lr": 0.1},
                                  {"params": parameters[3::2], "lr": 0.2}])
        for number in range(4):
            trainer.zero()
            trainer.backward(number)
            trainer.sum()
            for one in ours:
                one.step()
            theirs.zero_grad()
            loss_of(twin, number).backward()
            for parameter in parameters:
                dist.all_reduce(parameter.grad)
                parameter.grad /= dist.get_world_size()
            theirs.step()
        expect(same((trainer.model, twin)), "the same steps")
        expect(counts(group) == {"": 4}, f"{counts(group)}")


def case_group_refusals():
    """What an optimizer over a group cannot serve, on all ranks."""
    with group_of("topk:0.05", rule="group", **NONE_ELSE) as group:
        trainer = Copies(group)
        for keywords, why in (({}, "takes either model="),
                              ({"group": group, "model": trainer.model}, "either model="),
                              ({"group": dist.group.WORLD}, "a group of the backend winnow"),
                              ({"model": group.state}, "by group="), ({"group": group, "amsgrad": True}, "amsgrad")):
            text = refused(lambda keywords=keywords: winnow.torch.AdamW(trainer.parameters, **keywords))
            expect(why in text, f"{why}: {text}")
        plain = torch.optim.SGD(trainer.parameters, lr=0.1)
        expect("made with group=" in refused(winnow.torch.look_ahead(group, plain).__enter__), "torch's optimizer")
    changes = ((lambda p: p.grad.mul_(0.7), "is not what the group has summed"),
               (lambda p: setattr(p, "grad", p.grad + 1), "is not what the group has summed"),
               (lambda p: setattr(p, "grad", None), "is not what the group has summed"))
    for kind in Views, Copies:
        for change, why in changes:
            with group_of("topk:0.05", rule="group", **NONE_ELSE) as group:
                trainer = kind(group)
                optimizer = winnow.torch.AdamW(trainer.parameters, group=group)
                trainer.step(optimizer, 0)
                trainer.zero()
                trainer.backward(1)
                trainer.sum()
                change(trainer.parameters[0])
                expect(why in refused(optimizer.step), why)
    with group_of("topk:0.05", rule="group", **NONE_ELSE) as group:
        trainer = Copies(group)
        optimizer = winnow.torch.AdamW(trainer.parameters, group=group)
        trainer.step(optimizer, 0)
        trainer.zero()
        trainer.backward(1)
        expect("did not reduce" in refused(optimizer.step), "a gradient that is not summed")
    with group_of("topk:0.05", rule="group", **NONE_ELSE) as group:
        trainer = Undivided(group)
        optimizer = winnow.torch.AdamW(trainer.parameters, group=group)
        trainer.backward(0)
        trainer.sum()
        trainer.flats[0] /= trainer.ranks
        expect("groups of parameters of their own" in refused(optimizer.step), "some sums are divided")
    with group_of("topk:0.05", rule="group", **NONE_ELSE) as group:
        trainer = Undivided(group)
        optimizer = winnow.torch.AdamW(trainer.parameters, group=group)
        trainer.backward(0)
        trainer.sum()
        expect("a second time" in refused(trainer.sum), "a second sum")
        with winnow.torch.look_ahead(group, optimizer):
            expect("inside of look_ahead" in refused(optimizer.step), "a step inside")
    with group_of("topk:0.05", rule="group", **NONE_ELSE) as group:
        trainer = Copies(group)
        plain = torch.optim.SGD(trainer.parameters, lr=0.1)
        for number in range(5):
            trainer.step(plain, number)
        expect(compressed(group) > 0, f"{counts(group)}")
        expect("before the first backward pass" in refused(
            lambda: winnow.torch.AdamW(trainer.parameters, group=group)), "gradients that wait")


def case_group_unknown():
    """Sums that are not found in the optimizer are exact, torch's steps apply them, and after ten steps the
    optimizer refuses. Sums that ranks find otherwise are exact, too."""
    class Scaled(Copies):
        def sum(self):
            flat = 3 * torch.cat([p.grad.flatten() for p in self.parameters])
            dist.all_reduce(flat, group=self.group)
            for parameter, part in zip(self.parameters, flat.split([p.numel() for p in self.parameters])):
                parameter.grad.copy_(part.view_as(parameter) / (3 * self.ranks))

    with group_of("topk:0.05", rule="group", **NONE_ELSE) as group:
        trainer, twin = Scaled(group), DistributedDataParallel(network())
        ours = winnow.torch.AdamW(trainer.parameters, group=group, **SETTINGS)
        theirs = torch.optim.AdamW(twin.parameters(), **SETTINGS)
        for number in range(9):
            trainer.step(ours, number)
            theirs.zero_grad()
            loss_of(twin, number, twin.module).backward()
            theirs.step()
        expect(same((trainer.model, twin.module), 1e-4), "torch's steps of exact sums")
        text = refused(lambda: trainer.step(ours, 9))
        expect("not of gradients that Winnow finds" in text and "p.main_grad" in text, text)
        why = "of gradients that it does not find in optimizers over the group"
        expect(counts(group) == {why: 10}, f"{counts(group)}")
    with group_of("topk:0.05", rule="group", **NONE_ELSE) as group:
        kind = Scaled if dist.get_rank() == 0 else Copies
        trainer = kind(group)
        ours = winnow.torch.AdamW(trainer.parameters, group=group, **SETTINGS)
        for number in range(9):
            trainer.step(ours, number)
        expect("not of gradients that Winnow finds" in refused(lambda: trainer.step(ours, 9)), "other parameters")
        others = ", ".join(map(str, range(1, dist.get_world_size())))
        why = f"of gradients that rank {others} knows otherwise than rank 0"
        expect(counts(group) == {why: 10}, f"{counts(group)}")


def case_group_equal_gradients():
    """Copies of gradients that are equal may be of either parameter: sums are exact until they differ."""
    with group_of("topk:0.05", rule="group", **NONE_ELSE) as group:
        weights = [nn.Parameter(torch.ones(500)) for _ in range(2)]
        optimizer = winnow.torch.AdamW(weights, lr=0.01, group=group)
        for number in range(6):
            gradients = [batch(number + (which if number > 2 else 0)).flatten()[:500] for which in range(2)]
            for weight, gradient in zip(weights, gradients):
                weight.grad = gradient.clone()
            flat = torch.cat(gradients)
            dist.all_reduce(flat, group=group)
            for weight, part in zip(weights, flat.split(500)):
                weight.grad = part
            optimizer.step()
        expect(compressed(group) == 3, f"{counts(group)}")


def case_group_warnings():
    """A plain AdamW over a group warns, one over a group of Winnow's does not, but asks for look-ahead."""
    for plain in False, True:
        warn._said.clear()
        with warnings.catch_warnings(record=True) as caught, group_of(rule="group", **NONE_ELSE) as group:
            warnings.simplefilter("always")
            trainer = Copies(group)
            optimizer = (torch.optim.AdamW(trainer.parameters) if plain
                         else winnow.torch.AdamW(trainer.parameters, group=group))
            for number in range(5):
                trainer.step(optimizer, number)
            text = " ".join(str(one.message) for one in caught)
        is_first = dist.get_rank() == 0
        expect(("second moments" in text) == (plain and is_first), f"of second moments: {text}")
        expect(("without look-ahead" in text) == (not plain and is_first), f"of look-ahead: {text}")


def case_group_checkpoint():
    """An optimizer that continues from a state takes the steps of one that goes on, also where the
    program divides after the sum, or nothing is lost any more."""
    for kind in CopiesDivided, Views:
        with group_of("topk:0.999999", rule="group", **NONE_ELSE) as group:
            trainer = kind(group)
            optimizer = winnow.torch.AdamW(trainer.parameters, group=group, **SETTINGS)
            for number in range(4):
                trainer.step(optimizer, number)
            saved = copy.deepcopy((trainer.model.state_dict(), optimizer.state_dict()))
            for number in range(4, 7):
                trainer.step(optimizer, number)
        with group_of("topk:0.999999", rule="group", **NONE_ELSE) as group:
            again = kind(group)
            continued = winnow.torch.AdamW(again.parameters, group=group, **SETTINGS)
            again.model.load_state_dict(saved[0])
            continued.load_state_dict(saved[1])
            for number in range(4, 7):
                again.step(continued, number)
            expect(same((again.model, trainer.model)), f"{kind.__name__}: the same steps")
    with group_of("topk:1", rule="group", **NONE_ELSE) as group:  # torch's own steps, by the mean of second moments
        lossless = CopiesDivided(group)
        last = winnow.torch.AdamW(lossless.parameters, group=group, **SETTINGS)
        lossless.model.load_state_dict(saved[0])
        last.load_state_dict(saved[1])
        for number in range(4, 7):
            lossless.step(last, number)
        expect_equal_replicas(lossless.model)


def case_group_skipped_step():
    """A step that is left out leaves no trace."""
    trained = []
    for skips in False, True:
        with group_of("topk:0.05", rule="group", **NONE_ELSE) as group:
            trainer = Averages(group)
            optimizer = winnow.torch.AdamW(trainer.parameters, group=group, **SETTINGS)
            winnow.torch.skip_step(group)
            for number in (0, 1, 2, *([8] if skips else []), 3, 4):
                with winnow.torch.look_ahead(group, optimizer):
                    trainer.zero()
                    trainer.backward(number)
                    trainer.sum()
                if number == 8:
                    winnow.torch.skip_step(group)
                else:
                    optimizer.step()
            trained.append([p.detach().clone() for p in trainer.parameters])
    expect(all(map(torch.equal, *trained)), "as if it had not been")
