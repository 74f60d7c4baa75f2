#!/usr/bin/env python3
"""What a user does with a cluster of three members and one agent, through the CLI alone: run, look, stop, drain, change
the members, hand out tokens, and lose all members at once. Whether something ran, and how often, is never asked of Hanse:
each program writes its own life into a witness file. Prints ok or FAILED per check; exit 1 when any failed."""
import datetime
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.path.insert(0, os.path.join(TOP, "tests", "e2e", "lib"))
sys.dont_write_bytecode = True
from federation import Failure, Federation, kill_exactly, start_time, wait_for  # noqa: E402
from parts import walk  # noqa: E402

CONTEXTS = ("dev", "dev-m2", "dev-m3")
TARGET = {"apiVersion": "hanse.dev/v1alpha1", "kind": "Target", "metadata": {"name": "local"},
          "spec": {"type": "agent", "tier": "hub", "capacity": "owned",
                   "partition": {"suspectAfter": "5s", "lease": "60s"}}}
VIEW = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "anna-views", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "anna"}]}
# $1 is the witness file; the rest is run when given, or it goes on until it is asked to stop. 75 says: saved, not done.
PROGRAM = """#!/bin/sh
file=$1
shift
note() { echo "$1 $HANSE_WORKLOAD_NAME $HANSE_EPOCH $$" >>"$file"; }
note start
[ $# -eq 0 ] || exec "$@"
trap 'note term; exit 75' TERM
echo "first line of $HANSE_WORKLOAD_NAME"
n=0
while :; do
    sleep 0.2
    n=$((n + 1))
    echo "tick $n"
done
"""


class Cluster(Federation):
    """One target, local; every check is counted."""

    def __init__(self, hanse, folder):
        super().__init__(hanse, "/bin/false", folder)
        self.failed = 0
        self.witness = self.path("witness")
        self.program = self.path("bin", "program")
        with open(self.program, "w", encoding="utf-8") as file:
            file.write(PROGRAM)
        os.chmod(self.program, 0o755)
        open(self.witness, "w", encoding="utf-8").close()

    def check(self, what, good, detail=""):
        self.failed += not good
        print(f"  {'ok    ' if good else 'FAILED'}  {what}" + (f": {detail}" if detail != "" else ""), flush=True)
        return good

    def start(self):
        self.dev = self._spawn("dev", [self.hanse, "dev", "--members", "3", "--dir", self.dir, "--agent", "local"])
        wait_for("hanse dev; see log/dev.log", lambda: os.path.exists(self.path("kubeconfig")) and
                 self.cli("status", check=False).returncode == 0, 30)
        with open(self.path("ports"), encoding="utf-8") as file:
            self.ports = [tuple(map(int, line.split())) for line in file]
        with open(self.path("log", "dev.log"), encoding="utf-8") as file:
            said = file.read()
        self.check("the first start tells of no member that ended", " ended (" not in said, said[:500])
        self.check("and all have the key ring that was there before them",
                   os.stat(self.path("pki", "key-ring")).st_mtime_ns < min(os.stat(self.path(f"m{i}.pid")).st_mtime_ns for i in (1, 2, 3)))
        self.apply(TARGET)
        self.agents["local"] = self.begin_agent()
        wait_for("the target to be connected; see log/agent-local.log", self.connected, 30)

    def begin_agent(self):
        pki = self.path("pki")
        argv = [self.hanse, "agent", "--target", "local", "--state", self.path("agent-local"),
                "--ca", f"{pki}/ca.crt", "--cert", f"{pki}/agent-local.crt", "--key", f"{pki}/agent-local.key", "--store-root", self.path("checkpoints")]
        for api, _ in self.ports:
            argv += ["--server", f"127.0.0.1:{api}"]
        return self._spawn("agent-local", argv)

    def connected(self):
        got = self.get("target", "local")
        return any(c["type"] == "Connected" and c["status"] == "True"
                   for c in got.get("status", {}).get("conditions", []))

    def cli_in(self, text, *args, check=True):
        done = subprocess.run([self.hanse, *args], input=text, capture_output=True, text=True, timeout=40, check=False,
                              env={**os.environ, "KUBECONFIG": self.path("kubeconfig")})
        if check and done.returncode != 0:
            raise Failure(f"hanse {' '.join(args)}: exit {done.returncode}: {done.stderr.strip()[:500]}")
        return done

    def apply(self, *documents, check=True):
        return self.cli_in("---\n".join(json.dumps(d) + "\n" for d in documents), "apply", "-f", "-", check=check)

    def get(self, kind, name, *args):
        return json.loads(self.cli("get", kind, name, "-o", "json", *args).stdout)

    def status(self, name):
        return self.get("workload", name).get("status", {})

    def workload(self, name, *words, retries=0, **spec):
        return {"apiVersion": "hanse.dev/v1alpha1", "kind": "Workload", "metadata": {"name": name, "namespace": "default"},
                "spec": {"type": "batch", "resources": {"cpu": "100m", "memory": "16Mi"},
                         "checkpoint": {"signal": "SIGTERM", "grace": "5s"},
                         "run": {"command": [self.program, self.witness, *words], "retries": retries}, **spec}}

    def lives(self, name, word="start"):
        """[(epoch, pid)] in order."""
        with open(self.witness, encoding="utf-8") as file:
            lines = [line.split() for line in file]
        return [(int(e), int(p)) for w, n, e, p in lines if w == word and n == name]

    def outside(self, name, epoch, inside):
        """The pid of a program that calls itself that, which may be so in a namespace of its own."""
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                    own = re.search(r"^NSpid:.*\t(\d+)$", file.read(), re.M)
                with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
                    env = file.read().split("\0")
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                    ours = self.witness in file.read()
            except OSError:
                continue
            if ours and own and int(own.group(1)) == inside and {f"HANSE_WORKLOAD_NAME={name}", f"HANSE_EPOCH={epoch}"} <= set(env):
                return int(pid)
        return None

    def running(self, name, epoch=1, seconds=20):
        """Waits until its program lives in that epoch and Hanse says so; its (pid, start time)."""
        pid = wait_for(f"{name} to run in epoch {epoch}",
                       lambda: next((o for e, p in self.lives(name) if e == epoch and (o := self.outside(name, e, p))), None), seconds)
        wait_for(f"{name} to be Running", lambda: self.status(name).get("phase") == "Running", seconds)
        return pid, start_time(pid)

    def ended(self, name, seconds=20):
        return wait_for(f"{name} to end", lambda: (s := self.status(name)).get("phase") in
                        ("Succeeded", "Failed", "Cancelled") and s, seconds)

    def leader(self):
        return next((m for m in self.members() if m["role"] == "leader"), None)


