#!/usr/bin/env python3
"""Is every answer of three members right while leaders are killed, stopped and replaced? Clients at all of them create, read,
update at a version, list, delete and watch over HTTP, repeat under one Idempotency-Key what was not answered, and write down what
they were told; tests/tools/judge then says whether one order explains it, and whether resourceVersion is that order. Argument: for
how many seconds (30). Prints ok or FAILED per check; exit 1 when any failed. The history is kept when it is bad."""
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.dont_write_bytecode = True
from federation import Failure, Federation, wait_for  # noqa: E402

BASE = "/apis/hanse.dev/v1alpha1/namespaces/default/datasets"
KEYS = ("one", "two", "three", "four")
CLIENTS, WATCHERS, ATTEMPTS, PATIENCE = 6, 3, 4, 2.5
now = time.monotonic_ns


class Lost(Exception):
    """No answer, or one that says that nobody knows."""


class Values:
    """No two writes have the same."""

    def __init__(self):
        self.lock, self.last = threading.Lock(), 0

    def next(self):
        with self.lock:
            self.last += 1
            return self.last


class Connections:
    """Of one thread: one to each member."""

    def __init__(self, login):
        self.login, self.open = login, {}

    def ask(self, server, method, path, body=None, key=None):
        """(status, JSON)"""
        try:
            if server not in self.open:
                self.open[server] = self.login.connect(server, timeout=PATIENCE)
            headers = {**self.login.headers, "Content-Type": "application/json"}
            self.open[server].request(method, path, json.dumps(body) if body else None,
                                      {**headers, "Idempotency-Key": key} if key else headers)
            answer = self.open[server].getresponse()
            text = answer.read()
            if answer.status >= 500 or answer.status == 429:
                raise Lost(f"{answer.status} {text[:200]!r}")
            return answer.status, json.loads(text)
        except (OSError, http.client.HTTPException, ValueError) as e:
            self.drop(server)
            raise Lost(str(e)) from e

    def drop(self, server):
        connection = self.open.pop(server, None)
        if connection:
            connection.close()


def read(item):
    return {"value": int(item["spec"]["source"]), "rv": int(item["metadata"]["resourceVersion"])}


class Client(threading.Thread):
    def __init__(self, login, number, values, stopping):
        super().__init__(daemon=True)
        self.number, self.values, self.stopping = number, values, stopping
        self.servers, self.connections = login.servers, Connections(login)
        self.dice, self.known, self.history, self.strange, self.counter = random.Random(number), {}, [], [], 0
        self.retried = 0

    def run(self):
        while not self.stopping.is_set():
            self.operation()
            self.stopping.wait(self.dice.random() * 0.04)

    def operation(self, op=None, name=None):
        self.counter += 1
        op = op or self.dice.choices(("create", "get", "update", "delete", "list"), (15, 30, 33, 10, 12))[0]
        o = {"op": op, "client": self.number, "called": now()}
        if op == "list":
            self.list(o)
            return o
        name = o["key"] = name or self.dice.choice(KEYS)
        if op in ("create", "update"):
            o["value"] = self.values.next()
        if op in ("update", "delete") and name in self.known and self.dice.random() < 0.7:
            o["expect"] = self.known[name]
        o["outcome"] = self.answer_of(o)
        if o["outcome"] != "unknown":
            o["returned"] = now()
        if o["outcome"] == "ok" and op != "delete":
            self.known[name] = o["rv"]
        else:
            self.known.pop(name, None)
        if op != "get" or o["outcome"] != "unknown":
            self.history.append(o)
        return o

    def list(self, o):
        o["stale"] = self.dice.random() < 0.3
        try:
            status, got = self.connections.ask(self.dice.choice(self.servers), "GET",
                                               BASE + ("?resourceVersion=0" if o["stale"] else ""))
        except Lost:
            return
        if status != 200:
            self.strange.append((o, status, got))
            return
        o.update(returned=now(), rv=int(got["metadata"]["resourceVersion"]), outcome="ok",
                 items=[{"key": i["metadata"]["name"], **read(i)} for i in got["items"]])
        self.history.append(o)

    def request(self, o):
        """Method, path, body."""
        path = f"{BASE}/{o['key']}"
        document = {"apiVersion": "hanse.dev/v1alpha1", "kind": "Dataset", "metadata": {"name": o["key"], "namespace": "default"},
                    "spec": {"source": str(o.get("value"))}}
        if o["op"] == "create":
            return "POST", BASE, document
        if o["op"] == "update":
            if "expect" in o:
                document["metadata"]["resourceVersion"] = str(o["expect"])
            return "PUT", path, document
        if o["op"] == "delete":
            return "DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1",
                                    "preconditions": {"resourceVersion": str(o["expect"])}} if "expect" in o else None
        return "GET", path, None

    def answer_of(self, o):
        method, path, body = self.request(o)
        key = None if o["op"] == "get" else f"c{self.number}-{self.counter}"
        for attempt in range(1 if o["op"] == "get" else ATTEMPTS):
            try:
                status, got = self.connections.ask(self.dice.choice(self.servers), method, path, body, key)
            except Lost:
                time.sleep(self.dice.random() * 0.2)  # somebody else may come between an attempt and the next
                continue
            self.retried += attempt > 0
            return self.outcome(o, status, got)
        return "unknown"

    def outcome(self, o, status, got):
        reason = got.get("reason") if got.get("kind") == "Status" else None
        if status == 404 and reason == "NotFound":
            return "absent"
        if status == 409 and reason in ("AlreadyExists", "Conflict"):
            return "exists" if reason == "AlreadyExists" else "conflict"
        if status not in (200, 201):
            self.strange.append((o, status, got))
            return "unknown"
        if o["op"] == "get":
            o.update(read(got))
        elif o["op"] != "delete":
            answer = read(got)
            if answer["value"] != o["value"]:
                self.strange.append((o, status, got))
            o["rv"] = answer["rv"]
        return "ok"


