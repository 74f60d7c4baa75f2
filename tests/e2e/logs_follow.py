#!/usr/bin/env python3
"""`hanse logs -f` and `submit --follow` go with the work: over leaders that are killed or hand over, each line once and none missing, whichever
member was asked; and over a move, whose epochs are joined by a line that says where it goes on, and why. They end with the work, and as it did."""
import json
import os
import re
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
sys.dont_write_bytecode = True
from moves import Moves, document, run, target, wait_for  # noqa: E402

# Prints numbered lines until it is told to end, each in two pieces, so that cuts fall into lines, too. What it prints last is no whole line.
PRINTS = """import os, signal, sys, time
go = sys.argv[1]
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
out, i, epoch = os.fdopen(1, "wb", 0), 0, os.environ["HANSE_EPOCH"]
while not os.path.exists(go) and not stop:
    i += 1
    out.write(b"epoch %s line " % epoch.encode())
    time.sleep(0.004)
    out.write(b"%06d of it\\n" % i)
out.write(b"epoch %s end after %d" % (epoch.encode(), i))
sys.exit(75 if stop else 0)
"""


class Follows(Moves):
    def __init__(self, *words, **pool):
        super().__init__(*words, members=3, **pool)

    def target_document(self, name):
        """The logs of left go to a store, too."""
        return target(name, **({"logs": {"store": self.path("checkpoints", name)}} if name == "left" else {}))

    def prints(self, name, where=None):
        command = [sys.executable, "-c", PRINTS, self.path("go." + name)]
        self.apply(document("Workload", name, {"resources": {"cpu": 1, "memory": "256Mi"}, "checkpoint": {"store": self.path("checkpoints")},
                                               "run": {"command": command}, **({"targets": {"names": [where]}} if where else {})}, namespace="default"))
        wait_for(f"{name} to run", lambda: self.status(name).get("phase") == "Running", 60)

    def go(self, name):
        with open(self.path("go." + name), "w", encoding="utf-8"):
            pass

    def follow(self, *words):
        """Gathers what it hears, on threads of its own."""
        p = subprocess.Popen([self.hanse, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "KUBECONFIG": self.path("kubeconfig")})
        p.lines, p.said = [], []
        p.threads = [threading.Thread(target=lambda to=to, of=of: to.extend(iter(of.readline, "")), daemon=True)
                     for to, of in ((p.lines, p.stdout), (p.said, p.stderr))]
        for t in p.threads:
            t.start()
        return p

    def transfer(self):
        """Hands the leadership over to another member."""
        members = wait_for("a leader", lambda: (m := self.members()) and any(x["role"] == "leader" for x in m) and m, 30)
        other = next(m["id"] for m in members if m["role"] != "leader")
        self.cli("members", "transfer", str(other))
        wait_for("the transfer", lambda: any(m["id"] == other and m["role"] == "leader" for m in self.members()), 30)

    def ends(self, p):
        p.wait(120)
        for t in p.threads:
            t.join(60)
        return p.returncode


def numbers(lines, epoch):
    return [int(n) for n in re.findall(rf"^epoch {epoch} line (\d+) of it$", "".join(lines), re.M)]


def leaders_change(p):
    p.prints("kept", "left")
    p.prints("plain", "right")
    servers = p.login.servers
    rotated = [[x for s in servers[i:] + servers[:i] for x in ("--server", s)] for i in range(len(servers))]
    followers = [p.follow("logs", "-f", name, *words) for name in ("kept", "plain") for words in rotated] + [p.follow("logs", "-f", "plain", "--timestamps")]

    def heard_on(more):
        for f in followers:
            wait_for("it to be heard", lambda f=f, n=len(f.lines): f.poll() is not None or len(f.lines) > n + more, 120)
    heard_on(50)
    p.transfer()
    heard_on(100)
    p.kill_leader()
    heard_on(100)
    p.go("kept")
    p.go("plain")
    for i, f in enumerate(followers):
        p.ends(f)
        text = [re.sub(r"^\S+Z (?=epoch)", "", x) for x in f.lines]
        v = numbers(text, 1)
        p.check(f"follower {i}: leaders changed, and each line is heard once", v == list(range(1, len(v) + 1)) and text[-1:] == [f"epoch 1 end after {len(v)}"],
                (len(v), text[-1:], [x for x in text if not re.match(r"epoch 1 line \d{6} of it\n$", x)][:5], f.said[-5:]))
        p.check(f"follower {i}: it ends as the work does", f.returncode == 0, (f.returncode, f.said[-3:]))


