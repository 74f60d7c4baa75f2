#!/usr/bin/env python3
"""Logs, execs and forwarded ports of runners that call home: `hanse run --home` on one target, the static hanse-run on another, through an
HTTP proxy, asked of each member. What the program prints is told to the hub while it runs, from its end or since a time, followed until the end, and goes to
the runner's own output, too. Who reads too slowly holds up neither the program nor its lease. What is put beside a program goes with who
asked for it, with the member through which it came, and with the program."""
import os
import re
import signal
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import CONTEXTS  # noqa: E402
from home import LEASE_S, Home, document  # noqa: E402
from ports import SERVER, Forward, Terminal, everything  # noqa: E402
from federation import wait_for  # noqa: E402
from parts import run  # noqa: E402

TALKS = 'echo "first line of $HANSE_WORKLOAD_NAME"; n=0; while [ ! -e "{go}" ]; do sleep 0.2; n=$((n+1)); echo "tick $n"; done; echo "last line" >&2'
FLOODS = 'echo begun; i=0; while [ $i -lt 60 ]; do head -c 1000000 /dev/zero | tr "\\0" x; echo; i=$((i+1)); done; touch "{flooded}"; sleep 600'


BESIDE = "trap '' HUP TERM; echo $$; while :; do sleep 0.1; done"


