"""The program that both sides run. It saves where it is told: HANSE_CHECKPOINT_DIR and HANSE_RESUME_DIR, or MOVER_HOME.

mover.py move BYTES LOG          holds BYTES; at TERM it saves, fsyncs, notes the times and exits with 75
mover.py steps MS SECONDS LOG    a step each MS; saves each SECONDS; does nothing at TERM, as most programs"""
import time


def now():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


FIRST = now()
import json  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402

HOME = os.environ.get("MOVER_HOME")


def put(folder, name, content):
    with open(f"{folder}/.{name}", "wb", buffering=0) as file:
        file.write(content)
        os.fsync(file.fileno())
    os.rename(f"{folder}/.{name}", f"{folder}/{name}")


def save(step, content):
    """Under Hanse the manifest tells that it is whole; alone, the rename does. Each digests what it wrote."""
    import hashlib
    name, digest = f"state-{step}.bin", hashlib.sha256(content).hexdigest()
    folder = HOME or os.environ["HANSE_CHECKPOINT_DIR"]
    put(folder, name, content)
    put(folder, "manifest.json", json.dumps(
        {"step": step, "files": [{"name": name, "bytes": len(content), "sha256": digest}]}).encode())
    if HOME:  # Hanse removes old ones itself
        for old in os.listdir(folder):
            if old.startswith("state-") and old != name:
                os.unlink(f"{folder}/{old}")


def load():
    """(step, content) of the last save, or (0, None)."""
    folder = HOME or os.environ.get("HANSE_RESUME_DIR")
    if not folder or not os.path.exists(folder + "/manifest.json"):
        return 0, None
    with open(folder + "/manifest.json", encoding="utf-8") as file:
        entry = json.load(file)
    with open(f"{folder}/{entry['files'][0]['name']}", "rb", buffering=0) as file:
        return entry["step"], bytearray(file.read())


def move(size, log):
    lines = [("first", FIRST)]

    def tell():
        with open(log, "a", encoding="utf-8") as file:
            for event, t in lines:
                file.write(json.dumps({"life": FIRST, "event": event, "t": t}) + "\n")
        del lines[:]
    step, state = load()
    state = state or bytearray(os.urandom(1 << 20) * (size >> 20))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    lines.append(("running", now()))
    tell()
    signal.sigwait([signal.SIGTERM])
    lines.append(("signal", now()))
    state[0:8] = (step + 1).to_bytes(8, "little")
    save(step + 1, state)
    lines.append(("saved", now()))
    tell()
    os._exit(75)


def steps(pace_ms, every_s, log):
    step, _ = load()
    with open(log, "a", encoding="utf-8", buffering=1) as file:
        file.write(f"{now()} begin {step}\n")
        saved = time.monotonic()
        while True:
            time.sleep(pace_ms / 1000)
            step += 1
            file.write(f"{now()} step {step}\n")
            if time.monotonic() - saved >= every_s:
                saved = time.monotonic()
                save(step, step.to_bytes(8, "little"))
                file.write(f"{now()} save {step}\n")


if sys.argv[1] == "move":
    move(int(sys.argv[2]), sys.argv[3])
else:
    steps(int(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
