#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=2 examples/pytorch/with_accelerate.py [STEPS]

Winnow in a training loop of Accelerate: attach after prepare.
"""
import sys

import torch
from accelerate import Accelerator

import winnow.torch
from transformer import TEXT, Transformer, loss_of, sample


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    model = Transformer(width=64, layers=1)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=2e-3))
    winnow.torch.attach(model, optimizer)

    text = torch.tensor(list(TEXT.read_bytes()))
    generator = torch.Generator().manual_seed(accelerator.process_index)
    for _ in range(steps):
        optimizer.zero_grad()
        accelerator.backward(loss_of(model, sample(text, generator, 8)))
        optimizer.step()

    with torch.no_grad():
        loss = loss_of(model.module, sample(text, torch.Generator().manual_seed(2), 256))
    accelerator.print(f"loss {loss:.4f} after {steps} steps\n{winnow.torch.report(model)}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
