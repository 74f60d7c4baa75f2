#!/usr/bin/env python3
"""One Target with two agents, each on a machine of its own: what runs on one is looked after whatever becomes of the other, and what
runs on one that is away is Unknown, never lost and never started twice. Real members, agents and trainings, whose own file judges.
Prints ok or FAILED per check; exit 1 when any failed. HANSE_ONLY names parts."""
import fcntl
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from moves import Moves, document, run, target, wait_for  # noqa: E402

AGENTS = ("yard.a", "yard.b")


class Fleet(Moves):
    def __init__(self, *words, **pool):
        super().__init__(*words, targets=AGENTS, nodes={name: {"n": 1} for name in AGENTS}, **pool)

    def begin(self):
        self.start_members()
        self.apply(target("yard", agents=[{"name": "a", "address": "127.0.0.2"}, {"name": "b", "address": "127.0.0.3"}]),
                   document("GpuClass", "h100", {"memory": "80Gi"}),
                   document("PriceSheet", "own", {"gpuHour": [{"class": "h100", "amortised": 2.0}]}))
        for name in AGENTS:
            self.start_agent(name)
        self.both()

    def parts(self):
        t = json.loads(self.cli("get", "target", "yard", "-o", "json").stdout)
        return {a["name"]: a for a in t.get("status", {}).get("agents", [])}

    def health(self):
        listed = json.loads(self.cli("get", "nodes", "-o", "json").stdout)["items"]
        return {n["metadata"]["name"]: n["status"]["health"] for n in listed}

    def both(self):
        wait_for("both agents to be connected", lambda: {n for n, a in self.parts().items() if a.get("connected")} == {"a", "b"}, 40)
        wait_for("both nodes to be ready", lambda: self.health() == {"yard.a.n": "Ready", "yard.b.n": "Ready"}, 20)

    def on(self, name):
        return {x["node"] for x in self.status(name)["placement"]["assignments"]}

    def becomes(self, name, phase, seconds=40):
        return wait_for(f"{name} to be {phase}", lambda: (s := self.status(name)).get("phase") == phase and s, seconds)

    def pair(self, one, two, steps, **spec):
        """A training on each agent; the names of that on a and that on b."""
        for name in (one, two):
            self.train(name, steps, **spec)
        for name in (one, two):
            self.running(name, 1, 20, 60)
        return (one, two) if self.on(one) == {"yard.a.n"} else (two, one)


def each_on_its_own(p):
    a, b = p.pair("one", "two", 150)
    p.check("each agent runs one of them", p.on(a) == {"yard.a.n"} and p.on(b) == {"yard.b.n"}, f"{p.on(a)} {p.on(b)}")
    for name in (a, b):
        p.check(f"logs of {name} come from its agent", "step" in p.cli("logs", name).stdout)
        p.holds(name, [1])
        p.check(f"logs of {name} are there after its end", "step" in p.cli("logs", name).stdout)
    states = {x["agent"] for x in p.parts().values()}
    p.check("the Target tells both state folders", len(states) == 2 and all(states), states)


def agent_killed(p):
    """kill -9: what it runs goes on by its lease, and nobody says what is not known."""
    a, b = p.pair("three", "four", 900)
    p.agents["yard.b"].kill()
    p.agents["yard.b"].wait()
    wait_for("its node to be Unknown", lambda: p.health() == {"yard.a.n": "Ready", "yard.b.n": "Unknown"}, 20)
    s = p.becomes(b, "Unknown")
    p.check("its run is Unknown, and says whose silence it is", "agent b of target yard is away" in s["message"], s["message"])
    p.check("the other agent's run is not touched", p.status(a)["phase"] == "Running")
    p.check("the Target is connected, and says who is away", not p.parts()["b"].get("connected") and p.parts()["a"].get("connected"))
    p.train("five", 60)
    time.sleep(3)
    p.check("nothing is placed on its node", p.status("five")["phase"] == "Queued", p.status("five"))
    p.start_agent("yard.b")
    p.both()
    p.becomes(b, "Running")
    for name in (a, b):
        p.holds(name, [1])
    p.holds("five", [1])


def leader_restarted(p):
    """A hub that has just begun, and whom one agent does not find again: nothing is said of what runs there."""
    a, b = p.pair("six", "seven", 900)
    p.cut_off("yard.b")
    p.kill_leader()
    s = p.becomes(b, "Unknown", 60)
    p.check("its run is Unknown", "agent b" in s["message"], s["message"])
    wait_for("the other agent's run to be told of", lambda: p.status(a)["phase"] == "Running", 20)
    p.reconnect("yard.b")
    p.both()
    for name in (a, b):
        p.holds(name, [1])


