#!/usr/bin/env python3
"""Trains nothing, with the standard library alone: a state that depends on each step. HANSE_TEST_EVERY_S: seconds between saves."""
import json
import os
import time

import hanse

STEPS, PRIME = 300, (1 << 61) - 1


def main():
    with hanse.Saver(interval_s=float(os.environ.get("HANSE_TEST_EVERY_S") or 3600), keep=2) as saver:
        state, step, folder = 1, 0, saver.resume_folder()
        if folder:
            state, step = json.loads((folder / "state.json").read_text(encoding="utf-8"))
            assert step == saver.resume_step
        print(f"from step {step}", flush=True)
        while step < STEPS:
            step += 1
            state = (state * 6364136223846793005 + step) % PRIME
            time.sleep(0.005)
            print(f"step {step}", flush=True)
            if saver.should_save():
                with saver.step(step) as folder:
                    (folder / "state.json").write_text(json.dumps([state, step]), encoding="utf-8")
                saver.finish()
        print(f"result {state}", flush=True)


main()
