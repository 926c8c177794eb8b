#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=2 examples/pytorch/with_transformers.py [--backend] [STEPS]

Winnow in the Trainer of Hugging Face's transformers, which makes the DistributedDataParallel itself:
enable comes first, or with --backend the process group.
"""
import argparse
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from transformers import Trainer, TrainingArguments

import winnow.torch
from transformer import CONTEXT, TEXT, Transformer, loss_of


class Windows(torch.utils.data.Dataset):
    """Pieces of the text, and the bytes behind each of theirs."""

    def __init__(self):
        self.text = torch.tensor(list(TEXT.read_bytes()))

    def __len__(self):
        return (len(self.text) - 1) // CONTEXT

    def __getitem__(self, index):
        window = self.text[index * CONTEXT:(index + 1) * CONTEXT + 1]
        return {"inputs": window[:-1], "labels": window[1:]}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = Transformer(width=64, layers=1)

    def forward(self, inputs, labels):
        return {"loss": loss_of(self.network, (inputs, labels))}


def train(steps, over_backend=False):
    if over_backend:
        dist.init_process_group("winnow")
        optimizer = torch.optim.SGD, {"lr": 0.2, "momentum": 0.9}
    else:
        winnow.torch.enable()
        optimizer = None  # as the arguments say: AdamW
    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=steps, per_device_train_batch_size=8, use_cpu=True,
            learning_rate=2e-3, ddp_find_unused_parameters=False,
            save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=steps)
        trainer = Trainer(model=model, args=arguments, train_dataset=Windows(),
                          optimizer_cls_and_kwargs=optimizer)
        trainer.train()
        if trainer.is_world_process_zero() and not over_backend:
            print(winnow.torch.report(trainer.model_wrapped))
    return model.network


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0].removeprefix("usage: "))
    parser.add_argument("--backend", action="store_true")
    parser.add_argument("steps", nargs="?", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    train(arguments.steps, arguments.backend)


if __name__ == "__main__":
    main()
