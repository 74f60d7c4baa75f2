#!/usr/bin/env python3
"""Gangs on the machines of two agents of one Target that save: a checkpoint is one of all ranks or none, whichever agent is asked to
save, to stop, is cut off or burns down. They go on elsewhere and come back, from one step all of them, and no rank ever runs twice. Real
members, agents and programs, which say what they do themselves. Prints ok or FAILED per check; exit 1 when any failed. HANSE_ONLY names
parts."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from moves import Moves, document, run, target, wait_for  # noqa: E402

AGENTS = ("yard.a", "yard.b")
# Its ranks go on step by step, together: what one of them was told the other one hears before the next step.
RANK = """import fcntl, os, signal, socket, subprocess, sys, time
out, hanse, layout = sys.argv[1:4]
E = os.environ
name, epoch, rank, world = E["HANSE_WORKLOAD_NAME"], E["HANSE_EPOCH"], int(E["RANK"]), int(E["WORLD_SIZE"])
here, told = E["HANSE_CHECKPOINT_DIR"], {"stop": False, "save": False}
def say(*words):
    with open(os.path.join(out, name), "a") as f:
        f.write(" ".join([epoch, str(rank)] + [str(w) for w in words]) + "\\n")
signal.signal(signal.SIGTERM, lambda *_: told.update(stop=True))
signal.signal(signal.SIGUSR1, lambda *_: told.update(save=True))
lock = open(os.path.join(out, name + ".lock." + str(rank)), "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    say("twice")
step, shared = 0, layout == "shared"
if E.get("HANSE_RESUME_DIR"):
    with open(os.path.join(E["HANSE_RESUME_DIR"], "state%d" % rank)) as f:
        step = int(f.read())
say("begins", E["HANSE_TARGET"], step)
at = (E["MASTER_ADDR"], int(E["MASTER_PORT"]))
if rank == 0:
    listener = socket.create_server(at)
    peers = [listener.accept()[0] for _ in range(world - 1)]
else:
    while True:
        try:
            peers = [socket.create_connection(at)]
            break
        except OSError:
            time.sleep(0.05)
def all_say(mine):
    "The least step, and whether any of them was told to stop, or to save."
    for p in peers:
        p.sendall(("%08d%d%d" % mine).encode())
    got = [mine]
    for p in peers:
        text = b""
        while len(text) < 10:
            more = p.recv(10 - len(text))
            if not more:
                say("alone")
                time.sleep(600)
            text += more
        got.append((int(text[:8]), int(text[8:9]), int(text[9:])))
    return min(g[0] for g in got), max(g[0] for g in got), any(g[1] for g in got), any(g[2] for g in got)
def save():
    with open(os.path.join(here, "state%d.part" % rank), "w") as f:
        f.write(str(step))
    os.rename(os.path.join(here, "state%d.part" % rank), os.path.join(here, "state%d" % rank))
    if shared:
        all_say((step, 0, 0))  # each has written its own
    if not shared or rank == 0:
        names = ["state%d" % r for r in range(world)] if shared else ["state%d" % rank]
        # A stop signals the whole group, and may come while this is only being started.
        subprocess.run([hanse, "checkpoint", "commit", "--step", str(step)] + names, check=True, stdout=subprocess.DEVNULL, start_new_session=True)
    if shared:
        all_say((step, 0, 0))  # nobody overwrites what is not committed
    say("saved", step)
least, most, stop, asked = all_say((step, 0, 0))
say("met", least, most)
while True:
    step += 1
    time.sleep(0.05)
    mine = dict(told)
    _, _, stop, asked = all_say((step, mine["stop"], mine["save"]))
    if mine["save"]:
        told["save"] = False
    if stop or asked or step % 20 == 0:
        save()
    if stop:
        say("ends", step)
        os._exit(75)
"""


class Yard(Moves):
    def __init__(self, *words, **pool):
        super().__init__(*words, targets=(*AGENTS, "solo"), nodes={**{name: {"n": 1} for name in AGENTS}, "solo": {"n": 2}}, **pool)
        self.apart = set()  # agents that see a store of their own under the name of the others'

    def begin(self):
        with open(self.path("scratch", "rank.py"), "w", encoding="utf-8") as f:
            f.write(RANK)
        self.start_members()
        self.apply(target("yard", agents=[{"name": "a", "address": "127.0.0.2"}, {"name": "b", "address": "127.0.0.3"}]), target("solo"),
                   document("GpuClass", "h100", {"memory": "80Gi"}),
                   document("PriceSheet", "own", {"gpuHour": [{"class": "h100", "amortised": 2.0}]}),
                   document("PlacementPolicy", "yard-first", {"order": [{"targets": {"names": [n]}} for n in ("yard", "solo")]}))
        for name in (*AGENTS, "solo"):
            self.start_agent(name)
        self.all_there()

    def start_agent(self, name):
        super().start_agent(name)
        if name in self.apart:
            self.agents[name].kill()
            self.agents[name].wait()
            argv = self.agents[name].args
            self.agents[name] = self._spawn("agent-" + name, ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', self.path("checkpoints"),
                                                              *argv], PATH=self.path("bin") + ":" + os.environ["PATH"])

    def all_there(self):
        def there():
            t = json.loads(self.cli("get", "target", "yard", "-o", "json").stdout)
            return {a["name"] for a in t.get("status", {}).get("agents", []) if a.get("connected")} == {"a", "b"} and "solo" in self.connected()
        wait_for("all agents to be connected", there, 60)
        listed = ("yard.a.n", "yard.b.n", "solo.n")
        wait_for("all nodes to be ready", lambda: {n["metadata"]["name"] for n in json.loads(self.cli("get", "nodes", "-o", "json").stdout)["items"]
                                                   if n["status"]["health"] == "Ready"} == set(listed), 60)

    def on(self, name):
        return {x["node"] for x in self.status(name).get("placement", {}).get("assignments", [])}

    def gang(self, name, layout="ranks", **spec):
        self.documents[name] = document("Workload", name, {
            "type": "training", "gang": {"workers": 2}, "resources": {"gpu": {"count": 1, "classes": ["h100"]}, "cpu": 1, "memory": "64Mi"},
            "checkpoint": {"store": self.path("checkpoints"), "grace": "5s", "keep": 3, "saveSignal": "SIGUSR1", **({"layout": "shared"} if layout == "shared" else {})},
            "run": {"command": [sys.executable, self.path("scratch", "rank.py"), self.path("scratch"), self.hanse, layout], "retries": 0}, **spec}, namespace="default")
        self.apply(self.documents[name])

    def told(self, name):
        """What its ranks wrote: (epoch, rank, word, …)."""
        path = self.path("scratch", name)
        return [tuple(line.split()) for line in open(path, encoding="utf-8")] if os.path.exists(path) else []

    def said(self, name, word, epoch):
        """By rank, the last that it said so of."""
        return {t[1]: int(t[-1]) for t in self.told(name) if t[2] == word and t[0] == str(epoch)}

    def met(self, name, epoch, seconds=90):
        """Waits until both ranks go on together in that epoch; the step from which."""
        wait_for(f"the ranks of {name} to meet in epoch {epoch}; they said {self.told(name)[-6:]}; {self.status(name).get('message')}",
                 lambda: len(self.said(name, "met", epoch)) == 2, seconds)
        wait_for(f"{name} to be Running", lambda: self.status(name).get("phase") == "Running", 60)
        froms = {(t[3], t[4]) for t in self.told(name) if t[2] == "met" and t[0] == str(epoch)}
        least, most = froms.pop()
        self.check(f"{name}: both ranks begin epoch {epoch} from one step", not froms and least == most, f"{least} {most}")
        return int(least)

    def whole(self, name):
        """Every checkpoint in the catalogue is one of both ranks."""
        found = self.checkpoints(name)
        self.check(f"{name}: each checkpoint is one of both ranks", found and all(c["spec"].get("ranks") == 2 for c in found),
                   [(c["spec"]["epoch"], c["spec"]["step"]) for c in found][:4])
        return found[0]["spec"]["step"] if found else 0

    def never_twice(self, name):
        said = self.told(name)
        begun = [t[:2] for t in said if t[2] == "begins"]
        self.check(f"{name}: no rank ever ran twice", not [t for t in said if t[2] == "twice"] and len(begun) == len(set(begun)), begun)

    def gone(self, name):
        self.cli("delete", "workload", name)
        wait_for(f"{name} to be gone", lambda: self.cli("get", "workload", name, check=False).returncode != 0, 60)


def saves_and_stops(p, name="pair", layout="ranks"):
    """It saves when asked, and by itself; a stop reaches both ranks, ends with 75, and nothing is lost of what they saved then."""
    p.gang(name, layout, targets={"names": ["yard"]})  # nothing is placed there before its runs are listed, a moment after it is connected
    p.met(name, 1)
    p.check(f"{name} is on both agents", p.on(name) == {"yard.a.n", "yard.b.n"}, p.on(name))
    p.saved(name, 1, 60)
    done = p.cli("save", name, "-o", "json", check=False, timeout=90)
    p.check("hanse save is answered once a checkpoint has what both saved for it", done.returncode == 0, done.stderr.strip()[-200:] if done.returncode else "")
    if done.returncode == 0:
        said = json.loads(done.stdout)[0]["checkpoint"]
        p.check("it is in the catalogue", said in [c["metadata"]["name"] for c in p.checkpoints(name)], said)
    p.suspend(name, True)
    s = wait_for(f"{name} to stop", lambda: (s := p.status(name)).get("ends") and s, 60)
    p.check("the stop reached both, and it ended with 75", s["ends"][0]["exitCode"] == 75, s["ends"])
    ended = p.said(name, "ends", 1)
    p.check("both ended at one step", len(ended) == 2 and len(set(ended.values())) == 1, ended)
    last = p.whole(name)
    p.check("the last checkpoint is what they saved when they were stopped", last == min(ended.values(), default=-1), f"{last} {ended}")
    p.suspend(name, False)
    p.check("it goes on from there", p.met(name, 2) == last)
    p.never_twice(name)


def shared_folder(p):
    """The same of ranks that save into one folder."""
    p.gone("pair")
    saves_and_stops(p, "circle", "shared")
    p.gone("circle")


def moves_and_comes_back(p):
    """To a target with one agent, and back to two."""
    p.gang("tourist")
    p.met("tourist", 1)
    p.saved("tourist", 1, 60)
    for epoch, to in ((2, "solo"), (3, "yard")):
        done = p.cli("migrate", "tourist", "--to", to, "--wait", check=False, timeout=120)
        p.check(f"it moves to {to}", done.returncode == 0, done.stderr.strip()[-300:])
        ended = p.said("tourist", "ends", epoch - 1)
        step = p.met("tourist", epoch)
        p.check("and loses nothing", {step} == set(ended.values()), f"{step} {ended}")
        p.check(f"it is on {to}", {n.split(".")[0] for n in p.on("tourist")} == {to} and len(p.on("tourist")) == (1 if to == "solo" else 2), p.on("tourist"))
    p.whole("tourist")
    p.never_twice("tourist")
    p.gone("tourist")


def cut_off(p):
    """One of its agents is cut off: both parts end by their lease, the whole goes on elsewhere, and what comes late changes nothing."""
    p.gang("torn", partition={"mode": "replace", "replaceAfter": "1s"})
    p.met("torn", 1)
    p.saved("torn", 2, 60)
    p.cut_off("yard.b")
    step = p.met("torn", 2, 120)
    p.check("it goes on where nobody is away", p.on("torn") == {"solo.n"}, p.on("torn"))
    common = min(p.said("torn", "saved", 1).values(), default=-1)
    p.check("from the newest that both had saved", step == common, f"{step} {common}")
    p.reconnect("yard.b")
    p.all_there()
    p.saved("torn", 1, 60)
    p.check("it goes on", p.status("torn")["phase"] == "Running" and p.status("torn")["epoch"] == 2, p.status("torn")["phase"])
    p.whole("torn")
    p.never_twice("torn")
    p.gone("torn")


def burns_down(p):
    """One of its machines is lost with all that runs there: nobody gathers any more, and what both had sealed is found."""
    p.gang("burnt", partition={"mode": "replace", "replaceAfter": "1s"})
    p.met("burnt", 1)
    p.saved("burnt", 2, 60)
    p.kill_target("yard.a")
    step = p.met("burnt", 2, 120)
    common = min(p.said("burnt", "saved", 1).values(), default=-1)
    p.check("it goes on from the newest that both had sealed", common - 20 <= step <= common, f"{step} {common}")
    p.start_agent("yard.a")
    p.all_there()
    p.whole("burnt")
    p.never_twice("burnt")
    p.gone("burnt")


def agent_dies(p):
    """kill -9 of an agent, whose shims go on: the gang does, too, and the next agent makes its checkpoints."""
    p.gang("orphan")
    p.met("orphan", 1)
    p.saved("orphan", 1, 60)
    p.agents["yard.a"].kill()
    p.agents["yard.a"].wait()
    p.start_agent("yard.a")
    p.all_there()
    had = p.checkpoints("orphan")[0]["spec"]["step"]
    wait_for("newer checkpoints", lambda: p.checkpoints("orphan")[0]["spec"]["step"] > had + 20, 60)
    p.check("it is still its first epoch", p.status("orphan")["epoch"] == 1)
    p.whole("orphan")
    p.never_twice("orphan")
    p.gone("orphan")


def not_one_store(p):
    """Where the agents see different stores under one name, nothing of it starts, and that is told and not tried all the time."""
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", p.path("checkpoints")], capture_output=True, check=False).returncode != 0:
        print("  (no mount namespaces here: left out)", flush=True)
        return
    p.kill_target("yard.b")
    p.apart.add("yard.b")
    p.start_agent("yard.b")
    p.all_there()
    p.gang("split", targets={"names": ["yard"]})
    s = wait_for("it to be refused", lambda: "is not one store" in (s := p.status("split")).get("message", "") and s, 60)
    p.check("nothing of it has started", not p.told("split"), s["message"])
    told = wait_for("explain to say why, and when it is asked again", lambda: "not asked again before" in (t := p.cli("explain", "split", check=False).stdout) and t, 60)
    p.check("explain says by whom", "it denied this workload" in told and "is not" in told, told[-400:])
    p.cli("delete", "workload", "split")


def main():
    return run((saves_and_stops, shared_folder, moves_and_comes_back, cut_off, burns_down, agent_dies, not_one_store), kind=Yard, members=1)


if __name__ == "__main__":
    sys.exit(main())