def gone(process):
    return start_time(process[0]) != process[1]


def run_and_look(c):
    """Each member answers everything, whoever leads."""
    lead = wait_for("a leader", c.leader, 10)["id"]
    c.cli("submit", "--name", "short", "--cpu", "100m", "--memory", "16Mi", "--", "/bin/sh", "-c", "echo one; echo two")
    s = c.ended("short")
    c.check("submit runs a command", s["phase"] == "Succeeded" and s["epoch"] == 1, s["phase"])
    c.apply(c.workload("long"))
    pid = c.running("long")[0]
    for number, context in enumerate(CONTEXTS, 1):
        at = ("--context", context)
        who = f"m{number}{' (leads)' if number == lead else ''}"
        got = c.get("workload", "long", *at)
        c.check(f"{who}: get", got["status"]["phase"] == "Running" and got["status"]["placement"]["target"] == "local")
        done = c.cli("submit", "--name", f"at-m{number}", "--cpu", "100m", "--memory", "16Mi", *at, "--", "/bin/true", check=False)
        c.check(f"{who}: submit", done.returncode == 0, done.stderr.strip())
        said = c.cli("explain", "short", *at).stdout
        c.check(f"{who}: explain", "epoch 1" in said and "placed on local" in said, "" if "placed" in said else said)
        c.check(f"{who}: logs after the end", c.cli("logs", "short", *at, check=False).stdout == "one\ntwo\n")
        done = c.cli_in("to and fro", "exec", "long", "-i", *at, "--", "/bin/sh", "-c", "cat; echo to err >&2; exit 7", check=False)
        c.check(f"{who}: exec with stdin and exit status",
                (done.returncode, done.stdout) == (7, "to and fro") and "to err" in done.stderr,
                f"{done.returncode} {done.stdout!r} {done.stderr!r}" if done.returncode != 7 else "")
        check_follow(c, who, at)
    for number in (1, 2, 3):
        c.check(f"what was submitted at m{number} ran", c.ended(f"at-m{number}")["phase"] == "Succeeded")
    done = c.cli("explain", "nothing-of-that-name", check=False)
    c.check("explain of nothing is an error", done.returncode != 0 and done.stderr.startswith("error:"), done.stderr.strip())
    return pid


