#!/usr/bin/env python3
"""Death at every arrow of a move, with real processes: three members, two agents, a training that is moved. Whoever comes
first by the failpoint that is armed is killed there by SIGKILL (api/base/failpoint.h): the leader, the source's agent, the
destination's, a shim. What died is started again. Then the training must have finished once, never have lived twice, have
resumed only what was saved, have lost at most one interval, and have come to the undisturbed result, bit for bit.

    crash_arrows.py            the arrows that are told apart by what is in the log and on the targets
    crash_arrows.py all        every failpoint that is passed by a move that was asked for, of a gang, by a drain, or given up;
                               learned from an undisturbed one of each. Those that none passes must have a reason in UNPASSED
    crash_arrows.py POINT…     these ("move.start.after", "agent.cut.before@left")
Prints a line for each; exit 1 when any failed, 77 where the build has no failpoints."""
import glob
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from moves import Failure, Moves, run, wait_for, witness  # noqa: E402

STEPS, EVERY, PACE = 220, 20, 10
ORDINARY = (
    "move.reserve.before move.quiesce.after driver.call_quiesce.sent driver.ended.before move.verify.after "
    "move.read.sent move.stage.before move.start.before move.start.after driver.dispatch.after driver.call_submit.sent "
    "driver.running.before move.commit.before move.commit.after "
    "agent.quiesce.after@left agent.cut.before@left agent.cut.after@left agent.ended.before@left "
    "agent.stage.before@right agent.submit.before@right agent.submit.after@right agent.start.after@right "
    "shim.seal.before@left-shim shim.seal.after@left-shim shim.exit.before@left-shim shim.exit.before@right-shim "
    "shim.exit.after@right-shim shim.end.before@left-shim shim.end.after@left-shim shim.end.before@right-shim "
    "shim.verify.after@right-shim shim.start.after@right-shim").split()
# Every point is driven by the first of these ways that passes it: how many steps, how many ranks.
WAYS = {"asked": (220, 1), "gang": (220, 2), "drain": (220, 1), "given up": (600, 1)}
# Points that no move without a fault passes, by the start of their names. That is checked: one that is passed is driven.
UNPASSED = {
    "driver.pending": "its target has a queue of its own, which an agent has not",
    "driver.seated": "its target has a queue of its own, which an agent has not",
    "driver.absent": "the target refuses what it is to resume from, or says that it was never started",
    "driver.accepted": "the answer to a submit comes ahead of its first observation",
    "driver.call_find": "an answer was lost: what is there is looked up",
    "driver.call_stop": "the program did not end by itself",
    "driver.stop": "a user stops it",
    "driver.quiesce": "a user suspends it; a move quiesces by a step of its own",
    "driver.requeue": "its target fell silent before it was started",
    "driver.lease_over": "its target stayed silent for longer than the lease",
    "driver.seen": "its target was unknown and came back",
    "driver.unknown": "its target fell silent",
    "machine.": "no machine is ordered",
    "shim.gather": "without an agent the ranks look for their cuts themselves",
    "shim.publish": "the store is elsewhere; here it is a folder",
}
TRIES, SELDOM_MAX = 4, 6  # a point that depends on what comes first may not be passed by each move

class Arrows(Moves):
    def __init__(self, *words, **how):
        super().__init__(*words, **how)
        self.armed, self.passed = self.path("armed"), self.path("passed")
        os.environ["HANSE_FAILPOINT_FILE"], os.environ["HANSE_FAILPOINT_LIST"] = self.armed, self.passed

    def start_agent(self, target):
        os.environ["HANSE_FAILPOINT_ROLE"] = target
        try:
            super().start_agent(target)
        finally:
            del os.environ["HANSE_FAILPOINT_ROLE"]

    def revive(self):
        """Agents that died are started again; members are `hanse dev`'s, shims come with the next run."""
        for target, agent in list(self.agents.items()):
            if agent.poll() is not None:
                self.start_agent(target)

    def until(self, what, condition, seconds):
        def look():
            self.revive()
            try:
                return condition()
            except (Failure, subprocess.TimeoutExpired, ValueError, KeyError):
                return None  # a member is just being started again
        return wait_for(what, look, seconds)

    def arm(self, point):
        for path in (self.armed, self.armed + ".fired"):
            if os.path.exists(path):
                os.unlink(path)
        if point:
            with open(self.armed + ".new", "w", encoding="utf-8") as file:
                file.write(point + "\n")
            os.rename(self.armed + ".new", self.armed)

    def fired(self):
        return os.path.exists(self.armed + ".fired")


