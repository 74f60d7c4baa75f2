#!/usr/bin/env python3
"""An entry of the log that no member can apply, on the real binary: members stop serving writes and stay up, say which entry it is and
why, come no further by being started again, and go on as one after the operator's act on each of them. Asked of Hanse is only what
an operator reads. Prints ok or FAILED per check; exit 1 when any failed. Needs a build with failpoints (all but release)."""
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.dont_write_bytecode = True
from federation import Failure, Federation, descendants, start_time, wait_for  # noqa: E402

MEMBERS = ("m1", "m2", "m3")


class Poisoned(Federation):
    def __init__(self, hanse, folder):
        super().__init__(hanse, "/bin/false", folder, targets=[], members=len(MEMBERS))
        self.failed = 0
        self.failpoint = self.path("failpoint")
        os.environ["HANSE_FAILPOINT_FILE"] = self.failpoint

    def check(self, what, good, detail=""):
        self.failed += not good
        print(f"  {'ok    ' if good else 'FAILED'}  {what}" + (f": {detail}" if detail != "" else ""), flush=True)
        return good

    def create(self, name):
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        return self.cli("apply", "-f", "-", text=json.dumps(document), check=False, timeout=60)

    def named(self):
        return {x["metadata"]["name"] for x in json.loads(self.cli("get", "namespaces", "-o", "json").stdout)["items"]}

    def page(self, url, path):
        """Status and text of a page of one member; anybody may read these."""
        context = ssl.create_default_context(cafile=self.path("pki", "ca.crt"))
        context.check_hostname = False
        try:
            request = urllib.request.Request(url + path, headers=self.login.headers)
            for name in sorted(os.listdir(self.path("pki"))):
                if name.startswith(("admin", "user")) and name.endswith(".crt"):
                    context.load_cert_chain(self.path("pki", name), self.path("pki", name[:-4] + ".key"))
                    break
            with urllib.request.urlopen(request, context=context, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ready(self):
        return [self.page(url, "/readyz") for url in self.login.servers]

    def all_stopped(self):
        pages = self.ready()
        return pages if len(pages) == len(MEMBERS) and all(s == 503 and "apply-stopped" in t for s, t in pages) else None

    def all_serve(self):
        pages = self.ready()
        return len(pages) == len(MEMBERS) and all(s == 200 for s, _ in pages)

    def digests(self):
        """{(entry, digest)} of all members: one pair when they are as one."""
        found = set()
        for url in self.login.servers:
            status = json.loads(self.cli("status", "--server", url, "-o", "json").stdout)
            found.add((status["appliedIndex"], status["digest"]))
        return found

    def power_off(self):
        below = descendants(self.dev.pid)
        self.dev.kill()
        self.dev.wait()
        for pid, begun in below:
            if start_time(pid) == begun:
                os.kill(pid, signal.SIGKILL)
        wait_for("the members to be gone", lambda: all(start_time(pid) != begun for pid, begun in below), 10)

    def power_on(self):
        argv = [self.hanse, "dev", "--members", str(self.count), "--dir", self.dir]
        self.dev = self._spawn("dev", argv)

    def skip(self, name, *words):
        return subprocess.run([self.hanse, "server", "skip-entry", "--data", self.path(name), *words], capture_output=True, text=True,
                              timeout=20, check=False)


def members_stop(p):
    p.check("a write is taken", p.create("before").returncode == 0)
    with open(p.failpoint, "w", encoding="utf-8") as file:
        file.write("log.entry=plant\n")
    done = p.create("lost")
    p.check("whoever wrote it is not told that it was done", done.returncode != 0, done.stderr.strip()[:160])
    p.check("the entry went into the log", os.path.exists(p.failpoint + ".fired"))
    pages = wait_for("all members to stop at it", p.all_stopped, 60)
    p.check("/readyz says which entry it is", all(re.search(r"stopped at entry \d+ .*checksum [0-9a-f]{64}", t) for _, t in pages), pages[0][1])
    p.check("nobody is told to wipe data", not any(re.search(r"wipe|delete the data|empty the data", t) for _, t in pages))
    metrics = [p.page(url, "/metrics")[1] for url in p.login.servers]
    p.check("it is in the metrics", all('hanse_alarm{alarm="apply-stopped"} 1' in m for m in metrics))
    status = p.cli("status", check=False)
    p.check("hanse status says it, and what to do", "apply-stopped" in status.stdout and "skip-entry" in status.stdout,
            (status.stdout + status.stderr).strip()[-400:])
    with open(p.path("log", "dev.log"), encoding="utf-8", errors="replace") as file:
        logged = file.read()
    for name in MEMBERS:
        own = p.path(name + ".log")
        if os.path.exists(own):
            with open(own, encoding="utf-8", errors="replace") as file:
                logged += file.read()
    p.check("it is in the log", "alarm.raised" in logged and "apply-stopped" in logged)
    done = p.create("refused")
    p.check("a further write is refused", done.returncode != 0, done.stderr.strip()[:200])
    p.check("the processes live on", all(m["pid"] for m in p.members()) if p.cli("members", "-o", "json", check=False).returncode == 0 else
            p.dev.poll() is None)


def being_started_again_changes_nothing(p):
    p.power_off()
    p.power_on()
    wait_for("all members to stop at the same entry again", p.all_stopped, 90)
    p.check("all have stopped again", True)


def the_operator_steps_over_it(p):
    _, text = p.all_stopped()[0]
    index, checksum = re.search(r"stopped at entry (\d+) .*checksum ([0-9a-f]{64})", text).groups()
    words = ["--by", "alice", "--reason", "a disk gave other bytes than it was given"]
    p.power_off()
    wrong = p.skip("m1", "--index", str(int(index) + 1), "--checksum", checksum, *words)
    p.check("another entry is refused", wrong.returncode != 0 and f"entry {index}" in wrong.stderr, wrong.stderr.strip())
    wrong = p.skip("m1", "--index", index, "--checksum", "0" * 64, *words)
    p.check("another checksum is refused", wrong.returncode != 0 and checksum in wrong.stderr, wrong.stderr.strip())
    first = p.skip("m1", "--index", index, "--checksum", checksum, *words)
    at = re.search(r"--at (\S+)", first.stdout)
    p.check("the act is recorded, and what to say elsewhere is told", first.returncode == 0 and at is not None, first.stdout + first.stderr)
    for name in MEMBERS[1:]:
        done = p.skip(name, "--index", index, "--checksum", checksum, *words, "--at", at.group(1))
        p.check(f"the same on {name}", done.returncode == 0, done.stderr.strip())
    p.power_on()
    wait_for("all members to serve again", p.all_serve, 90)
    p.check("a write is taken again", p.create("after").returncode == 0)
    agree(p)
    names = p.named()
    p.check("what was before is there, what the entry said is not", {"before", "after"} <= names and "lost" not in names, str(sorted(names)))
    events = json.loads(p.cli("get", "events", "-n", "hanse-system", "-o", "json").stdout)["items"]
    p.check("the act is in the state", any(e["reason"] == "EntrySkipped" and "alice" in e["message"] for e in events))


def agree(p):
    def same():
        listed = json.loads(p.cli("status", "-o", "json").stdout)
        return listed if not listed.get("alarms") else None

    wait_for("no member to have an alarm", same, 30)
    pair = wait_for("all members to be at one entry", lambda: len(d := p.digests()) == 1 and d, 30)
    p.check("all members have one digest at one entry", True, str(pair))


def and_a_restart_later(p):
    p.power_off()
    p.power_on()
    wait_for("all members to serve again", p.all_serve, 90)
    p.check("a write is taken", p.create("later").returncode == 0)
    agree(p)
    p.check("nothing is lost", {"before", "after", "later"} <= p.named())


def main():
    hanse = os.environ.get("HANSE", "")
    if not os.access(hanse, os.X_OK):
        print("there is no hanse: set HANSE")
        return 77
    folder = tempfile.mkdtemp(prefix="hanse-skip-")
    p = Poisoned(hanse, folder)
    try:
        p.start_members()
        for part in (members_stop, being_started_again_changes_nothing, the_operator_steps_over_it, and_a_restart_later):
            print(part.__name__.replace("_", " "), flush=True)
            part(p)
    except (Failure, OSError, KeyError, ValueError, TypeError, AttributeError, subprocess.SubprocessError) as error:
        p.check("it could be done", False, f"{type(error).__name__}: {error}")
    finally:
        p.stop()
    if p.failed or os.environ.get("HANSE_KEEP"):
        print(f"logs are kept in {folder}")
    else:
        shutil.rmtree(folder)
    print(f"{p.failed} failed")
    return 1 if p.failed else 0


if __name__ == "__main__":
    sys.exit(main())