def machine_lost(p):
    """The machine burns down: with mode replace its work goes on at the other agent once the lease is over."""
    p.train("eight", 900, targets={"names": ["yard"]}, partition={"mode": "replace", "replaceAfter": "1s"})
    p.running("eight", 1, 60, 40)
    p.saved("eight")
    was = p.on("eight").pop().rsplit(".", 1)[0]
    p.kill_target(was)
    life = p.running("eight", 2, 1, 60)
    p.check("it goes on at the other agent", p.on("eight") != {was + ".n"}, f"{life.target}")
    p.start_agent(was)
    p.both()
    p.holds("eight", [1, 2], lost=200)


def another_agent(p):
    """Somebody starts an agent with b's certificate and an empty state folder: it proves nothing of what b runs."""
    a, b = p.pair("nine", "ten", 1200)
    known = {x["agent"] for x in p.parts().values()}
    p.cut_off("yard.b")
    pki = p.path("pki")
    other = subprocess.Popen([p.hanse, "agent", "--target", "yard.b", "--inventory", p.inventory("yard.b"), "--state", p.path("agent-other"),
                              "--ca", f"{pki}/ca.crt", "--cert", f"{pki}/agent-yard.b.crt", "--key", f"{pki}/agent-yard.b.key", "--store-root", p.path("checkpoints")] +
                             [w for s in p.login.servers for w in ("--server", s)], stderr=subprocess.DEVNULL)
    wait_for("the other one to be taken", lambda: len({x["agent"] for x in p.parts().values()} | known) == 3, 60)
    s = p.becomes(b, "Unknown", 60)
    p.check("what the first one runs is Unknown", s["reason"] in ("AgentReplaced", "RunNotTold"), s["reason"])
    p.check("the other agent's run is not touched", p.status(a)["phase"] == "Running")
    other.kill()
    other.wait()
    p.reconnect("yard.b")
    p.both()
    for name in (a, b):
        p.holds(name, [1])


# ---- gangs that are on both machines ---------------------------------------------------------------------
RANK = """import fcntl, os, signal, socket, sys, time
name, rank, world = os.environ["HANSE_WORKLOAD_NAME"], os.environ["RANK"], int(os.environ["WORLD_SIZE"])
def say(*words):
    with open(os.path.join(sys.argv[1], name), "a") as f:
        f.write(" ".join((os.environ["HANSE_EPOCH"], rank) + words) + "\\n")
def ends(signo, frame):
    say("ends", str(os.getpid()))
    os._exit(75)
signal.signal(signal.SIGTERM, ends)
lock = open(os.path.join(sys.argv[1], name + ".lock." + rank), "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    say("twice")
say("begins", str(os.getpid()), os.environ["HANSE_TARGET"], os.environ["HANSE_NODE"])
at = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == "0":
    listener = socket.create_server(at)
    peers = [listener.accept()[0] for _ in range(world - 1)]
else:
    while True:
        try:
            peers = [socket.create_connection(at)]
            break
        except OSError:
            time.sleep(0.05)
for p in peers:
    p.sendall(b"x")
for p in peers:
    assert p.recv(1) == b"x"
say("met", *at[:1])
print("met", flush=True)
time.sleep(600)
"""


def gang(p, name, **spec):
    with open(p.path("scratch", "rank.py"), "w", encoding="utf-8") as f:
        f.write(RANK)
    p.documents[name] = document("Workload", name, {
        "type": "training", "gang": {"workers": 2}, "resources": {"gpu": {"count": 1, "classes": ["h100"]}, "cpu": 1, "memory": "64Mi"},
        "run": {"command": [sys.executable, p.path("scratch", "rank.py"), p.path("scratch")], "retries": 0}, **spec}, namespace="default")
    p.apply(p.documents[name])


def told(p, name):
    """What its ranks wrote: (epoch, rank, word, …)."""
    path = p.path("scratch", name)
    return [tuple(line.split()) for line in open(path, encoding="utf-8")] if os.path.exists(path) else []


