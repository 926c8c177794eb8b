#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=4 examples/pytorch/hsdp.py [OPTION...]

Trains the byte-level transformer of transformer.py with parameters, gradients and moments sharded
within nodes by fully_shard, and gradients reduced by Winnow between nodes: beside torch, or with --native
in torch's own HSDP, over a process group of the backend winnow. On one machine --ranks-per-node makes
nodes of its ranks.
"""
import argparse
import contextlib
import functools
import statistics
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import winnow.torch
from transformer import TEXT, Transformer, loss_of, sample


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    parser.add_argument("--ranks-per-node", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--native", action="store_true", help="a mesh of two dimensions for fully_shard")
    parser.add_argument("--compressor", default="topk:0.03,int4",
                        help="torch: without Winnow, in torch's own HSDP over gloo; default: %(default)s")
    parser.add_argument("--schedule", default="balanced", help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=300, help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=8, help="windows a rank and step")
    parser.add_argument("--rate", type=float, default=2e-3, help="default: %(default)s")
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dense = arguments.compressor == "torch"
    nodes = dist.get_world_size() // arguments.ranks_per_node
    mesh = init_device_mesh("cpu", (nodes, arguments.ranks_per_node), mesh_dim_names=("between", "within"),
                            backend_override={"between": "winnow"} if arguments.native and not dense else None)
    model = Transformer(width=128, layers=2)
    for part in *model.blocks, model:
        fully_shard(part, mesh=mesh if arguments.native or dense else mesh["within"])
    if dense:
        optimizer = torch.optim.AdamW(model.parameters(), lr=arguments.rate, betas=(0.9, 0.99))
        ahead = contextlib.nullcontext
    else:
        state = winnow.torch.attach_hsdp(model, mesh["between"], arguments.compressor,
                                         schedule=arguments.schedule)
        optimizer = winnow.torch.AdamW(model.parameters(), lr=arguments.rate, model=model,
                                       betas=(0.9, 0.99))
        ahead = functools.partial(winnow.torch.look_ahead, model, optimizer)

    text = torch.tensor(list(TEXT.read_bytes()))
    training, held_out = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    generator = torch.Generator().manual_seed(1000 + dist.get_rank())
    seconds = []
    for _ in range(arguments.steps):
        began = time.perf_counter()
        optimizer.zero_grad()
        with ahead():
            loss_of(model, sample(training, generator, arguments.batch)).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - began)

    with torch.no_grad():
        loss = loss_of(model, sample(held_out, torch.Generator().manual_seed(2), 1024)).item()
    losses = [None] * dist.get_world_size()
    dist.all_gather_object(losses, loss)
    if dist.get_rank() == 0:
        print(f"held-out loss {loss:.4f} nats a byte after {arguments.steps} steps on {nodes} nodes of "
              f"{arguments.ranks_per_node} ranks; replicas "
              f"{'equal' if len(set(losses)) == 1 else 'DIFFERENT'}; "
              f"{1000 * statistics.median(seconds):.0f} ms a step")
        if not dense:
            print(winnow.torch.report(state))
    dist.destroy_process_group()
    if len(set(losses)) != 1:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
