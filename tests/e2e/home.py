#!/usr/bin/env python3
"""Runners that call home: a callout server whose programs `hanse run --home` starts, three members, real TLS. The token and the CA come
with the order; on `shelf`, whose runners have clocks that are an hour slow, they get to the hub through an HTTP proxy alone. The lease is given, renewed through the death of the leader, and runs out where nobody is reached: then the program is
stopped by its own runner, and only after that does the next epoch begin, elsewhere. Each program holds a lock while it lives. Runners on
`quiet` have no way home, and leave signed reports behind."""
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.path.insert(0, os.path.join(TOP, "tests", "e2e", "lib"))
sys.dont_write_bytecode = True
from connect_proxy import ConnectProxy, RealProxy  # noqa: E402
from federation import Federation, descendants, wait_for  # noqa: E402
from parts import run  # noqa: E402

API, SECRET, LEASE_S = "hanse.dev/v1alpha1", "a-secret-of-thirty-two-letters-or-more", 15
OVER = ("Succeeded", "Failed", "Cancelled")
LOGIN = "anna:p4ssw0rd-of-the-proxy"
PROGRAM = """exec 9>>"{dir}/lock.$HANSE_WORKLOAD_NAME"
flock -n 9 || {{ echo "double $HANSE_RUN_KEY $HANSE_WORKLOAD_NAME $$" >> "{dir}/witness"; exit 9; }}
env > "{dir}/env.$HANSE_WORKLOAD_NAME"
date +%s > "{dir}/date.$HANSE_WORKLOAD_NAME"
echo "start $HANSE_RUN_KEY $HANSE_WORKLOAD_NAME $$" >> "{dir}/witness"
trap 'echo "term $HANSE_RUN_KEY $HANSE_WORKLOAD_NAME $$" >> "{dir}/witness"; exit 143' TERM
i=0
while [ ! -e "{dir}/go.$HANSE_WORKLOAD_NAME" ] && [ $i -lt {ticks} ]; do sleep 0.1; i=$((i+1)); done
echo "end $HANSE_RUN_KEY $HANSE_WORKLOAD_NAME $$" >> "{dir}/witness"
exit {code}
"""


def document(kind, name, spec, **meta):
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def remote_ports(pid):
    """Of all TCP connections of that process."""
    mine = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            mine.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
        except OSError:
            pass
    with open(f"/proc/{pid}/net/tcp", encoding="utf-8") as file:
        rows = [line.split() for line in file.readlines()[1:]]
    return {int(row[2].split(":")[1], 16) for row in rows if f"socket:[{row[9]}]" in mine and row[2].split(":")[1] != "0000"}


