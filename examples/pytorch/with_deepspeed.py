#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=2 examples/pytorch/with_deepspeed.py [--stage 0|1|2|3] [STEPS]

Winnow in DeepSpeed, which sums over groups of its own: these take the backend of the job, and the environment
names them. Without ZeRO, stage 0, an optimizer of Winnow is made over the group.
"""
import argparse
import contextlib
import functools
import os

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.utils.groups import _get_data_parallel_group

import winnow.torch
from transformer import TEXT, Transformer, loss_of, sample

# DeepSpeed makes groups without names, some for sums after the backward pass.
os.environ.setdefault("WINNOW_TORCH_GROUPS", "*")
os.environ.setdefault("WINNOW_TORCH_RULE", "group")


def train(stage, steps):
    """Its engine."""
    if not dist.is_initialized():
        dist.init_process_group("winnow")

    def make_optimizer(parameters):
        if stage == 0:
            return winnow.torch.AdamW(parameters, lr=2e-3, group=_get_data_parallel_group())
        return torch.optim.SGD(parameters, lr=0.2, momentum=0.9)

    model = Transformer(width=64, layers=1)
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), optimizer=make_optimizer,
        config={"train_micro_batch_size_per_gpu": 8, "zero_allow_untested_optimizer": True,
                "zero_optimization": {"stage": stage}})
    ahead = contextlib.nullcontext
    if stage == 0:
        ahead = functools.partial(winnow.torch.look_ahead, _get_data_parallel_group(), engine.optimizer)
    text = torch.tensor(list(TEXT.read_bytes()))
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(steps):
        with ahead():
            loss = loss_of(engine, sample(text, generator, 8))
            engine.backward(loss)
        engine.step()
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    return engine


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0].removeprefix("usage: "))
    parser.add_argument("--stage", type=int, default=1)
    parser.add_argument("steps", nargs="?", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    train(arguments.stage, arguments.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