def check_follow(c, who, at):
    follow = subprocess.Popen([c.hanse, "logs", "long", "-f", *at], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              env={**os.environ, "KUBECONFIG": c.path("kubeconfig")})
    giveup = threading.Timer(15, follow.kill)
    giveup.start()
    lines, ticks = [], 0
    began = int(wait_for("ticks", lambda: c.cli("logs", "long", "--tail", "1").stdout.split()[-1:], 10)[0])
    for line in follow.stdout:
        lines.append(line)
        ticks = int(line.split()[1]) if line.startswith("tick ") else ticks
        if ticks > began + 2:
            break
    giveup.cancel()
    follow.kill()
    follow.wait()
    c.check(f"{who}: logs -f from the first line on, and what comes", lines[:1] == ["first line of long\n"] and ticks > began + 2)


def stop_and_again(c):
    process = c.running("long")
    c.cli("delete", "workload", "long")
    wait_for("the deleted workload's process to end", lambda: gone(process), 15)
    wait_for("the deleted workload to be gone", lambda: c.cli("get", "workload", "long", check=False).returncode != 0, 15)
    c.check("delete ends the process, SIGTERM first", len(c.lives("long", "term")) == 1)

    c.apply(c.workload("held"))
    process = c.running("held")
    c.apply(c.workload("held", suspend=True))
    wait_for("the suspended workload's process to end", lambda: gone(process), 15)
    s = wait_for("held to wait", lambda: (s := c.status("held")).get("phase") == "Queued" and s, 15)
    s = wait_for("its reason", lambda: (s := c.status("held")).get("reason") == "Suspended" and s, 5)
    c.check("suspend: true stops it", s["epoch"] == 1 and not s.get("placement"), f"{s['phase']} {s['reason']}")
    c.apply(c.workload("held", suspend=False))
    c.running("held", 2)
    c.check("suspend: false runs it again in the next epoch", [e for e, _ in c.lives("held")] == [1, 2])
    c.cli("delete", "workload", "held")

    c.apply(c.workload("late", deadline="2020-01-01T00:00:00Z"))
    s = c.ended("late")
    c.check("a deadline in the past: never started, and says so",
            (s["phase"], s["reason"]) == ("Cancelled", "DeadlineExceeded") and not c.lives("late"),
            f"{s['phase']} {s['reason']}: {s['message']}")
    c.cli("delete", "workload", "late")
    soon = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=3)
    c.apply(c.workload("soon", deadline=soon.strftime("%Y-%m-%dT%H:%M:%SZ")))
    process = c.running("soon")
    s = c.ended("soon")
    c.check("a deadline that comes ends it", gone(process) and s["phase"] == "Cancelled", f"{s['phase']} {s.get('reason')}")

    c.apply(c.workload("round", "/bin/sh", "-c", "exit 75", retries=1))
    c.apply(c.workload("fails", "/bin/false", retries=2))
    s = c.ended("fails", 30)
    c.check("retries: 2 is three runs, then Failed",
            s["phase"] == "Failed" and s["retries"] == 3 and [e for e, _ in c.lives("fails")] == [1, 2, 3],
            f"{s['phase']}, {s.get('retries')} failures, epochs {[e for e, _ in c.lives('fails')]}")
    s = c.ended("round", 30)
    c.check("75 without anything saved is a failure, and does not go round for ever", s["retries"] == 2 and s["reason"] == "NothingSaved",
            f"{s['phase']}, {s.get('retries')} failures, {s['reason']}")


