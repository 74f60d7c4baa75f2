#!/usr/bin/env python3
"""Clocks that are wrong, on the real binary: the leader's steps 400 days ahead for 20 s, then a follower's an hour back, then a
single member's 400 days ahead and over a restart. Asked of Hanse is only what a user would ask it; what time it is, this program
knows. Prints ok or FAILED per check; exit 1 when any failed. Needs a build with failpoints (all but release)."""
import datetime
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.dont_write_bytecode = True
from federation import Failure, Federation, wait_for  # noqa: E402

DAYS_400 = 400 * 86400 * 1000
WRONG_S = 20
BOUND_S = 5 + 2


class Clocks(Federation):
    def __init__(self, hanse, folder, members):
        super().__init__(hanse, "/bin/false", folder, targets=[], members=members)
        self.failed, self.names = 0, 0
        self.shifts = self.path("shifts")
        os.environ["HANSE_WALL_SHIFT_FILE"] = self.shifts

    def check(self, what, good, detail=""):
        self.failed += not good
        print(f"  {'ok    ' if good else 'FAILED'}  {what}" + (f": {detail}" if detail != "" else ""), flush=True)
        return good

    def shift(self, pid=None, ms=0):
        text = f"{pid} {ms}\n" if pid else ""
        with open(self.shifts + ".new", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(self.shifts + ".new", self.shifts)

    def created(self):
        """Creates a Namespace; how far its creation time is from now, in s."""
        self.names += 1
        name = f"n{self.names}"
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        done = subprocess.run([self.hanse, "apply", "-f", "-"], input=json.dumps(document), capture_output=True, text=True, timeout=40,
                              check=False, env={**os.environ, "KUBECONFIG": self.path("kubeconfig")})
        if done.returncode:
            raise Failure(f"apply: {done.stderr.strip()[:300]}")
        got = json.loads(self.cli("get", "namespace", name, "-o", "json").stdout)["metadata"]["creationTimestamp"]
        at = datetime.datetime.fromisoformat(got.replace("Z", "+00:00"))
        return (at - datetime.datetime.now(datetime.timezone.utc)).total_seconds()

    def leader(self):
        return next((m for m in self.members() if m["role"] == "leader" and m["pid"]), None)

    def settled(self):
        return wait_for("a leader", self.leader, 20)

    def page(self, member, path):
        at = urllib.request.Request(member["url"] + path)
        context = ssl.create_default_context(cafile=self.path("pki", "ca.crt"))
        context.check_hostname = False
        certificate = [x for x in os.listdir(self.path("pki")) if x.endswith(".crt") and x not in ("ca.crt",)]
        for name in ("admin.crt", "user.crt", *certificate):
            if os.path.exists(self.path("pki", name)):
                context.load_cert_chain(self.path("pki", name), self.path("pki", name[:-4] + ".key"))
                break
        with urllib.request.urlopen(at, context=context, timeout=5) as answer:
            return answer.read().decode()

    def alarms(self):
        return json.loads(self.cli("status", "-o", "json").stdout).get("alarms", [])


def the_leader_is_ahead(c):
    old = c.settled()
    c.check("entries are stamped with the time", abs(c.created()) < BOUND_S)
    c.shift(old["pid"], DAYS_400)
    until, worst, seen, elsewhere = time.monotonic() + WRONG_S, 0.0, None, False
    while time.monotonic() < until:
        worst = max(worst, abs(c.created()))
        seen = seen or next((a for a in c.alarms() if a["alarm"] == "clock" and a["member"] == old["id"]), None)
        leads = c.leader()
        elsewhere |= leads is not None and leads["id"] != old["id"]
        time.sleep(0.2)
    c.check("no entry is stamped ahead while the leader's clock is 400 days ahead", worst < BOUND_S, f"{worst:.1f} s")
    c.check("it does not go on leading", elsewhere)
    c.check("its alarm is in hanse status", seen is not None, (seen or {}).get("message", ""))
    c.check("hanse status says it in words", "ALARM clock of member" in c.cli("status").stdout)
    c.check("it is ready all the same, and /readyz says what is wrong", "alarm clock: " in c.page(old, "/readyz"))
    metrics = c.page(old, "/metrics")
    c.check("it is in the metrics", 'hanse_alarm{alarm="clock"} 1' in metrics and "hanse_clock_skew_seconds{member=" in metrics)
    c.shift()
    wait_for("the alarm to be over", lambda: not any(a["alarm"] == "clock" for a in c.alarms()), 20)
    c.check("afterwards entries are stamped with the time", abs(c.created()) < BOUND_S)


def a_follower_lags(c):
    leader = c.settled()
    other = next(m for m in c.members() if m["id"] != leader["id"])
    c.shift(other["pid"], -3600 * 1000)
    wait_for("the alarm of who lags", lambda: any(a["alarm"] == "clock" and a["member"] == other["id"] for a in c.alarms()), 20)
    c.check("who lags is told and harms nothing", abs(c.created()) < BOUND_S)
    os.kill(leader["pid"], signal.SIGSTOP)
    try:
        wait_for("another leader", lambda: (x := c.leader()) and x["id"] != leader["id"], 20)
        c.check("nor with half of the clocks gone", abs(c.created()) < BOUND_S)
    finally:
        os.kill(leader["pid"], signal.SIGCONT)
        c.shift()


def one_member_alone(c):
    only = c.settled()
    c.check("entries are stamped with the time", abs(c.created()) < BOUND_S)
    c.shift(only["pid"], DAYS_400)
    until, worst = time.monotonic() + WRONG_S, 0.0
    while time.monotonic() < until:
        worst = max(worst, abs(c.created()))
        time.sleep(0.5)
    c.check("a single member's clock that steps 400 days stamps nothing", worst < BOUND_S, f"{worst:.1f} s")
    c.check("it is told", any(a["alarm"] == "clock" for a in c.alarms()))
    os.environ["HANSE_WALL_SHIFT_FILE"] = c.shifts
    c.shift(0, 0)
    with open(c.shifts, "w", encoding="utf-8") as file:
        file.write(f"0 {DAYS_400}\n")
    os.kill(only["pid"], signal.SIGKILL)
    wait_for("it to be back", lambda: (x := c.leader()) and x["pid"] != only["pid"], 30)
    worst = abs(c.created())
    c.check("nor when it starts again with that clock", worst < BOUND_S + 20, f"{worst:.1f} s")
    c.shift()


def main():
    hanse = os.environ.get("HANSE", "")
    if not os.access(hanse, os.X_OK):
        print("there is no hanse: set HANSE")
        return 77
    failed = 0
    for members, parts in ((3, (the_leader_is_ahead, a_follower_lags)), (1, (one_member_alone,))):
        folder = tempfile.mkdtemp(prefix="hanse-clocks-")
        c = Clocks(hanse, folder, members)
        try:
            c.start_members()
            for part in parts:
                print(part.__name__.replace("_", " "), flush=True)
                part(c)
        except (Failure, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
            c.check("it could be done", False, f"{type(error).__name__}: {error}")
        finally:
            c.stop()
        failed += c.failed
        if c.failed or os.environ.get("HANSE_KEEP"):
            print(f"logs are kept in {folder}")
        else:
            shutil.rmtree(folder)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
