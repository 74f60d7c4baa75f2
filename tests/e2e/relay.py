#!/usr/bin/env python3
"""Logs and exec of a workload at members that do not lead: what comes there is what the leader would have told, to whoever asked
there, with his own credentials. Who goes takes what he began with him; a leader that goes is not taken for the end; and nobody
but a member can ask in another's name. Prints ok or FAILED per check; exit 1 when any failed."""
import hashlib
import http.client
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import urllib.parse

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster  # noqa: E402
from federation import Failure, Login, wait_for  # noqa: E402
from parts import walk  # noqa: E402

WORKLOADS = "/apis/hanse.dev/v1alpha1/namespaces/default/workloads"
OPERATIONS = "/apis/hanse.dev/v1alpha1/operations"
VIEW = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "anna-views", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "anna"}]}


def followers(c):
    def found():
        members = [m for m in c.members() if m["pid"]]
        return [m for m in members if m["role"] != "leader"] if len(members) == 3 and any(m["role"] == "leader" for m in members) else None
    return wait_for("a leader and two followers", found, 20)


def port_of(c, member):
    return c.ports[member["id"] - 1][0]


def bare(c):
    context = ssl.create_default_context(cafile=os.path.join(c.path("pki"), "ca.crt"))
    context.check_hostname = False
    return context


def get(c, member, path, token=None):
    """An open answer of that very member."""
    connection = http.client.HTTPSConnection("127.0.0.1", port_of(c, member), timeout=30, context=bare(c) if token else c.login.context)
    connection.request("GET", path, None, {"Authorization": "Bearer " + token} if token else c.login.headers)
    return connection, connection.getresponse()


class Exec:
    """One exec at one member, in its frames."""

    def __init__(self, c, member, name, *command, token=None, stdin=False, tty=None):
        raw = socket.create_connection(("127.0.0.1", port_of(c, member)), timeout=30)
        self.s = (bare(c) if token else c.login.context).wrap_socket(raw, server_hostname="localhost")
        query = urllib.parse.urlencode([("command", w) for w in command] + ([("stdin", "true")] if stdin else []) +
                                       ([("tty", "true"), ("rows", tty[0]), ("columns", tty[1])] if tty else []))
        given = {"Authorization": "Bearer " + token} if token else c.login.headers
        head = f"POST {WORKLOADS}/{name}/exec?{query} HTTP/1.1\r\nHost: localhost\r\nUpgrade: hanse-exec/1\r\nConnection: Upgrade\r\nContent-Length: 0\r\n"
        self.s.sendall((head + "".join(f"{k}: {v}\r\n" for k, v in given.items()) + "\r\n").encode())
        self.left = b""
        while b"\r\n\r\n" not in self.left:
            self.more()
        text, _, self.left = self.left.partition(b"\r\n\r\n")
        self.status = int(text.split()[1])

    def more(self):
        got = self.s.recv(65536)
        if not got:
            raise Failure("exec ended without a status")
        self.left += got

    def send(self, data):
        for at in range(0, len(data), 65536):
            piece = data[at:at + 65536]
            self.s.sendall(struct.pack(">BI", 0, len(piece)) + piece)

    def end(self):
        self.s.sendall(struct.pack(">BI", 0, 0))

    def size(self, rows, columns):
        self.s.sendall(struct.pack(">BIHH", 4, 4, rows, columns))

    def frame(self):
        while len(self.left) < 5 or len(self.left) < 5 + struct.unpack(">I", self.left[1:5])[0]:
            self.more()
        n = struct.unpack(">I", self.left[1:5])[0]
        kind, body, self.left = self.left[0], self.left[5:5 + n], self.left[5 + n:]
        return kind, body

    def rest(self):
        """(standard output, standard error, status)"""
        out = {1: b"", 2: b""}
        while True:
            kind, body = self.frame()
            if kind == 3:
                return out[1], out[2], json.loads(body)
            out[kind] += body


def begin(c):
    c.start()
    c.login = Login(c.path("kubeconfig"), c.path("scratch"))
    c.apply(c.workload("talks"), VIEW)
    c.running("talks")
    done = c.cli("token", "create", "--user", "anna", "--ttl", "1h")
    c.anna = done.stdout.strip()


