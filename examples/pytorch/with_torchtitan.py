#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=4 examples/pytorch/with_torchtitan.py [OPTION...] [STEPS]

Winnow in torchtitan's trainer, with its llama3 debug model in native HSDP or as replicas, its dataloader and
its bf16: the dimension dp_replicate of its mesh is over the backend winnow.
"""
import argparse
import dataclasses
import functools
import os
import pathlib
import types

import datasets
import torch

import winnow.torch
from transformer import TEXT

# torchtitan makes its groups itself, of the backend that torch names for a device.
for device in "cpu", "cuda":
    torch.distributed.Backend.default_device_backend_map[device] = "winnow"
os.environ.setdefault("WINNOW_TORCH_GROUPS", "mesh_dp_replicate")

if not torch.cuda.is_available():  # torchtitan takes a GPU for granted
    torch._utils._get_available_device_type = lambda: "cpu"
    torch.cpu.current_device = lambda: 0
    torch.cpu.get_device_name = lambda _: "host"
    torch.cpu.get_device_properties = lambda _: types.SimpleNamespace(total_memory=1 << 30)
    torch.cpu.memory_stats = lambda _: {}
    torch.cpu.reset_peak_memory_stats = torch.cpu.empty_cache = lambda: None

from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.optimizer import LRSchedulersContainer, OptimizersContainer, default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.hf_datasets import DatasetConfig
from torchtitan.hf_datasets.text_datasets import DATASETS, HuggingFaceTextDataLoader
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.llama3 import model_registry
from torchtitan.tools.logging import init_logger
from torchtitan.trainer import Trainer


class WinnowOptimizers(OptimizersContainer):
    """Attaches Winnow to the model, and makes its AdamW."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(OptimizersContainer.Config):
        compressor: str = "topk:0.03,int4"

    def __init__(self, config, *, model_parts):
        model, = model_parts
        mesh = next(model.parameters()).device_mesh
        winnow.torch.attach_hsdp(model, mesh["dp_replicate"], config.compressor)
        super().__init__(config, model_parts=model_parts)

    def _resolve_optimizer_factory(self, name):
        return functools.partial(winnow.torch.AdamW, model=self.model_parts[0])


class WinnowTrainer(Trainer):
    """Looks ahead, and sums over dp_replicate once a step."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        pass

    micro_batches = 0

    def forward_backward_step(self, **batch):
        (model,), (optimizer,) = self.model_parts, self.optimizers
        self.micro_batches += 1
        model.set_requires_all_reduce(self.micro_batches % self.gradient_accumulation_steps == 0)
        with winnow.torch.look_ahead(model, optimizer):
            return super().forward_backward_step(**batch)


class Bytes(BaseTokenizer):
    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, *, tokenizer_path):
        super().__init__()
        self.eos_id = 256

    def encode(self, text, add_bos, add_eos):
        return [256] * add_bos + list(text.encode()) + [256] * add_eos

    def decode(self, tokens):
        return bytes(token for token in tokens if token < 256).decode(errors="replace")

    def get_vocab_size(self):
        return 257


def load(path, size=4096):
    text = pathlib.Path(path).read_text(encoding="utf-8")
    parts = [text[at:at + size] for at in range(0, len(text) * 9 // 10, size)]
    return datasets.Dataset.from_dict({"text": parts})


DATASETS["text"] = DatasetConfig(path=str(TEXT), loader=load, sample_processor=lambda sample: sample["text"])


def configure(steps, replicas, shards, micro_batches=1, with_winnow=True):
    """A trainer of torchtitan; `with_winnow`: with Winnow's AdamW in place of torch's."""
    spec = model_registry("debugmodel")
    if not torch.cuda.is_available():  # flex attention has no backward pass there
        spec.model.layers = spec.model.layers[:2]
        for layer in spec.model.layers:
            layer.attention.inner_attention = ScaledDotProductAttention.Config()
    optimizers = default_adamw(lr=4e-3)
    if with_winnow:
        optimizers = WinnowOptimizers.Config(param_groups=optimizers.param_groups)
    optimizers.implementation = "foreach"
    loss = CrossEntropyLoss.Config(global_vocab_size=spec.model.vocab_size)
    if micro_batches == 1:  # chunks of the loss sum over replicas in each micro-batch
        loss = ChunkedLossWrapper.Config(loss_fn=loss)
    return (WinnowTrainer if with_winnow else Trainer).Config(
        model_spec=spec, loss=loss, optimizer=optimizers, tokenizer=Bytes.Config(),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=5),
        dataloader=HuggingFaceTextDataLoader.Config(dataset="text"),
        training=TrainingConfig(steps=steps, seq_len=64, local_batch_size=2,
                                global_batch_size=2 * replicas * shards * micro_batches,
                                disable_cuda_graphs=True),  # in which no hook of Python runs
        parallelism=ParallelismConfig(data_parallel_replicate_degree=replicas,
                                      data_parallel_shard_degree=shards))


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0].removeprefix("usage: "))
    parser.add_argument("--shards", type=int, default=2, help="1: replicas alone; default: %(default)s")
    parser.add_argument("--micro-batches", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("steps", nargs="?", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    init_logger()
    replicas = int(os.environ["WORLD_SIZE"]) // arguments.shards
    config = configure(arguments.steps, replicas, arguments.shards, arguments.micro_batches)
    config.compile = CompileConfig(enable=arguments.compile, components=["model"])
    trainer = config.build()
    trainer.train()
    if torch.distributed.get_rank() == 0:
        print(winnow.torch.report(trainer.model_parts[0]))
    trainer.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