def drain(c):
    c.apply(c.workload("moves"))
    process = c.running("moves")
    c.cli("drain", "local", "--wait", "--wait-timeout", "20s", timeout=40)
    c.check("drain --wait returns when nothing is left", gone(process) and len(c.lives("moves", "term")) == 1)
    s = wait_for("moves to wait with a reason", lambda: (s := c.status("moves")).get("reason") == "TargetCordoned" and s or
                 None, 15)
    c.check("it waits with TargetCordoned", s["phase"] == "Queued", s["message"])
    c.check("explain names it", "TargetCordoned" in c.cli("explain", "moves").stdout)
    c.cli("uncordon", "local")
    c.running("moves", 2)
    c.check("uncordon: it runs again in a higher epoch", [e for e, _ in c.lives("moves")] == [1, 2])


def member_certificate(c, number):
    base = c.path("scratch", f"member-{number}")
    with open(base + ".ext", "w", encoding="utf-8") as file:
        file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    for argv in (["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", base + ".key",
                  "-out", base + ".csr", "-subj", f"/O=hanse:members/CN=member:{number}"],
                 ["x509", "-req", "-in", base + ".csr", "-CA", c.path("pki", "ca.crt"), "-CAkey", c.path("pki", "ca.key"),
                  "-set_serial", str(1000 + number), "-days", "2", "-extfile", base + ".ext", "-out", base + ".crt"]):
        subprocess.run(["openssl", *argv], check=True, capture_output=True)
    return base


def two_ports():
    with socket.socket() as a, socket.socket() as b:
        a.bind(("127.0.0.1", 0))
        b.bind(("127.0.0.1", 0))
        return a.getsockname()[1], b.getsockname()[1]


def dataset(name):
    return {"apiVersion": "hanse.dev/v1alpha1", "kind": "Dataset", "metadata": {"name": name, "namespace": "default"},
            "spec": {"bytes": "1Ki"}}


def voters(c):
    """What each of the first three members says."""
    return {json.loads(c.cli("status", "-o", "json", "--context", context).stdout)["voters"] for context in CONTEXTS}


def members(c):
    listed = c.members()
    c.check("members: three, each with role and pid", len(listed) == 3 and all(m["role"] and m["pid"] for m in listed) and
            sum(m["role"] == "leader" for m in listed) == 1)
    old = c.leader()["id"]
    new = old % 3 + 1
    c.cli("members", "transfer", str(new))
    wait_for("the transfer", lambda: (c.leader() or {}).get("id") == new, 10)
    c.check(f"leadership goes from m{old} to m{new}", c.apply(dataset("after-transfer"), check=False).returncode == 0)

    base, (api, peer) = member_certificate(c, 4), two_ports()
    fourth = c._spawn("m4", [c.hanse, "server", "--id", "4", "--data", c.path("m4"), "--cert", base + ".crt", "--key", base + ".key",
                             "--ca", c.path("pki", "ca.crt"), "--key-ring", c.path("pki", "key-ring"),
                             "--listen", f"127.0.0.1:{api}", "--peer-listen", f"127.0.0.1:{peer}", "--ready-file", c.path("m4.ready")])
    c.agents["m4"] = fourth
    wait_for("the fourth member to listen; see log/m4.log", lambda: os.path.exists(c.path("m4.ready")), 15)
    c.cli("members", "add", "4", f"127.0.0.1:{peer}")
    c.check("an empty member is added", wait_for("the list to have it", lambda: [m["id"] for m in c.members()] == [1, 2, 3, 4], 10))
    role = lambda: next((m["role"] for m in c.members() if m["id"] == 4), None)  # noqa: E731
    c.check("it does not vote yet, and is told as that", role() == "standby", role())
    c.cli("members", "promote", "4", timeout=30)
    c.check("promoted, it votes", wait_for("its role to be told", lambda: role() == "voter", 10))
    c.check("promoted: four voters", wait_for("every member to know four voters", lambda: voters(c) == {4}, 10))
    c.apply(dataset("with-four"))
    here = ("--server", f"https://127.0.0.1:{api}")
    got = wait_for("the fourth member to have it", lambda: c.cli("get", "dataset", "with-four", "-o", "name", *here, check=False).returncode
                   == 0, 10)
    c.check("the fourth member answers", got)
    c.check("and passes writes on", c.cli_in(json.dumps(dataset("by-four")), "apply", "-f", "-", *here, check=False).returncode == 0)
    done = c.cli("members", "remove", "4", check=False)
    c.check("remove asks for --yes", done.returncode != 0 and "--yes" in done.stderr)
    c.cli("members", "remove", "4", "--yes")
    c.check("removed", wait_for("the list to lose it", lambda: [m["id"] for m in c.members()] == [1, 2, 3], 10) and
            wait_for("every member to know three voters", lambda: voters(c) == {3}, 10))
    c.agents.pop("m4").terminate()
    fourth.wait(timeout=20)
    c.apply(dataset("with-three"))
    c.check("writes go on with three", c.get("dataset", "by-four")["metadata"]["name"] == "by-four")


