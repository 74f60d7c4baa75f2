#!/usr/bin/env python3
"""`hanse agent notice`: machines that are announced to go away, with two agents and real trainings: work is saved and goes on elsewhere
before the deadline; with nowhere to go it is saved, stopped and queued in time; notices that are withdrawn, and an agent and a leader
that are killed in between. Prints ok or FAILED per check; exit 1 when any failed."""
import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from moves import run, wait_for  # noqa: E402

NODES = {"left": {"left-n1": 1, "left-n2": 1}, "right": {"right-n1": 1, "right-n2": 1}}


def notice(p, target, *words):
    """The time by which its machine goes."""
    began = time.monotonic()
    done = subprocess.run([p.hanse, "agent", "notice", "--state", p.path("agent-" + target), *words], capture_output=True, text=True, timeout=60, check=False)
    p.check(f"hanse agent notice {' '.join(words)} on {target}", done.returncode == 0, done.stderr.strip()[-200:])
    return began


def notices(p):
    listed = json.loads(p.cli("get", "nodes", "-o", "json").stdout)["items"]
    return {n["metadata"]["name"]: n["status"]["notice"] for n in listed if "notice" in n.get("status", {})}


def noticed(p, *nodes):
    return wait_for(f"notices of {nodes or 'nobody'}", lambda: (n := notices(p)).keys() == set(nodes) and (n or True), 20)


def spot_moves(p):
    p.train("a", 900)
    p.running("a", 1, 45)
    p.saved("a")
    at = notice(p, "left", "--kind", "spot", "--in", "60s")
    second = p.running("a", 2)
    p.check("it runs elsewhere before the deadline", second.target == "right" and time.monotonic() < at + 60, f"{second.target} after {time.monotonic() - at:.1f} s")
    m = p.move_over("a")
    p.check("its Migration says why", m["spec"]["cause"] == "spotNotice" and m["status"]["phase"] == "Succeeded" and
            "announced to go away (spot, at" in m["status"]["message"], f"{m['spec']['cause']}: {m['status']['message']}")
    noticed(p, "left.left-n1", "left.left-n2")
    table = p.cli("get", "nodes", "-o", "wide").stdout
    p.check("hanse get nodes tells it", "NOTICE" in table and table.count(" spot ") == 2, table)
    told = wait_for("an Event", lambda: "GoesAway" in (t := p.cli("describe", "node", "left.left-n1").stdout) and t, 20)
    p.check("hanse describe, too", "kind: spot" in told and "deadline:" in told, told[-300:])
    p.train("b", 100, targets={"names": ["left"]})
    s = wait_for("new work to wait", lambda: (s := p.status("b")).get("reason") == "NodeGoesAway" and s, 20)
    told = p.cli("explain", "b").stdout
    p.check("hanse explain names the node, and when it goes", "was announced to go away (spot, at" in told, s.get("message"))
    before = notices(p)
    notice(p, "left", "--kind", "spot", "--in", f"{at + 60 - time.monotonic():.0f}s")
    time.sleep(1)
    p.check("the same again is nothing new", notices(p) == before)
    notice(p, "left", "--clear")
    noticed(p)
    p.running("b")
    for name, epochs in (("a", [1, 2]), ("b", [1])):
        p.holds(name, epochs)


def one_node(p):
    """The other node of the same target will do; and back again, since a deadline waits for nobody."""
    p.train("c", 900, targets={"names": ["left"]})
    first = p.running("c", 1, 40)
    notice(p, "left", "--kind", "maintenance", "--in", "10m", "--node", first.node.removeprefix("left."))
    second = p.running("c", 2)
    p.check("it goes to the other node", second.node != first.node and second.target == "left", f"{first.node} to {second.node}")
    notice(p, "left", "--clear")
    noticed(p)
    p.holds("c", [1, 2])


