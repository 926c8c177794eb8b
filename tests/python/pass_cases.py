# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Passes that end early, and passes that Winnow does not see."""
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import winnow.torch
from attach_cases import KINDS, attached
from attach_cases import plain as plain_pass
from attach_cases import weights
from torch_harness import expect, expect_equal_replicas, network, refused
from winnow.torch import warn
from winnow.torch.attach import state_of
from winnow.torch.pairing import UNREDUCED_STEPS


class Preempted(BaseException):
    """As a signal handler raises it."""


def case_interrupted_forward():
    """state_dict has the weights, also if an exception that is no Exception has ended a forward pass; what
    is read inside of one stays where the pass is."""
    for kind in KINDS:
        for raised in KeyboardInterrupt, SystemExit, Preempted, RuntimeError:
            ddp, optimizer = attached(kind)
            for number in range(3):
                optimizer.zero_grad()
                plain_pass(ddp, number)
                optimizer.step()
            before = weights(ddp)
            inside = []

            def look(module, *_, raised=raised, ddp=ddp, inside=inside):
                inside.append(ddp.module.state_dict()["0.weight"].clone())
                inside.append(module.weight.detach().clone())
                raise raised

            handle = ddp.module[3].register_forward_pre_hook(look)
            try:
                plain_pass(ddp, 3)
            except raised:
                pass
            handle.remove()
            saved = torch.cat([value.flatten() for value in ddp.module.state_dict().values()])
            expect(torch.equal(saved, before), f"{kind}, {raised.__name__}: the weights")
            expect(not torch.equal(inside[0], ddp.module[0].weight), f"{kind}: state_dict inside of the pass")
            expect(not torch.equal(inside[1], ddp.module[3].weight), f"{kind}: the pass goes on ahead")
            for number in range(3, 5):
                optimizer.zero_grad()
                plain_pass(ddp, number)
                optimizer.step()
            expect_equal_replicas(ddp)
            state_of(ddp).close()


def case_wrapped_anew():
    """A DistributedDataParallel around the same module whose gradients Winnow does not reduce is warned of,
    or refused where replicas would go apart."""
    for kind in KINDS:
        ddp, optimizer = attached(kind)
        for number in range(2):
            optimizer.zero_grad()
            plain_pass(ddp, number)
            optimizer.step()
        again = DistributedDataParallel(ddp.module)
        warn._said.clear()

        def train(again=again, optimizer=optimizer):
            for number in range(UNREDUCED_STEPS + 1):
                optimizer.zero_grad()
                plain_pass(again, number)
                optimizer.step()

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            refusal = refused(train)
        said = [str(warning.message) for warning in caught if "reduced no gradient" in str(warning.message)]
        adaptive = kind != "SGD"
        expect(("made anew" in refusal) == adaptive, f"{kind}: {refusal}")
        expect(len(said) == (not adaptive and dist.get_rank() == 0), f"{kind}: {said}")
        state_of(ddp).close()

    ddp, optimizer = attached("SGD")  # detached, it is torch's, and may be attached again
    winnow.torch.detach(ddp)
    again = DistributedDataParallel(ddp.module)
    winnow.torch.attach(again, optimizer)
    second = DistributedDataParallel(network())
    expect("0.weight" in refused(lambda: winnow.torch.attach(second, optimizer)), "the model is named")
    state_of(again).close()
