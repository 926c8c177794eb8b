#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=4 examples/pytorch/transformer.py [OPTION...]

Trains a small byte-level transformer by AdamW on several processes, and prints the held-out loss.
The last line is JSON, for programs. Besides Winnow's, --compressor takes what PyTorch has itself, to
compare with: torch (sums of float32), fp16, and powersgd:RANK.
"""
import argparse
import contextlib
import hashlib
import json
import math
import pathlib
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
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
        places = torch.arange(x.shape[1], device=x.device)
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
    parser.add_argument("--schedule", help="default: balanced, or auto if nothing is compressed")
    parser.add_argument("--optimizer", default="winnow", choices=("winnow", "torch", "attached", "backend", "group"),
                        help="whose AdamW; torch's attached as README shows; torch's over a process group of the "
                        "backend winnow; or Winnow's over one, with sums by hooks in place of "
                        "DistributedDataParallel; default: %(default)s")
    parser.add_argument("--no-look-ahead", action="store_true",
                        help="take gradients at the weights as they are")
    parser.add_argument("--share", type=float, help="of the residual by which to look ahead, instead "
                        "of winnow.torch.look_ahead's own")
    parser.add_argument("--steps", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=8, help="windows a rank and step")
    parser.add_argument("--width", type=int, default=128, help="default: %(default)s")
    parser.add_argument("--layers", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--rate", type=float, default=2e-3, help="default: %(default)s")
    parser.add_argument("--beta2", type=float, default=0.99, help="default: %(default)s")
    parser.add_argument("--warm-up", type=int, default=100, help="steps; default: %(default)s")
    parser.add_argument("--every", type=int, default=10**9, metavar="STEPS",
                        help="between losses of the curve in the JSON; default: only at the end")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--text", type=pathlib.Path, default=TEXT, help="a file")
    parser.add_argument("--stop", type=int, metavar="STEP",
                        help="end there, with the learning rates of a run of --steps")
    parser.add_argument("--checkpoint", type=pathlib.Path, metavar="FOLDER",
                        help="write one there at the end")
    parser.add_argument("--resume", type=pathlib.Path, metavar="FOLDER",
                        help="continue from a checkpoint, on any number of ranks")
    arguments = parser.parse_args()
    if (arguments.checkpoint or arguments.resume) and arguments.compressor.startswith("powersgd"):
        parser.error("a checkpoint would lack what PowerSGD keeps")
    arguments.stop = arguments.stop or arguments.steps
    return arguments


class Summed(nn.Module):
    """A model whose gradients are summed by a hook of each parameter, as in a trainer of one's own."""

    def __init__(self, module, group):
        super().__init__()
        self.module, self._group, self._works = module, group, []
        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(self._sum)

    def forward(self, inputs):
        return self.module(inputs)

    def _sum(self, parameter):
        self._works.append(dist.all_reduce(parameter.grad, dist.ReduceOp.AVG, self._group, async_op=True))

    def wait(self):
        while self._works:
            self._works.pop().wait()


def attach(ddp, optimizer, arguments):
    """The hook's state: Winnow's, or, if PyTorch reduces the gradients, PowerSGD's or None. Winnow serves
    `optimizer`, if it is not None."""
    name, _, number = arguments.compressor.partition(":")
    if name == "powersgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=int(number),
                                            start_powerSGD_iter=2)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return state
    if name == "fp16":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif name != "torch":
        schedule = arguments.schedule or ("auto" if name == "none" else "balanced")
        if optimizer is None:
            return winnow.torch.attach(ddp, arguments.compressor, schedule=schedule)
        winnow.torch.attach(ddp, optimizer, arguments.compressor, schedule=schedule)
        return winnow.torch.state_of(ddp)
    return None


def bytes_of_torch(state, ddp, arguments):
    """What a rank would send a step in ring allreduces, where PyTorch reduces the gradients."""
    steps, elements = arguments.stop, sum(p.numel() for p in ddp.parameters())
    if isinstance(state, powerSGD_hook.PowerSGDState):  # its first steps are dense
        compressed = state.total_numel_after_compression
        elements = (elements * min(state.start_powerSGD_iter, steps) + compressed) / steps
    width = 2 if arguments.compressor == "fp16" else 4
    return 2 * (1 - 1 / dist.get_world_size()) * width * elements


