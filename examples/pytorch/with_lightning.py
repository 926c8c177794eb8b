#!/usr/bin/env python3
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
"""usage: torchrun --nproc_per_node=2 examples/pytorch/with_lightning.py [STEPS]

Winnow in a Trainer of Lightning, which makes the DistributedDataParallel itself: enable comes first.
"""
import sys

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
    def __init__(self):
        super().__init__()
        self.network = Transformer(width=64, layers=1)

    def training_step(self, batch, _):
        return loss_of(self.network, batch)

    def on_train_end(self):
        if self.trainer.is_global_zero:
            print(winnow.torch.report(self.trainer.strategy.model))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    torch.set_num_threads(1)
    winnow.torch.enable()
    trainer = lightning.Trainer(
        max_steps=steps, accelerator="cpu", devices=2,
        strategy=DDPStrategy(process_group_backend="gloo"), logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(Model(), torch.utils.data.DataLoader(Batches(), batch_size=None))


if __name__ == "__main__":
    main()