def moved(p):
    p.prints("moves")
    f, beside = p.follow("logs", "-f", "moves", "--tail", "3"), p.follow("attach", "moves")
    wait_for("both to be heard", lambda: len(f.lines) > 50 and len(beside.lines) > 50, 60)
    p.cli("migrate", "moves", "--to", "right")
    wait_for("the next epoch to be heard", lambda: len(numbers(f.lines, 2)) > 20, 120)
    p.go("moves")
    p.ends(f)
    joins = [i for i, x in enumerate(f.lines) if x.startswith("--- ")]
    p.check("one line joins the epochs, and says where it goes on, since when and why",
            len(joins) == 1 and re.match(r"--- epoch 2 on right since \d{4}-\d\d-\d\dT[\d:.]+Z: moved: asked \(\S+\)$", f.lines[joins[0]]),
            [f.lines[i] for i in joins])
    at = joins[0] if joins else 0
    one, two = numbers(f.lines[:at], 1), numbers(f.lines[at:], 2)
    p.check("ahead of it is the first to its end, behind it the second from its beginning",
            one == list(range(one[0], one[-1] + 1)) and f.lines[at - 1] == f"epoch 1 end after {one[-1]}\n" and two == list(range(1, len(two) + 1)) and
            f.lines[-1] == f"epoch 2 end after {len(two)}", (one[:1], one[-1:], f.lines[at - 1:at + 2], two[-1:], f.lines[-1]))
    p.check("it ends as the work does", f.returncode == 0, (f.returncode, f.said))
    p.ends(beside)
    n, a, b = len(beside.lines), beside.lines[1:], f.lines  # both may have come amid a line, and either of them first
    if a[0] not in b and b[1] in a:
        a, b = b[1:], a
    p.check("who is attached hears the same from when it came", beside.returncode == 0 and n > 50 and a[0] in b and a == b[b.index(a[0]):], (a[:3], b[:3], n))
    refused = p.cli("attach", "moves", check=False).stderr
    p.check("nobody is attached to what has ended", "moves has ended (Succeeded): hanse logs moves" in refused, refused)
    refused = p.cli("attach", "-it", "moves", check=False).stderr
    p.check("nor with a terminal, and he hears what to say instead", "hanse exec -it moves -- sh" in refused, refused)
    again = p.cli("logs", "moves", "--epoch", "1", timeout=60).stdout
    p.check("the first epoch is told by its number", numbers([again], 1) == list(range(1, one[-1] + 1)), again[-80:])


def tried_again(p):
    """--follow of work that fails, is tried again, and fails: quick enough that nobody sees it run."""
    with open(p.path("fails.json"), "w", encoding="utf-8") as file:
        json.dump(document("Workload", "fails", {"resources": {"cpu": 1, "memory": "64Mi"}, "run": {
            "command": ["/bin/sh", "-c", "echo life $HANSE_EPOCH; exit 3"], "retries": 1}}, namespace="default"), file)
    f = p.follow("submit", "-f", p.path("fails.json"), "--follow")
    p.ends(f)
    text = [x for x in f.lines if not x.startswith("--- ")]
    joins = [x for x in f.lines if x.startswith("--- ")]
    p.check("the logs of both lives are told", text == ["fails\n", "life 1\n", "life 2\n"], (f.lines, f.said))
    p.check("and between them that it was started again, and why",
            len(joins) == 1 and re.match(r"--- epoch 2 on \w+ (since|until) \S+: (started again|moved): ", joins[0]), joins)
    p.check("its status says that it failed", f.returncode == 1, f.returncode)


if __name__ == "__main__":
    sys.exit(run([leaders_change, moved, tried_again], kind=Follows))
