#!/usr/bin/env python3
"""A jitted update of a tree that is sharded over all processes; saved by Orbax."""
import time

import jax
import jax.numpy as jnp
import numpy

import hanse
import hanse.orbax

STEPS = 300


@jax.jit
def update(tree):
    step = tree["step"] + 1
    return {"step": step, "weights": jnp.sin(tree["weights"] * 1.5 + step), "deep": {"bias": tree["deep"]["bias"] + 0.1}}


def spread(array, mesh, *axes):
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
    return jax.make_array_from_callback(array.shape, sharding, lambda where: array[where])


def main():
    hanse.orbax.initialize()
    mesh = jax.sharding.Mesh(numpy.array(jax.devices()), ("all",))
    start = {"step": spread(numpy.int32(0), mesh), "weights": spread(numpy.arange(32, dtype=numpy.float32), mesh, "all"),
             "deep": {"bias": spread(numpy.zeros(3, numpy.float32), mesh)}}  # fmt: skip
    with hanse.Saver(agree=hanse.orbax.agree) as saver:
        tree = hanse.orbax.load(saver, start) or start
        step = int(tree["step"])
        print(f"from step {step}", flush=True)
        while step < STEPS:
            tree = update(tree)
            step += 1
            time.sleep(0.005)
            print(f"step {step}", flush=True)
            if saver.should_save():
                hanse.orbax.save(saver, step, tree)
                saver.finish()
        print(f"result {float(jnp.abs(tree['weights']).max() + tree['deep']['bias'][0]).hex()}", flush=True)


main()