class Watcher(threading.Thread):
    """Follows all changes, from where it was at whichever member it finds."""

    def __init__(self, login, number, stopping):
        super().__init__(daemon=True)
        self.login, self.number, self.stopping = login, number, stopping
        self.dice, self.streams, self.history = random.Random(1000 + number), [], []
        self.since, self.seen_last, self.reconnects, self.error = None, False, 0, None

    def run(self):
        try:
            while not self.stopping.is_set():
                try:
                    self.follow(self.dice.choice(self.login.servers))
                except (OSError, http.client.HTTPException, ValueError, Lost):
                    self.reconnects += 1
                    self.stopping.wait(0.1)
        except Exception as e:  # pylint: disable=broad-except
            self.error = f"{type(e).__name__}: {e}"
            raise

    def follow(self, server):
        if self.since is None:
            o = {"op": "list", "client": 100 + self.number, "called": now()}
            status, got = Connections(self.login).ask(server, "GET", BASE)
            if status != 200:
                raise Lost(status)
            o.update(returned=now(), rv=int(got["metadata"]["resourceVersion"]),
                     items=[{"key": i["metadata"]["name"], **read(i)} for i in got["items"]])
            self.history.append(o)
            self.since = o["rv"]
            self.streams.append({"op": "watch", "client": 100 + self.number, "from": self.since, "events": []})
        connection = self.login.connect(server, timeout=PATIENCE)
        try:
            connection.request("GET", f"{BASE}?watch=1&allowWatchBookmarks=true&resourceVersion={self.since}&timeoutSeconds=8",
                               headers=self.login.headers)
            answer = connection.getresponse()
            if answer.status == 410:
                self.since = None
            if answer.status != 200:
                raise Lost(answer.status)
            while not self.stopping.is_set():
                line = answer.readline()
                if not line:
                    return
                self.event(json.loads(line))
        finally:
            connection.close()

    def event(self, e):
        kind, thing = e["type"], e["object"]
        if kind == "ERROR":
            if thing.get("code") == 410:
                self.since = None
            raise Lost(str(thing)[:200])
        rv = int(thing["metadata"]["resourceVersion"])
        if kind != "BOOKMARK":
            self.streams[-1]["events"].append({"at": now(), "key": thing["metadata"]["name"], "rv": rv,
                                               **({} if kind == "DELETED" else {"value": int(thing["spec"]["source"])})})
            self.seen_last |= thing["metadata"]["name"] == "last"
        self.since = max(self.since, rv)


class Faults:
    def __init__(self, f):
        self.f, self.dice, self.done = f, random.Random(7), {}

    def member(self, leads):
        found = [m for m in self.f.members() if (m["role"] == "leader") == leads and m["pid"]]
        if not found:
            raise Failure("hanse members names none")
        return self.dice.choice(found)

    def one(self, what):
        if what == "kill -9 of the leader":
            self.f.kill_leader()
        elif what == "kill -9 of a follower":
            os.kill(self.member(False)["pid"], signal.SIGKILL)
        elif what == "leadership handed over":
            self.f.cli("members", "transfer", str(self.member(False)["id"]), check=False)
        else:
            pid = self.member(what == "SIGSTOP of the leader")["pid"]
            os.kill(pid, signal.SIGSTOP)
            try:
                time.sleep(1.0 + self.dice.random() * 2)  # what is tested is that it does not know of that time
            finally:
                os.kill(pid, signal.SIGCONT)
        self.done[what] = self.done.get(what, 0) + 1

    def run(self, seconds):
        kinds = ("SIGSTOP of the leader", "kill -9 of the leader", "leadership handed over", "SIGSTOP of a follower",
                 "kill -9 of a follower")
        until, i = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            try:
                self.one(kinds[i % len(kinds)])
                i += 1
            except (Failure, ProcessLookupError, subprocess.SubprocessError, ValueError):
                pass  # no leader for the moment
            time.sleep(0.8 + self.dice.random())