def command_of(pid):
    """Its command line; empty when it has gone meanwhile, as the programs' own children do all the time."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return None


def signal_all(pids, signo):
    for pid in pids:
        try:
            os.kill(pid, signo)
        except ProcessLookupError:
            pass


class Home(Federation):
    def __init__(self, hanse, folder):
        super().__init__(hanse, "/bin/false", folder, targets=(), members=3)
        self.failed, self.servers, self.proxy = 0, {}, ConnectProxy(LOGIN)
        self.port = {name: free_port() for name in ("rack", "shelf")}
        for name, text in (("key", SECRET), ("witness", "")):
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(text)

    def check(self, what, good, detail=""):
        self.failed += not good
        print(f"  {'ok    ' if good else 'FAILED'}  {what}" + (f": {detail}" if detail != "" else ""), flush=True)

    def keeper(self, name):
        """What the servers start as hanse: it keeps a copy of each token, as a pod does that its cluster starts twice, and waits while its
        server's folder has `hold`, as a pod does whose image is far away."""
        path, wrong = self.path("keeper-" + name), ""
        if name == "shelf":
            subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", self.path("wrong_clock.so"),
                            os.path.join(TOP, "tests", "e2e", "lib", "wrong_clock.c")], check=True)
            wrong = (f"export LD_PRELOAD='{self.path('wrong_clock.so')}' WRONG_CLOCK_S=-3600 "
                     'ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0"\n')
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nfor a; do\n    if [ \"$before\" = --token-file ]; then cp -p \"$a\" \"$a.twice\"; hold=${a%/*}/hold; fi\n    before=$a\ndone\n"
                       f"while [ -e \"$hold\" ]; do sleep 0.1; done\n{wrong}exec '{self.hanse}' \"$@\"\n")
        os.chmod(path, 0o755)
        return path

    def serve(self, name):
        self.servers[name] = self._spawn("server-" + name, [
            sys.executable, os.path.join(TOP, "deploy", "examples", "callout", "server.py"), "--port", str(self.port[name]),
            "--key-file", self.path("key"), "--state", self.path("state-" + name), "--runner", self.keeper(name), "--gpus", "2"])

    def apply(self, *documents, check=True):
        return self.cli("apply", "-f", "-", check=check, text="---\n".join(json.dumps(d) + "\n" for d in documents))

    def target(self, name, **connection):
        return document("Target", name, {
            "type": "callout", "tier": "spoke", "capacity": "owned", "partition": {"suspectAfter": "2s", **({} if name == "quiet" else {"lease": f"{LEASE_S}s"})},
            "connection": {"server": f"http://127.0.0.1:{self.port[name]}", "credentialsFrom": {"secret": "rack"},
                           **({} if name == "quiet" else {"runners": True}),
                           **({"homeProxy": self.proxy.url} if name == "shelf" else {}), **connection}})

    def secret(self):
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "rack", "namespace": "hanse-system"},
                "stringData": {"key": SECRET, "proxy": LOGIN}}

    def work(self, name, *targets, ticks=1, code=0, **spec):
        program = PROGRAM.format(dir=self.dir, ticks=ticks, code=code)
        self.apply(document("Workload", name, {
            "type": "batch", "targets": {"names": list(targets) or ["rack"]}, "resources": {"cpu": 1, "memory": "64Mi"},
            "run": {"command": ["/bin/sh", "-c", program], "retries": 0}, **spec}, namespace="default"))

    def phase(self, name, *wanted, seconds=90):
        return wait_for(f"{name} to be {' or '.join(wanted)}", lambda: (s := self.status(name)).get("phase") in wanted and s, seconds, 0.2)

    def said(self, name, word="start"):
        with open(self.path("witness"), encoding="utf-8") as file:
            return [line.split() for line in file if line.split()[0] == word and line.split()[2] == name]

    def go(self, name):
        with open(self.path("go." + name), "w", encoding="utf-8"):
            pass

    def leased(self, name):
        return wait_for(f"the lease of {name}", lambda: self.status(name).get("intent", {}).get("granted", {}).get("lease") == f"{LEASE_S}s"
                        or self.status(name).get("intent", {}).get("granted", {}).get("lease") == LEASE_S * 1000, 30, 0.2)

    # ---- parts ------------------------------------------------------------------------------------------

    def begin(self):
        self.start_members()
        for name in self.port:
            self.serve(name)
        self.apply(self.secret(), *[self.target(name) for name in self.port])
        wait_for("the targets to be connected", lambda: {"rack", "shelf"} <= self.connected(), 30)

    def runs_and_tells_the_end(self):
        self.work("good", resources={"gpu": {"count": 2}})
        self.work("bad", code=3)
        self.check("what ends with 0 succeeds", self.phase("good", *OVER)["phase"] == "Succeeded")
        end = self.phase("bad", *OVER)
        self.check("what ends with 3 fails, with that status", end["phase"] == "Failed" and end["ends"][-1].get("exitCode") == 3, end.get("ends"))
        with open(self.path("env.good"), encoding="utf-8") as file:
            text = file.read()
        told = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        self.check("it is told whose it is, in the names that agents use",
                   (told.get("HANSE_NAMESPACE"), told.get("HANSE_TARGET")) == ("default", "rack") and told.get("HANSE_WORKLOAD_UID")
                   and told.get("HANSE_CLUSTER_UID"), {k: v for k, v in told.items() if k.startswith("HANSE_")})
        self.check("and where it is, with its devices, by the hub", (told.get("HANSE_NODE"), told.get("HANSE_GPUS")) == ("n1", "0,1"),
                   (told.get("HANSE_NODE"), told.get("HANSE_GPUS")))
        with open(self.path("env.bad"), encoding="utf-8") as file:
            self.check("of which it may have none", "HANSE_GPUS=\n" in file.read())
        self.check("its program sees neither token nor home", "hanse-run-1" not in text and "HANSE_HOME" not in text and "HANSE_TOKEN" not in text)
        left = [n for n in os.listdir(self.path("state-rack")) if n.endswith(".token")]  # the keeper's have another name
        self.check("no token is left on disk", not left, left)

    def runs_without_a_way_home(self):
        """Its runner leaves a signed report behind, its server hands that on unread, and what its program writes there is worth nothing."""
        self.port["quiet"] = free_port()
        self.serve("quiet")
        self.apply(self.target("quiet"))
        wait_for("quiet to be connected", lambda: "quiet" in self.connected(), 30)
        forged = json.dumps({"hanse": 1, "state": "ended", "exitCode": 0, "message": "all is well"})
        report = f"{self.path('state-quiet')}/$HANSE_WORKLOAD_UID.$HANSE_EPOCH.1.report"
        for name, end in (("tells", f'test "$HANSE_NODE,$HANSE_GPUS" = n1, && exit 4'), ("forges", f"echo '{forged}' > \"{report}\"; exit 4"),
                          ("kills", f"echo '{forged}' > \"{report}\"; kill -9 $(ps -o pgid= $PPID) $PPID; sleep 60")):
            self.apply(document("Workload", name, {
                "type": "batch", "targets": {"names": ["quiet"]}, "resources": {"cpu": 1, "memory": "64Mi"},
                "run": {"command": ["/bin/sh", "-c", end], "retries": 0}}, namespace="default"))
        for name in ("tells", "forges"):
            end = self.phase(name, *OVER)
            last = end["ends"][-1]
            self.check(f"{name}: its end is as its runner signed it", end["phase"] == "Failed" and last.get("exitCode") == 4 and
                       last.get("message") == "exit status 4", last)
            self.check(f"{name}: and so is the proof, where it can be had", last.get("proof") in ("ProcessTreeGone", "ProcessTreeSearched"), last)
        end = self.phase("kills", *OVER)
        last = end["ends"][-1]
        self.check("a program that kills its runner, and says that all is well, has failed",
                   end["phase"] == "Failed" and last.get("exitCode") == 137 and "well" not in last.get("message", ""), last)
        found = [n for n in os.listdir(self.path("state-quiet")) if n.endswith(".report")
                 and open(self.path("state-quiet", n), encoding="utf-8").read().strip() == forged]
        self.check("though what it wrote is what was left behind", len(found) == 1, found)
        for name, spec, word in (("leaseless", {"partition": {"mode": "replace"}}, "nothing on this target stops itself"),
                                 ("stopper", {"partition": {"mode": "stop", "stopAfter": "10m"}}, "nothing on this target stops itself")):
            self.work(name, "quiet", **spec)
            self.phase(name, "Queued")
            said = wait_for(f"the decision on {name}", lambda n=name: (t := self.cli("explain", n, check=False).stdout) and "quiet" in t and t, 30)
            self.check(f"{name} needs a lease, and is not placed there, with the reason", word in said, "" if word in said else said[:300])
            self.cli("delete", "workload", name)
        left = [n for n in os.listdir(self.path("state-quiet")) if n.endswith(".token")]
        self.check("no token is left on disk", not left, left)
        del self.port["quiet"]  # nothing else is placed there
        self.cli("delete", "target", "quiet")

    def holds_a_lease(self):
        for name, target in (("leased", "rack"), ("proxied", "shelf")):
            self.work(name, target, ticks=6000, partition={"mode": "replace"})
        for name in ("leased", "proxied"):
            self.phase(name, "Running")
            self.leased(name)
        self.check("it is placed under mode replace, and its runner has taken the lease", True)
        time.sleep(1.2 * LEASE_S)
        for name in ("leased", "proxied"):
            self.check(f"the lease of {name} is renewed: it outlives it", not self.said(name, "term") and self.status(name)["phase"] == "Running")

    def runner(self, name, target, guard=False):
        """The pid of the process that calls home, or of its guard, and its files."""
        files = self.path("state-" + target, self.status(name)["intent"]["key"])
        found = {p for p, _ in descendants(self.servers[target].pid)
                 if os.path.basename(files).encode() in (line := command_of(p)) and b"--home" in line}
        first = next(p for p in found if parent_of(p) not in found)  # the guard; what the shim has forked looks like it for a moment
        return first if guard else next(p for p in found if parent_of(p) == first), files

    def is_behind_a_proxy(self):
        """What goes on on shelf meanwhile."""
        pid, files = self.runner("proxied", "shelf")
        ports = remote_ports(pid)
        self.check("the runner's only connection is to the proxy", ports == {self.proxy.port}, ports)
        members = {s.rsplit("/", 1)[-1] for s in self.login.servers}
        self.check("who was asked for members, by their own addresses", set(self.proxy.asked) <= members and self.proxy.asked, self.proxy.asked)
        word = LOGIN.split(":")[1]
        shown = [p for p, _ in descendants(self.servers["shelf"].pid) if word.encode() in command_of(p)]
        with open(self.path("env.proxied"), encoding="utf-8") as file:
            env = file.read()
        with open(self.path("log", "server-shelf.log"), encoding="utf-8", errors="replace") as file:
            log = file.read()
        self.check("its password is on no command line, in no environment and in no log", not shown and word not in env and word not in log, shown)
        with open(self.path("date.proxied"), encoding="utf-8") as file:
            self.check("its clock is an hour slow, and nothing minds", abs(time.time() - 3600 - int(file.read())) < 120)
        before = len(self.proxy.asked)
        self.proxy.cut(away=True)
        wait_for("the proxy to be asked in vain", lambda: any(status == "502" for _, status in self.proxy.refused), 20)
        self.proxy.cut()
        wait_for("the runner to be back", lambda: len(self.proxy.asked) > before, 20)
        self.leased("proxied")
        self.check("the proxy was away: it is back, and lives on", not self.said("proxied", "term"))
        self.proxy_sentences(files)

    def proxy_sentences(self, files):
        """What a runner says that no proxy lets through; its token is the first one's, and is not shown to anybody."""
        real = RealProxy.make(self.dir, LOGIN)
        cases = [("a wrong password", f"http://anna:no@127.0.0.1:{self.proxy.port}", "wants a user and a password"),
                 ("no proxy there", f"http://127.0.0.1:{free_port()}", "refused"),
                 ("a proxy that is none", f"http://127.0.0.1:{self.port['rack']}", "way"),
                 ("a proxy by TLS", f"https://{LOGIN}@127.0.0.1:1", "spoken to by TLS")]
        if real:
            cases += [("a wrong password, at tinyproxy", f"http://anna:no@127.0.0.1:{real.port}", "wants a user and a password"),
                      ("a member that is not there, by tinyproxy", f"http://{LOGIN}@127.0.0.1:{real.port}", "at the moment")]
        started = []
        for number, (what, url, sentence) in enumerate(cases):
            shutil.copy(files + ".token.twice", self.path(f"token.{number}"))
            started.append((what, sentence, subprocess.Popen(
                [self.hanse, "run", "--home", f"127.0.0.1:{free_port()}", "--home-ca", files + ".ca", "--token-file", self.path(f"token.{number}"),
                 "--home-proxy", url, "--home-wait", "1500", "--", "touch", self.path("begun")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)))
        for what, sentence, process in started:
            _, err = process.communicate(timeout=30)
            self.check(f"{what}: it never begins, and says why", process.returncode in (2, 126) and sentence in err and LOGIN.split(":")[1] not in err
                       and not os.path.exists(self.path("begun")), err[-300:])
        if real:
            real.stop()

    def the_leader_dies(self):
        self.kill_leader()
        time.sleep(1.2 * LEASE_S)
        self.phase("leased", "Running")
        for name in ("leased", "proxied"):
            self.check(f"another leader renews: {name} lives on, once", not self.said(name, "term") and len(self.said(name)) == 1,
                       self.said(name, "term"))

    def a_token_comes_twice(self):
        """The first runner is silent when another process comes with its token, to a leader that has never seen either."""
        runner, files = self.runner("leased", "rack", guard=True)
        os.kill(runner, signal.SIGSTOP)
        try:
            self.kill_leader()
            done = subprocess.run([self.hanse, "run", "--home", ",".join(s.split("//")[-1] for s in self.login.servers), "--home-ca", files + ".ca",
                                   "--token-file", files + ".token.twice", "--report", "file:" + self.path("twice.report"), "--", "/bin/sh", "-c",
                                   f"echo started > '{self.path('twice')}'"], capture_output=True, text=True, timeout=90, check=False)
        finally:
            os.kill(runner, signal.SIGCONT)
        self.check("a second process with its token never starts", done.returncode == 126 and not os.path.exists(self.path("twice")),
                   (done.returncode, done.stderr[-300:]))
        self.check("and says nothing of the run", not os.path.exists(self.path("twice.report")))
        claims = self.status("leased")["intent"].get("claims", [])
        self.check("the log has who began", len(claims) == 1 and claims[0].get("rank", 0) == 0, claims)
        self.leased("leased")
        self.check("and the first one lives on", not self.said("leased", "term") and len(self.said("leased")) == 1)

    def is_stopped(self):
        self.cli("delete", "workload", "leased")
        self.go("proxied")
        wait_for("leased to be gone", lambda: "leased" not in self.workloads(), 60)
        self.check("deleted: its program was asked once, and is gone", len(self.said("leased", "term")) == 1 and not self.alive("leased"))
        self.check("and what is behind the proxy comes to its end", self.phase("proxied", *OVER)["phase"] == "Succeeded")
        left = [n for n in os.listdir(self.path("state-shelf")) if n.endswith((".token", ".proxy"))]
        self.check("nothing secret is left on disk", not left, left)

    def alive(self, name):
        return subprocess.run(["flock", "-n", self.path("lock." + name), "true"], check=False).returncode != 0

    def strangers_are_turned_away(self):
        context = ssl.create_default_context(cafile=os.path.join(self.path("pki"), "ca.crt"))
        context.set_alpn_protocols(["hanse-runner/1"])

        def ask(data):
            host, port = self.login.servers[0].rsplit("/", 1)[-1].split(":")
            for server in self.login.servers:
                host, port = server.rsplit("/", 1)[-1].split(":")
                try:
                    with socket.create_connection((host, int(port)), 5) as raw, context.wrap_socket(raw, server_hostname=host) as s:
                        s.settimeout(10)
                        s.sendall(data)
                        return s.recv(65536)
                except (ConnectionRefusedError, socket.timeout):
                    continue
            return b""

        def frame(kind, body):
            return (12 + len(body)).to_bytes(4, "little") + bytes([kind, 0, 0, 0]) + bytes(8) + body

        forged = "hanse-run-1/x/0f3c.1.1/0/1/1700000000000/" + "0" * 64
        hello = json.dumps({"token": forged, "at": 1, "report": {"state": "starting"}, "instance": "x"}).encode()
        for what, data in (("a forged token", frame(1, hello)), ("no hello", frame(10, b"{}")), ("no JSON", frame(1, b"\xff\x00")),
                           ("a frame without end", (8 << 20).to_bytes(4, "little") + b"x" * 20000)):
            answer = ask(data)
            self.check(f"{what} is refused", b"token" in answer or b"cannot be read" in answer, answer[:120])

    def nobody_has_claimed(self):
        """It was ordered, its runner is not there yet, and its server is gone. The log closes that try; whoever comes late
        with its token never starts."""
        for name in self.port:
            with open(self.path("state-" + name, "hold"), "w", encoding="utf-8"):
                pass
        self.work("late", "rack", "shelf", ticks=6000)  # under mode wait: it waits for what may run, and nothing does
        first = wait_for("late to be ordered", lambda: (s := self.status("late")).get("phase") == "Starting" and s["placement"]["target"], 30, 0.2)
        other = next(name for name in self.port if name != first)
        os.unlink(self.path("state-" + other, "hold"))
        self.servers[first].kill()
        self.servers[first].wait()
        try:
            s = self.phase("late", "Running")
        finally:
            os.unlink(self.path("state-" + first, "hold"))  # now its runner comes
            self.serve(first)
        self.check("it runs elsewhere, for nobody had claimed its first try", s["placement"]["target"] == other and
                   [e.get("reason") for e in s["ends"]] == ["NeverClaimed"] and s["ends"][0]["proof"] == "NeverStarted", s.get("ends"))
        report = self.path("state-" + first, f"{s['intent']['key'].split('.')[0]}.{s['ends'][0]['epoch']}.1.report")
        text = wait_for("its late runner to give up", lambda: os.path.exists(report) and open(report, encoding="utf-8").read(), 30, 0.2)
        self.check("its late runner is refused, and starts nothing", json.loads(text).get("neverStarted") and len(self.said("late")) == 1 and
                   not self.said("late", "double"), text)
        self.go("late")
        self.check("and it succeeds once", self.phase("late", *OVER)["phase"] == "Succeeded" and len(self.said("late", "end")) == 1)

    def nobody_is_reached(self):
        """The machine stands still: neither server nor runner say anything. It lives elsewhere once the lease is over, and what wakes
        up ends itself."""
        self.work("frozen", "rack", "shelf", ticks=6000, partition={"mode": "replace"})
        self.phase("frozen", "Running")
        self.leased("frozen")
        first = self.status("frozen")["placement"]["target"]
        stopped = [self.servers[first].pid] + [p for p, _ in descendants(self.servers[first].pid)]
        signal_all(stopped, signal.SIGSTOP)
        began = time.monotonic()
        # Its program's own lock is held by a process that stands still: the second life is seen by its line.
        wait_for("its second life", lambda: len(self.said("frozen")) + len(self.said("frozen", "double")) > 1, 120, 0.2)
        took = time.monotonic() - began
        self.check(f"its next epoch begins only after the lease ({LEASE_S} s), elsewhere", took > LEASE_S and
                   self.status("frozen")["placement"]["target"] != first, f"{took:.1f} s")
        signal_all(stopped, signal.SIGCONT)
        pid = self.said("frozen")[0][3]
        wait_for("its first life to end", lambda: not os.path.exists(f"/proc/{pid}"), 30)
        self.check("what wakes up is ended by its own runner", True)
        self.cli("delete", "workload", "frozen")
        wait_for("frozen to be gone", lambda: "frozen" not in self.workloads(), 60)

    def the_hub_is_gone(self):
        self.work("alone", ticks=6000, partition={"mode": "replace"})
        self.phase("alone", "Running")
        self.leased("alone")
        members = [m["pid"] for m in self.members()]
        for pid in members:
            os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        wait_for("it to be stopped by its lease", lambda: self.said("alone", "term"), 60, 0.05)
        took = time.monotonic() - began
        self.check(f"it is stopped within the lease ({LEASE_S} s)", took < LEASE_S + 1, f"{took:.1f} s")
        wait_for("it to be gone", lambda: not self.alive("alone"), 20)
        for pid in members:
            os.kill(pid, signal.SIGCONT)
        wait_for("its next epoch", lambda: len(self.said("alone")) == 2, 90, 0.2)
        self.check("the hub that is back begins its next epoch", not self.said("alone", "double"))
        ends = self.status("alone").get("ends", [{}])
        self.check("its first end says why", ends and ends[0].get("reason") == "LeaseLost", ends[:1])
        self.go("alone")
        self.check("and it succeeds", self.phase("alone", *OVER)["phase"] == "Succeeded")

    def stop(self):
        self.proxy.stop()
        for server in self.servers.values():
            left = [server.pid] + [p for p, _ in descendants(server.pid)]
            for pid in left:
                for signo in (signal.SIGCONT, signal.SIGTERM if pid == server.pid else signal.SIGKILL):
                    try:
                        os.kill(pid, signo)
                    except ProcessLookupError:
                        pass
            server.wait()
        super().stop()


PARTS = (Home.runs_and_tells_the_end, Home.runs_without_a_way_home, Home.holds_a_lease, Home.is_behind_a_proxy, Home.the_leader_dies, Home.a_token_comes_twice, Home.is_stopped,
         Home.strangers_are_turned_away, Home.nobody_has_claimed, Home.nobody_is_reached, Home.the_hub_is_gone)


if __name__ == "__main__":
    sys.exit(run(Home, "home", PARTS))
