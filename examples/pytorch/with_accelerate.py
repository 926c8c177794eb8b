#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=2 examples/pytorch/with_accelerate.py [--backend] [STEPS]

Winnow in a training loop of Accelerate: attach after prepare, or with --backend an optimizer over the
process group, which is made before.
"""
import argparse
import contextlib
import functools

import torch
import torch.distributed as dist
from accelerate import Accelerator

import winnow.torch
from transformer import TEXT, Transformer, loss_of, sample


def train(steps, over_backend=False, **options):
    """`options`: those of an Accelerator, such as mixed_precision and gradient_accumulation_steps."""
    if over_backend and not dist.is_initialized():
        dist.init_process_group("winnow")
    accelerator = Accelerator(cpu=True, **options)
    model = Transformer(width=64, layers=1)
    if over_backend:
        group = dist.group.WORLD
        optimizer = winnow.torch.AdamW(model.parameters(), lr=2e-3, group=group)
        ahead = functools.partial(winnow.torch.look_ahead, group, optimizer)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        ahead = contextlib.nullcontext  # attach looks ahead by itself
    model, optimizer = accelerator.prepare(model, optimizer)
    if not over_backend:
        winnow.torch.attach(model, optimizer)

    text = torch.tensor(list(TEXT.read_bytes()))
    generator = torch.Generator().manual_seed(accelerator.process_index)
    for _ in range(steps * accelerator.gradient_accumulation_steps):
        with accelerator.accumulate(model):
            with ahead():
                accelerator.backward(loss_of(model, sample(text, generator, 8)))
            optimizer.step()
            optimizer.zero_grad()

    if not over_backend:
        accelerator.print(winnow.torch.report(model))
    model = accelerator.unwrap_model(model)
    with torch.no_grad():
        loss = loss_of(model, sample(text, torch.Generator().manual_seed(2), 256))
    accelerator.print(f"loss {loss:.4f} after {steps} steps")
    return model


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0].removeprefix("usage: "))
    parser.add_argument("--backend", action="store_true")
    parser.add_argument("steps", nargs="?", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    train(arguments.steps, arguments.backend)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
