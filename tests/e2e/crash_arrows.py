#!/usr/bin/env python3
"""Death at every arrow of a move, with real processes: three members, two agents, a training that is moved. Whoever comes
first by the failpoint that is armed is killed there by SIGKILL (api/base/failpoint.h): the leader, the source's agent, the
destination's, a shim. What died is started again. Then the training must have finished once, never have lived twice, have
resumed only what was saved, have lost at most one interval, and have come to the undisturbed result, bit for bit.

    crash_arrows.py            the arrows that are told apart by what is in the log and on the targets
    crash_arrows.py all        every failpoint that a move passes, learned from an undisturbed one
    crash_arrows.py POINT…     these ("move.start.after", "agent.cut.before@left")
Prints a line for each; exit 1 when any failed, 77 where the build has no failpoints."""
import os
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
# Passed by a move only when something else went wrong, or by every run on its way: not arrows of a move.
NOT_ARROWS = ("driver.call_find", "driver.unknown", "driver.seen", "driver.accepted")


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


def faults_of(p, name):
    """What is wrong with a training that was moved under a crash."""
    found, wrong = p.lives(name), []
    wrong += [str(x) for x in witness.overlaps(found)] + witness.faults(found) + witness.false_resumes(found)
    finished = [x for x in found if x.stopped and x.exit == 0]
    if len(finished) != 1:
        wrong.append(f"finished {len(finished)} times")
    wrong += [f"lost {m.lost} steps: {m}" for m in witness.moves(found) if m.lost > EVERY]
    status = p.status(name)
    if status.get("phase") != "Succeeded":
        wrong.append(f"is {status.get('phase')}: {status.get('reason')} {status.get('message')}")
    path = p.path("results", name + ".0.json")
    if not os.path.exists(path) or p.result(path) != p.undisturbed:
        wrong.append("its result is not the undisturbed one")
    return wrong


def one(p, number, point):
    name, began = f"c{number}", time.monotonic()
    p.arm(None)
    p.train(name, STEPS, every=EVERY, pace=PACE)
    p.steps.pop(name)  # all have the same seed: one undisturbed run serves them all
    p.until(f"{name} to have saved", lambda: any(x.saved for x in p.lives(name)), 30)
    p.arm(point)
    if not point:
        os.truncate(p.passed, 0)  # what it passed on its way here is no arrow of the move
    p.until("the move to be asked for", lambda: p.cli("migrate", name, "--to", "right", check=False).returncode in (0, 5), 20)
    p.until(f"{name} to end", lambda: p.status(name).get("phase") in ("Succeeded", "Failed", "Cancelled"), 90)
    p.until("its move to be over", lambda: all(m["status"].get("endedAt") for m in p.moves_of(name)), 30)
    fired, wrong = p.fired(), faults_of(p, name)
    p.arm(None)
    p.until("all targets", lambda: p.connected() >= {"left", "right"}, 30)
    if point and not fired:
        wrong.append("nobody came by")
    lives = p.lives(name)
    lost = sum(m.lost for m in witness.moves(lives))
    way = " ".join(f"{x.epoch}:{x.target}" for x in lives)
    p.check(f"{point or 'undisturbed':34} {time.monotonic() - began:5.1f} s  lost {lost:2}  {way:24}", not wrong, "; ".join(wrong))


def prepare(p):
    path = p.path("scratch", "undisturbed.json")
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HANSE_")}
    subprocess.run([p.trainer, "--data", os.path.join(os.path.dirname(witness.__file__), "data", "digits.csv"), "--steps", str(STEPS),
                    "--seed", "100", "--result", path], check=True, env=clean, stdout=subprocess.DEVNULL)
    p.undisturbed = p.result(path)
    one(p, 0, None)


def learned(p):
    """The points that one undisturbed move passes, with their roles, as HANSE_FAILPOINT_LIST has told."""
    with open(p.passed, encoding="utf-8") as file:
        seen = {tuple(line.split()[:2]) for line in file}
    return sorted(name if role == "-" else f"{name}@{role}" for name, role in seen if not name.startswith(NOT_ARROWS))


def arrows(p):
    words = sys.argv[1:]
    points = ORDINARY if not words else learned(p) if words == ["all"] else words
    for number, point in enumerate(points, 1):
        try:
            one(p, number, point)
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