def tokens(c):
    c.apply(VIEW)
    token = c.cli("token", "create", "--user", "anna", "--ttl", "10m").stdout.strip()
    c.check("a token is one line", token.startswith("hanse-") and "\n" not in token)
    done = c.cli("get", "workloads", "--token", token, check=False)
    c.check("view: get works", done.returncode == 0 and "moves" in done.stdout, done.stderr.strip())
    denied = c.cli_in(json.dumps(dataset("by-anna")), "apply", "-f", "-", "--token", token, check=False)
    c.check("view: create is refused, and says who", denied.returncode != 0 and "anna" in denied.stderr, denied.stderr.strip()[:200])
    c.check("nothing was created", c.cli("get", "dataset", "by-anna", check=False).returncode != 0)
    done = c.cli("get", "workloads", "-n", "hanse-system", "--token", token, check=False)
    c.check("the binding holds in its namespace only", done.returncode != 0, done.stderr.strip()[:200])
    done = c.cli("get", "secrets", "--token", token, check=False)
    c.check("view reads no secrets", done.returncode != 0)
    done = c.cli("token", "create", "--user", "root", "--token", token, check=False)
    c.check("nor makes tokens", done.returncode != 0)
    for wrong in (token[:-1] + ("0" if token[-1] != "0" else "1"), "hanse-x.y", "nonsense"):
        done = c.cli("get", "workloads", "--token", wrong, "--timeout", "5s", check=False)
        c.check("a wrong token is refused", done.returncode != 0 and "token" in done.stderr, done.stderr.strip()[:120])
    for wrong, want in ((token, "200"), ("hanse-x.y", "401")):
        c.check(f"HTTP status {want}", curl_status(c, wrong) == int(want))
    with_kubectl(c, token)


def curl_status(c, token):
    import http.client
    import ssl
    context = ssl.create_default_context(cafile=c.path("pki", "ca.crt"))
    connection = http.client.HTTPSConnection("127.0.0.1", c.ports[0][0], timeout=10, context=context)
    connection.request("GET", "/apis/hanse.dev/v1alpha1/namespaces/default/workloads", headers={"Authorization": "Bearer " + token})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def with_kubectl(c, token):
    found = subprocess.run([os.path.join(TOP, "tests", "peers", "kubectl.sh")], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        print(f"  SKIP    kubectl: {found.stderr.strip()[-200:]}")
        return
    login = c.path("scratch", "anna")
    with open(login, "w", encoding="utf-8") as file:
        json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "a",
                   "clusters": [{"name": "a", "cluster": {"server": f"https://127.0.0.1:{c.ports[1][0]}",
                                                          "certificate-authority": c.path("pki", "ca.crt")}}],
                   "users": [{"name": "a", "user": {"token": token}}],
                   "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]}, file)

    def kubectl(*args, config=c.path("kubeconfig")):
        return subprocess.run([found.stdout.strip(), "--request-timeout=15s", *args], capture_output=True, text=True, timeout=40,
                              check=False, env={**os.environ, "KUBECONFIG": config, "HOME": c.path("scratch")})

    for context in CONTEXTS:
        done = kubectl("--context", context, "get", "workloads")
        c.check(f"kubectl get at {context}", done.returncode == 0 and "moves" in done.stdout, done.stderr.strip())
    done = kubectl("describe", "workload", "moves")
    c.check("kubectl describe", done.returncode == 0 and "Running" in done.stdout, done.stderr.strip())
    for config, verb, want in ((c.path("kubeconfig"), "create", "yes"), (login, "create", "no"), (login, "list", "yes")):
        done = kubectl("auth", "can-i", verb, "workloads.hanse.dev", config=config)
        c.check(f"kubectl auth can-i {verb}: {want}", done.stdout.split()[:1] == [want], "" if done.stdout.split()[:1] == [want] else
                done.stdout + done.stderr)


def watch_since(c, version, wanted, context):
    """Names that a watch from that version shows, until `wanted` is among them."""
    watch = subprocess.Popen([c.hanse, "watch", "datasets", "--since", version, "-o", "name", "--context", context],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "KUBECONFIG": c.path("kubeconfig")})
    giveup = threading.Timer(10, watch.kill)
    giveup.start()
    seen = []
    for line in watch.stdout:
        seen.append(line.split()[-1].rpartition("/")[2])
        if seen[-1] == wanted:
            break
    giveup.cancel()
    watch.kill()
    if wanted not in seen:
        print("    " + watch.stderr.read().strip()[:300])
    watch.wait()
    return seen


