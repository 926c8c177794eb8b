#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=4 examples/pytorch/ddp.py [OPTION...]

Trains a byte-level language model on several processes, with the gradients reduced by Winnow, and
prints the held-out loss and how many bytes it has saved. `--dense` is the run to compare with, by
PyTorch's own allreduce.
"""
import argparse
import hashlib
import os
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import winnow.torch

CONTEXT = 32  # bytes that the model sees
TEXT = pathlib.Path(__file__).resolve().parents[1] / "text" / "pride_and_prejudice.txt"


def network(width):
    return nn.Sequential(nn.Embedding(256, 32), nn.Flatten(), nn.Linear(32 * CONTEXT, width),
                         nn.GELU(), nn.LayerNorm(width), nn.Linear(width, 256))


def sample(text, generator, count):
    """Windows of the text, and the byte behind each."""
    begin = torch.randint(len(text) - CONTEXT, (count,), generator=generator)
    windows = text[(begin[:, None] + torch.arange(CONTEXT + 1)).to(text.device)]
    return windows[:, :-1], windows[:, -1]


def device_of(kind):
    """The GPUs of a node go to its ranks in turn."""
    if kind == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--optimizer", default="AdamW", choices=("AdamW", "SGD"))
    parser.add_argument("--dense", action="store_true", help="leave gradients to PyTorch")
    parser.add_argument("--compressor", help="default: what serves the optimizer best")
    parser.add_argument("--schedule", help="default: what serves the optimizer best")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--steps", type=int, default=300, help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=64, help="windows a rank and step")
    parser.add_argument("--width", type=int, default=512, help="hidden units")
    parser.add_argument("--rate", type=float, help="default: 0.002, for SGD 0.05")
    parser.add_argument("--text", type=pathlib.Path, default=TEXT, help="a file")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    device = device_of(arguments.device)
    ddp = DistributedDataParallel(network(arguments.width).to(device))
    if arguments.optimizer == "SGD":
        optimizer = torch.optim.SGD(ddp.parameters(), lr=arguments.rate or 0.05, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(ddp.parameters(), lr=arguments.rate or 0.002)
    if not arguments.dense:
        named = {"compressor": arguments.compressor, "schedule": arguments.schedule}
        optimizer = winnow.torch.attach(ddp, optimizer,
                                        **{key: value for key, value in named.items() if value})

    text = torch.tensor(list(arguments.text.read_bytes())).to(device)
    training, held_out = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    generator = torch.Generator().manual_seed(1000 + rank)  # each rank draws its own windows
    begin = time.perf_counter()
    for _ in range(arguments.steps):
        inputs, targets = sample(training, generator, arguments.batch)
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(inputs), targets).backward()
        optimizer.step()
    seconds = time.perf_counter() - begin

    with torch.no_grad():
        inputs, targets = sample(held_out, torch.Generator().manual_seed(2), 4096)
        loss = nn.functional.cross_entropy(ddp.module(inputs), targets).item()
    bits = b"".join(p.detach().cpu().numpy().tobytes() for p in ddp.parameters())
    replicas = [None] * ranks
    dist.all_gather_object(replicas, hashlib.sha256(bits).hexdigest())
    if rank == 0:
        print(f"{arguments.optimizer} on {ranks} ranks, {arguments.steps} steps in "
              f"{seconds:.1f} s: held-out loss {loss:.4f} nats a byte, replicas "
              f"{'equal' if len(set(replicas)) == 1 else 'DIFFERENT'}")
        if not arguments.dense:
            print(winnow.torch.report(ddp))
    dist.destroy_process_group()
    if len(set(replicas)) != 1:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