def nowhere_to_go(p):
    """Nothing else has room. What is announced and withdrawn stops nothing, an agent that is killed forgets nothing; what comes near is
    saved, stopped and queued in time, and goes on from there."""
    p.cli("cordon", "right")
    p.train("d", 1500)
    p.running("d", 1, 40)
    notice(p, "left", "--kind", "spot", "--in", "10m")
    wait_for("it to be told that it stays", lambda: "StaysUntilDeadline" in p.cli("describe", "workload", "d").stdout, 30)
    since = noticed(p, "left.left-n1", "left.left-n2")
    p.agents["left"].send_signal(signal.SIGKILL)
    p.agents["left"].wait()
    p.start_agent("left")
    time.sleep(3)
    p.check("an agent that was killed tells the same", notices(p) == since, json.dumps(notices(p)))
    notice(p, "left", "--kind", "rebalance")
    wait_for("the advice", lambda: {n["kind"] for n in notices(p).values()} == {"rebalance"}, 20)
    time.sleep(2)
    notice(p, "left", "--clear")
    noticed(p)
    p.check("none of it stopped anything", not p.moves_of("d") and len(p.lives("d")) == 1 and p.status("d")["phase"] == "Running")
    at = notice(p, "left", "--kind", "timeLimit", "--in", "34s")
    s = wait_for("it to be queued", lambda: (s := p.status("d")).get("phase") == "Queued" and s, 40)
    p.check("that is before the deadline", time.monotonic() < at + 34, f"{time.monotonic() - at:.1f} s of 34")
    p.check("and it had time until then", time.monotonic() > at + 5, f"{time.monotonic() - at:.1f} s")
    life = p.lives("d")[0]
    p.check("the program saved and ended", life.stopped and life.reason == "saved", str(life))
    s = wait_for("it to wait", lambda: (s := p.status("d")).get("reason") not in (None, "", "SavedAndStopped") and s, 20)
    p.check("it says what it waits for", s["reason"] in ("NodeGoesAway", "TargetCordoned", "NothingFits"), f"{s['reason']}: {s.get('message')}")
    p.cli("uncordon", "right")
    second = p.running("d", 2)
    p.check("it goes on elsewhere", second.target == "right")
    notice(p, "left", "--clear")
    p.holds("d", [1, 2])


def leader_killed(p):
    """Between the notice and the move."""
    p.cli("cordon", "right")
    p.train("e", 1200)
    p.running("e", 1, 40)
    notice(p, "left", "--kind", "spot", "--in", "10m")
    before = noticed(p, "left.left-n1", "left.left-n2")
    p.kill_leader()
    wait_for("another leader", lambda: p.cli("status", check=False).returncode == 0 and p.cli("uncordon", "right", check=False).returncode == 0, 60, 0.5)
    second = p.running("e", 2, seconds=60)
    p.check("the next leader moves it", second.target == "right" and p.move_over("e")["spec"]["cause"] == "spotNotice", second.target)
    p.check("the notice is what it was", notices(p) == before, json.dumps(notices(p)))
    notice(p, "left", "--clear")
    noticed(p)
    p.holds("e", [1, 2])


def they_come_and_go(p):
    """Work does not go with each of them: what has just come stays, as long as there is time."""
    p.train("f", 1500)
    p.running("f", 1, 40)
    for _ in range(12):
        here = p.status("f")["placement"]["target"]
        notice(p, here, "--kind", "spot", "--in", "10m")
        time.sleep(1)
        notice(p, here, "--clear")
    p.check("of twelve that were taken back at once it went with one at most", len(p.moves_of("f")) <= 1, len(p.moves_of("f")))
    here = p.running("f", len(p.moves_of("f")) + 1).target
    at = notice(p, here, "--kind", "spot", "--in", "40s")
    wait_for("another move", lambda: p.status("f").get("placement", {}).get("target") not in (None, here), 60)
    p.check("when time is short it goes at once", time.monotonic() < at + 40, f"{time.monotonic() - at:.1f} s of 40")
    notice(p, here, "--clear")
    noticed(p)
    p.check("it succeeds", p.ended("f")["phase"] == "Succeeded")


if __name__ == "__main__":
    sys.exit(run((spot_moves, one_node, nowhere_to_go, leader_killed, they_come_and_go), nodes=NODES, members=3))
