#!/usr/bin/env python3
"""What left the state is still explained: by its own time to live, by a user's deletion, on every member, after kill -9 of the
leader and of all members. Prints ok or FAILED per check; exit 1 when any failed."""
import json
import os
import signal
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.path.insert(0, os.path.join(TOP, "tests", "e2e", "lib"))
sys.dont_write_bytecode = True
from federation import wait_for  # noqa: E402
from moves import run  # noqa: E402

CONTEXTS = ("dev", "dev-m2", "dev-m3")


def explained(p, name, *words):
    """By every member, with those words in it."""
    for context in CONTEXTS:
        done = p.cli("explain", name, "--context", context, check=False)
        missing = [w for w in words if w not in done.stdout]
        p.check(f"{context} explains {name}", done.returncode == 0 and not missing,
                f"lacks {missing}: {(done.stdout + done.stderr)[:300]}" if missing or done.returncode else "")


def its_own_time_to_live(p):
    p.train("short", 40, ttlSecondsAfterFinished=0)
    p.train("stays", 40)
    p.ended("stays")
    wait_for("short to leave the state", lambda: "short" not in p.workloads(), 90)
    decisions = json.loads(p.cli("get", "decisions", "-o", "json").stdout)["items"]
    p.check("its decisions went with it", not [d for d in decisions if d["spec"]["workload"] == "short"])
    explained(p, "short", "Out of the archive", "hanse:retention", "left")
    p.check("what stays has its own explanation", "archive" not in p.cli("explain", "stays").stdout)
    found = json.loads(p.cli("explain", "short", "-o", "json").stdout)
    p.check("as JSON it is the decision", found["kind"] == "Decision" and found["spec"]["workload"] == "short")
    p.check("what never was is not found", p.cli("explain", "nobody", check=False).returncode != 0)


def a_user_deletes_it(p):
    p.train("gone", 4000)
    p.running("gone")
    p.cli("delete", "workload", "gone")
    wait_for("gone to be gone", lambda: "gone" not in p.workloads(), 60)
    explained(p, "gone", "Out of the archive", "left")
    status = json.loads(p.cli("status", "-o", "json").stdout)["archive"]
    p.check("status tells of the archive", status["records"] >= 4 and status["missing"] == 0, str(status))


def another_of_the_same_name(p):
    p.train("gone", 40, ttlSecondsAfterFinished=0)
    p.ended("gone") if "gone" in p.workloads() else None
    wait_for("the second one to leave", lambda: "gone" not in p.workloads(), 90)
    explained(p, "gone", "hanse:retention")


def members_die(p):
    p.kill_leader()
    wait_for("another leader", lambda: p.cli("status", check=False).returncode == 0, 20)
    wait_for("short to be explained", lambda: p.cli("explain", "short", check=False).returncode == 0, 20)
    for m in p.members():
        if m.get("pid") and m["pid"] != p.dev.pid:
            os.kill(m["pid"], signal.SIGKILL)
    wait_for("the members to be back", lambda: p.cli("status", check=False).returncode == 0, 30)
    wait_for("all members to answer", lambda: all(
        p.cli("explain", "short", "--context", c, check=False).returncode == 0 for c in CONTEXTS), 40)
    explained(p, "gone", "hanse:retention")
    explained(p, "short", "hanse:retention")


def secrets_are_not_in_it(p):
    canary = "canary-5f1e77a0"
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "default"},
                   "stringData": {"key": canary}}, file)
        file.flush()
        p.cli("apply", "-f", file.name)
    p.cli("delete", "secret", "key")
    done = subprocess.run(["grep", "-rlc", canary, p.dir, "--include=*.hsa", "--include=snapshot*"], capture_output=True,
                          text=True, check=False)
    p.check("no secret is in any file of it", not done.stdout, done.stdout)


if __name__ == "__main__":
    sys.exit(run([its_own_time_to_live, a_user_deletes_it, another_of_the_same_name, members_die, secrets_are_not_in_it],
                 members=3, targets=("left",)))