def faults_of(p, name, way):
    """What is wrong with a training that was moved under a crash."""
    found, wrong = p.lives(name), []
    wrong += [str(x) for x in witness.overlaps(found)] + witness.faults(found) + witness.false_resumes(found)
    finished = sorted(x.rank for x in found if x.stopped and x.exit == 0)
    ranks = list(range(WAYS[way][1]))
    if finished != ranks:
        wrong.append(f"ranks that finished: {finished}")
    wrong += [f"lost {m.lost} steps: {m}" for m in witness.moves(found) if m.lost > EVERY]
    status = p.status(name)
    if status.get("phase") != "Succeeded":
        wrong.append(f"is {status.get('phase')}: {status.get('reason')} {status.get('message')}")
    for rank in ranks:
        path = p.path("results", f"{name}.{rank}.json")
        if not os.path.exists(path) or p.result(path) != p.undisturbed[way][rank]:
            wrong.append(f"the result of rank {rank} is not the undisturbed one")
    return wrong


def ask(p, name, way):
    """Has the move begun (and, given up, been cancelled)?"""
    if way == "drain":
        p.cli("drain", "left", check=False)
        return bool(p.moves_of(name))
    if way != "given up":
        return p.cli("migrate", name, "--to", "right", check=False).returncode in (0, 5)
    if not p.moves_of(name):
        p.cli("migrate", name, "--to", "right", check=False)
    move = p.moves_of(name)[-1]
    if move["status"].get("phase") != "Reserving":
        return move["status"].get("phase") == "Cancelled"
    p.cli("migrate", "--cancel", move["metadata"]["name"], check=False)
    return False


def come_by(p, name, point, way):
    """One training, moved that way, with the point armed. Whether somebody died there; and what is wrong."""
    steps, world = WAYS[way]
    p.arm(None)
    p.train(name, steps, every=EVERY, pace=PACE, **({"gang": {"workers": world}} if world > 1 else {}))
    p.steps.pop(name)  # all have the same seed: one undisturbed run serves them all
    p.until(f"{name} to have saved", lambda: len({x.rank for x in p.lives(name) if x.saved}) == world, 30)
    os.truncate(p.passed, 0)  # what it passed on its way here is no arrow of the move
    p.arm(point)
    p.until("the move to be asked for", lambda: ask(p, name, way), 20)
    p.until(f"{name} to end", lambda: p.status(name).get("phase") in ("Succeeded", "Failed", "Cancelled"), 90)
    p.until("its move to be over", lambda: all(m["status"].get("endedAt") for m in p.moves_of(name)), 30)
    fired, wrong = p.fired(), faults_of(p, name, way)
    p.arm(None)
    p.until("all targets", lambda: p.connected() >= {"left", "right"}, 30)
    if way == "drain":
        p.until("left to take work again", lambda: p.cli("uncordon", "left", check=False).returncode == 0, 30)
    return fired, wrong


def passed(p):
    """The points that were passed since a move was asked for, with their roles, as HANSE_FAILPOINT_LIST tells."""
    with open(p.passed, encoding="utf-8") as file:
        seen = {tuple(line.split()[:2]) for line in file}
    return {name if role == "-" else f"{name}@{role}" for name, role in seen}