def save(folder, step, ddp, optimizer, state):
    """Each rank writes its own file, since second moments and what waits differ between ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"step": step, "ranks": dist.get_world_size(), "model": ddp.module.state_dict(),
                "optimizer": optimizer.state_dict(), "waiting": state and state.state_dict()},
               folder / f"{dist.get_rank()}.pt")


def load(folder, ddp, optimizer, state):
    """The step of a checkpoint. A rank takes its own file, if there are as many ranks as then. If
    not, it takes what waited on all of them, and the second moments of one."""
    def read(rank):
        return torch.load(folder / f"{rank}.pt", weights_only=False)

    ranks = read(0)["ranks"]
    own = read(dist.get_rank() % ranks)
    ddp.module.load_state_dict(own["model"])
    optimizer.load_state_dict(own["optimizer"])
    if state is not None:
        files = [own] if ranks == dist.get_world_size() else map(read, range(ranks))
        state.load_state_dict(*[file["waiting"] for file in files])
    return own["step"]


def train(ddp, group, optimizer, text, done, arguments):
    """Held-out losses, [steps, seconds of training, loss] each, the last at the end, on rank 0; and the
    median of the seconds of a step."""
    training, held_out = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    generator = torch.Generator().manual_seed(1000 * arguments.seed + dist.get_rank())
    for _ in range(done):
        sample(training, generator, arguments.batch)  # those before the checkpoint
    looks = isinstance(optimizer, winnow.torch.AdamW) and not arguments.no_look_ahead
    curve, took = [], []
    for step in range(done + 1, arguments.stop + 1):
        begin = time.perf_counter()
        for parameters in optimizer.param_groups:
            parameters["lr"] = rate_at(step - 1, arguments)
        optimizer.zero_grad()
        with (winnow.torch.look_ahead(ddp if group is None else group, optimizer, arguments.share) if looks
              else contextlib.nullcontext()):
            loss_of(ddp, sample(training, generator, arguments.batch)).backward()
        if isinstance(ddp, Summed):
            ddp.wait()
        optimizer.step()
        took.append(time.perf_counter() - begin)
        if step % arguments.every == 0 or step == arguments.stop:
            if dist.get_rank() == 0:
                with torch.no_grad():
                    windows = sample(held_out, torch.Generator().manual_seed(2), 1024)
                    curve.append([step, round(sum(took), 3), loss_of(ddp.module, windows).item()])
            dist.barrier()
    return curve, statistics.median(took)


def main():
    arguments = parse()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    group = None
    if arguments.optimizer in ("backend", "group"):
        options = winnow.torch.GroupOptions(arguments.compressor, schedule=arguments.schedule or "balanced")
        group = dist.new_group(backend="winnow", pg_options=options)
    model = Transformer(arguments.width, arguments.layers)
    if arguments.optimizer == "group":
        ddp = Summed(model, group)
    else:  # One bucket: over gloo, PowerSGD's hook mixes up the messages of several.
        ddp = DistributedDataParallel(model, process_group=group, bucket_cap_mb=100)
    settings = {"lr": arguments.rate, "betas": (0.9, arguments.beta2)}
    optimizer = torch.optim.AdamW(ddp.parameters(), **settings)
    if group is None:
        state = attach(ddp, optimizer if arguments.optimizer == "attached" else None, arguments)
    else:
        state = winnow.torch.state_of(group)
    if not isinstance(state, winnow.torch.State) or arguments.compressor == "none":
        arguments.optimizer = "torch"  # nothing waits
    if arguments.optimizer == "winnow":
        optimizer = winnow.torch.AdamW(ddp.parameters(), model=ddp, **settings)
    if arguments.optimizer == "group":
        optimizer = winnow.torch.AdamW(ddp.parameters(), group=group, **settings)
    text = torch.tensor(list(arguments.text.read_bytes()))
    done = load(arguments.resume, ddp, optimizer, state) if arguments.resume else 0
    curve, step_seconds = train(ddp, group, optimizer, text, done, arguments)
    if arguments.checkpoint:
        save(arguments.checkpoint, arguments.stop, ddp, optimizer, state)

    bits = b"".join(p.detach().numpy().tobytes() for p in ddp.parameters())
    replicas = [None] * dist.get_world_size()
    dist.all_gather_object(replicas, hashlib.sha256(bits).hexdigest())
    if dist.get_rank() == 0:
        _, seconds, loss = curve[-1]
        result = {"loss": loss, "seconds": seconds, "step_seconds": step_seconds, "curve": curve}
        print(f"held-out loss {loss:.4f} nats a byte after {arguments.stop} steps in "
              f"{seconds:.1f} s; replicas {'equal' if len(set(replicas)) == 1 else 'DIFFERENT'}")
        if isinstance(state, winnow.torch.State):
            stats = state.reducer.totals()
            result["bytes"] = stats["wire_bytes"] / (arguments.stop - done)
            result["fewer"] = stats["dense_wire_bytes"] / stats["wire_bytes"]
            print(winnow.torch.report(state))
        else:
            result["bytes"] = bytes_of_torch(state, ddp, arguments)
        print(json.dumps(result))
    dist.destroy_process_group()
    if len(set(replicas)) != 1:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