def met(p, name, epoch="1", seconds=40):
    return wait_for(f"the ranks of {name} to meet in epoch {epoch}; they said {told(p, name)}",
                    lambda: {t[1] for t in told(p, name) if t[0] == epoch and t[2] == "met"} == {"0", "1"} and told(p, name), seconds)


def nothing_left(p, name):
    """Each rank holds a lock while it lives."""
    def free(rank):
        with open(p.path("scratch", f"{name}.lock.{rank}"), "w", encoding="utf-8") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
        return True
    p.check(f"nothing of {name} is left, and none of it ever ran twice",
            all(map(free, "01")) and not [t for t in told(p, name) if t[2] == "twice"], told(p, name))


def gang_spans(p):
    """One gang on both agents: its ranks meet at the address of the first one's machine; a stop reaches each, and ends 75."""
    gang(p, "pair")
    lines = met(p, "pair")
    p.check("its ranks are on both agents", {t[4] for t in lines if t[2] == "begins"} == set(AGENTS))
    p.check("each knows its node as the state does, without the Target's name", {"yard." + t[5] for t in lines if t[2] == "begins"} ==
            {a["node"] for a in p.status("pair")["placement"]["assignments"]}, lines)
    p.check("they met at the address that the Target says", {t[3] for t in lines if t[2] == "met"} < {"127.0.0.2", "127.0.0.3"}, lines)
    p.becomes("pair", "Running")
    p.check("logs of each rank come from its agent", all("met" in p.cli("logs", "pair", "--rank", r).stdout for r in "01"))
    p.suspend("pair", True)
    s = wait_for("pair to stop", lambda: (s := p.status("pair")).get("ends") and s, 30)
    p.check("the stop reached both, and it ended with 75", s["ends"][0]["exitCode"] == 75, s["ends"])
    p.check("each rank had its time", {t[1] for t in told(p, "pair") if t[2] == "ends"} == {"0", "1"}, told(p, "pair"))
    nothing_left(p, "pair")


def gang_lives_together(p):
    """A rank is killed at one agent: the gang ends at the other one too, and says whose end it was."""
    gang(p, "trio")
    victim = next(t for t in met(p, "trio") if t[1:3] == ("1", "begins"))
    p.becomes("trio", "Running")
    p.cli("exec", "trio", "--rank", "1", "--", "/bin/kill", "-9", victim[3], check=False)
    s = p.ended("trio", 30)
    p.check("it failed by the rank that was killed", s["phase"] == "Failed" and "rank 1" in s["message"] and "signal 9" in s["message"], s)
    p.check("the other rank was stopped for it", ("1", "0", "ends") in [t[:3] for t in told(p, "trio")], told(p, "trio"))
    nothing_left(p, "trio")


def gang_half_taken(p):
    """kill -9 of one agent while the gang is handed out: what the other one took is stopped, and all of it begins again, once."""
    p.agents["yard.b"].send_signal(signal.SIGSTOP)
    gang(p, "half")
    wait_for("its first rank to begin", lambda: told(p, "half"), 20)
    p.agents["yard.b"].kill()
    p.agents["yard.b"].wait()
    p.start_agent("yard.b")
    p.both()
    epoch = wait_for("the gang to run again", lambda: (s := p.status("half")).get("phase") == "Running" and str(s["epoch"]), 60)
    lines = met(p, "half", epoch)
    p.check("its first try ended before the second began", epoch > "1" and ("1", "0", "ends") in [t[:3] for t in lines], lines)
    p.check("that was no failure of its own", p.status("half").get("retries", 0) == 0, p.status("half"))
    p.cli("delete", "workload", "half")
    wait_for("half to be gone", lambda: p.cli("get", "workload", "half", check=False).returncode != 0, 30)
    nothing_left(p, "half")


def gang_without_address(p):
    p.apply(target("yard", agents=[{"name": "a"}, {"name": "b"}]))
    gang(p, "nowhere")
    s = wait_for("the gang to be refused", lambda: "has no address" in (s := p.status("nowhere")).get("message", "") + p.cli("explain", "nowhere", check=False).stdout and p.status("nowhere"), 40)
    p.check("a gang whose ranks could not meet is refused with a sentence, before it starts", not told(p, "nowhere"), s["message"])
    p.cli("delete", "workload", "nowhere")


def main():
    return run((each_on_its_own, agent_killed, leader_restarted, machine_lost, another_agent, gang_spans, gang_lives_together, gang_half_taken, gang_without_address), kind=Fleet, members=3)


if __name__ == "__main__":
    sys.exit(main())