def logs(c):
    for m in followers(c):
        connection, answer = get(c, m, f"{WORKLOADS}/talks/log", c.anna)
        text = answer.read().decode()
        connection.close()
        c.check(f"m{m['id']} gives the log to who has a token only, and sends him nowhere", answer.status == 200 and text.startswith("first line of talks\n"),
                f"{answer.status} {text[:60]!r}")
    m = followers(c)[0]
    connection, answer = get(c, m, f"{WORKLOADS}/talks/log?follow=true&tailLines=1")
    lines = [answer.fp and answer.readline() for _ in range(6)]
    connection.close()
    ticks = [int(w.split()[1]) for w in lines if w.startswith(b"tick ")]
    c.check("and follows it", len(ticks) >= 5 and ticks == list(range(ticks[0], ticks[0] + len(ticks))), str(lines))
    connection, answer = get(c, m, f"{WORKLOADS}/nobody/log")
    c.check("a workload that is not there is not found", answer.status == 404, str(answer.status))
    connection.close()
    c.apply(c.workload("waits", suspend=True))
    wait_for("it to be there", lambda: c.get("workload", "waits"), 10)

    def refusal():
        connection, answer = get(c, m, f"{WORKLOADS}/waits/log")
        told = answer.read()
        connection.close()
        return answer.status != 404 and (answer.status, json.loads(told))
    status, told = wait_for("an answer", refusal, 10)
    c.check("what the leader refuses is told as it says it", status == 409 and "has not run yet" in told["message"], str(told))
    with open(c.path(f"m{c.leader()['id']}.log"), encoding="utf-8", errors="replace") as file:
        opened = [line for line in file if "relay.opened" in line]
    c.check("the leader knows for whom", any("user=anna" in line and "what=log" in line for line in opened), str(opened[:3])[:300])


def silent(c):
    """A log to which nothing comes: it is open all the same, and who leaves it gives the agent's seat back (it has 64)."""
    c.apply(c.workload("silent", "/bin/sh", "-c", "while :; do sleep 1; done", c.witness))
    c.running("silent")
    m = followers(c)[0]
    slow = []
    for at, member in enumerate([m, c.leader()] * 60):
        began = time.monotonic()
        connection, answer = get(c, member, f"{WORKLOADS}/silent/log?follow=true")
        slow.append(time.monotonic() - began)
        if answer.status != 200:
            c.check("a silent log opens at once, time after time", False, f"{at}: {answer.status} {answer.read()[:200]!r}")
            return
        answer.close()
        connection.close()
    c.check("a silent log opens at once, time after time", max(slow) < 5, f"{max(slow):.1f} s")


def programs(c):
    m = followers(c)[0]
    x = Exec(c, m, "talks", "/bin/sh", "-c", "read x; echo got $x $HANSE_RANK; echo bad >&2; exit 5", stdin=True)
    x.send(b"hello\n")
    x.end()
    c.check("exec through a follower", x.status == 101 and x.rest() == (b"got hello 0\n", b"bad\n", {"exitCode": 5}))
    c.check("is refused to who may only read", Exec(c, m, "talks", "/bin/true", token=c.anna).status == 403)
    for _ in range(5):  # its end was left lying once in some ten times
        data = os.urandom(12 << 20)
        x = Exec(c, m, "talks", "sha256sum", stdin=True)
        x.send(data)
        x.end()
        out, _, status = x.rest()
        c.check("12 MiB of input come there whole", status == {"exitCode": 0} and out.split()[0].decode() == hashlib.sha256(data).hexdigest(), str(status))
    x = Exec(c, m, "talks", "/bin/sh", "-c", "head -c 12582912 /dev/zero | tr '\\0' 'x'")
    out, _, status = x.rest()
    c.check("and as much output comes back", status == {"exitCode": 0} and out == b"x" * 12582912, f"{status} {len(out)}")
    x = Exec(c, m, "talks", "/bin/sh", "-c", "stty size; read x; stty size", stdin=True, tty=(70000, 80))
    x.size(5000, 65535)
    x.send(b"go\n")
    out, _, status = x.rest()
    c.check("a terminal of more than 4096 rows or columns counts as one of 4096", status == {"exitCode": 0} and out.endswith(b"4096 4096\r\n"), (status, out))
    x = Exec(c, m, "talks", "/bin/sh", "-c", "exec sleep 86399", stdin=True)
    sleeping = lambda: subprocess.run(["pgrep", "-f", "^sleep 86399$"], capture_output=True, check=False).returncode == 0  # noqa: E731
    wait_for("the program", sleeping, 10)
    x.s.close()
    try:
        wait_for("its end", lambda: not sleeping(), 20)
        c.check("what was begun goes with its client", True)
    except Failure as e:
        c.check("what was begun goes with its client", False, str(e))


