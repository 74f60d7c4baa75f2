"""A whole Hanse federation on this machine, from outside: members, agents, the CLI. It starts processes, kills
them as a fault would, and reads only what a user could read. Everything that depends on how the binary spells a
verb or lays out its folder is in this file. Standard library only; used by `run` and by tests/e2e."""
import base64
import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import threading
import time
from urllib.parse import urlsplit

HERE = os.path.dirname(os.path.abspath(__file__))
TARGETS = ("fra-hub", "par-spoke", "ohio-spoke", "cloud-burst")


class Failure(Exception):
    """Something that the example cannot go on without; its text says what to look at."""


def wait_for(what, condition, seconds, every=0.1):
    """The first true value of condition(); Failure after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Failure(f"waited {seconds} s in vain for {what}")
        time.sleep(every)


def start_time(pid):
    """Kernel start time of a process, which tells it from a later one with the same pid; None when gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    except OSError:
        return None


def descendants(pid):
    """Every process below pid, as (pid, start time)."""
    children = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                parent = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(name))
    found, queue = [], [pid]
    while queue:
        for child in children.get(queue.pop(), []):
            found.append((child, start_time(child)))
            queue.append(child)
    return found


def kill_exactly(processes):
    """SIGKILL to those (pid, start time) that are still the same processes."""
    for pid, begun in processes:
        if begun is not None and start_time(pid) == begun:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class Login:
    """What a kubeconfig holds: CA, client certificate, servers. Reads the plain form that Hanse writes."""

    def __init__(self, path, scratch):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        self.servers = re.findall(r"^\s*-?\s*server:\s*[\"']?(https://[^\s\"']+)", text, re.M)
        if not self.servers:
            raise Failure(f"{path} names no https server")
        self.context = ssl.create_default_context(cafile=self._file(text, "certificate-authority", scratch))
        cert = self._file(text, "client-certificate", scratch)
        key = self._file(text, "client-key", scratch)
        if cert and key:
            self.context.load_cert_chain(cert, key)
        token = re.search(r"^\s*token:\s*[\"']?([^\s\"']+)", text, re.M)
        self.headers = {"Authorization": "Bearer " + token.group(1)} if token else {}

    @staticmethod
    def _file(text, key, scratch):
        inline = re.search(rf"^\s*{key}-data:\s*[\"']?([A-Za-z0-9+/=]+)", text, re.M)
        if inline:
            path = os.path.join(scratch, key + ".pem")
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(base64.b64decode(inline.group(1)))
            return path
        named = re.search(rf"^\s*{key}:\s*[\"']?([^\s\"']+)", text, re.M)
        return named.group(1) if named else None

    def connect(self, url, timeout=2.0):
        at = urlsplit(url)
        return http.client.HTTPSConnection(at.hostname, at.port, timeout=timeout, context=self.context)


