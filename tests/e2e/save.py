#!/usr/bin/env python3
"""`hanse save`: programs of deploy/python save when they are asked, and go on; the leader is killed in the middle; many requests in a
row; programs that do not save, or cannot be asked. What was saved when is told by the programs' own files. Prints ok or FAILED per
check; exit 1 when any failed."""
import json
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from moves import TOP, document, run, wait_for  # noqa: E402

# A step takes 20 ms; what is saved is the step itself. SLOW: a save waits for that file.
PROGRAM = """
import os, time, hanse
with hanse.Saver(interval_s=3600) as saver:
    step, log = 0, open(os.environ["LOG"], "a")
    print("up", file=log, flush=True)
    while not os.path.exists(os.environ["LOG"] + ".end"):
        step += 1
        time.sleep(0.02)
        if saver.should_save():
            with saver.step(step) as folder:
                (folder / "step").write_text(str(step))
                while os.path.exists(os.environ["LOG"] + ".slow"):
                    time.sleep(0.02)
            print("saved", step, file=log, flush=True)
            saver.finish()
print("end", step, file=log, flush=True)
"""


def submit(p, name, workers=1, program=PROGRAM, checkpoint=None, **spec):
    log = p.path("scratch", name + ".log")
    p.apply(document("Workload", name, {
        "resources": {"cpu": 1, "memory": "64Mi"}, "gang": {"workers": workers},
        "checkpoint": {"store": p.path("checkpoints"), "grace": "10s", "saveSignal": "SIGUSR1", **(checkpoint or {})},
        "run": {"command": [sys.executable, "-c", program],
                "env": [{"name": "LOG", "value": log}, {"name": "PYTHONPATH", "value": os.path.join(TOP, "deploy", "python")}]}, **spec},
        namespace="default"))
    return log


def lines(log, word):
    if not os.path.exists(log):
        return []
    with open(log, encoding="utf-8") as file:
        return [line.split() for line in file if line.startswith(word)]


def up(p, name, log, workers=1):
    wait_for(f"{name} to be up", lambda: len(lines(log, "up")) == workers and p.status(name).get("phase") == "Running", 60)


def touch(path):
    with open(path, "w", encoding="utf-8"):
        pass


def events(p, name):
    listed = json.loads(p.cli("get", "events", "-o", "json").stdout)["items"]
    return {e["reason"]: e for e in listed if e["involvedObject"]["name"] == name}


def save(p, *words, timeout=120):
    return p.cli("save", *words, check=False, timeout=timeout)


def saved_without_ending(p):
    log = submit(p, "one")
    up(p, "one", log)
    before = p.status("one")
    done = save(p, "one", "-o", "json")
    (said,) = json.loads(done.stdout or "[{}]")
    p.check("hanse save exits 0, and names the checkpoint", done.returncode == 0 and said.get("state") == "Saved", done.stdout + done.stderr[-300:])
    status = p.status("one")
    p.check("it is the one that the program made", [["saved", str(said["step"])]] == lines(log, "saved") and
            status["checkpoint"]["name"] == said["checkpoint"] and status["save"]["saved"] == said["request"] == 1, json.dumps(status["save"]))
    p.check("it goes on in its epoch", status["phase"] == "Running" and status["epoch"] == before["epoch"] and not lines(log, "end"))
    wait_for("Events", lambda: {"SaveAsked", "Saved"} <= set(events(p, "one")), 20)
    done = save(p, "one", "--no-wait")
    p.check("--no-wait only asks", done.returncode == 0 and "is asked to save" in done.stdout, done.stdout + done.stderr)
    wait_for("the second save", lambda: p.status("one")["save"].get("saved") == 2, 30)


def all_ranks(p):
    log = submit(p, "gang", workers=2)
    up(p, "gang", log, 2)
    done = save(p, "gang")
    p.check("a gang saves in every rank", done.returncode == 0 and p.status("gang")["checkpoint"]["ranks"] == 2 and
            len(lines(log, "saved")) >= 2, done.stdout + done.stderr[-300:])


