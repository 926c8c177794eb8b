#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=2 examples/pytorch/with_lightning.py [--backend] [STEPS]

Winnow in a Trainer of Lightning, which makes the DistributedDataParallel itself: enable comes first, or with
--backend the strategy names the process group.
"""
import argparse

import lightning
import torch
from lightning.pytorch.strategies import DDPStrategy

import winnow.torch
from transformer import TEXT, Transformer, loss_of, sample


class Batches(torch.utils.data.IterableDataset):
    """Endless, other ones on each rank."""

    def __iter__(self):
        text = torch.tensor(list(TEXT.read_bytes()))
        generator = torch.Generator().manual_seed(torch.distributed.get_rank())
        while True:
            yield sample(text, generator, 8)


class Model(lightning.LightningModule):
    def __init__(self, over_backend):
        super().__init__()
        self.over_backend = over_backend
        self.network = Transformer(width=64, layers=1)

    def training_step(self, batch, _):
        return loss_of(self.network, batch)

    def on_train_end(self):
        if self.trainer.is_global_zero and not self.over_backend:
            print(winnow.torch.report(self.trainer.strategy.model))

    def configure_optimizers(self):
        if self.over_backend:
            return torch.optim.SGD(self.parameters(), lr=0.2, momentum=0.9)
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def train(steps, over_backend=False):
    if not over_backend:
        winnow.torch.enable()
    model = Model(over_backend)
    trainer = lightning.Trainer(
        max_steps=steps, accelerator="cpu", devices=2,
        strategy=DDPStrategy(process_group_backend="winnow" if over_backend else "gloo"), logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, torch.utils.data.DataLoader(Batches(), batch_size=None))
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
