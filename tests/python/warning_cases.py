# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""Warnings of what costs loss or gains nothing: one a job, at the line of the program."""
import contextlib
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import winnow.torch
from torch_harness import FIXED, expect, network, step
from winnow.torch import warn


def said(topic, make, steps=2, looks=False, **options):
    """The texts of warnings of a topic that a run has led to, through filters as Accelerate sets."""
    ddp = DistributedDataParallel(network())
    state = winnow.torch.attach(ddp, "topk:0.01", **{**FIXED, **options})
    optimizer = make(ddp)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)  # wraps step, in torch's module
    warn._said.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=UserWarning, module=r"(torch|winnow)\.")
        for number in range(steps):
            optimizer.zero_grad()
            with winnow.torch.look_ahead(ddp, optimizer) if looks else contextlib.nullcontext():
                step(ddp, optimizer, number)
            schedule.step()
    state.close()
    return [warning for warning in caught if topic in str(warning.message)]


def expect_one(topic, mends, *arguments, **keywords):
    """One warning on rank 0 alone, which names this program, and a line that mends it."""
    found = said(topic, *arguments, **keywords)
    expect(len(found) == (dist.get_rank() == 0), f"{topic}: {len(found)} warnings")
    expect(all(mends in str(w.message) and w.filename.endswith("torch_harness.py") and w.lineno > 0
               for w in found), f"{topic}: {found}")


def case_warnings():
    def sgd(ddp, **settings):
        return torch.optim.SGD(ddp.parameters(), lr=0.01, **settings)

    two_lines = "winnow.torch.attach(ddp, optimizer)"
    for kind in torch.optim.Adam, torch.optim.RMSprop:
        expect_one("second moments", two_lines, lambda ddp, kind=kind: kind(ddp.parameters()))
    expect_one("look-ahead", two_lines, lambda ddp: sgd(ddp, momentum=0.9))
    expect_one("72 %", two_lines, lambda ddp: winnow.torch.AdamW(ddp.parameters(), model=ddp))
    expect_one("dense", "min_bytes=0", sgd, steps=51, min_bytes=10**9)
    expect_one("dense", 'schedule="balanced"', sgd, steps=51, schedule="dense")
    for topic, make, keywords in (
            ("second moments", lambda ddp: winnow.torch.AdamW(ddp.parameters(), model=ddp), {}),
            ("second moments", sgd, {}), ("look-ahead", sgd, {}),
            ("travelled dense", sgd, {"steps": 51})):
        expect(not said(topic, make, **keywords), f"no warning of {topic}")

    ddp = DistributedDataParallel(network())
    optimizer = winnow.torch.attach(ddp, torch.optim.AdamW(ddp.parameters()))
    warn._said.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(3):
            step(ddp, optimizer, number)


def case_warnings_as_errors():
    """They end every rank, not the one that would say them."""
    ddp = DistributedDataParallel(network())
    state = winnow.torch.attach(ddp, "topk:0.01", **FIXED)
    optimizer = torch.optim.Adam(ddp.parameters())
    warn._said.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            step(ddp, optimizer, 0)
            raised = ""
        except UserWarning as error:
            raised = str(error)
    expect("second moments" in raised, raised)
    state.close()
