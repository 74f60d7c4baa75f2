#!/usr/bin/env python3
"""A gang of two that may be one (minWorkers 1), saved by two, whose target burns down and comes back with one node. It waits
for room for two, says why and what helps, and goes on from its step; one whose program can resume with another number of
workers goes on with one at once. Judged by the trainings' own witness file. Prints ok or FAILED per check; exit 1 when any failed."""
import json
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from moves import document, run, wait_for, witness  # noqa: E402

BOTH, ONE = {"left-n1": 1, "left-n2": 1}, {"left-n1": 1}
# Each worker trains shard R of two, whoever else does. With reshard HANSE_RESUME_DIR has a folder for each that saved.
OWN = 'exec three-tier-trainer --world 2 --rank "$HANSE_RANK" --pace-ms 20 --checkpoint-every 40 --seed 7 --steps %d'
RESHARDS = ('[ -z "$HANSE_RESUME_DIR" ] || { [ "$HANSE_RESUME_RANKS" = 2 ] && HANSE_RESUME_DIR=$HANSE_RESUME_DIR/$HANSE_RANK; } '
            "|| exit 9; export HANSE_RESUME_DIR; ")


def gang(p, name, steps, reshard):
    p.apply(document("Workload", name, {
        "type": "training", "resources": {"gpu": {"count": 1, "classes": ["h100"]}, "cpu": 1, "memory": "64Mi"},
        "gang": {"workers": 2, "minWorkers": 1},
        "checkpoint": {"store": p.path("checkpoints"), "grace": "5s", "keep": 4, "reshard": reshard},
        "run": {"command": ["/bin/sh", "-c", (RESHARDS if reshard else "") + OWN % steps]}}, namespace="default"))


def both_saved(p, name):
    """Waits until two ranks live and a checkpoint of both is known."""
    wait_for(f"two ranks of {name}", lambda: {x.rank for x in p.lives(name)} == {0, 1}, 40)
    wait_for(f"a checkpoint of {name}", lambda: p.status(name).get("checkpoint", {}).get("step", 0) >= 40, 40)


def burns_down(p):
    """And comes back with one node."""
    p.kill_target("left")
    p.write_inventory("left", ONE)
    p.start_agent("left")


def rebuilt(p):
    p.write_inventory("left", BOTH)
    p.agents["left"].send_signal(signal.SIGHUP)


def second_lives(p, name, ranks):
    def there():
        found = [x for x in p.lives(name) if x.epoch == "2"]
        return found if {x.rank for x in found} == ranks and all(x.last_step > x.first_step for x in found) else None
    return wait_for(f"ranks {sorted(ranks)} of {name} in epoch 2", there, 60)


def went_on(p, name, found):
    for life in found:
        before = [x for x in p.lives(name) if x.epoch == "1" and x.rank == life.rank]
        p.check(f"rank {life.rank} goes on from a step that it had saved", life.resumed > 0 and life.resumed in before[-1].saved,
                f"{life.resumed} of {before[-1].saved}")


def nothing_was_lost(p, name):
    status = p.ended(name, 90)
    p.check(f"{name} succeeds", status["phase"] == "Succeeded", f"{status['phase']} {status.get('reason', '')}")
    found = p.lives(name)
    bad = [str(x) for x in witness.overlaps(found)] + witness.faults(found) + witness.false_resumes(found)
    p.check(f"{name} never ran twice, and resumed only what was saved", not bad, "; ".join(bad))


def waits_for_as_many_as_saved(p):
    gang(p, "pair", 500, False)
    both_saved(p, "pair")
    burns_down(p)
    status = wait_for("pair to wait for two", lambda: (s := p.status("pair")).get("reason") == "CheckpointRanks" and s, 60)
    p.check("it waits, with its checkpoint", (status["phase"], status["checkpoint"]["ranks"]) == ("Queued", 2), str(status)[:300])
    p.check("the reason names the checkpoint, both numbers and the remedy", all(
        x in status["message"] for x in (status["checkpoint"]["name"], "room for 1 worker;", "saved by 2", "spec.checkpoint.reshard")),
        status["message"])
    text = p.cli("explain", "pair").stdout
    p.check("explain has the reason, and the change that would admit it", "CheckpointRanks" in text and "checkpoint.reshard" in text, text)
    p.check("nothing has started with one", not [x for x in p.lives("pair") if x.epoch != "1"])
    rebuilt(p)
    went_on(p, "pair", second_lives(p, "pair", {0, 1}))
    p.check("it resumed from the catalogue's checkpoint", p.status("pair").get("resumedFrom", "").startswith("pair-e1-s"),
            p.status("pair").get("resumedFrom"))
    nothing_was_lost(p, "pair")


