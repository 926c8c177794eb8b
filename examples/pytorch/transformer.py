#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=4 examples/pytorch/transformer.py [OPTION...]

Trains a small byte-level transformer by AdamW on several processes, and prints the held-out loss.
The last line is JSON, for programs.
"""
import argparse
import contextlib
import hashlib
import json
import math
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import winnow.torch

CONTEXT = 64  # bytes that the model sees
TEXT = pathlib.Path(__file__).resolve().parents[1] / "text" / "pride_and_prejudice.txt"


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mix = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        queries, keys, values = self.attend(self.before(x)).view(
            batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mix(self.between(x))


class Transformer(nn.Module):
    def __init__(self, width, layers, heads=4):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 256)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, x):
        places = torch.arange(x.shape[1])
        return self.out(self.norm(self.blocks(self.bytes(x) + self.places(places))))


def sample(text, generator, count):
    """Windows of the text, and the bytes behind each of theirs."""
    begin = torch.randint(len(text) - CONTEXT, (count,), generator=generator)
    windows = text[begin[:, None] + torch.arange(CONTEXT + 1)]
    return windows[:, :-1], windows[:, 1:]


def loss_of(model, batch):
    inputs, targets = batch
    return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def rate_at(step, arguments):
    """Grows linearly, then falls to a tenth by a cosine."""
    if step < arguments.warm_up:
        return arguments.rate * (step + 1) / arguments.warm_up
    done = (step - arguments.warm_up) / max(1, arguments.steps - arguments.warm_up)
    return arguments.rate * (0.55 + 0.45 * math.cos(math.pi * done))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--compressor", default="topk:0.03,int4", help="default: %(default)s")
    parser.add_argument("--schedule", default="balanced", help="default: %(default)s")
    parser.add_argument("--optimizer", default="winnow", choices=("winnow", "torch"),
                        help="whose AdamW; default: %(default)s")
    parser.add_argument("--no-look-ahead", action="store_true",
                        help="take gradients at the weights as they are")
    parser.add_argument("--steps", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=8, help="windows a rank and step")
    parser.add_argument("--width", type=int, default=128, help="default: %(default)s")
    parser.add_argument("--layers", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=2e-3, help="default: %(default)s")
    parser.add_argument("--warm-up", type=int, default=100, help="steps; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--text", type=pathlib.Path, default=TEXT, help="a file")
    return parser.parse_args()


def train(ddp, optimizer, training, arguments):
    generator = torch.Generator().manual_seed(1000 * arguments.seed + dist.get_rank())
    looks = arguments.optimizer == "winnow" and not arguments.no_look_ahead
    for step in range(arguments.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, arguments)
        optimizer.zero_grad()
        with winnow.torch.look_ahead(ddp, optimizer) if looks else contextlib.nullcontext():
            loss_of(ddp, sample(training, generator, arguments.batch)).backward()
        optimizer.step()


def main():
    arguments = parse()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    ddp = DistributedDataParallel(Transformer(arguments.width, arguments.layers))
    state = winnow.torch.attach(ddp, arguments.compressor, schedule=arguments.schedule)
    if arguments.optimizer == "winnow":
        optimizer = winnow.torch.AdamW(ddp.parameters(), lr=arguments.rate, model=ddp)
    else:
        optimizer = torch.optim.AdamW(ddp.parameters(), lr=arguments.rate)
    text = torch.tensor(list(arguments.text.read_bytes()))
    training, held_out = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]

    begin = time.perf_counter()
    train(ddp, optimizer, training, arguments)
    seconds = time.perf_counter() - begin

    with torch.no_grad():
        windows = sample(held_out, torch.Generator().manual_seed(2), 1024)
        loss = loss_of(ddp.module, windows).item()
    bits = b"".join(p.detach().numpy().tobytes() for p in ddp.parameters())
    replicas = [None] * dist.get_world_size()
    dist.all_gather_object(replicas, hashlib.sha256(bits).hexdigest())
    stats = state.reducer.totals()
    if dist.get_rank() == 0:
        print(f"held-out loss {loss:.4f} nats a byte after {arguments.steps} steps; "
              f"replicas {'equal' if len(set(replicas)) == 1 else 'DIFFERENT'}")
        print(winnow.torch.report(ddp))
        print(json.dumps({"loss": loss, "seconds": seconds,
                          "bytes": stats["wire_bytes"] / arguments.steps,
                          "fewer": stats["dense_wire_bytes"] / stats["wire_bytes"]}))
    dist.destroy_process_group()
    if len(set(replicas)) != 1:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
