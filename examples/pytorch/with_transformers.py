#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=2 examples/pytorch/with_transformers.py [STEPS]

Winnow in the Trainer of Hugging Face's transformers, which makes the DistributedDataParallel itself:
enable comes first.
"""
import sys
import tempfile

import torch
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


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    torch.set_num_threads(1)
    winnow.torch.enable()
    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, max_steps=steps, per_device_train_batch_size=8, use_cpu=True,
            learning_rate=2e-3, ddp_find_unused_parameters=False,
            save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=steps)
        trainer = Trainer(model=model, args=arguments, train_dataset=Windows())
        trainer.train()
        if trainer.is_world_process_zero():
            print(winnow.torch.report(trainer.model_wrapped))


if __name__ == "__main__":
    main()
