#!/usr/bin/env python3
"""Moves that a user asks for, with two agents and real trainings: there and back, refused with the remedy, given up before
and after the program was told, of a program that knows no signal, of one that ends meanwhile; and checkpoints that were
torn, altered or removed between two epochs. Prints ok or FAILED per check; exit 1 when any failed. HANSE_ONLY names parts."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from moves import phases, run, wait_for, witness  # noqa: E402

WAY = ["Pending", "Quiescing", "Verifying", "Staging", "Fencing", "Starting", "Succeeded"]


def there_and_back(p):
    p.train("tourist", 500)
    first = p.running("tourist", 1, 60)
    done = p.cli("migrate", "tourist", "--to", "right", "--wait", check=False, timeout=60)
    p.check("migrate --wait exits 0", done.returncode == 0, done.stderr.strip()[-200:] if done.returncode else "")
    said = [line.split()[2] for line in done.stderr.splitlines() if len(line.split()) > 2]
    p.check("it tells the phases as they come", [w for w in WAY if w in said] == said and said[-1] == "Succeeded", " ".join(said))
    p.running("tourist", 2)
    (m,) = p.moves_of("tourist")
    s = m["status"]
    p.check("the Migration says from where to where",
            (s["phase"], s["from"], s["to"], s["fromEpoch"], s["toEpoch"], m["spec"]["cause"]) ==
            ("Succeeded", "left", "right", 1, 2, "asked"), json.dumps(s)[:300])
    p.check("each of its steps has a time", phases(m) == [w for w in WAY if w in phases(m)] and len(phases(m)) >= 6 and
            (times := [x["at"] for x in s["phases"]]) == sorted(times), str(phases(m)))
    w, second = p.status("tourist"), p.running("tourist", 2)
    p.check("it went on from the step that it saved", w["resumedStep"] == second.resumed == s["step"] == first_saved(p, "tourist"),
            f"{w.get('resumedStep')} {second.resumed} {s.get('step')}")
    p.check("resumedFrom names a Checkpoint", any(c["metadata"]["name"] == w["resumedFrom"] for c in p.checkpoints("tourist")),
            w.get("resumedFrom"))
    p.check("the pause is told", bool(s.get("pause")), s.get("pause", ""))
    text = p.cli("describe", "migration", m["metadata"]["name"]).stdout
    p.check("describe migration has every step", all(x in text for x in [*phases(m), "left, epoch 1", "right, epoch 2", "Pause:"]))
    text = p.cli("describe", "workload", "tourist").stdout
    p.check("describe workload has what it resumed from, checkpoints and moves",
            all(x in text for x in ("Resumed from:", "CHECKPOINT", "resumes from here", "MOVE", m["metadata"]["name"])))
    wide = p.cli("get", "migrations", "-o", "wide").stdout
    p.check("get migrations", all(x in wide for x in ("tourist", "asked", "left", "right", "Succeeded")), "")
    done = p.cli("migrate", "tourist", "--wait", "-o", "json", timeout=60)
    back = json.loads(done.stdout)
    p.check("without --to it goes to the best other place", back["status"]["to"] == "left", back["status"].get("to"))
    p.running("tourist", 3)
    p.check("nothing is left on the target that it came from", [x.target for x in p.lives("tourist")] == [first.target, "right", "left"])
    p.holds("tourist", [1, 2, 3])
    done = p.cli("migrate", "tourist", check=False)
    p.check("what has ended cannot be moved", done.returncode == 5 and "ended" in done.stderr, done.stderr.strip())


def first_saved(p, name):
    return p.lives(name)[0].saved[-1]


def refused_with_the_remedy(p):
    p.train("stays", 700)
    p.running("stays", 1)
    for words, status, says in ((("stays", "--to", "nowhere"), 3, "hanse get targets"), (("stays", "--to", "left"), 5, "already"),
                                (("nobody",), 3, "nobody"), (("--cancel", "nothing"), 3, "hanse get migrations"), ((), 2, "which workload"),
                                (("stays", "--cancel", "x"), 2, "stands alone")):
        done = p.cli("migrate", *words, check=False)
        p.check(f"migrate {' '.join(words)}: {status}", done.returncode == status and says in done.stderr, done.stderr.strip()[:150])
    for spec, field in (({"cause": "drain"}, "spec.cause"), ({"to": "Not A Name"}, "spec.to")):
        try:
            p.apply({"apiVersion": "hanse.dev/v1alpha1", "kind": "Migration", "metadata": {"name": "own", "namespace": "default"},
                     "spec": {"workload": "stays", **spec}})
            p.check(f"a Migration with {field} {spec}", False, "was taken")
        except Exception as error:  # noqa: BLE001 (whatever apply says)
            p.check(f"a Migration with {spec} is refused", field in str(error), str(error)[:150])


def given_up_before_it_was_told(p):
    """`stays` runs on. Right has no room, so the move waits; nothing is done to the program."""
    p.train("full", 400, gpus=4, targets={"names": ["right"]})
    p.train("full-too", 400, gpus=4, targets={"names": ["right"]})
    for name in ("full", "full-too"):
        p.running(name, 1)
    name = p.cli("migrate", "stays", "--to", "right").stdout.strip()
    m = wait_for("the move to wait for room", lambda: (m := p.moves_of("stays")[-1])["status"].get("phase") == "Reserving" and
                 m["status"].get("reason") and m, 20)
    p.check("it waits, and says why", bool(m["status"].get("message")), f"{m['status']['reason']}: {m['status'].get('message')}")
    done = p.cli("migrate", "stays", check=False)
    p.check("a second move is refused while one is open", done.returncode == 5 and name in done.stderr, done.stderr.strip()[:150])
    status = p.cli("status").stdout
    p.check("hanse status shows what moves", "default/stays" in status and "Reserving" in status)
    done = p.cli("migrate", "stays", "--cancel", name, check=False)
    done = p.cli("migrate", "--cancel", name, "--wait", check=False, timeout=30)
    p.check("--cancel --wait exits 0", done.returncode == 0 and "is cancelled" in done.stdout, done.stderr.strip()[-150:])
    p.check("it is Cancelled", p.moves_of("stays")[-1]["status"]["phase"] == "Cancelled")
    p.check("the workload knows of no move any more", not p.status("stays").get("migration"))
    done = p.cli("migrate", "--cancel", name, check=False)
    p.check("cancelling twice is refused", done.returncode == 5 and "is over" in done.stderr, done.stderr.strip())
    p.holds("stays", [1])
    for name in ("full", "full-too"):
        p.holds(name, [1])


def given_up_after_it_was_told(p):
    p.train("told", 700, "--ignore-stop", checkpoint={"grace": "3s"})
    p.saved("told")
    name = p.cli("migrate", "told", "--to", "right").stdout.strip()
    wait_for("the program to be told", lambda: p.moves_of("told")[-1]["status"].get("phase") == "Verifying", 10, 0.05)
    p.cli("migrate", "--cancel", name)
    m = p.move_over("told")
    p.check("the move ends as Failed or Cancelled, with a reason", m["status"]["phase"] in ("Failed", "Cancelled") and
            bool(m["status"].get("reason")), f"{m['status']['phase']} {m['status'].get('reason')}: {m['status'].get('message')}")
    p.check("describe tells the way back", "Way back:" in p.cli("describe", "migration", name).stdout)
    p.check("nothing is held any more", not m["status"].get("placement"))
    p.holds("told", [1, 2], lost=40)


def knows_no_signal(p):
    """It goes on until it is killed at the end of its grace; then it loses what it did since it last saved."""
    p.train("deaf", 600, "--ignore-stop", checkpoint={"grace": "2s"})
    p.saved("deaf")
    done = p.cli("migrate", "deaf", "--to", "right", "--wait", check=False, timeout=60)
    p.check("it is moved all the same", done.returncode == 0, done.stderr.strip()[-200:])
    m = p.moves_of("deaf")[-1]
    # Counted from when its last checkpoint came into the catalogue, which is with its end: next to nothing.
    p.check("what was lost is told", 0 <= m["status"].get("lostGpuSeconds", -1) < 40 * 0.02 + 2, str(m["status"].get("lostGpuSeconds")))
    p.holds("deaf", [1, 2], lost=40)
    (move,) = witness.moves(p.lives("deaf"))
    p.check("it was killed, not asked twice", not move.old.stopped, str(move.old))


def ends_meanwhile(p):
    p.train("done", 160, "--ignore-stop", checkpoint={"grace": "20s"})
    p.running("done", 1, 60)
    done = p.cli("migrate", "done", "--to", "right", "--wait", check=False, timeout=60)
    p.check("migrate --wait exits with an error that says so", done.returncode != 0 and "error:" in done.stderr, done.stderr.strip()[-200:])
    m = p.move_over("done")
    p.check("the move is given up", m["status"]["phase"] in ("Failed", "Cancelled"), f"{m['status'].get('reason')}: {m['status'].get('message')}")
    p.holds("done", [1])


def spoilt_checkpoints(p):
    """Held, spoilt, let go again: it must say which file, and resume from the newest that is whole."""
    p.train("spoilt", 700, checkpoint={"keep": 6})
    p.saved("spoilt", 4)
    p.suspend("spoilt", True)
    wait_for("it to be held", lambda: p.status("spoilt").get("phase") == "Queued", 20)
    catalogue = p.saved("spoilt", 4)
    folder = os.path.dirname(catalogue[0]["spec"]["locations"][0]["url"])
    p.check("the catalogue has each with step, bytes, digest and place",
            all(c["spec"]["digest"].startswith("sha256:") and c["spec"]["bytes"] and c["spec"]["step"] and
                os.path.exists(c["spec"]["locations"][0]["url"]) for c in catalogue), str([c["spec"]["step"] for c in catalogue]))

    def state(step):
        base = os.path.join(folder, "0", f"s{step}")
        return os.path.join(base, next(n for n in os.listdir(base) if n != "manifest.json"))

    def spoil(path, how):
        os.chmod(path, 0o644)
        with open(path, "rb") as file:
            content = bytearray(file.read())
        os.unlink(path)  # linked files are one: a new one keeps the others whole
        if how == "altered":
            content[len(content) // 2] ^= 1
        if how != "missing":
            with open(path, "wb") as file:
                file.write(content[:-8] if how == "torn" else content)

    steps = [c["spec"]["step"] for c in catalogue]
    for step, how in zip(steps, ("altered", "torn", "missing")):
        spoil(state(step), how)
    p.suspend("spoilt", False)
    second = wait_for("it to go on", lambda: (x := p.lives("spoilt"))[-1].resumed >= 0 and x[-1], 60)
    p.check("it resumes from the newest that is whole", second.resumed == steps[3], f"{second.resumed} of {steps}")
    told = {c["spec"]["step"]: c.get("status", {}) for c in p.checkpoints("spoilt")}
    for step, how, codes in zip(steps, ("altered", "torn", "missing"), (("CheckpointAltered",), ("CheckpointTorn",),
                                                                       ("CheckpointMissing", "CheckpointTorn"))):
        s = told.get(step, {})
        p.check(f"the {how} one says why it is not resumed from", s.get("reason") in codes and bool(s.get("message")),
                f"{s.get('reason')}: {s.get('message')}")
    text = p.cli("describe", "workload", "spoilt").stdout
    p.check("describe workload shows it", "CheckpointAltered" in text and "resumes from here" in text)
    wait_for("an Event that tells that work is lost", lambda: "CheckpointBad" in p.cli("describe", "workload", "spoilt").stdout, 20)
    p.holds("spoilt", [1, 2], lost=1000)


def destination_lost_while_it_reads(p):
    """The destination stands still from the moment that it is held, and is killed before it has read anything."""
    p.train("stranded", 700)
    p.saved("stranded")
    p.cut_off("right")
    p.cli("migrate", "stranded", "--to", "right")
    wait_for("the destination to be asked", lambda: p.moves_of("stranded")[-1]["status"].get("phase") in
             ("Verifying", "Staging", "Failed"), 15, 0.05)
    p.kill_target("right")
    m = p.move_over("stranded", 60)
    p.check("the move fails and says why", m["status"]["phase"] == "Failed" and bool(m["status"].get("message")),
            f"{m['status'].get('reason')}: {m['status'].get('message')}")
    p.check("its destination is let go", not m["status"].get("placement"))
    p.holds("stranded", [1, 2])
    p.check("it never ran on the target that was lost", {x.target for x in p.lives("stranded")} == {"left"})
    p.start_agent("right")
    wait_for("right to be connected again", lambda: "right" in p.connected(), 30)


def must_save_to_be_moved(p):
    """checkpoint.required: a stop that left nothing to resume from is a failure, not a silent start from the beginning."""
    p.train("careless", 900, "--ignore-stop", every=0, checkpoint={"grace": "1s", "required": True})
    p.running("careless", 1, 30)
    done = p.cli("migrate", "careless", "--to", "right", "--wait", check=False, timeout=60)
    p.check("the move fails", done.returncode != 0, done.stderr.strip()[-200:])
    s = p.ended("careless")
    p.check("the workload has Failed, and says that it saved nothing", s["phase"] == "Failed" and "heckpoint" in
            s.get("reason", "") + s.get("message", ""), f"{s['phase']} {s.get('reason')}: {s.get('message')}")
    p.check("it was not begun anew", [int(x.epoch) for x in p.lives("careless")] == [1])


if __name__ == "__main__":
    sys.exit(run((there_and_back, refused_with_the_remedy, given_up_before_it_was_told, given_up_after_it_was_told, knows_no_signal,
                  ends_meanwhile, spoilt_checkpoints, must_save_to_be_moved, destination_lost_while_it_reads)))