def many_in_a_row(p):
    log = p.path("scratch", "one.log")
    had = p.status("one")["save"]["saved"]
    for _ in range(20):
        done = save(p, "one", "--no-wait")
        if done.returncode != 0:
            p.check("a request is taken", False, done.stderr[-300:])
            return
    wait_for("all to be answered", lambda: p.status("one")["save"].get("saved") == had + 20, 60)
    submit(p, "one")  # its document says nothing of requests
    p.check("the same document again takes nothing back", p.status("one")["save"]["asked"] == had + 20)
    n = len(lines(log, "saved"))
    p.check("twenty requests are answered by at most as many saves, and the program lives", n <= had + 20 and not lines(log, "end"), str(n))


def leader_killed(p):
    log = submit(p, "slow")
    up(p, "slow", log)
    touch(log + ".slow")
    p.check("it is asked", save(p, "slow", "--no-wait").returncode == 0)
    wait_for("the request to be in the log", lambda: p.status("slow").get("save", {}).get("asked") == 1, 30)
    p.kill_leader()
    os.unlink(log + ".slow")
    s = wait_for("the request to be over", lambda: (s := p.status("slow")["save"]) and s.get("saved") == 1 and s, 60)
    p.check("it was saved once, and goes on", len(lines(log, "saved")) == 1 and not lines(log, "end") and s["step"] == int(lines(log, "saved")[0][1]), str(lines(log, "saved")))


def does_not_save(p):
    for name, program, reason in (
            ("deaf", "import os, time\nprint('up', file=open(os.environ['LOG'], 'a'), flush=True)\ntime.sleep(600)", "SignalNotTaken"),
            ("idle", "import os, signal, time\nsignal.signal(signal.SIGUSR1, lambda *_: None)\nprint('up', file=open(os.environ['LOG'], 'a'), flush=True)\n"
                     "while True: time.sleep(60)", "NotSaved")):
        log = submit(p, name, program=program, checkpoint={"grace": "2s"})
        up(p, name, log)
        done = save(p, name)
        p.check(f"{name}: hanse save says {reason}", done.returncode == 5 and reason in done.stderr, done.stderr[-300:])
        p.check(f"{name} runs on", p.status(name)["phase"] == "Running" and p.status(name)["epoch"] == 1)
        wait_for("an Event", lambda: events(p, name).get("SaveFailed", {}).get("type") == "Warning", 20)
    done = save(p, "one", "deaf", "nobody", "-o", "json")
    said = {x["workload"]: x["state"] for x in json.loads(done.stdout)}
    p.check("of several each is told", said == {"one": "Saved", "deaf": "Failed", "nobody": "Failed"} and done.returncode != 0, str(said))


def cannot_be_asked(p):
    submit(p, "mute", checkpoint={"saveSignal": ""})
    submit(p, "far", targets={"names": ["nowhere"]})
    submit(p, "many", array={"count": 2})
    up(p, "mute", p.path("scratch", "mute.log"))
    for words, status, says in ((("mute",), 5, "--save-signal"), (("far",), 5, "only what is Running"), (("many",), 5, "hanse save many-0"),
                                ((), 2, "which workload"), (("one", "-o", "yaml"), 2, "json")):
        done = save(p, *words)
        p.check(f"hanse save {' '.join(words)}: {status}", done.returncode == status and says in done.stderr, done.stderr.strip()[-200:])
    w = json.loads(p.cli("get", "workload", "one", "-o", "json").stdout)
    try:
        p.apply(document("Workload", "one", {**w["spec"], "saveRequest": 1}, namespace="default"))
        p.check("a counter that falls is refused", False)
    except Exception as error:  # noqa: BLE001 (whatever apply says)
        p.check("a counter that falls is refused", "spec.saveRequest" in str(error), str(error)[:200])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(run([saved_without_ending, all_ranks, many_in_a_row, does_not_save, cannot_be_asked, leader_killed], members=3))
