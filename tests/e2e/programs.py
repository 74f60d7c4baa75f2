#!/usr/bin/env python3
"""The programs of deploy/examples/programs under `hanse run`: stopped by signal and killed at random moments, moved
to another working folder and another node's view of the store, resumed, as often as it takes; each must end with
the result of an undisturbed run, and must not do a step twice that its checkpoint holds. What is torn, missing,
altered or foreign is refused with its reason, and then the program is not started.

The moments come from a seed: HANSE_SEED repeats a run."""
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SOURCE = os.environ.get("HANSE_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAMS = os.path.join(SOURCE, "deploy/examples/programs")
STEPS, EVERY = "240", "20"
COMMANDS = {"sharded": ["sharded/run.sh"], "single": ["single/anneal.py"], "append": ["append/run.sh"]}
PATIENCE = 60

seed = int(os.environ.get("HANSE_SEED", time.time_ns() % 1000000))
moments = random.Random(seed)


def fail(why):
    print(f"programs: {why} (HANSE_SEED={seed})", file=sys.stderr)
    sys.exit(1)


def cuts(base):
    """All cuts, oldest first."""
    found = []
    for folder, _, names in os.walk(os.path.join(base, "sealed")):
        for name in names:
            m = re.fullmatch(r"cut-(\d+)\.json", name)
            if m:
                found.append((int(os.path.basename(folder)[1:]), int(m[1]), os.path.join(folder, name)))
    return [path for _, _, path in sorted(found)]


class Job:
    def __init__(self, name, work):
        self.name, self.base, self.work, self.epoch = name, os.path.join(work, "store", name), work, 0
        self.log = os.path.join(work, name + ".log")

    def start(self, resume=None, pause="0.004", extra=(), latest=None):
        self.epoch += 1
        cwd = os.path.join(self.work, f"{self.name}-{self.epoch}")  # never the folder of the run before
        os.makedirs(cwd)
        options = ["--checkpoint-dir", self.base, "--workload", self.name]
        if not (moments.random() < 0.5 if latest is None and self.epoch <= 100 else latest):
            options += ["--epoch", str(self.epoch)] + (["--resume", resume] if resume else [])
        else:  # as in an sbatch script that is requeued: it finds out itself
            options += ["--resume", "latest"]
        program = [os.path.join(PROGRAMS, *COMMANDS[self.name][0].split("/"))]
        with open(self.log, "a") as log:
            return subprocess.Popen(
                ["hanse", "run", *options, *extra, "--", *program, "--steps", STEPS, "--every", EVERY, "--pause", pause],
                cwd=cwd, stdout=log, stderr=log)

    def text(self):
        with open(self.log) as f:
            return f.read()

    def starts(self):
        return [int(n) for n in re.findall(r"from step (\d+)", self.text())]

    def result(self):
        return re.findall(r"result (\S+)", self.text())

    def wait(self, process):
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            fail(f"{self.name}: no end\n{self.text()}")

    def wait_for_cut(self, process, n):
        """Until there are more than n cuts of this epoch, or the program has ended."""
        until = time.monotonic() + PATIENCE
        while process.poll() is None and len([c for c in cuts(self.base) if f"/e{self.epoch}/" in c]) <= n:
            if time.monotonic() > until:
                process.kill()
                fail(f"{self.name}: no checkpoint\n{self.text()}")
            time.sleep(0.01)


def step_of(cut):
    with open(cut) as f:
        return json.load(f)["step"]


def undisturbed(name, work):
    job = Job(name, os.path.join(work, "calm"))
    if job.wait(job.start(pause="0")) != 0 or len(job.result()) != 1:
        fail(f"{name}: the undisturbed run failed\n{job.text()}")
    return job.result()[0]


def disturbed(name, work, expected):
    job = Job(name, os.path.join(work, "moved"))
    resume, at, ends = None, 0, []  # at: its step; the cut itself may be removed once there are newer ones
    while True:
        process = job.start(resume)
        how = moments.choice(["stop", "stop", "kill"]) if len(ends) < 5 else "leave"
        if how != "leave":
            job.wait_for_cut(process, moments.randrange(3))
            time.sleep(moments.random() * 0.1)
            if how == "stop":
                process.send_signal(signal.SIGTERM)
            else:
                kill_all(job.base)
        status = job.wait(process)
        ends.append((how, status))
        if job.starts()[-1:] not in ([at], []):  # []: ended before it could say
            fail(f"{name}: started at {job.starts()}, the last not at {at} of {resume}\n{job.text()}")
        if status == 0:
            break
        if how == "stop" and status not in (75, 143):  # 143: asked before python could listen
            fail(f"{name}: exit status {status} after SIGTERM\n{job.text()}")
        newest = cuts(job.base)[-1]
        if how == "kill" and f"/e{job.epoch}/" in newest and step_of(newest) % int(EVERY):
            fail(f"{name}: {newest} is of a step at which nobody saved")
        if how == "stop" and status == 75 and f"/e{job.epoch}/" not in newest:
            fail(f"{name}: 75, and nothing of epoch {job.epoch} is sealed\n{job.text()}")
        resume, at = newest, step_of(newest)
    if set(job.result()) != {expected}:
        fail(f"{name}: result {job.result()}, expected {expected}\n{job.text()}")
    if sum(how == "stop" and status == 75 for how, status in ends) == 0 and len(ends) < 2:
        fail(f"{name}: was never moved: {ends}")
    print(f"{name}: {len(ends)} runs from steps {job.starts()}, ends {ends}: {expected}")
    return job


def processes_of(base):
    """Runner, guard and program of a job, by what they were started with."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                ours = ("HANSE_CHECKPOINT_DIR=" + base).encode() in f.read()
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                ours |= base.encode() in f.read()
        except OSError:
            continue
        if ours:
            found.append(int(pid))
    return found


def kill_all(base):
    """As a machine that fails: runner, guard and program at once, and nobody left who could save."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        pids = processes_of(base)
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
    fail("processes cannot be killed")


def sealed_files(cut):
    """Of rank 0, as (path, name)."""
    with open(cut) as f:
        rank = json.load(f)["ranks"][0]
    folder = os.path.join(os.path.dirname(cut), "0", f"s{rank['step']}")
    with open(os.path.join(folder, "manifest.json")) as f:
        return folder, [os.path.join(folder, x["name"]) for x in json.load(f)["files"]]


def cut_in_half(path):
    os.truncate(path, os.path.getsize(path) // 2)


def flip(path):
    with open(path, "r+b") as f:
        f.seek(os.path.getsize(path) // 2 - 1)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 1]))


def damaged(job):
    """Every damage on a copy of the store, in another place: that is where it must hold, too."""
    good = cuts(job.base)[-1]
    damages = [("torn file", "CheckpointTorn", lambda c, folder, files: cut_in_half(files[-1])),
               ("file gone", "CheckpointTorn", lambda c, folder, files: os.remove(files[0])),
               ("no manifest", "CheckpointTorn", lambda c, folder, files: os.remove(folder + "/manifest.json")),
               ("torn manifest", "CheckpointTorn", lambda c, folder, files: cut_in_half(folder + "/manifest.json")),
               ("altered file", "CheckpointAltered", lambda c, folder, files: flip(files[0])),
               ("torn cut", "CheckpointTorn", lambda c, folder, files: cut_in_half(c)),
               ("no cut", "CheckpointMissing", lambda c, folder, files: os.remove(c)),
               ("foreign", "CheckpointForeign", None),
               ("torn, latest", None, lambda c, folder, files: cut_in_half(files[-1])),
               ("whole", None, None)]
    for what, reason, damage in damages:
        copy = Job(job.name, os.path.join(job.work, "damaged", what.replace(" ", "-")))
        copy.epoch = 0 if "latest" in what else 100
        shutil.copytree(job.base, copy.base)
        cut = copy.base + good[len(job.base):]
        if damage:
            damage(cut, *sealed_files(cut))
        step = step_of(cut) if not reason else 0
        if "latest" in what:
            status = copy.wait(copy.start(None, pause="0", latest=True))
            if status != 0 or len(copy.starts()) != 1 or copy.starts()[0] >= step or "CheckpointTorn" not in copy.text():
                fail(f"{job.name}: {what}: status {status}, step {step}\n{copy.text()}")
            continue
        extra = ["--workload", "another"] if what == "foreign" else []
        status = copy.wait(copy.start(cut, pause="0", extra=extra))
        if reason is None:
            if status != 0 or copy.starts() != [step]:
                fail(f"{job.name}: {what}: status {status}\n{copy.text()}")
        elif status != 126 or reason + ":" not in copy.text() or copy.starts():
            fail(f"{job.name}: {what}: status {status}, expected 126 and {reason}\n{copy.text()}")
    print(f"{job.name}: " + ", ".join(f"{what}: {reason or ('older resumed' if 'latest' in what else 'resumed')}" for what, reason, _ in damages))


def output(work):
    """What COMMAND says goes where the output of `hanse run` goes: behind what others wrote to the same file, into a socket, nowhere."""
    said = os.path.join(work, "said")
    with open(said, "w", encoding="utf-8") as out:
        subprocess.run(["sh", "-c", "echo one; hanse run -- sh -c 'echo two; echo err >&2'; echo three"], stdout=out, stderr=out, timeout=PATIENCE, check=True)
    with open(said, encoding="utf-8") as file:
        if (text := file.read()) != "one\ntwo\nerr\nthree\n":
            fail(f"output: a file that others write to: {text!r}")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        status = subprocess.run(["hanse", "run", "--", "echo", "heard"], stdout=theirs, timeout=PATIENCE, check=False).returncode
        theirs.close()
        if status != 0 or (text := ours.recv(100)) != b"heard\n":
            fail(f"output: a socket: exit {status}, {text!r}")
    status = subprocess.run(["sh", "-c", "hanse run -- sh -c 'echo nobody hears; exit 9' <&- >&- 2>&-"], timeout=PATIENCE, check=False).returncode
    if status != 9:
        fail(f"output: all closed: exit {status}, expected 9")
    for words, env, what in ((["--grace", "9" * 21], {}, "--grace"), ([], {"HANSE_EPOCH": "abc"}, "HANSE_EPOCH"), ([], {"HANSE_RANK": "-1"}, "HANSE_RANK")):
        done = subprocess.run(["hanse", "run", *words, "--", "true"], env={**os.environ, **env}, capture_output=True, text=True, timeout=PATIENCE, check=False)
        if done.returncode != 2 or what not in done.stderr:
            fail(f"output: {what}: exit {done.returncode}, {done.stderr}")
    print("output: a shared file, a socket, nobody; numbers that are none are refused")


def main():
    hanse = os.path.realpath(os.environ.get("HANSE") or shutil.which("hanse") or "")
    if not os.path.isfile(hanse):
        fail("set HANSE to the program")
    with tempfile.TemporaryDirectory(prefix="hanse-programs-") as work:
        os.makedirs(os.path.join(work, "bin"))
        os.symlink(hanse, os.path.join(work, "bin", "hanse"))
        os.environ["PATH"] = os.path.join(work, "bin") + ":" + os.environ["PATH"]
        for sub in ("calm", "moved"):
            os.makedirs(os.path.join(work, sub))
        output(work)
        for name in COMMANDS:
            damaged(disturbed(name, work, undisturbed(name, work)))


main()