def one(p, number, point, way="asked"):
    began, seldom = time.monotonic(), False
    for attempt in range(TRIES):
        name = f"c{number}-{attempt}"
        fired, wrong = come_by(p, name, point, way)
        if fired or wrong or not point:
            break
        if point in passed(p):
            wrong.append("it was passed, and nobody died")
    else:
        seldom = not wrong
    lives = p.lives(name)
    lost = max((m.lost for m in witness.moves(lives)), default=0)
    trip = " ".join(f"{x.epoch}:{x.target}" for x in lives) if not seldom else f"not passed by {TRIES} moves: it depends on what comes first"
    p.check(f"{point or 'undisturbed':34} {way:8} {time.monotonic() - began:5.1f} s  lost {lost:2}  {trip:24}", not wrong, "; ".join(wrong))
    return seldom


def prepare(p):
    data = os.path.join(os.path.dirname(witness.__file__), "data", "digits.csv")
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HANSE_")}
    p.undisturbed = {}
    for way, (steps, world) in WAYS.items():
        for rank in range(world):
            path = p.path("scratch", f"undisturbed.{rank}.json")
            subprocess.run([p.trainer, "--data", data, "--steps", str(steps), "--seed", "100", "--rank", str(rank), "--world", str(world),
                            "--result", path], check=True, env=clean, stdout=subprocess.DEVNULL)
            p.undisturbed.setdefault(way, []).append(p.result(path))


def filled(p, on):
    """Right has no room, so that a move there waits until it is given up."""
    if on:
        p.train("filler", 100000, every=0, pace=50, gpus=4, gang={"workers": 2}, targets={"names": ["right"]})
        p.running("filler")
        p.steps.pop("filler")
    else:
        p.until("the filler to go", lambda: p.cli("delete", "workload", "filler", check=False).returncode == 0, 20)


def points_of_the_source():
    """Every failpoint that the sources name."""
    top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    names = set()
    for layer in ("connectors", "controlplane"):
        for path in glob.glob(os.path.join(top, layer, "**", "*.c"), recursive=True):
            with open(path, encoding="utf-8") as file:
                names |= set(re.findall(r'"((?:move|driver|agent|shim)\.\w+\.(?:before|after|sent|answered|looked))"', file.read()))
    return names


def every_arrow(p):
    seen, seldom, count = set(), [], 0
    for way in WAYS:
        if way == "given up":
            filled(p, True)
        one(p, f"{count}-learn", None, way)
        points = sorted(passed(p) - seen)
        seen |= set(points)
        for point in points:
            count += 1
            try:
                if one(p, count, point, way):
                    seldom.append(point)
            except (Failure, subprocess.SubprocessError) as error:
                p.check(f"{point:34} {way}", False, str(error))
        if way == "given up":
            filled(p, False)
    names = {point.partition("@")[0] for point in seen}
    unknown = sorted(x for x in points_of_the_source() - names if not x.startswith(tuple(UNPASSED)))
    p.check("whoever is passed by no move has a reason", not unknown, " ".join(unknown))
    p.check("few depend on what comes first", len(seldom) <= SELDOM_MAX, " ".join(seldom))
    print(f"    {count} arrows")


def arrows(p):
    words = sys.argv[1:]
    if words == ["all"]:
        every_arrow(p)
        return
    points = words or ORDINARY
    one(p, 0, None)
    for number, point in enumerate(points, 1):
        try:
            if one(p, number, point):
                p.check(f"{point:34}", False, "nobody came by")
        except (Failure, subprocess.SubprocessError) as error:
            p.check(f"{point:34}", False, str(error))
    print(f"    {len(points)} arrows")


def failpoints_built(hanse):
    """A binary without them takes this for nothing; one with them refuses it."""
    done = subprocess.run([hanse, "version"], env={**os.environ, "HANSE_FAILPOINT": "=nonsense"}, capture_output=True, check=False)
    return done.returncode == 64


def main():
    if not failpoints_built(os.environ.get("HANSE", "false")):
        print("this build has no failpoints (CMake option HANSE_FAILPOINTS)")
        return 77
    return run((prepare, arrows), kind=Arrows, members=3)


if __name__ == "__main__":
    sys.exit(main())
