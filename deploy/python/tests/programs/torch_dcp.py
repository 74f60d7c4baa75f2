#!/usr/bin/env python3
"""One tensor, sharded over all ranks; saved by torch.distributed.checkpoint. HANSE_TEST_STORE: where the ranks of a start meet, if
not where Hanse or torchrun says."""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import hanse
import hanse.pytorch

STEPS = 300


def main():
    torch.set_num_threads(1)
    run, meets = hanse.run(), os.environ.get("HANSE_TEST_STORE")
    rank, world = int(os.environ.get("RANK", run.rank)), int(os.environ.get("WORLD_SIZE", run.world_size))
    dist.init_process_group("gloo", init_method=f"file://{meets}" if meets and world > 1 else None, rank=rank, world_size=world,
                            store=None if world > 1 else dist.HashStore())  # fmt: skip
    mesh = init_device_mesh("cpu", (world,))
    with hanse.Saver(agree=hanse.pytorch.agree) as saver:
        weights = distribute_tensor(torch.arange(64.0, dtype=torch.float64), mesh, [Shard(0)])
        step = hanse.pytorch.load_distributed(saver, {"weights": weights}) or 0
        print(f"from step {step}", flush=True)
        while step < STEPS:
            step += 1
            weights.to_local().mul_(0.99).add_(step)
            time.sleep(0.005)
            print(f"step {step}", flush=True)
            if saver.should_save():
                hanse.pytorch.save_distributed(saver, step, {"weights": weights})
                saver.finish()
        total = weights.to_local().sum()
        dist.all_reduce(total)
        print(f"result {total.item():.6f}", flush=True)
    dist.destroy_process_group()


def leave(code):
    """Threads of torch may abort a process that ends the usual way ("terminate called without an active exception")."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


try:
    main()
except SystemExit as end:
    leave(end.code)
leave(0)
