#!/usr/bin/env python3
"""The Trainer of Lightning on a small model of our own."""
import time

try:
    import lightning.pytorch as pl
except ImportError:
    import pytorch_lightning as pl
import torch

import hanse
import hanse.lightning

STEPS = 200


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)

    def training_step(self, batch, _i):
        x, y = batch
        return (self.layer(x) - y).square().mean()

    def on_train_start(self):
        print(f"from step {self.trainer.global_step}", flush=True)

    def on_train_batch_end(self, *_):
        time.sleep(0.005)
        print(f"step {self.trainer.global_step}", flush=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    x = torch.sin(torch.arange(8.0)).repeat(STEPS, 1)  # alike: Lightning begins an epoch's data anew when it resumes within one
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, :4]), batch_size=1)
    with hanse.Saver() as saver:
        callback = hanse.lightning.Callback(saver)
        trainer = pl.Trainer(max_epochs=1, callbacks=[callback], accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
                             enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
        model = Model()
        trainer.fit(model, data, ckpt_path=callback.resume_path())
        print(f"result {sum(p.double().sum().item() for p in model.parameters()).hex()}", flush=True)


main()