def nobody_else_relays(c):
    leader = c.leader()
    for name, what in (("admin", "a user's"), ("agent-local", "an agent's"), (f"member-{followers(c)[0]['id']}", "a member's")):
        t = ssl.create_default_context(cafile=os.path.join(c.path("pki"), "ca.crt"))
        t.check_hostname = False
        t.load_cert_chain(os.path.join(c.path("pki"), name + ".crt"), os.path.join(c.path("pki"), name + ".key"))
        t.set_alpn_protocols(["hanse-relay/1"])
        body = json.dumps({"cluster": c.get_status()["cluster"], "user": "admin", "namespace": "default", "workload": "talks", "tail": -1}).encode()
        got = b""
        try:
            with socket.create_connection(("127.0.0.1", port_of(c, leader)), timeout=20) as raw, t.wrap_socket(raw, server_hostname="localhost") as s:
                s.sendall(struct.pack("<IBBHQ", 12 + len(body), 1, 0, 0, 0) + body)
                while b"first line" not in got and (more := s.recv(65536)):
                    got += more
        except OSError:
            pass
        c.check(f"with {what} certificate {'it is' if name[0] == 'm' else 'nothing is'} relayed", (b"first line" in got) == (name[0] == "m"), repr(got[:80]))


def the_leader_hangs(c):
    """It keeps its connections open, and nothing comes over them any more."""
    m, leader = followers(c)[0], c.leader()
    x = Exec(c, m, "talks", "/bin/sh", "-c", "echo here; exec sleep 600", stdin=True)
    c.check("exec is open", x.frame() == (1, b"here\n"))
    os.kill(leader["pid"], signal.SIGSTOP)
    try:
        _, _, status = x.rest()
        c.check("exec ends, since another leads", "another member leads" in status.get("message", ""), str(status))
    except OSError as e:
        c.check("exec ends, since another leads", False, str(e))
    finally:
        os.kill(leader["pid"], signal.SIGCONT)
    wait_for("the members to agree", lambda: len(followers(c)) == 2, 30)
    c.running("talks")


def the_leader_goes(c):
    m = followers(c)[0]
    connection, answer = get(c, m, f"{WORKLOADS}/talks/log?follow=true&tailLines=1")
    answer.readline()
    x = Exec(c, m, "talks", "/bin/sh", "-c", "echo here; exec sleep 600", stdin=True)
    c.check("exec and log are open", x.frame() == (1, b"here\n"))
    told = [subprocess.Popen([c.hanse, *words, "--server", f"https://127.0.0.1:{port_of(c, at)}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "KUBECONFIG": c.path("kubeconfig")})
            for at in (m, next(m for m in c.members() if m["role"] == "leader"))
            for words in (("logs", "-f", "talks"), ("exec", "talks", "--", "/bin/sh", "-c", "echo here; exec sleep 600"))]
    for p in told:
        p.stdout.readline()
    follows, at_leader = told.pop(0), told.pop(1)
    c.kill_leader()
    _, _, status = x.rest()
    c.check("exec ends with the reason", status["exitCode"] == 1 and status.get("reason") == "BadGateway" and "leader" in status["message"], str(status))
    cut = False
    try:
        while answer.read1(65536):
            pass
    except (http.client.IncompleteRead, OSError):
        cut = True
    connection.close()
    c.check("the log is cut off, and not ended", cut)
    for p in told:
        _, said = p.communicate(timeout=60)
        c.check("exec ends with its own status, and says what is lost",
                p.returncode == 255 and " lost" in said and "no member" not in said, (p.returncode, said))
    ticks = [int(follows.stdout.readline().split()[1]) for _ in range(100)]
    c.check("logs -f goes on, with nothing twice and nothing missing", ticks == list(range(1, 101)), ticks[:3] + ticks[-3:])
    for p in (follows, at_leader):
        p.kill()
        p.communicate(timeout=60)

    def again():
        connection, answer = get(c, m, f"{WORKLOADS}/talks/log?tailLines=1")
        told = answer.read()
        connection.close()
        return answer.status == 200 and told
    c.check("and comes again from the next one", wait_for("the log", again, 40) != b"")


def main():
    hanse = os.environ.get("HANSE") or os.path.join(os.environ.get("HANSE_BUILD_DIR", ""), "hanse")
    if not os.access(hanse, os.X_OK):
        print("there is no hanse: set HANSE or HANSE_BUILD_DIR")
        return 77
    folder = tempfile.mkdtemp(prefix="hanse-relay-")
    c = Cluster(hanse, folder)
    c.get_status = lambda: json.loads(c.cli("status", "-o", "json").stdout)
    return walk(c, folder, [begin, logs, silent, programs, nobody_else_relays, the_leader_hangs, the_leader_goes])


if __name__ == "__main__":
    sys.exit(main())
