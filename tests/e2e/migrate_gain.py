#!/usr/bin/env python3
"""Moves for gain and quota that is lent, with two agents and real trainings: to where it is cheaper or where the data is, and
back to the hub; not too soon, too often or for too little. What a queue lent is taken back from work that loses least; windows
say when they open; a hint that is carried out admits. Prints ok or FAILED per check; exit 1 when any failed."""
import json
import os
import re
import sys
import time
from datetime import datetime, timedelta, timezone

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from moves import document, run, target, wait_for  # noqa: E402

NODES = {"left": {"left-n1": 4}, "right": {"right-n1": 4}}
LONG = {"duration": "10h"}  # what is left must be worth a move: a restart counts as six minutes
PASS = 2  # seconds between two looks at what is better off elsewhere


def boottime():
    """The clock of the witness file, in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def price(side, amount):
    return document("PriceSheet", f"{side}-prices", {"gpuHour": [{"class": "h100", "amortised": amount}]})


def policy(name, migrate=None, order=None, **spec):
    """For the workloads with the label case: name."""
    return document("PlacementPolicy", name, {
        "workloads": {"matchLabels": {"case": name}}, "precedence": 10,
        "order": order or [{"targets": {"names": ["left", "right"]}}], "prefer": [{"weight": 100, "cost": {"reference": 50}}],
        **({"migrate": migrate} if migrate else {}), **spec})


def dataset(*targets):
    return document("Dataset", "scans", {"bytes": "64Gi", "copies": [{"target": t} for t in targets]}, namespace="default")


def caused(p, name, cause):
    return [m for m in p.moves_of(name) if m["spec"].get("cause") == cause]


def moved(p, name, cause, count=1, seconds=20):
    """Waits until it was moved that often for that cause; the newest such Migration."""
    return wait_for(f"move {count} of {name} for {cause}", lambda: len(m := [
        x for x in caused(p, name, cause) if x["status"].get("phase") == "Succeeded"]) >= count and m[count - 1], seconds)


def was_moved(p, m, to, cause):
    s = m["status"]
    p.check(f"{m['spec']['workload']} moves to {to}, and its Migration says {cause}", (s["to"], m["spec"]["cause"]) == (to, cause),
            f"{s.get('from')} to {s.get('to')}: {s.get('message')}")


def cheaper_and_data(p):
    """Four at once, on left: two for money, two that read a dataset that is nowhere near yet."""
    p.apply(price("left", 2.0), price("right", 3.0), target("left", priceSheet="left-prices"),
            target("right", priceSheet="right-prices"), dataset(),
            policy("thrifty", {"when": ["cheaper"], "minSaving": 0.1, "minStay": "1s", "atMostEvery": "8s"}),
            policy("settled", {"when": ["cheaper"], "minSaving": 0.8, "minStay": "1s", "atMostEvery": "1h"}),
            policy("reader", {"when": ["data"], "minStay": "1s", "atMostEvery": "1h"}),
            policy("remote", {"when": ["repatriate"], "minStay": "1s", "atMostEvery": "1h"}))
    for name, steps in (("thrifty", 1050), ("settled", 900), ("reader", 500), ("remote", 500)):
        p.train(name, steps, labels={"case": name}, expected=LONG,
                **({"data": [{"dataset": "scans"}]} if name in ("reader", "remote") else {}))
    for name in ("thrifty", "settled", "reader", "remote"):
        p.saved(name)
    p.check("all begin where it is cheap", {p.lives(n)[0].target for n in ("thrifty", "settled", "reader", "remote")} == {"left"})
    p.apply(dataset("right"))
    was_moved(p, moved(p, "reader", "data"), "right", "data")
    p.check("its Migration says how much was read from afar", "64" in caused(p, "reader", "data")[0]["status"]["message"])
    p.check("until the price rises nobody moves for money", not p.moves_of("thrifty") and not p.moves_of("settled"))

    p.apply(price("left", 6.0))
    m = moved(p, "thrifty", "cheaper")
    s = m["status"]
    was_moved(p, m, "right", "cheaper")
    p.check("it says what is saved, (6 - 3) for each hour that is left, less the move's cost, six minutes at 3",
            29 < s.get("saving", 0) < 30 and 0.29 < s.get("cost", 0) < 0.31, f"saving {s.get('saving')}, cost {s.get('cost')}")
    said = p.cli("describe", "migration", m["metadata"]["name"]).stdout
    p.check("hanse describe tells cause, saving and cost", all(x in said for x in ("cheaper", "6.00", "3.00")) and
            re.search(r"(?i)sav\w*:.*29\.", said) is not None, re.sub(r"\s+", " ", said)[:300])
    time_to_look_again(p, "thrifty", 2)
    p.check("one whose policy wants 80 % stays for 50 %", not p.moves_of("settled"))
    p.apply(policy("settled", {"when": ["cheaper"], "minSaving": 0.1, "minStay": "1s", "atMostEvery": "1h"}))
    was_moved(p, moved(p, "settled", "cheaper"), "right", "cheaper")

    p.apply(price("right", 30.0))
    changed = boottime()
    was_moved(p, moved(p, "thrifty", "cheaper", 2), "left", "cheaper")
    first, second = p.lives("thrifty")[:2]
    stayed = second.end / 1e9 - first.end / 1e9
    p.check("it goes back once atMostEvery (8 s) is over, and not before", stayed >= 8, f"{stayed:.1f} s")
    if second.end / 1e9 - changed <= PASS:  # on a busy machine the price itself was late, and nothing else held it
        print("  the price turned too late to show that it was atMostEvery that held it")
    p.holds("thrifty", [1, 2, 3])
    p.holds("settled", [1, 2])
    p.holds("reader", [1, 2])
    p.holds("remote", [1])
    p.apply(price("right", 3.0), price("left", 2.0))


def time_to_look_again(p, name, passes):
    """Until the training has gone on for that many passes: what can only be seen not to happen needs time to happen in."""
    since = boottime()
    wait_for("time to pass", lambda: p.lives(name)[-1].end / 1e9 > since + passes * PASS + 0.5, 30)


def repatriate(p):
    """Right is the burst tier. The hub frees up before minStay is over."""
    p.apply(target("right", tier="burst", priceSheet="right-prices"),
            policy("guest", {"when": ["repatriate"], "minStay": "9s", "atMostEvery": "1h"},
                   [{"targets": {"tier": "hub"}}, {"targets": {"tier": "burst"}}]))
    p.train("hub-full", 300, gpus=4, targets={"names": ["left"]})
    p.running("hub-full")
    p.train("guest", 700, labels={"case": "guest"}, expected=LONG)
    p.check("with the hub full it begins on burst", p.running("guest").target == "right")
    m = moved(p, "guest", "repatriate", seconds=30)
    was_moved(p, m, "left", "repatriate")
    life, full = p.lives("guest")[0], p.lives("hub-full")[0]
    began, asked = (datetime.fromisoformat(t.replace("Z", "+00:00")) for t in
                    (p.status("guest")["startedAt"], m["status"]["startedAt"]))
    stayed = (asked - began).total_seconds()  # by Hanse's clock: the program speaks later than it starts
    p.check("it stayed for minStay (9 s)", stayed >= 9, f"{stayed:.3f} s")
    p.check("though the hub was free long before", (life.end - full.end) / 1e9 > PASS, f"{(life.end - full.end) / 1e9:.1f} s")
    p.check("and not much longer", (life.end - life.begin) / 1e9 < 9 + 3 * PASS)
    p.holds("guest", [1, 2])
    p.holds("hub-full", [1])


def queue(name, guaranteed, burst=None):
    return document("Queue", name, {"gpus": [{"class": "h100", "guaranteed": guaranteed, **({"burst": burst} if burst else {})}]})


def reclaim(p):
    """Eight GPUs: B is guaranteed four and holds all; A asks for its six, two at a time, with work of the same priority."""
    p.apply(queue("a", 6), queue("b", 4), document("PriceSheet", "own", {"gpuHour": [{"class": "h100", "amortised": 2.0}]}),
            document("PriorityClass", "guarded", {"value": 10000, "neverVictim": True}))
    p.train("b-old", 1400, every=0, gpus=2, queue="b")
    p.train("b-guarded", 1400, every=10, gpus=2, queue="b", priorityClassName="guarded")
    p.running("b-old"), p.running("b-guarded")
    p.train("b-young", 400, every=0, gpus=2, queue="b")
    p.train("b-saver", 500, "--ignore-stop", every=100, gpus=2, queue="b", checkpoint={"grace": "1s"})
    p.running("b-young")
    p.saved("b-saver")
    for name, victim in (("a-1", "b-saver"), ("a-2", "b-young")):
        p.train(name, 1100, gpus=2, queue="a")  # longer than a-3 is looked at, on a busy machine
        life = p.running(name)
        taken = [m for m in p.migrations() if m["status"].get("for") == f"default/{name}"]
        p.check(f"{name} of queue A is made room by {victim} of B, which loses least", [m["spec"]["workload"] for m in taken] == [victim],
                str([(m["spec"]["workload"], m["status"].get("lostGpuSeconds")) for m in taken]))
        p.check("the cause is reclaim, and it says for whom", all(m["spec"]["cause"] == "reclaim" and
                f"default/{name}" in m["status"].get("message", "") for m in taken), str([m["status"].get("message") for m in taken]))
        old = p.lives(victim)[0]
        p.check(f"{name} starts only after the end of it", life.begin > old.end, f"{(life.begin - old.end) / 1e6:.0f} ms later")
        ends = p.status(victim).get("ends", [])
        p.check("whose proof Hanse holds", len(ends) == 1 and ends[0].get("proof") == "ProcessTreeGone", json.dumps(ends)[:200])
        s = p.status(victim)
        p.check(f"{victim} waits in its queue", s["phase"] == "Queued" and s["queue"] == "b", f"{s['phase']} {s.get('reason')}")
    p.train("a-3", 100, gpus=2, queue="a")
    wait_for("a-3 to wait", lambda: p.status("a-3").get("reason"), 20)
    time_to_look_again(p, "a-2", 3)  # somebody who was looked at in vain is looked at again after five seconds
    p.check("B keeps what it is guaranteed, and the protected class is never taken",
            p.status("a-3")["phase"] == "Queued" and all(p.status(n)["phase"] == "Running" for n in ("b-old", "b-guarded")),
            f"a-3 {p.status('a-3')['phase']}: {p.status('a-3').get('message')}")
    p.cli("delete", "workload", "a-3")  # else it and b-young are after the same room, and either may have it first
    for name, epochs, lost in (("a-1", [1], 0), ("a-2", [1], 0), ("b-old", [1], 0), ("b-guarded", [1], 0),
                               ("b-young", [1, 2], 0), ("b-saver", [1, 2], 120)):
        p.holds(name, epochs, lost)
    told = caused(p, "b-saver", "reclaim")[0]["status"]["lostGpuSeconds"]
    rows = json.loads(p.cli("cost", "--by", "cause", "--where", "workload=b-saver", "-o", "json").stdout)["rows"]
    lost = sum(r["gpuHours"] * 3600 for r in rows if r["cause"] == "preempted")
    p.check("cost --by cause has what it lost as preempted, two GPUs for as long as it was deaf (1 s) or longer",
            2 <= lost < 8 and abs(lost - told) < 0.1, f"{lost:.2f} GPU seconds; its Migration says {told}")
    p.check("and its other work as useful", any(r["cause"] == "useful" and r["gpuHours"] * 3600 > 15 for r in rows), json.dumps(rows)[:400])
    rows = json.loads(p.cli("cost", "--by", "cause", "--where", "queue=a", "-o", "json").stdout)["rows"]
    p.check("queue A, for which it was, has lost nothing", not [r for r in rows if r["cause"] == "preempted"] and rows, str(rows)[:200])


def devices_once(p):
    """All that ran in this test, on all devices."""
    found = [x for n in p.steps for x in p.lives(n)]
    twice = [f"{x} / {y}" for i, x in enumerate(found) for y in found[i + 1:]
             if (x.target, x.node) == (y.target, y.node) and set(x.gpus.split(",")) & set(y.gpus.split(","))
             and x.begin < y.end and y.begin < x.end]
    p.check(f"in {len(found)} lives no device ever had two", not twice and all(x.gpus for x in found), "; ".join(twice))


def window_says_when_it_opens(p):
    now = datetime.now(timezone.utc)
    ends = (now + timedelta(hours=2)).replace(second=0, microsecond=0)
    shut = {"from": f"{now - timedelta(hours=2):%H:%M}", "to": f"{ends:%H:%M}", "timezone": "UTC", "maxGPUs": 1}
    p.apply(policy("office", windows=[shut]))
    for name in ("day-1", "day-2"):
        p.train(name, 1200 if name == "day-1" else 300, labels={"case": "office"})  # the first outlives what is asked meanwhile
        wait_for(f"{name} to be decided on", lambda: (s := p.status(name)).get("epoch") or s.get("reason"), 20)
    p.running("day-1")
    s = wait_for("day-2 to wait", lambda: (s := p.status("day-2")).get("phase") == "Queued" and s.get("reason") and s, 10)
    p.check("while the window is on it admits one GPU", s["reason"] == "WindowClosed", f"{s['reason']}: {s['message']}")
    p.check("the reason says when it opens", f"{ends:%Y-%m-%d %H:%M} UTC" in s["message"], s["message"])
    explained = p.cli("explain", "workload/day-2").stdout
    p.check("so does hanse explain", f"{ends:%Y-%m-%d %H:%M} UTC" in explained)
    p.check("and it stands still", not p.lives("day-2"))
    p.apply(policy("office", windows=[{**shut, "maxGPUs": 2}]))
    p.running("day-2")
    p.check("a wider window admits it beside the other", p.status("day-1")["phase"] == "Running")


def hint_is_true(p):
    p.apply(queue("c", 0, 1))
    p.train("c-1", 1200, queue="c")  # it outlives what is asked meanwhile
    p.running("c-1")
    p.train("c-2", 150, gpus=2, queue="c")

    def hints():
        done = p.cli("get", "decision", "c-2-pending", "-o", "json", check=False)
        return done.returncode == 0 and json.loads(done.stdout)["spec"].get("hints")
    told = wait_for("hints for c-2", hints, 20)
    asked = re.search(r"burst raised by (\d+) in queue c\b", told[0])
    p.check("the first hint is one number", asked is not None, str(told))
    p.check("hanse explain tells it", told[0] in p.cli("explain", "workload/c-2").stdout)
    by = int(asked.group(1))
    p.apply(queue("c", 0, 1 + by - 1))
    time_to_look_again(p, "c-1", 1)
    p.check(f"with one less ({by - 1}) it goes on waiting", p.status("c-2")["phase"] == "Queued", p.status("c-2").get("message", ""))
    p.apply(queue("c", 0, 1 + by))
    p.running("c-2")
    p.check(f"with {by} it runs, beside the other", p.status("c-1")["phase"] == "Running")
    for name in ("day-1", "day-2", "c-1", "c-2"):
        p.holds(name, [1])


if __name__ == "__main__":
    sys.exit(run((cheaper_and_data, repatriate, reclaim, window_says_when_it_opens, hint_is_true, devices_once), nodes=NODES))
