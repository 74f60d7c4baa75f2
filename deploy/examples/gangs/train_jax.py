#!/usr/bin/env python3
"""An array that is sharded over all processes, saved by Orbax: a process a worker, on as many machines as there are workers."""
import os
import time

import jax
import jax.numpy as jnp
import numpy

import hanse
import hanse.orbax

STEPS = 4000


@jax.jit
def update(tree):
    return {"step": tree["step"] + 1, "weights": jnp.sin(tree["weights"] * 1.5 + tree["step"])}


def main():
    hanse.orbax.initialize()
    mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("all",))

    def spread(array, *axes):
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
        return jax.make_array_from_callback(array.shape, sharding, lambda where: array[where])

    print(f"rank {jax.process_index()} of {jax.process_count()} on {os.environ['HANSE_TARGET']}", flush=True)
    start = {"step": spread(numpy.int32(0)), "weights": spread(numpy.arange(64, dtype=numpy.float32), "all")}
    with hanse.Saver(agree=hanse.orbax.agree) as saver:
        tree = hanse.orbax.load(saver, start) or start
        step = int(tree["step"])
        print(f"from step {step}", flush=True)
        while step < STEPS:
            tree = update(tree)
            step += 1
            time.sleep(0.02)
            if step % 10 == 0:
                print(f"step {step}", flush=True)
            if saver.should_save():
                hanse.orbax.save(saver, step, tree)
                saver.finish()


main()