def judge(path):
    done = subprocess.run([os.path.join(os.environ["HANSE_BUILD_DIR"], "tests", "tools", "judge"), path], capture_output=True,
                          text=True, timeout=300, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


class Run:
    def __init__(self, hanse, folder):
        self.f, self.failed = Federation(hanse, "/bin/false", folder, targets=()), 0
        self.stopping, self.watching, self.values = threading.Event(), threading.Event(), Values()

    def check(self, what, good, detail=""):
        self.failed += not good
        print(f"  {'ok    ' if good else 'FAILED'}  {what}" + (f": {detail}" if detail != "" else ""), flush=True)

    def live(self, seconds):
        self.f.start_members()
        wait_for("three members", lambda: len(self.f.members()) == 3, 20)
        login = self.f.login
        self.clients = [Client(login, i, self.values, self.stopping) for i in range(CLIENTS)]
        self.watchers = [Watcher(login, i, self.watching) for i in range(WATCHERS)]
        for thread in self.clients + self.watchers:
            thread.start()
        faults = Faults(self.f)
        faults.run(seconds)
        print("  faults: " + ", ".join(f"{n} x {what}" for what, n in faults.done.items()))
        self.check("each kind of fault was done", len(faults.done) == 5)
        self.stopping.set()
        for client in self.clients:
            client.join(ATTEMPTS * (PATIENCE + 1))
        last = Client(login, 99, self.values, self.stopping)
        self.clients.append(last)
        wait_for("a last write to be acknowledged", lambda: last.operation("create", "last")["outcome"] in ("ok", "exists"), 20)
        wait_for("every watcher to see it", lambda: all(w.seen_last or w.error for w in self.watchers), 20)
        self.watching.set()
        self.check("no watcher gave up", not any(w.error for w in self.watchers), "; ".join(w.error for w in self.watchers if w.error))

    def history(self):
        lines = [o for c in self.clients for o in c.history] + [o for w in self.watchers for o in w.history + w.streams]
        with open(self.f.path("history.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(o) + "\n" for o in lines)
        return lines

    def judged(self):
        lines = self.history()
        strange = [s for c in self.clients for s in c.strange]
        self.check("each answer is one that the API may give, and shows what was written", not strange,
                   f"{len(strange)}; " + str(strange[0])[:700] if strange else "")
        status, told = judge(self.f.path("history.jsonl"))
        print(f"  {json.dumps(told)}; repeated and answered {sum(c.retried for c in self.clients)}, "
              f"streams {sum(len(w.streams) for w in self.watchers)}, reconnected {sum(w.reconnects for w in self.watchers)}")
        self.check("one order explains every answer, and resourceVersion is that order", status == 0)
        if status == 0:
            self.check("it was a history worth judging", told["operations"] > 500 and told["events"] > 500 and told["lists"] > 50)
            self.falsified(lines)

    def falsified(self, lines):
        """One read answers what was replaced before the read was called, by a write after it."""
        writes = [o for o in lines if o["op"] == "update" and o["outcome"] == "ok"]
        lie, value = next((get, old["value"]) for get in lines if get["op"] == "get" and get["outcome"] == "ok"
                          for old in writes for new in writes if old["key"] == new["key"] == get["key"]
                          and old["returned"] < new["called"] and new["returned"] < get["called"])
        lie["value"] = value
        lie.pop("rv")
        with open(self.f.path("false.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps(o) + "\n" for o in lines)
        self.check("the same with one stale read is found out", judge(self.f.path("false.jsonl"))[0] == 1)


def main():
    hanse = os.environ.get("HANSE") or os.path.join(os.environ.get("HANSE_BUILD_DIR", ""), "hanse")
    if not os.access(hanse, os.X_OK) or "HANSE_BUILD_DIR" not in os.environ:
        print("set HANSE and HANSE_BUILD_DIR")
        return 77
    folder = tempfile.mkdtemp(prefix="hanse-linear-")
    run = Run(hanse, folder)
    try:
        run.live(float(sys.argv[1]) if len(sys.argv) > 1 else 30)
        run.judged()
    except Failure as e:
        run.check("all could be done", False, str(e))
        if hasattr(run, "watchers"):
            run.history()
    finally:
        run.stopping.set()
        run.watching.set()
        run.f.stop()
    if run.failed or os.environ.get("HANSE_KEEP"):
        print(f"history.jsonl and logs are kept in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
