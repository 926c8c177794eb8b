# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Trainers that sum gradients over a group, each in its own way."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from torch_harness import batch, network


def loss_of(model, number, module=None):
    """In the pass with the number 3 all gradients but those of the last layer are zero."""
    module = model if module is None else module
    if number != 3:
        return model(batch(number, module[3].weight.dtype)).square().mean()
    return module[3].weight.square().mean() + 0 * model(batch(number, module[3].weight.dtype)).mean()


class Trainer:
    """A model and the sums of its gradients, as one kind of hand-written trainer makes them."""

    rule = "group"
    units = "mean", "mean"  # in which a rank has its gradient, in the first step and later

    def __init__(self, group):
        self.model, self.group, self.ranks = network(), group, dist.get_world_size()
        self.parameters = list(self.model.parameters())
        self.prepare()

    def prepare(self):
        """Once."""

    def sum(self):
        """After the pass."""

    def backward(self, number):
        loss_of(self.model, number).backward()

    def zero(self):
        self.model.zero_grad()

    def step(self, optimizer, number):
        self.zero()
        self.backward(number)
        self.sum()
        optimizer.step()


class Views(Trainer):
    """Of one flat tensor for each layer, of which p.grad are views, and which is divided after the sum."""

    units = "sum", "mean"

    def prepare(self):
        self.flats = []
        for layer in self.layers():
            flat = torch.zeros(sum(p.numel() for p in layer))
            for parameter, part in zip(layer, flat.split([p.numel() for p in layer])):
                parameter.grad = part.view_as(parameter)
            self.flats.append(flat)

    def layers(self):
        return [[p for p in module.parameters()] for module in self.model if list(module.parameters())]

    def zero(self):
        for flat in self.flats:
            flat.zero_()

    def sum(self):
        for flat in self.flats:
            dist.all_reduce(flat, group=self.group)
            flat /= self.ranks


class Undivided(Views):
    """Sums, as they are."""

    units = "sum", "sum"

    def sum(self):
        for work in [dist.all_reduce(flat, group=self.group, async_op=True) for flat in self.flats]:
            work.wait()


class Divided(Views):
    """Divided before the sum, in one tensor with gaps."""

    units = "mean", "mean"

    def prepare(self):
        flat, at = torch.zeros(sum(p.numel() + 64 for p in self.parameters)), 0
        for parameter in self.parameters:
            parameter.grad = flat[at:at + parameter.numel()].view_as(parameter)
            at += parameter.numel() + 64
        self.flats = [flat]

    def sum(self):
        self.flats[0] *= 1 / self.ranks
        dist.all_reduce(self.flats[0], group=self.group)


class Averages(Views):
    """Of several tensors in one call."""

    units = "mean", "mean"

    def sum(self):
        with dist._coalescing_manager(self.group, async_ops=True) as work:
            for flat in self.flats:
                dist.all_reduce(flat, dist.ReduceOp.AVG, group=self.group)
        work.wait()


class Copies(Trainer):
    """Of p.grad in a flat tensor, and back."""

    units = "sum", "mean"

    def sum(self):
        flat = torch.cat([p.grad.flatten() for p in reversed(self.parameters)])
        dist.all_reduce(flat, group=self.group)
        parts = flat.split([p.numel() for p in reversed(self.parameters)])
        for parameter, part in zip(reversed(self.parameters), parts):
            parameter.grad.copy_(part.view_as(parameter) / self.ranks)


class CopiesDivided(Copies):
    """Before the sum."""

    units = "mean", "mean"

    def sum(self):
        flat = torch.cat([p.grad.flatten() for p in self.parameters]) / self.ranks
        dist.all_reduce(flat, group=self.group)
        for parameter, part in zip(self.parameters, flat.split([p.numel() for p in self.parameters])):
            parameter.grad = part.view_as(parameter)


class CopiesOfEach(Trainer):
    """Alone."""

    units = "sum", "mean"

    def sum(self):
        for parameter in self.parameters:
            copied = parameter.grad.clone()
            dist.all_reduce(copied, group=self.group)
            parameter.grad = copied / self.ranks


class Hooks(Trainer):
    """On p.grad, in the backward pass, which does not wait."""

    rule = "backward"

    def prepare(self):
        self.works = []
        for parameter in self.parameters:
            parameter.register_post_accumulate_grad_hook(lambda p: self.works.append(
                dist.all_reduce(p.grad, dist.ReduceOp.AVG, group=self.group, async_op=True)))

    def sum(self):
        while self.works:
            self.works.pop().wait()


class GradientHooks(Trainer):
    """Before p.grad is there."""

    rule, units = "backward", ("sum", "mean")

    def prepare(self):
        def summed(gradient):
            gradient = gradient.clone()
            dist.all_reduce(gradient, group=self.group)
            return gradient / self.ranks

        for parameter in self.parameters:
            parameter.register_hook(summed)


class MainGradients(Views):
    """As Megatron keeps them: main_grad, a view of a flat tensor, gathers p.grad."""

    def prepare(self):
        super().prepare()
        for parameter in self.parameters:
            parameter.main_grad, parameter.grad = parameter.grad, None
            parameter.register_post_accumulate_grad_hook(self.add)

    @staticmethod
    def add(parameter):
        parameter.main_grad.add_(parameter.grad)
        parameter.grad = None

    def sum(self):
        super().sum()
        for parameter in self.parameters:
            parameter.grad = parameter.main_grad

    def zero(self):
        super().zero()
        for parameter in self.parameters:
            parameter.grad = None


class Wrapped(Trainer):
    """By DistributedDataParallel over the group."""

    rule = "backward"
    keywords = {}

    def prepare(self):
        self.ddp = DistributedDataParallel(self.model, process_group=self.group, **self.keywords)

    def backward(self, number):
        loss_of(self.ddp, number, self.model).backward()


class WrappedViews(Wrapped):
    """Whose p.grad are views of buckets."""

    keywords = {"gradient_as_bucket_view": True}


class One(Views):
    """For each parameter, divided before the sum."""

    def layers(self):
        return [[p] for p in self.parameters]

    def sum(self):
        for flat in self.flats:
            flat /= self.ranks
            dist.all_reduce(flat, group=self.group)


TRAINERS = (Views, Undivided, Divided, Averages, Copies, CopiesDivided, CopiesOfEach, Hooks, GradientHooks,
            MainGradients, Wrapped, WrappedViews)
