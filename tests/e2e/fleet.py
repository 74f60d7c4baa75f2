#!/usr/bin/env python3
"""One Target with two agents, each on a machine of its own: what runs on one is looked after whatever becomes of the other, and what
runs on one that is away is Unknown, never lost and never started twice. Real members, agents and trainings, whose own file judges.
Prints ok or FAILED per check; exit 1 when any failed. HANSE_ONLY names parts."""
import json
import os
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
        self.apply(target("yard", agents=[{"name": "a"}, {"name": "b"}]),
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


def gang_is_refused(p):
    p.train("gang", 60, gang={"workers": 2})
    s = wait_for("the gang to be refused", lambda: "several agents" in (s := p.status("gang")).get("message", "") and s, 40)
    p.check("a gang over two agents is refused with a sentence, before it starts", not p.lives("gang"), s["message"])
    p.cli("delete", "workload", "gang")


def main():
    return run((each_on_its_own, agent_killed, leader_restarted, machine_lost, another_agent, gang_is_refused), kind=Fleet, members=3)


if __name__ == "__main__":
    sys.exit(main())