class Streams(Home):
    def static_keeper(self):
        path = self.path("keeper-static")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n[ \"$1\" = run ] && shift\nTMPDIR='{self.path('tmp')}' exec '{self.static}' \"$@\"\n")
        os.chmod(path, 0o755)
        return path

    def serve(self, name):
        runner = self.static_keeper() if name == "shelf" else super().keeper(name)
        top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        self.servers[name] = self._spawn("server-" + name, [
            sys.executable, os.path.join(top, "deploy", "examples", "callout", "server.py"), "--port", str(self.port[name]),
            "--key-file", self.path("key"), "--state", self.path("state-" + name), "--runner", runner], TMPDIR=self.path("tmp"))

    def begin(self):
        os.makedirs(self.path("tmp"), exist_ok=True)
        self.start_members()
        for name in self.port:
            self.serve(name)
        self.apply(self.secret(), *[self.target(name) for name in self.port])
        wait_for("the targets to be connected", lambda: set(self.port) <= self.connected(), 30)
        for target in self.port:
            self.script("talks-" + target, target, TALKS.format(go=self.path("go.talks-" + target)))
        for target in self.port:
            self.phase("talks-" + target, "Running")

    def script(self, name, target, text, **spec):
        self.apply(document("Workload", name, {"type": "batch", "targets": {"names": [target]}, "resources": {"cpu": 1, "memory": "64Mi"},
                                               "run": {"command": ["/bin/sh", "-c", text], "retries": 0}, **spec}, namespace="default"))

    def logs(self, *words, check=True):
        return self.cli("logs", *words, check=check, timeout=60)

    def are_told(self):
        for target in self.port:
            name = "talks-" + target
            wait_for("some lines", lambda: self.logs(name).stdout.count("tick") > 12, 30)
            text = self.logs(name).stdout
            self.check(f"{target}: its log is told, from the first line on", text.startswith(f"first line of {name}\ntick 1\n"), text[:60])
            self.check(f"{target}: the last lines", len(self.logs(name, "--tail", "2").stdout.splitlines()) == 2)
            v = self.logs(name, "--timestamps").stdout.splitlines()
            self.check(f"{target}: with times", all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (first|tick)", line) for line in v) and
                       len({line[:24] for line in v}) > 3, v[:2])
            n = len(self.logs(name, "--since", "1s").stdout.splitlines())
            self.check(f"{target}: and since a time", 1 <= n < len(v) - 3, n)
            self.check(f"{target}: through the proxy, where it has one", bool(self.proxy.asked) or target != "shelf", self.proxy.asked)
            done = self.logs(name, "--rank", "7", check=False)
            self.check(f"{target}: a rank that is not there is an error", done.returncode != 0 and "no rank 7" in done.stderr, done.stderr)

    def exec(self, name, *words, context, text=None, **options):
        return self.cli("exec", name, "--context", context, *words, text=text, timeout=40, check=False, **options)

    def commands_run_beside_it(self):
        for target, context in [("rack", c) for c in CONTEXTS] + [("shelf", CONTEXTS[1])]:
            done = self.exec("talks-" + target, "-i", "--", "/bin/sh", "-c", "cat; echo rank $HANSE_RANK >&2; exit 7", context=context, text="to and fro")
            self.check(f"{target}, at {context}: a command with input, both outputs and its exit status",
                       (done.returncode, done.stdout) == (7, "to and fro") and done.stderr.startswith("rank 0\n"), (done.returncode, done.stdout, done.stderr))
        for target, context in (("rack", CONTEXTS[2]), ("shelf", CONTEXTS[0])):
            done = self.exec("talks-" + target, "--", "/bin/sh", "-c", "env; cat /proc/$PPID/environ", context=context)
            self.check(f"{target}: it sees neither token nor home", "HANSE_EPOCH=1" in done.stdout and "hanse-run-1" not in done.stdout and
                       "HANSE_HOME" not in done.stdout and "HANSE_TOKEN" not in done.stdout)
            t = Terminal(self, "exec", "-it", "talks-" + target, "--context", context, "--", "sh", "-c",
                         "trap 'stty size' WINCH; test -t 0 && test -t 1 && stty size; while [ ! -e \"$0\" ]; do sleep 0.05; done; exec cat",
                         self.path("on." + target))
            t.until("31 97\r\n")
            t.size(50, 132)
            t.until("50 132\r\n")
            with open(self.path("on." + target), "w", encoding="utf-8"):
                pass
            t.type("typed\n")
            t.until("typed\r\ntyped\r\n")
            t.type("\x03")
            self.check(f"{target}, at {context}: on a terminal, of its size, with its keys", t.end() == 130 and t.restored(), (t.p.returncode, t.text[-200:]))
            t.close()
            beside = subprocess.Popen([self.hanse, "exec", "talks-" + target, "--context", context, "--", "/bin/sh", "-c", BESIDE],
                                      stdout=subprocess.PIPE, text=True, env={**os.environ, "KUBECONFIG": self.path("kubeconfig")})
            pid = int(beside.stdout.readline())
            beside.kill()
            beside.communicate()
            wait_for("what he began to be gone", lambda: not os.path.exists(f"/proc/{pid}"), 20)
            self.check(f"{target}: it is gone with who asked for it", True)
            with open("/dev/zero", "rb") as zeros:
                beside = subprocess.Popen([self.hanse, "exec", "-i", "talks-" + target, "--context", context, "--", "/bin/sh", "-c", BESIDE], stdin=zeros,
                                          stdout=subprocess.PIPE, text=True, env={**os.environ, "KUBECONFIG": self.path("kubeconfig")})
            pid = int(beside.stdout.readline())
            time.sleep(1)
            beside.kill()
            beside.communicate()
            wait_for("what he began to be gone", lambda: not os.path.exists(f"/proc/{pid}"), 20)
            self.check(f"{target}: also while it takes no input", True)
            done = self.exec("talks-" + target, "--rank", "3", "--", "true", context=context)
            self.check(f"{target}: a rank that is not there is an error", done.returncode != 0 and "no rank 3" in done.stderr, done.stderr)

    def ports_are_forwarded(self):
        for target, context in (("rack", CONTEXTS[1]), ("shelf", CONTEXTS[2])):
            name, path = "serves-" + target, self.path("ports." + target)
            self.apply(document("Workload", name, {"type": "batch", "targets": {"names": [target]}, "resources": {"cpu": 1, "memory": "256Mi"},
                                                   "run": {"command": [sys.executable, "-c", SERVER, path], "retries": 0}}, namespace="default"))
            at = wait_for(f"{name} to listen", lambda: os.path.exists(path) and open(path, encoding="utf-8").read().split(), 30)
            self.phase(name, "Running")
            f = Forward(self, name, ":" + at[0], ":" + str(self.port[target]), at=("--context", context))
            data = os.urandom(1 << 20)
            v = [f.dial() for _ in range(5)]
            for s in v:
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
            self.check(f"{target}, at {context}: five connections, 1 MB each there and back, after their own end", all(everything(s) == data for s in v))
            with f.dial(1) as s:
                try:
                    got = everything(s)
                except ConnectionResetError:
                    got = b""
            line = f.p.stderr.readline()
            self.check(f"{target}: another program's port is refused with a sentence", got == b"" and "not of this run" in line, line)
            with f.dial() as s:
                s.sendall(b"x")
                self.cli("delete", "workload", name)
                try:
                    got = everything(s)
                except ConnectionResetError:
                    got = b""
                self.check(f"{target}: a connection ends with the run", got in (b"", b"x"), got)
            f.interrupt()

    def the_leader_goes(self):
        leader = next(m["id"] for m in self.members() if m["role"] == "leader")
        context, v = CONTEXTS[leader % 3], {}
        for target in self.port:
            v[target] = subprocess.Popen([self.hanse, "exec", "talks-" + target, "--context", context, "--", "/bin/sh", "-c", BESIDE],
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "KUBECONFIG": self.path("kubeconfig")})
        pids = {target: int(p.stdout.readline()) for target, p in v.items()}
        self.kill_leader()
        for target, p in v.items():
            _, err = p.communicate(timeout=30)
            self.check(f"{target}: its user is told that the leader was lost", p.returncode != 0 and "leader" in err, (p.returncode, err))
            wait_for("the command to be gone", lambda: not os.path.exists(f"/proc/{pids[target]}"), 20)
            self.check(f"{target}: and the command is gone", True)
            done = wait_for("the runner to be at the next leader",
                            lambda: (d := self.exec("talks-" + target, "--", "echo", "again", context=context)).stdout == "again\n" and d, 40)
            self.check(f"{target}: at the next one it goes on", done.returncode == 0)

    def are_followed(self):
        for target in self.port:
            name = "talks-" + target
            follows = subprocess.Popen([self.hanse, "logs", "-f", name], stdout=subprocess.PIPE, text=True, env={**os.environ, "KUBECONFIG": self.path("kubeconfig")})
            follows.stdout.readline()
            self.go(name)
            out, _ = follows.communicate(timeout=60)
            self.check(f"{target}: followed, to the very last line, of standard error, too", out.endswith("last line\n") and follows.returncode == 0, out[-60:])
            self.phase(name, "Succeeded")
            with open(self.path("log", f"server-{target}.log"), encoding="utf-8", errors="replace") as file:
                own = file.read()
            self.check(f"{target}: all of it went to the runner's own output", f"first line of {name}\ntick 1\n" in own and "last line\n" in own, own[-100:])
            done = self.exec(name, "--", "true", context=CONTEXTS[0])
            self.check(f"{target}: nothing can be put beside it any more", done.returncode != 0 and "has ended" in done.stderr, done.stderr)
            done = self.logs(name, check=False)
            self.check(f"{target}: once it has ended the log is its target's, says a sentence", done.returncode != 0 and "has ended, and its log" in done.stderr, done.stderr)
        wait_for("no folder to be left", lambda: not os.listdir(self.path("tmp")), 20)
        self.check("no folder of a runner is left", True)

    def who_is_slow_holds_up_nobody(self):
        for target in self.port:
            name = "floods-" + target
            self.script(name, target, FLOODS.format(flooded=self.path("flooded." + target)), partition={"mode": "replace"})
            self.phase(name, "Running")
            self.leased(name)
            reader = subprocess.Popen([self.hanse, "logs", "-f", name], stdout=subprocess.PIPE, env={**os.environ, "KUBECONFIG": self.path("kubeconfig")})
            reader.stdout.read(6)
            try:
                wait_for("60 MB to be printed", lambda: os.path.exists(self.path("flooded." + target)), 60)
                self.check(f"{target}: 60 MB are printed while nobody reads", True)
                time.sleep(1.2 * LEASE_S)
                s = self.status(name)
                self.check(f"{target}: its lease is renewed meanwhile", s["phase"] == "Running" and s["epoch"] == 1, s.get("phase"))
            finally:
                reader.send_signal(signal.SIGKILL)
                reader.wait()
                reader.stdout.close()
            size = sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(self.path("tmp")) for f in files)
            self.check(f"{target}: what is kept of it is bounded", 0 < size < 40 << 20, size)
            self.cli("delete", "workload", name)
            wait_for(f"{name} to be gone", lambda: name not in self.workloads(), 60)


PARTS = (Streams.are_told, Streams.commands_run_beside_it, Streams.ports_are_forwarded, Streams.the_leader_goes, Streams.are_followed,
         Streams.who_is_slow_holds_up_nobody)


if __name__ == "__main__":
    sys.exit(run(Streams, "home-streams", PARTS, static=True))
