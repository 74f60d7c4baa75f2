#!/usr/bin/env python3
"""A jitted update of a tree; saved by Orbax."""
import time

import jax
import jax.numpy as jnp

import hanse
import hanse.orbax

STEPS = 300


@jax.jit
def update(tree):
    step = tree["step"] + 1
    return {"step": step, "weights": jnp.sin(tree["weights"] * 1.5 + step), "deep": {"bias": tree["deep"]["bias"] + 0.1}}


def main():
    start = {"step": jnp.int32(0), "weights": jnp.arange(32.0), "deep": {"bias": jnp.zeros(3)}}
    with hanse.Saver() as saver:
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
        print(f"result {float(tree['weights'].sum() + tree['deep']['bias'].sum()).hex()}", flush=True)


main()
