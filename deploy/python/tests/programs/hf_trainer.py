#!/usr/bin/env python3
"""The Trainer of transformers on a small model of our own; keeps one checkpoint (save_total_limit)."""
import time

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

import hanse
import hanse.huggingface

STEPS = 200


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 4)

    def forward(self, x, labels):
        out = self.layer(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


class Tells(TrainerCallback):
    def on_train_begin(self, args, state, control, **more):
        print(f"from step {state.global_step}", flush=True)

    def on_step_end(self, args, state, control, **more):
        time.sleep(0.005)
        print(f"step {state.global_step}", flush=True)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    data = [{"x": torch.sin(torch.arange(8.0) * i), "labels": torch.cos(torch.arange(4.0) * i)} for i in range(400)]
    with hanse.Saver("out") as saver:
        args = TrainingArguments(output_dir=str(saver.dir), max_steps=STEPS, per_device_train_batch_size=4, save_strategy="steps", save_steps=40,
                                 save_total_limit=1, report_to=[], disable_tqdm=True, seed=1, use_cpu=True, logging_strategy="no",
                                 dataloader_pin_memory=False)  # fmt: skip
        model = Model()
        trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[Tells(), hanse.huggingface.callback(saver)])
        trainer.train(resume_from_checkpoint=hanse.huggingface.resume_path(saver))
        print(f"result {sum(p.double().sum().item() for p in model.parameters()).hex()}", flush=True)


main()
