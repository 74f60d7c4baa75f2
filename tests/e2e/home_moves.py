#!/usr/bin/env python3
"""Checkpoints of runners that call home: a training that begins on an agent, is moved to a callout target whose programs `hanse run --home`
starts, and from there to another agent, by checkpoint each time, comes to what an undisturbed run comes to. There it is asked to save and
go on, and finds its checkpoint gone or altered."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from homes import Homes  # noqa: E402
from moves import TOP, document, run, wait_for  # noqa: E402


class HomeMoves(Homes):
    """left and right have agents; rack is a callout target with runners."""

    def moved(self, name, to, epoch):
        done = self.cli("migrate", name, "--to", to, "--wait", check=False, timeout=90)
        self.check(f"{name} is moved to {to}", done.returncode == 0, done.stderr.strip()[-200:] if done.returncode else "")
        life = self.running(name, epoch, seconds=60)
        s = self.moves_of(name)[-1]["status"]
        self.check(f"it went on there from the step that it saved ({s.get('step')})", s.get("step", 0) > 0 and life.resumed == s["step"],
                   f"{life.resumed} {s}" if life.resumed != s.get("step") else "")


def agent_to_runner_and_on(p):
    p.train("tourist", 900)
    p.running("tourist", 1, 60)
    p.moved("tourist", "rack", 2)
    looks = p.staged()
    p.check("its checkpoint was looked at on rack ahead of that, by rack's server, once", len(looks) == 1 and "--resume " in looks[0] and
            "/e1/" in looks[0], looks)
    wait_for("two checkpoints of it there", lambda: len([c for c in p.checkpoints("tourist") if c["spec"]["epoch"] == 2]) > 1, 60)
    newest = p.checkpoints("tourist")[0]
    p.check("what it saves there comes into the catalogue while it runs", newest["spec"]["epoch"] == 2 and
            newest["spec"]["digest"].startswith("sha256:") and int(newest["spec"]["bytes"]) > 0, json.dumps(newest["spec"])[:200])
    p.moved("tourist", "right", 3)
    p.holds("tourist", [1, 2, 3])
    p.check("rack's runner and right's agent came through the proxy", len(p.proxy.asked) > 1, str(p.proxy.asked))
    p.check("it lived where it was moved to", [x.target for x in p.lives("tourist")] == ["left", "rack", "right"],
            str([x.target for x in p.lives("tourist")]))


# What is saved is the step itself; it saves when it is asked, and then goes on.
SAVER = """
import os, time, hanse
with hanse.Saver(interval_s=3600) as saver:
    step, log = 0, open(os.environ["LOG"], "a")
    print("up", os.environ["HANSE_EPOCH"], os.environ.get("HANSE_RESUME_DIR", ""), file=log, flush=True)
    while not os.path.exists(os.environ["LOG"] + ".end"):
        step += 1
        time.sleep(0.02)
        if saver.should_save():
            with saver.step(step) as folder:
                (folder / "step").write_text(str(step))
            print("saved", step, file=log, flush=True)
            saver.finish()
"""


def submit(p, name, *targets, checkpoint=None):
    log = p.path("scratch", name + ".log")
    p.documents[name] = document("Workload", name, {
        "resources": {"cpu": 1, "memory": "64Mi"}, "targets": {"names": list(targets)},
        "checkpoint": {"store": p.path("checkpoints"), "grace": "10s", "saveSignal": "SIGUSR1", **(checkpoint or {})},
        "run": {"command": [sys.executable, "-c", SAVER], "retries": 0,
                "env": [{"name": "LOG", "value": log}, {"name": "PYTHONPATH", "value": os.path.join(TOP, "deploy", "python")}]}},
        namespace="default")
    p.apply(p.documents[name])
    return log


def lines(log, word):
    if not os.path.exists(log):
        return []
    with open(log, encoding="utf-8") as file:
        return [line.split() for line in file if line.startswith(word)]


def up(p, name, log, times=1):
    wait_for(f"{name} to be up", lambda: len(lines(log, "up")) == times and p.status(name).get("phase") == "Running", 60)


def touch(path):
    with open(path, "w", encoding="utf-8"):
        pass


def saves_and_goes_on(p):
    log = submit(p, "asked", "rack")
    up(p, "asked", log)
    for n in (1, 2):
        done = p.cli("save", "asked", "-o", "json", check=False, timeout=60)
        p.check(f"request {n} to save and go on is answered", done.returncode == 0, done.stderr.strip()[-200:] if done.returncode else "")
        step = p.status("asked").get("checkpoint", {}).get("step")
        wait_for(f"what its program says of save {n}", lambda: len(lines(log, "saved")) >= n, 60)  # it is told ahead of that
        p.check("by a checkpoint with the step that its program told", len(lines(log, "saved")) == n and
                int(lines(log, "saved")[-1][1]) == step, f"{lines(log, 'saved')} {step}")
    log2 = submit(p, "unasked", "rack", checkpoint={"saveSignal": ""})
    up(p, "unasked", log2)
    done = p.cli("save", "unasked", check=False, timeout=60)
    p.check("what was started without a signal is refused", done.returncode != 0 and "saveSignal" in done.stderr, done.stderr.strip()[-200:])
    touch(log2 + ".end")
    p.ended("unasked")


def what_does_not_hold_is_not_resumed_from(p):
    """`asked` has two checkpoints, and is held. The newer one is altered: it goes on from the older one."""
    log = p.path("scratch", "asked.log")
    steps = [int(x[1]) for x in lines(log, "saved")]
    p.documents["asked"]["spec"]["saveRequest"] = 2  # as `hanse save` has left it
    p.suspend("asked", True)
    wait_for("asked to be held", lambda: p.status("asked").get("phase") == "Queued", 60)
    newest = max(steps + [int(x[1]) for x in lines(log, "saved")])
    path = next(os.path.join(os.path.dirname(c["spec"]["locations"][0]["url"]), "0", f"s{newest}", f"step-{newest}", "step")
                for c in p.checkpoints("asked"))
    os.unlink(path)  # linked files are one
    with open(path, "w", encoding="utf-8") as file:
        file.write("x" * len(str(newest)))
    p.suspend("asked", False)
    up(p, "asked", log, times=2)
    began = lines(log, "up")[-1]
    found = max((int(n.rpartition("-")[2]) for n in os.listdir(began[2]) if n.startswith("step-")), default=0) if len(began) > 2 else None
    steps = sorted(set(steps) - {newest})
    p.check("it goes on from the newest that holds", found == steps[-1], f"{began}, {found} of {steps}, {newest}")
    looks = [x for x in p.staged() if "--look" in x]
    p.check("rack's server has looked into its store", looks, p.staged())
    bad = [c.get("status", {}).get("reason") for c in p.checkpoints("asked") if c["spec"]["step"] == newest]
    p.check("the altered one says why it is not resumed from", bad == ["CheckpointAltered"], str(bad))
    touch(log + ".end")
    p.check("and it succeeds", p.ended("asked")["phase"] == "Succeeded")


if __name__ == "__main__":
    sys.exit(run((agent_to_runner_and_on, saves_and_goes_on, what_does_not_hold_is_not_resumed_from), kind=HomeMoves))
