#!/usr/bin/env python3
"""A small regression with momentum; its state is saved by torch.save."""
import time

import torch

import hanse
import hanse.pytorch

STEPS = 300


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.Adam(model.parameters())
    with hanse.Saver() as saver:
        step, state = 0, hanse.pytorch.load(saver)
        if state:
            step = state["step"]
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        print(f"from step {step}", flush=True)
        while step < STEPS:
            step += 1
            x = torch.sin(torch.arange(8.0) * step)
            optimizer.zero_grad()
            (model(x) - x[:4]).square().sum().backward()
            optimizer.step()
            time.sleep(0.005)
            print(f"step {step}", flush=True)
            if saver.should_save():
                hanse.pytorch.save(saver, step, {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()})
                saver.finish()
        print(f"result {sum(p.double().sum().item() for p in model.parameters()).hex()}", flush=True)


main()
