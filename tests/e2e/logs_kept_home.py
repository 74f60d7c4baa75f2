#!/usr/bin/env python3
"""What programs of runners that call home print is kept in a store, too: the hub takes it there piece by piece, since whoever is beside a
tenant's program holds no key to it. `hanse run --home` with S3, the static hanse-run behind an HTTP proxy with a folder. The leader is
killed amid it, a runner is killed with all that it had, the store is away: what was kept has neither holes nor anything twice, what is
missing is said, and no end waits longer than is said. HANSE_ONLY names parts."""
import os
import re
import shutil
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "support", "s3"))
import server  # noqa: E402
from home import OVER  # noqa: E402
from home_streams import Streams  # noqa: E402
from federation import descendants, wait_for  # noqa: E402
from parts import run  # noqa: E402

CHATS = 'i=0; while [ ! -e "{go}" ]; do i=$((i+1)); echo "line $i"; echo $i > "{count}"; sleep 0.01; done; echo "end after $i"'
ODD = rb"\033[2J\000\377../../../../etc/passwd\r%s\n\033]0;title\007no end of a line"


class Kept(Streams):
    def __init__(self, *words):
        super().__init__(*words)
        self.s3 = server.Server("logs")

    def target(self, name, **connection):
        d = super().target(name, **connection)
        d["spec"]["logs"] = {"store": self.path("store") + "/"} if name == "shelf" else {"store": "s3://logs/of runners", "credentialsFrom": {"secret": "keys"}}
        return d

    def secret(self):
        return {"apiVersion": "v1", "kind": "List", "items": [super().secret(), {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys", "namespace": "hanse-system"}, "stringData": self.s3.environment()}]}

    def begin(self):
        os.makedirs(self.path("tmp"), exist_ok=True)
        self.start_members()
        for name in self.port:
            self.serve(name)
        self.apply(*self.secret()["items"], *[self.target(name) for name in self.port])
        wait_for("the targets to be connected", lambda: set(self.port) <= self.connected(), 30)

    def chat(self, name, target):
        self.script(name, target, CHATS.format(go=self.path("go." + name), count=self.path("count." + name)))

    def counted(self, name):
        try:
            with open(self.path("count." + name), encoding="utf-8") as file:
                return int(file.read() or 0)
        except (OSError, ValueError):
            return 0

    def raw(self, *words):
        return subprocess.run([self.hanse, "logs", *words], capture_output=True, timeout=60, check=False,
                              env={**os.environ, "KUBECONFIG": self.path("kubeconfig")}).stdout

    def stored(self, name):
        """How many pieces there are of it."""
        uid = self.cli("get", "workload", name, "-o", "jsonpath={.metadata.uid}").stdout.strip()
        found = [os.path.join(d, f) for d, _, files in os.walk(self.path("store")) for f in files] + self.s3.keys()
        return sum(uid in path and path.endswith(".log.gz") for path in found)

    def gone(self, name):
        """Its runner is, and only the store has its log."""
        self.phase(name, *OVER)
        wait_for("its runner to be gone", lambda: not os.listdir(self.path("tmp")), 60)

    # ---- parts ----
    def all_of_a_short_one(self):
        for target in self.port:
            self.script("short-" + target, target, "i=0; while [ $i -lt 50 ]; do i=$((i+1)); echo \"line $i\"; done")
            self.script("odd-" + target, target, f"printf '{ODD.decode('latin-1')}' one")
            self.script("mute-" + target, target, "exit 3")
        for target in self.port:
            self.gone("short-" + target)
            self.check(f"{target}: all of a short one is in the store, though its runner is gone",
                       self.raw("short-" + target) == b"".join(b"line %d\n" % n for n in range(1, 51)))
            self.gone("odd-" + target)
            wanted = b"\x1b[2J\0\xff../../../../etc/passwd\rone\n\x1b]0;title\x07no end of a line"
            self.check(f"{target}: bytes are kept as they were printed", self.raw("odd-" + target) == wanted)
            self.gone("mute-" + target)
            done = self.logs("mute-" + target, check=False)
            self.check(f"{target}: that nothing was printed is known, too", done.returncode == 0 and done.stdout == "", done.stderr)
        names = self.s3.keys() + [os.path.join(d, f) for d, _, files in os.walk(self.path("store")) for f in files]
        self.check("every piece has a name of ours", all(re.search(r"/_logs/[^/]+/default/[^/]+/e\d+\.\d+/0/\d{16}\.log\.gz$", "/" + n) for n in names))

    def one_name_twice(self):
        self.script("twin", "rack", "echo of the first")
        self.gone("twin")
        self.cli("delete", "workload", "twin")
        wait_for("twin to be gone", lambda: "twin" not in self.workloads(), 60)
        self.script("twin", "rack", "echo of the second")
        self.gone("twin")
        self.check("of one name, each has its own log", self.raw("twin") == b"of the second\n")

    def the_leader_dies(self):
        for target in self.port:
            self.chat("chats-" + target, target)
        wait_for("pieces of both", lambda: all(self.stored("chats-" + t) for t in self.port), 60)
        for _ in range(2):
            before = {t: self.stored("chats-" + t) for t in self.port}
            self.kill_leader()
            wait_for("pieces by the next leader", lambda: all(self.stored("chats-" + t) > before[t] for t in self.port), 90)
        for target in self.port:
            self.go("chats-" + target)
        for target in self.port:
            name = "chats-" + target
            self.gone(name)
            n = self.counted(name)
            wanted = "".join(f"line {i}\n" for i in range(1, n + 1)) + f"end after {n}\n"
            self.check(f"{target}: two leaders died, and its log has no hole and nothing twice", self.raw(name).decode() == wanted, (n, self.raw(name)[-100:]))
            self.check(f"{target}: its last lines", self.logs(name, "--tail", "3").stdout == f"line {n - 1}\nline {n}\nend after {n}\n")
            v = self.logs(name, "--timestamps").stdout.splitlines()
            self.check(f"{target}: with times", len(v) == n + 1 and all(re.match(r"\d{4}-\d\d-\d\dT\S+Z (line|end) ", line) for line in v), v[:2])

    def who_is_beside_it_holds_no_key(self):
        self.chat("nosy", "rack")
        wait_for("a piece", lambda: self.stored("nosy"), 60)
        secret, found = self.s3.environment()["AWS_SECRET_ACCESS_KEY"].encode(), []
        for pid, _ in descendants(self.servers["rack"].pid):
            for what in ("environ", "cmdline"):
                try:
                    with open(f"/proc/{pid}/{what}", "rb") as file:
                        found += [(pid, what)] * (secret in file.read())
                except OSError:
                    pass
        for top in ("state-rack", "state-shelf", "tmp", "log"):
            for d, _, files in os.walk(self.path(top)):
                for name in files:
                    try:
                        with open(os.path.join(d, name), "rb") as file:
                            found += [name] * (secret in file.read())
                    except OSError:
                        pass
        self.check("the key to the store is in no process, folder or log beside the program", not found, found)

    def a_runner_is_killed(self):
        name = "nosy"
        before = self.stored(name)
        wait_for("one more piece", lambda: self.stored(name) > before, 60)
        printed = self.counted(name)
        for pid, _ in descendants(self.servers["rack"].pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.phase(name, *OVER)
        text = self.raw(name).decode()
        had = [int(n) for n in re.findall(r"^line (\d+)$", text, re.M)]
        self.check("what a killed runner's program had printed is there, from its first line on", had == list(range(1, len(had) + 1)) and had, text[-200:])
        self.check("but for its last seconds", len(had) > printed - 3000, (len(had), printed))
        self.check("and that these are missing is said", re.search(r"^\[hanse: what was printed after \S+ is not here", text, re.M), text[-200:])
        for d in os.listdir(self.path("tmp")):
            shutil.rmtree(self.path("tmp", d))

    def the_store_is_away(self):
        self.s3.away()
        self.script("alone", "rack", "echo first; sleep 3; echo last")
        end = self.phase("alone", *OVER, seconds=120)
        self.check("a store that is away delays no end for long", end["phase"] == "Succeeded", end)
        self.s3.back()
        done = self.logs("alone", check=False)
        self.check("and of what was lost a sentence tells", done.returncode != 0 and "nothing is kept of it" in done.stderr, (done.stdout, done.stderr))
        self.chat("waits", "rack")
        wait_for("a piece", lambda: self.stored("waits"), 60)
        self.s3.away()
        n = self.counted("waits")
        wait_for("much to be printed meanwhile", lambda: self.counted("waits") > n + 1000, 120)
        self.s3.back()
        before = self.stored("waits")
        wait_for("it to be kept again", lambda: self.stored("waits") > before, 120)
        self.go("waits")
        self.gone("waits")
        n = self.counted("waits")
        wanted = "".join(f"line {i}\n" for i in range(1, n + 1)) + f"end after {n}\n"
        self.check("what was printed while it was away comes later, whole", self.raw("waits").decode() == wanted, self.raw("waits")[-100:])


PARTS = (Kept.all_of_a_short_one, Kept.one_name_twice, Kept.the_leader_dies, Kept.who_is_beside_it_holds_no_key, Kept.a_runner_is_killed,
         Kept.the_store_is_away)


if __name__ == "__main__":
    sys.exit(run(Kept, "logs-home", PARTS, static=True))
