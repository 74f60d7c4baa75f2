#!/usr/bin/env python3
"""One log out of two places: the machine has the newest 8 to 16 MiB of what a program printed, the store of its Target what came before, and
all of it when the machine is gone. `hanse logs` tells one text, whole, from its first line, from its end and since a time; who follows it
while the agent dies and comes back hears each line once. What neither has is told in words."""
import os
import re
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
sys.dont_write_bytecode = True
from moves import Moves, document, run, target, wait_for  # noqa: E402

LINE, FAST, LIMIT = 1024, 20000, 16 << 20  # bytes of a line; lines that come quickly; what the machine keeps at most
PRINTS = """import os, sys, time
go, count = sys.argv[1:]
out, i = os.fdopen(1, "wb", 0), 0
while not os.path.exists(go):
    i += 1
    out.write(b"line %09d " % i + b"x" * {pad} + b"\\n")
    if i % 100 == 0 or i > {fast}:
        with open(count + ".new", "w") as file:
            file.write(str(i))
        os.rename(count + ".new", count)
        time.sleep(0.13 if i <= {fast} else 0.02)
out.write(b"end after %d\\n" % i)
"""


class Joined(Moves):
    def __init__(self, *words, **pool):
        super().__init__(*words, targets=("left", "right"), **pool)

    def target_document(self, name):
        logs = {"store": self.path("checkpoints", name), **({"maxBytes": "1Mi"} if name == "right" else {})}
        return target(name, logs=logs, partition={"suspectAfter": "2s", "lease": "600s"})

    def prints(self, name, where):
        script = PRINTS.format(pad=LINE - 16, fast=FAST)
        self.apply(document("Workload", name, {"resources": {"cpu": 1, "memory": "256Mi"}, "targets": {"names": [where]},
                                               "run": {"command": [sys.executable, "-c", script, self.path("go." + name), self.path("count." + name)]}},
                            namespace="default"))

    def printed(self, name):
        try:
            with open(self.path("count." + name), encoding="utf-8") as file:
                return int(file.read())
        except (OSError, ValueError):
            return 0

    def go(self, name):
        with open(self.path("go." + name), "w", encoding="utf-8"):
            pass

    def logs(self, *words):
        return self.cli("logs", *words, check=False, timeout=90).stdout

    def kill_agent(self, name):
        self.note_processes()
        agent = self.agents.pop(name)
        agent.kill()
        agent.wait()

    def follow(self, name, *words):
        """Gathers what it hears, on a thread of its own."""
        p = subprocess.Popen([self.hanse, "logs", "-f", name, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "KUBECONFIG": self.path("kubeconfig")})
        p.lines = []
        p.thread = threading.Thread(target=lambda: p.lines.extend(iter(p.stdout.readline, "")), daemon=True)
        p.thread.start()
        return p


def numbers(text):
    return [int(n) for n in re.findall(r"^(?:\S+Z )?line (\d+) x+$", text, re.M)]


def is_run(v, first=None):
    """Each number follows the one before it."""
    return bool(v) and v == list(range(v[0] if first is None else first, v[-1] + 1))


def told_as_one(p):
    for name, where in (("much", "left"), ("bounded", "right")):
        p.prints(name, where)
    wait_for("more to be printed than a machine keeps", lambda: min(p.printed("much"), p.printed("bounded")) > FAST, 240)
    size = os.path.getsize(next(os.path.join(d, f) for d, _, files in os.walk(p.path("agent-left")) for f in files if f == "log.0"))
    p.check("the machine has the rest of it alone", size < FAST * LINE * 3 // 4, size)
    text, at = p.logs("much"), p.printed("much")
    v = numbers(text)
    p.check("all of it is told, from the first line on, each once", is_run(v, 1) and at - 50 <= v[-1], (v[:1], v[-1:], len(v), at))
    p.check("and nothing is said to be missing", "[hanse:" not in text, [x for x in text.splitlines() if "hanse:" in x])
    v = numbers(p.logs("much", "--tail", str(FAST - 100)))
    p.check("more of its last lines than the machine has", FAST - 100 <= len(v) < FAST and is_run(v), (v[:1], v[-1:], len(v)))  # and what came meanwhile
    v = numbers(p.logs("much", "--tail", "20"))
    p.check("few of them", 20 <= len(v) < 200 and is_run(v), v)
    lines = p.logs("much", "--timestamps").splitlines()
    times = [x.split()[0] for x in lines]
    p.check("with times, which never go back", is_run(numbers("\n".join(lines) + "\n"), 1) and times == sorted(times))
    since = lines[len(lines) // 8].split()[0]
    v = numbers(p.logs("much", "--since-time", since[:-5] + "Z"))
    p.check("since a time that only the store knows", is_run(v) and 1 < v[0] <= len(lines) // 8 + 1, (v[:1], len(lines) // 8))


def gap_is_told(p):
    """The store keeps 1 MiB of it, the machine 8 and more: between its first piece and those there is nothing."""
    text = p.logs("bounded")
    lines = text.splitlines()
    gaps = [i for i, x in enumerate(lines) if "[hanse:" in x]
    p.check("one gap is told, where it is", len(gaps) == 1 and "bytes are missing here" in lines[gaps[0]], [lines[i] for i in gaps])
    at = gaps[0] if gaps else 0
    ahead, behind = numbers("\n".join(lines[:at]) + "\n"), numbers("\n".join(lines[at + 2:]) + "\n")
    p.check("ahead of it is how it began", is_run(ahead, 1) and ahead[-1] >= 100, ahead[-1:])
    p.check("behind it is all that the machine has", is_run(behind) and len(behind) * LINE > LIMIT // 3, (behind[:1], len(behind)))
    missing = int(re.search(r"hanse: (\d+) bytes", lines[at]).group(1)) if gaps else 0
    p.check("and it says how much that is", 0 <= (behind[0] - 1) * LINE - missing - ahead[-1] * LINE <= 2 * LINE, missing)


def followed_through(p):
    f = p.follow("much", "--tail", "5")
    wait_for("it to be heard", lambda: len(f.lines) > 20, 60)
    for _ in range(2):
        p.kill_agent("left")
        n = p.printed("much")
        wait_for("the program to print on", lambda: p.printed("much") > n + 100, 60)
        p.start_agent("left")
        wait_for("what came meanwhile to be heard", lambda: (v := numbers("".join(f.lines[-1:]))) and v[0] > n + 100, 120)
    p.go("much")
    f.wait(120)
    f.thread.join(60)
    v = numbers("".join(f.lines))
    p.check("its agent was killed twice, and who follows heard each line once", is_run(v) and f.lines[-1].startswith("end after"),
            (v[:1], v[-1:], len(v), f.stderr.read()))


def machine_gone(p):
    wait_for("much to end", lambda: p.status("much").get("phase") == "Succeeded", 60)
    n = p.printed("much")
    p.kill_target("left")
    wait_for("the target to be away", lambda: "left" not in p.connected(), 30)
    text = p.logs("much")
    p.check("the machine is gone, and all of it is in the store", numbers(text) == list(range(1, n + 1)) and text.endswith(f"end after {n}\n"),
            (n, len(numbers(text)), [x for x in text.splitlines() if "hanse:" in x]))


if __name__ == "__main__":
    sys.exit(run([told_as_one, gap_is_told, followed_through, machine_gone], kind=Joined))