class Federation:
    def __init__(self, hanse, trainer, folder, targets=TARGETS, members=3):
        self.hanse, self.trainer, self.dir = hanse, trainer, folder
        self.targets, self.count = targets, members
        self.dev = None
        self.agents = {}
        self.owned = set()  # (pid, start time) of all that was ever seen below our agents
        for name in ("bin", "log", "results", "scratch", "checkpoints"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        os.chmod(os.path.join(folder, "scratch"), 0o700)
        self.witness = self.path("witness.jsonl")
        self._write_wrapper()

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def _write_wrapper(self):
        """What the agents find as three-tier-trainer: adds what Hanse must not know of, then becomes it."""
        path = self.path("bin", "three-tier-trainer")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n"
                       f"exec '{self.trainer}' --data '{HERE}/data/digits.csv' --witness '{self.witness}' \\\n"
                       f"    --result '{self.dir}/results/'\"$HANSE_WORKLOAD_NAME.$HANSE_RANK.json\" \"$@\"\n")
        os.chmod(path, 0o755)

    def _spawn(self, name, argv, **env):
        with open(self.path("log", name + ".log"), "ab") as log:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    start_new_session=True, env={**os.environ, **env})

    # ---- members ----------------------------------------------------------------------------------------

    def start_members(self):
        argv = [self.hanse, "dev", "--members", str(self.count), "--dir", self.dir]
        for target in self.targets:
            argv += ["--agent", target]
        self.dev = self._spawn("dev", argv)

        def ready():
            if self.dev.poll() is not None:
                raise Failure(f"hanse dev ended with {self.dev.returncode}; see {self.path('log', 'dev.log')}")
            return os.path.exists(self.path("kubeconfig")) and self.cli("status", check=False).returncode == 0

        wait_for("hanse dev to be ready; see log/dev.log", ready, 20)
        mode = os.stat(self.path("kubeconfig")).st_mode & 0o777
        if mode != 0o600:
            raise Failure(f"kubeconfig has mode {mode:o}, expected 600")
        self.login = Login(self.path("kubeconfig"), self.path("scratch"))

    def members(self):
        """[{id, role, url, pid}]; `hanse members -o json`."""
        return json.loads(self.cli("members", "-o", "json").stdout)

    def connected(self):
        """Names of the targets that Hanse is in touch with."""
        listed = json.loads(self.cli("get", "targets", "-o", "json").stdout)["items"]
        return {t["metadata"]["name"] for t in listed
                for c in t.get("status", {}).get("conditions", []) if c["type"] == "Connected" and c["status"] == "True"}

    def kill_leader(self):
        leader = next((m for m in self.members() if m["role"] == "leader"), None)
        if leader is None:
            raise Failure("hanse members names no leader")
        if leader["pid"] in (self.dev.pid, os.getpid()):
            raise Failure("the leader is no process of its own, so it cannot be killed alone")
        os.kill(leader["pid"], signal.SIGKILL)
        return leader

    # ---- agents -----------------------------------------------------------------------------------------

    def inventory(self, target):
        return os.path.join(HERE, "agents", target + ".yaml")

    def agent_options(self, target):
        return []

    def start_agent(self, target):
        pki = self.path("pki")
        argv = [self.hanse, "agent", "--target", target, "--inventory", self.inventory(target),
                "--state", self.path("agent-" + target), "--ca", os.path.join(pki, "ca.crt"),
                "--cert", os.path.join(pki, f"agent-{target}.crt"),
                "--key", os.path.join(pki, f"agent-{target}.key"), "--store-root", self.path("checkpoints")]
        for server in self.login.servers:
            argv += ["--server", server]
        argv += self.agent_options(target)
        self.agents[target] = self._spawn("agent-" + target, argv,
                                          PATH=self.path("bin") + ":" + os.environ["PATH"])

    def note_processes(self):
        for agent in self.agents.values():
            self.owned.update(descendants(agent.pid))

    def kill_target(self, target):
        """The site burns down: the agent, its shims and all programs, SIGKILL, none warned."""
        agent = self.agents.pop(target)
        below = descendants(agent.pid)
        agent.kill()
        kill_exactly(below)
        kill_exactly([p for child, _ in below for p in descendants(child)])
        agent.wait()
        return len(below)

    def cut_off(self, target):
        """Nothing gets through between the target and the hub any more: its agent stands still, as behind a dead link.
        Its programs live on, and nobody there is told."""
        self.note_processes()
        self.agents[target].send_signal(signal.SIGSTOP)

    def reconnect(self, target):
        self.agents[target].send_signal(signal.SIGCONT)

    # ---- the CLI ----------------------------------------------------------------------------------------

    def cli(self, *args, check=True, timeout=20, text=None):
        """text: what the command reads from standard input."""
        done = subprocess.run([self.hanse, *args], capture_output=True, text=True, timeout=timeout, check=False, input=text,
                              env={**os.environ, "KUBECONFIG": self.path("kubeconfig")})
        if check and done.returncode != 0:
            raise Failure(f"hanse {' '.join(args)}: exit {done.returncode}: {done.stderr.strip()[:500]}")
        return done

    def workloads(self):
        """{name: object} of all namespaces."""
        listed = json.loads(self.cli("get", "workloads", "-A", "-o", "json").stdout)
        return {item["metadata"]["name"]: item for item in listed["items"]}

    def status(self, name):
        return self.workloads().get(name, {}).get("status", {})

    def migrations(self):
        """All of all namespaces, the oldest first."""
        listed = json.loads(self.cli("get", "migrations", "-A", "-o", "json").stdout)["items"]
        return sorted(listed, key=lambda m: (m["metadata"]["creationTimestamp"], m["metadata"]["name"]))

    # ---- the end ----------------------------------------------------------------------------------------

    def stop(self):
        """Ends exactly what was started here, programs that outlived their agent included."""
        self.note_processes()
        children = [p for p in [*self.agents.values(), self.dev] if p]
        for agent in self.agents.values():
            agent.send_signal(signal.SIGCONT)
        if self.dev:
            self.owned.update(descendants(self.dev.pid))
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(timeout=10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        kill_exactly(self.owned)


class Writer:
    """A client that writes Datasets at a steady rate and remembers what was acknowledged. A write whose answer
    was lost is sent again, under the same name and Idempotency-Key, until it is answered."""

    def __init__(self, federation, rate, threads=16, namespace="batch"):
        self.login, self.rate, self.count = federation.login, rate, threads
        self.base = f"/apis/hanse.dev/v1alpha1/namespaces/{namespace}/datasets"
        self.run = f"w{os.getpid()}"
        self.acked = []  # (monotonic time, name); list.append is atomic
        self.refused = []
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._work, args=(i,), daemon=True) for i in range(threads)]

    def start(self):
        self.began = time.monotonic()
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.ended = time.monotonic()
        self.stopping.set()
        for thread in self.threads:
            thread.join(timeout=30)
            if thread.is_alive():
                raise Failure("a writer is still waiting for an answer 30 s after its end")

    def _work(self, index):
        number, server, connection = 0, index, None
        while not self.stopping.is_set():
            due = self.began + (number * self.count + index) / self.rate
            self.stopping.wait(max(0.0, due - time.monotonic()))
            name = f"{self.run}-{index}-{number}"
            body = json.dumps({"apiVersion": "hanse.dev/v1alpha1", "kind": "Dataset",
                               "metadata": {"name": name}, "spec": {"bytes": "1Ki"}})
            give_up = None
            while True:
                try:
                    if connection is None:
                        connection = self.login.connect(self.login.servers[server % len(self.login.servers)])
                    connection.request("POST", self.base, body, {
                        **self.login.headers, "Content-Type": "application/json", "Idempotency-Key": name})
                    answer = connection.getresponse()
                    text = answer.read()
                    if answer.status in (200, 201) or (answer.status == 409 and give_up):
                        self.acked.append((time.monotonic(), name))
                        break
                    if answer.status < 500 and answer.status != 429:
                        self.refused.append((name, answer.status, text[:200]))
                        break
                except (OSError, http.client.HTTPException):
                    pass
                if connection is not None:
                    connection.close()
                connection, server = None, server + 1
                give_up = give_up or time.monotonic() + 20
                if time.monotonic() > give_up:
                    self.refused.append((name, 0, b"no answer for 20 s"))
                    break
                time.sleep(0.02)
            number += 1

    def stored(self):
        """Names in the list, read page by page."""
        names, more = set(), ""
        while True:
            for server in self.login.servers:
                try:
                    connection = self.login.connect(server, timeout=10)
                    path = f"{self.base}?limit=500" + (f"&continue={more}" if more else "")
                    connection.request("GET", path, headers=self.login.headers)
                    answer = connection.getresponse()
                    page = json.loads(answer.read())
                    connection.close()
                    if answer.status == 200:
                        break
                except (OSError, http.client.HTTPException, ValueError):
                    continue
            else:
                raise Failure("no member answers a list")
            names.update(item["metadata"]["name"] for item in page["items"])
            more = page["metadata"].get("continue", "")
            if not more:
                return names

    def longest_gap(self):
        times = [self.began, *sorted(t for t, _ in self.acked), self.ended]
        return max(b - a for a, b in zip(times, times[1:]))

    def rate_between(self, begin, end):
        return sum(begin <= t < end for t, _ in self.acked) / (end - begin)
