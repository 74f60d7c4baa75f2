#!/usr/bin/env python3
"""A tensor that is sharded over all ranks, saved by torch.distributed.checkpoint: by torchrun, on as many machines as there are workers."""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import hanse
import hanse.pytorch

STEPS = 4000


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    mesh = init_device_mesh("cuda" if torch.cuda.is_available() else "cpu", (dist.get_world_size(),))
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {os.environ['HANSE_TARGET']}", flush=True)
    with hanse.Saver(agree=hanse.pytorch.agree) as saver:
        weights = distribute_tensor(torch.arange(64.0), mesh, [Shard(0)])
        step = hanse.pytorch.load_distributed(saver, {"weights": weights}) or 0
        print(f"from step {step}", flush=True)
        while step < STEPS:
            step += 1
            weights.to_local().mul_(0.99).add_(step)
            time.sleep(0.02)
            if step % 10 == 0:
                print(f"step {step}", flush=True)
            if saver.should_save():
                hanse.pytorch.save_distributed(saver, step, {"weights": weights})
                saver.finish()


try:
    main()
except SystemExit as end:  # threads of torch may abort a process that ends the usual way
    sys.stdout.flush()
    os._exit(end.code)
