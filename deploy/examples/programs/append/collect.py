#!/usr/bin/env python3
"""Collects records in a log that only grows. Started on a log that is there, it goes on behind the last whole
record; a torn one at the end is cut off. Knows nothing of Hanse: --on-flush runs a command after records have
been flushed, with STEP (records) and BYTES (length of the log that is whole) in its environment."""
import argparse
import hashlib
import os
import signal
import subprocess
import sys
import time

RECORD = 65  # 64 hex digits and a newline; each is made from the one before


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--every", type=int, default=50)
    p.add_argument("--pause", type=float, default=0.0, help="seconds a step takes at least")
    p.add_argument("--log", required=True)
    p.add_argument("--on-flush", dest="on_flush")
    args = p.parse_args()
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    with open(args.log, "a+b") as log:
        records = log.seek(0, os.SEEK_END) // RECORD
        log.truncate(records * RECORD)
        last = b"begin"
        if records:
            log.seek((records - 1) * RECORD)
            last = log.read(64)
        print(f"from step {records}", flush=True)
        while records < args.steps:
            records += 1
            last = hashlib.sha256(last + b"%d" % records).hexdigest().encode()
            log.write(last + b"\n")
            time.sleep(args.pause)
            if (asked or records % args.every == 0) and args.on_flush:
                log.flush()
                env = {**os.environ, "STEP": str(records), "BYTES": str(records * RECORD)}
                # A session of its own: the signal that asks us to stop goes to our whole process group.
                subprocess.run(args.on_flush, shell=True, check=True, start_new_session=True, env=env)
            if asked:
                sys.exit(75)
    with open(args.log, "rb") as log:
        print("result", hashlib.sha256(log.read()).hexdigest()[:16], flush=True)


main()