def goes_on_with_one(p):
    gang(p, "bends", 300, True)
    both_saved(p, "bends")
    burns_down(p)
    went_on(p, "bends", second_lives(p, "bends", {0}))
    p.check("with one worker", len(p.status("bends")["placement"]["assignments"]) == 1)
    nothing_was_lost(p, "bends")
    rebuilt(p)


def no_room_will_ever_do(p):
    """Its gang was made smaller than what saved it: it says so, and goes on once it is larger again."""
    gang(p, "edited", 300, False)
    both_saved(p, "edited")
    burns_down(p)
    wait_for("edited to wait", lambda: p.status("edited").get("phase") == "Queued", 60)
    spec = p.workloads()["edited"]["spec"]
    for workers in (1, 2):
        spec["gang"] = {"workers": workers, "minWorkers": 1}
        p.apply(document("Workload", "edited", spec, namespace="default"))
        if workers == 1:
            status = wait_for("edited to say so", lambda: "spec.gang allows" in (s := p.status("edited")).get("message", "") and s, 30)
            p.check("it waits, and says what to ask for", status["reason"] == "CheckpointRanks" and "ask for 2" in status["message"],
                    status["message"])
            rebuilt(p)
            p.check("room changes nothing about it", not wait_or_not(p))
    went_on(p, "edited", second_lives(p, "edited", {0, 1}))
    nothing_was_lost(p, "edited")


def agent_again(p):
    p.agents["left"].terminate()
    p.agents["left"].wait(timeout=20)
    p.start_agent("left")


def the_book_forgets(p):
    """What the agent promised to refuse, of workloads that are gone: an hour later it need not remember it any more, and no state
    that is older than that is believed. New work runs as before."""
    book, runs = p.path("agent-left", "book"), p.path("agent-left", "runs")
    p.cli("delete", "workload", *{x.name for x in p.lives("pair") + p.lives("bends") + p.lives("edited")})
    agent_again(p)  # its next session begins with a sweep
    wait_for("the records of its runs to go", lambda: not os.listdir(runs), 30)
    pages = [n for n in os.listdir(book) if "." not in n]
    p.check("it refuses what ran there", bool(pages), str(pages))
    for name in pages:
        with open(os.path.join(book, name), encoding="utf-8") as file:
            page = json.load(file)
        p.check("a page says to whom, and of which state", len(page["cluster"]) >= 32 and page["rv"] > 0, str(page)[:100])
        page["at"] = 1  # an hour ago, and more
        with open(os.path.join(book, name), "w", encoding="utf-8") as file:
            json.dump(page, file)
    agent_again(p)
    wait_for("the pages to go", lambda: os.listdir(book) == ["floors.json"], 30)
    with open(os.path.join(book, "floors.json"), encoding="utf-8") as file:
        (floor,) = json.load(file)["floors"]
    p.check("and left a floor", floor["rv"] >= page["rv"] and floor["cluster"] == page["cluster"], str(floor))
    p.train("later", 60)
    p.holds("later", [1])


def wait_or_not(p):
    """Until the two nodes are known; has it been placed?"""
    wait_for("both nodes", lambda: p.cli("get", "nodes").stdout.count("left.left-n") == 2, 30)
    return p.status("edited").get("placement")


if __name__ == "__main__":
    sys.exit(run((waits_for_as_many_as_saved, goes_on_with_one, no_room_will_ever_do, the_book_forgets), targets=("left",), nodes={"left": BOTH}))
