"""Programs of deploy/python/tests/programs under the real `hanse run`: started, stopped, killed, looked at."""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = os.environ.get("HANSE_SOURCE_DIR") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
HANSE = os.environ.get("HANSE") or "hanse"
PACKAGE = os.path.join(SOURCE, "deploy/python")
PROGRAMS = os.path.join(PACKAGE, "tests/programs")
PYTHON = os.environ.get("HANSE_PYTHON") or sys.executable
PATIENCE = 240


def fail(why):
    print(f"package: {why}", file=sys.stderr)
    sys.exit(1)


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("HANSE_")}
    return {**env, "PYTHONPATH": PACKAGE, "PYTHONDONTWRITEBYTECODE": "1", "TOKENIZERS_PARALLELISM": "false", **more}


class Job:
    """One program, with a store of its own; each start is the next epoch."""

    def __init__(self, program, work, world=1, reshard=False, shared=False, **env):
        self.program, self.world, self.env, self.epoch = program, world, env, 0
        self.words = ["--reshard"] * reshard + ["--shared"] * shared
        self.work = tempfile.mkdtemp(prefix=program.split(".")[0] + "-", dir=work)
        self.base = os.path.join(self.work, "store")

    def start(self):
        """The ranks' processes; their output is in log()."""
        self.epoch += 1
        ranks = []
        for rank in range(self.world):
            env = environment(HANSE_RANK=str(rank), HANSE_WORLD_SIZE=str(self.world), HANSE_EPOCH=str(self.epoch),
                              HANSE_TEST_STORE=os.path.join(self.work, f"meet-{self.epoch}"), **self.env)
            words = ["--checkpoint-dir", self.base, "--resume", "latest", *self.words]
            with open(self.path(rank), "w", encoding="utf-8") as log:
                ranks.append(subprocess.Popen([HANSE, "run", *words, "--", PYTHON, os.path.join(PROGRAMS, self.program)],
                                              stdout=log, stderr=log, env=env, cwd=self.work))
        return ranks

    def path(self, rank):
        return os.path.join(self.work, f"log-{self.epoch}-{rank}")

    def log(self, rank=0):
        with open(self.path(rank), encoding="utf-8", errors="replace") as f:
            return f.read()

    def said(self, word, rank=0):
        """What stands behind a word at the beginning of a line."""
        return re.findall(rf"^{word} (\S.*)$", self.log(rank), re.M)

    def wait_for(self, what, look):
        until = time.monotonic() + PATIENCE
        while not (found := look()):
            if time.monotonic() > until:
                fail(f"{self.program}: no {what}\n{self.log()}")
            time.sleep(0.02)
        return found

    def wait_for_step(self, ranks, step):
        def there():
            return any(p.poll() is not None for p in ranks) or (self.said("step") and int(self.said("step")[-1]) >= step)
        self.wait_for(f"step {step}", there)

    def wait(self, ranks):
        try:
            return [p.wait(PATIENCE) for p in ranks]
        except subprocess.TimeoutExpired:
            for p in ranks:
                p.terminate()
            fail(f"{self.program}: no end\n{self.log()}")

    def stop_after(self, step, to=None):
        """Runs until that step, asks for the end (all ranks, or the rank `to` alone), and returns the step that was saved."""
        ranks = self.start()
        self.wait_for_step(ranks, step)
        for p in ranks if to is None else [ranks[to]]:
            p.send_signal(signal.SIGTERM)
        ends = self.wait(ranks)
        if ends != [75] * self.world:
            fail(f"{self.program}: ends {ends} after SIGTERM\n" + "\n".join(self.log(r) for r in range(self.world)))
        cut = self.newest()
        done = subprocess.run([HANSE, "checkpoint", "verify", cut], capture_output=True, text=True, timeout=PATIENCE, check=False)
        if done.returncode != 0 or f"/e{self.epoch}/" not in cut:
            fail(f"{self.program}: {cut}: {done.stdout}{done.stderr}")
        return self.step_of(cut)

    def to_the_end(self):
        """What it says at its end."""
        ends = self.wait(self.start())
        if ends != [0] * self.world or len(self.said("result")) != 1:
            fail(f"{self.program}: ends {ends}\n" + "\n".join(self.log(r) for r in range(self.world)))
        return self.said("result")[0]

    def began_at(self, step):
        for rank in range(self.world):
            if self.said("from step", rank) != [str(step)]:
                fail(f"{self.program}: rank {rank} of epoch {self.epoch} began at {self.said('from step', rank)}, saved was {step}\n{self.log(rank)}")

    def newest(self):
        found = []
        for folder, _, names in os.walk(os.path.join(self.base, "sealed")):
            for m in filter(None, (re.fullmatch(r"cut-(\d+)\.json", name) for name in names)):
                found.append((int(os.path.basename(folder)[1:]), int(m[1]), os.path.join(folder, m[0])))
        if not found:
            fail(f"{self.program}: nothing is sealed\n{self.log()}")
        return max(found)[2]

    @staticmethod
    def step_of(cut):
        with open(cut, encoding="utf-8") as f:
            return json.load(f)["step"]


def moved(program, work, stops, **more):
    """Stopped after each of these steps and resumed: the same result as without, and no step that was saved is done twice."""
    calm = Job(program, work, **more).to_the_end()
    job, at = Job(program, work, **more), 0
    for step in stops:
        saved = job.stop_after(step)
        job.began_at(at)
        if saved < step:
            fail(f"{program}: step {saved} was saved, and {step} done")
        at = saved
    result = job.to_the_end()
    job.began_at(at)
    if result != calm:
        fail(f"{program}: result {result}, undisturbed {calm}")
    return job, f"stopped {len(stops)} times, last at step {at}: {result}"
