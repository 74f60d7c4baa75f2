#!/usr/bin/env python3
"""Moves that nobody asked for, with two agents and real trainings: a drained target with no room elsewhere, a sick node, a
compliance policy that changes under running work. Prints ok or FAILED per check; exit 1 when any failed."""
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from moves import document, run, wait_for  # noqa: E402

NODES = {"left": {"left-n1": 1, "left-n2": 1}, "right": {"right-n1": 1, "right-n2": 1}}


def caused(p, name, cause):
    return [m for m in p.moves_of(name) if m["spec"].get("cause") == cause]


def drain_without_room(p):
    """Right has one device, and a training on it; what is drained from left waits with its place, ahead of who came later."""
    p.train("occupant", 400, targets={"names": ["right"]})
    p.running("occupant")
    p.cli("cordon", "right")
    p.train("drained", 700)
    p.saved("drained")
    queued_at = p.status("drained")["queuedAt"]
    done = p.cli("drain", "left", "--wait", "--wait-timeout", "30s", check=False, timeout=60)
    p.check("drain --wait returns once it is empty", done.returncode == 0 and "left is empty" in done.stdout, done.stderr.strip()[-200:])
    p.check("it tells what was left and why", "default/drained" in done.stderr and "left on left" in done.stderr, done.stderr[:300])
    p.check("and where it is now", "default/drained" in done.stdout and "Queued" in done.stdout, done.stdout)
    life = p.lives("drained")[0]
    p.check("the program saved and ended", life.stopped and life.reason == "saved", str(life))
    s = p.status("drained")
    p.check("it waits, with its place in the queue", s["phase"] == "Queued" and s["queuedAt"] == queued_at, f"{s['phase']} {s.get('reason')}")
    m = caused(p, "drained", "drain")
    p.check("its Migration says drain, and went nowhere", len(m) == 1 and not m[0]["status"].get("to") and
            m[0]["status"]["phase"] == "Succeeded", str([x["status"] for x in m])[:300])
    p.train("later", 200)
    wait_for("the later one to wait", lambda: p.status("later").get("reason"), 20)
    p.cli("uncordon", "right")
    p.running("drained", 2)
    p.check("the first free room is its own", not p.lives("later"))
    p.cli("uncordon", "left")
    for name, epochs in (("occupant", [1]), ("drained", [1, 2]), ("later", [1])):
        p.holds(name, epochs)


def sick_node(p):
    p.train("patient", 500)
    node = p.running("patient", 1, 40).node
    full = f"left.{node}" if not node.startswith("left.") else node
    p.write_inventory("left", NODES["left"], {full.removeprefix("left."): "Sick"})
    p.agents["left"].send_signal(signal.SIGHUP)
    second = p.running("patient", 2)
    m = caused(p, "patient", "sickNode")
    p.check("it leaves the node, and the Migration says why", len(m) == 1 and second.node != node, f"{node} to {second.node}; {len(m)} moves")
    p.write_inventory("left", NODES["left"])
    p.agents["left"].send_signal(signal.SIGHUP)
    wait_for("the node to be Ready again", lambda: '"Ready"' in p.cli("get", "node", full, "-o", "json").stdout, 20)
    p.holds("patient", [1, 2])


def sick_without_room(p):
    """Every device is taken: what is on the sick node stays, and says so, a gang that could be reshaped as well."""
    for name in ("stays", "b", "c", "d"):
        p.train(name, 20000, checkpoint={"reshard": True})
        p.running(name, 1, 1)
    node = p.lives("stays")[-1].node
    target = p.lives("stays")[-1].target
    p.write_inventory(target, NODES[target], {node.removeprefix(target + "."): "Sick"})
    p.agents[target].send_signal(signal.SIGHUP)
    told = wait_for("it to be told that it stays", lambda: "StaysOnSickNode" in (t := p.cli("describe", "workload", "stays").stdout) and t, 30)
    p.check("it stays where it is, and why", "until there is room for all of it elsewhere" in told and len(p.lives("stays")) == 1, told[-400:])
    p.write_inventory(target, NODES[target])
    p.agents[target].send_signal(signal.SIGHUP)
    for name in ("stays", "b", "c", "d"):
        p.cli("delete", "workload", name)
    wait_for("them to be gone", lambda: not {"stays", "b", "c", "d"} & set(p.workloads()), 30)


def rule(*jurisdictions, covers=("run", "checkpoint")):
    return document("CompliancePolicy", "stays", {"selects": {"dataClasses": ["patient"]}, "allow": {"jurisdictions": list(jurisdictions)},
                                                  "covers": list(covers)})


def compliance_change(p):
    p.train("xray", 1200, dataClasses=["patient"])
    p.running("xray", 1, 40)
    p.apply(rule("FR"))
    second = p.running("xray", 2)
    m = caused(p, "xray", "compliance")
    p.check("it moves to where it may be", second.target == "right" and len(m) == 1, f"{second.target}, {len(m)} moves")
    p.apply(rule("IT"))
    s = wait_for("it to stop everywhere", lambda: (s := p.status("xray")).get("phase") == "Queued" and
                 s.get("reason") not in (None, "", "SavedAndStopped") and s, 20)  # how it ended, until it is decided on anew
    p.check("where it may be nowhere, it stops and says why", "Forbidden" in str(s.get("reason")) + str(s.get("message")),
            f"{s.get('reason')}: {s.get('message')}")
    wait_for("its program to have ended", lambda: all(x.stopped for x in p.lives("xray")), 10)
    p.apply(rule("DE", "FR"))
    third = p.running("xray", 3)
    held_back(p, "left" if third.target == "right" else "right")
    p.apply(rule("IT", covers=["logs"]))
    s = wait_for("it to stop where its log may not lie", lambda: (s := p.status("xray")).get("phase") == "Queued" and
                 s.get("reason") == "ResidencyForbidden" and s, 20)
    p.check("what covers its log alone keeps it out, too", "stays (IT)" in str(s.get("message")), s.get("message"))
    p.apply(rule("DE", "FR"))
    p.holds("xray", [1, 2, 3, 4, 5])


def held_back(p, full):
    """A move that somebody asked for, and that finds no room, keeps nothing where it may not be."""
    p.cli("cordon", full)
    p.cli("migrate", "xray", "--to", full)
    wait_for("the move to wait", lambda: [m for m in p.moves_of("xray") if m["spec"].get("to") and m["status"].get("reason")], 20)
    p.apply(rule("IT"))
    s = wait_for("it to stop, its own move or not", lambda: (s := p.status("xray")).get("phase") == "Queued" and
                 s.get("reason") == "ResidencyForbidden" and s, 20)
    p.check("a move that waits does not hold compliance off", "stays (IT)" in str(s.get("message")), s.get("message"))
    p.cli("uncordon", full)
    p.apply(rule("DE", "FR"))
    p.running("xray", 4)


if __name__ == "__main__":
    sys.exit(run((drain_without_room, sick_node, sick_without_room, compliance_change), nodes=NODES))