def lose_all_members(c):
    c.apply(c.workload("survivor"))
    before = {name: c.running(name, epoch) for name, epoch in (("survivor", 1), ("moves", 2))}
    version = json.loads(c.cli("get", "datasets", "-o", "json").stdout)["metadata"]["resourceVersion"]
    c.apply(dataset("before-the-crash"))
    acks = c.path("acks")
    writer = c._spawn("bench", [c.hanse, "bench", "write", "--rate", "200", "--duration", "4s", "--acks", acks],
                      KUBECONFIG=c.path("kubeconfig"))
    wait_for("acknowledged writes", lambda: os.path.exists(acks) and len(open(acks, encoding="utf-8").readlines()) > 100, 10)
    victims = [(m["pid"], start_time(m["pid"])) for m in c.members()]
    kill_exactly(victims)
    at = time.monotonic()
    c.check("three members killed at once", len(victims) == 3 and all(b for _, b in victims))
    wait_for("all three to be back", lambda: len([m for m in c.members() if m["pid"] and m["role"]]) == 3 and c.leader(), 30)
    c.check("the cluster is back", True, f"{time.monotonic() - at:.1f} s")
    writer.wait(timeout=60)
    done = c.cli("bench", "verify", "--acks", acks, check=False, timeout=60)
    c.check("everything acknowledged is there", done.returncode == 0, done.stdout.strip().replace("\n", " ")[:200] + done.stderr[:200])
    c.apply(dataset("after-the-crash"))
    for context in CONTEXTS:
        seen = watch_since(c, version, "after-the-crash", context)
        c.check(f"{context}: a watch goes on from a version before the crash",
                seen[:1] == ["before-the-crash"] and seen[-1:] == ["after-the-crash"], f"{len(seen)} events")
    wait_for("the target to be connected again", c.connected, 30)
    for name, process in before.items():
        wait_for(f"{name} to be Running", lambda n=name: c.status(n).get("phase") == "Running", 30)
        epochs = [e for e, _ in c.lives(name)]
        c.check(f"{name} still runs, started once an epoch", not gone(process) and epochs == list(range(1, len(epochs) + 1)) and
                c.status(name)["epoch"] == epochs[-1] == (2 if name == "moves" else 1), str(epochs))
    c.cli("delete", "workload", "survivor", "moves")
    for name, process in before.items():
        wait_for(f"{name} to end", lambda p=process: gone(p), 20)
    c.check("and can be stopped", True)


def main():
    hanse = os.environ.get("HANSE") or os.path.join(os.environ.get("HANSE_BUILD_DIR", ""), "hanse")
    if not os.access(hanse, os.X_OK):
        print("there is no hanse: set HANSE or HANSE_BUILD_DIR")
        return 77
    folder = tempfile.mkdtemp(prefix="hanse-cluster-")
    c = Cluster(hanse, folder)
    return walk(c, folder, [Cluster.start, run_and_look, stop_and_again, drain, members, tokens, lose_all_members])


if __name__ == "__main__":
    sys.exit(main())
