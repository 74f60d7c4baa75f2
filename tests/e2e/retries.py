#!/usr/bin/env python3
"""Is an answer under an Idempotency-Key final? Requests are sent to a follower whose process stands still (SIGSTOP), so that they
wait in its sockets; each is repeated under its key at the leader and answered there, most of them by a refusal; then the state
becomes one in which they could be done; then the follower goes on. What waited must be answered as its repetition was, and nothing
may be done by it. Prints ok or FAILED per check, and what a kept refusal costs; exit 1 when any failed."""
import http.client
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.dont_write_bytecode = True
from federation import Failure, Federation, wait_for  # noqa: E402

API = "/apis/hanse.dev/v1alpha1"
HERE, LATER, ALL = (f"{API}/namespaces/{ns}/datasets" for ns in ("default", "later", "all"))
ROUNDS, COSTS = 3, 100


def dataset(name, source="new", ns="default"):
    return {"apiVersion": "hanse.dev/v1alpha1", "kind": "Dataset", "metadata": {"name": name, "namespace": ns},
            "spec": {"source": source}}


def namespace(name):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


# name, method, path, content type, body, answer of the repetition
CASES = (
    ("update of what is not there", "PUT", f"{HERE}/put", None, dataset("put"), 404),
    ("merge patch of what is not there", "PATCH", f"{HERE}/merge", "application/merge-patch+json", {"spec": {"source": "new"}}, 404),
    ("JSON patch of what is not there", "PATCH", f"{HERE}/json", "application/json-patch+json",
     [{"op": "replace", "path": "/spec/source", "value": "new"}], 404),
    ("deletion of what is not there", "DELETE", f"{HERE}/delete", None, None, 404),
    ("creation of what is there", "POST", HERE, None, dataset("there"), 409),
    ("update at a version that it has not", "PUT", f"{HERE}/version", None,
     {**dataset("version"), "metadata": {"name": "version", "namespace": "default", "resourceVersion": "1"}}, 409),
    ("creation in no namespace", "POST", LATER, None, dataset("create", ns="later"), 404),
    ("apply in no namespace", "PATCH", f"{LATER}/apply?fieldManager=test", "application/apply-patch+yaml",
     dataset("apply", ns="later"), 404),
    ("a set of documents in no namespace", "POST", f"{API}/apply", None, {"documents": [dataset("set", ns="later")]}, 404),
    ("deletion of all", "DELETE", ALL, None, None, 200),
    ("creation that was done, and undone", "POST", HERE, None, dataset("once"), 201),
)


class Run:
    def __init__(self, hanse, folder):
        self.f, self.failed = Federation(hanse, "/bin/false", folder, targets=()), 0

    def check(self, what, good, detail=""):
        self.failed += not good
        print(f"  {'ok    ' if good else 'FAILED'}  {what}" + (f": {detail}" if detail != "" and not good else ""), flush=True)

    def send(self, connection, method, path, body=None, key=None, kind=None):
        headers = {**self.f.login.headers, "Content-Type": kind or "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {**headers, "Idempotency-Key": key} if key else headers)

    @staticmethod
    def answer(connection):
        got = connection.getresponse()
        text = got.read()
        return got.status, json.loads(text) if text else {}

    def ask(self, method, path, body=None, key=None, kind=None, want=None, url=None):
        connection = self.f.login.connect(url or self.leader["url"], timeout=10)
        try:
            self.send(connection, method, path, body, key, kind)
            status, got = self.answer(connection)
        finally:
            connection.close()
        if want and status not in want:
            raise Failure(f"{method} {path}: {status} {str(got)[:300]}")
        return status, got

    def look(self):
        found = {m["role"] == "leader": m for m in self.f.members() if m["pid"]}
        self.leader, self.follower = found.get(True), found.get(False)
        return self.leader and self.follower

    def clear(self):
        for ns in ("later", "all"):
            self.ask("DELETE", f"/api/v1/namespaces/{ns}", want=(200, 404))
            wait_for("a namespace to go", lambda ns=ns: self.ask("GET", f"/api/v1/namespaces/{ns}")[0] == 404, 20)
        for name in ("put", "merge", "json", "delete", "there", "version", "once"):
            self.ask("DELETE", f"{HERE}/{name}", want=(200, 404))
        for name in ("there", "version"):
            self.ask("POST", HERE, dataset(name, "old"), want=(201,))
        self.ask("POST", "/api/v1/namespaces", namespace("all"), want=(201,))
        self.ask("POST", ALL, dataset("first", ns="all"), want=(201,))

    def possible(self):
        """Now each of them could be done."""
        for name in ("put", "merge", "json", "delete"):
            self.ask("POST", HERE, dataset(name, "old"), want=(201,))
        self.ask("DELETE", f"{HERE}/there", want=(200,))
        self.ask("DELETE", f"{HERE}/once", want=(200,))
        self.ask("POST", "/api/v1/namespaces", namespace("later"), want=(201,))
        self.ask("POST", ALL, dataset("second", ns="all"), want=(201,))

    def unharmed(self, number):
        for name in ("put", "merge", "json", "delete"):
            status, got = self.ask("GET", f"{HERE}/{name}")
            self.check(f"round {number}: {name} is as others left it", status == 200 and got["spec"]["source"] == "old", str(got)[:200])
        for path in (f"{HERE}/there", f"{HERE}/once", f"{LATER}/create", f"{LATER}/apply", f"{LATER}/set"):
            self.check(f"round {number}: {path} was not made", self.ask("GET", path)[0] == 404)
        self.check(f"round {number}: what was made after the deletion of all stays", self.ask("GET", f"{ALL}/second")[0] == 200)

    def round(self, number):
        wait_for("a leader and followers", self.look, 20)
        self.clear()
        waiting = [self.f.login.connect(self.follower["url"], timeout=20) for _ in CASES]
        for connection in waiting:  # the handshake is over
            self.send(connection, "GET", f"{HERE}/there")
            self.answer(connection)
        os.kill(self.follower["pid"], signal.SIGSTOP)
        try:
            first = []
            for i, (_, method, path, kind, body, _) in enumerate(CASES):
                self.send(waiting[i], method, path, body, f"r{number}-{i}", kind)
            for i, (what, method, path, kind, body, want) in enumerate(CASES):
                first.append(self.ask(method, path, body, f"r{number}-{i}", kind))
                self.check(f"round {number}: {what}: {want}", first[i][0] == want, str(first[i])[:300])
            self.possible()
        finally:
            os.kill(self.follower["pid"], signal.SIGCONT)
        for i, (what, *_) in enumerate(CASES):
            late = self.answer(waiting[i])
            self.check(f"round {number}: {what}: what waited is answered as its repetition", late[0] == first[i][0] and
                       late[1].get("reason") == first[i][1].get("reason"), f"{first[i]} then {late}"[:400])
            if first[i][0] == 201:
                self.check(f"round {number}: {what}: at the same resourceVersion", late[1]["metadata"].get("resourceVersion") ==
                           first[i][1]["metadata"]["resourceVersion"])
            waiting[i].close()
        self.unharmed(number)

    def one_request(self):
        status, got = self.ask("PUT", f"{HERE}/put", dataset("put", "other"), "r0-0")
        self.check("a key names one request: another body is refused with 422, and why", status == 422 and
                   "Idempotency-Key" in got["message"], str(got)[:300])
        status, got = self.ask("DELETE", f"{HERE}/put", None, "r0-0")
        self.check("and so is another method", status == 422, str(got)[:300])
        status, got = self.ask("PUT", f"{HERE}/none?dryRun=All", dataset("none"), "dry", want=(404,))
        self.ask("POST", HERE, dataset("none"), want=(201,))
        status, got = self.ask("PUT", f"{HERE}/none", dataset("none", "dry"), "dry")
        self.check("a dry run leaves nothing under its key", status == 200, str(got)[:300])

    def cost(self):
        """Of a refusal that is kept, beside one that is not: one after the other, and eight at a time."""
        def times(keyed, name):
            connection, taken = self.f.login.connect(self.leader["url"], timeout=10), []
            for i in range(COSTS):
                began = time.monotonic()
                self.send(connection, "PUT", f"{HERE}/absent", dataset("absent"), f"{name}-{i}" if keyed else None)
                if self.answer(connection)[0] != 404:
                    raise Failure("not refused")
                taken.append((time.monotonic() - began) * 1000)
            connection.close()
            return taken

        for keyed in (False, True):
            alone, together = times(keyed, "cost"), []
            threads = [threading.Thread(target=lambda n=n: together.extend(times(keyed, f"cost{n}"))) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(f"  a refusal {'that is kept' if keyed else 'without a key'}: median {statistics.median(alone):.1f} ms alone, "
                  f"{statistics.median(together):.1f} ms with eight clients")

    def all(self):
        self.f.start_members()
        wait_for("three members", lambda: len(self.f.members()) == 3, 20)
        for number in range(ROUNDS):
            self.round(number)
        self.one_request()
        self.cost()


def main():
    hanse = os.environ.get("HANSE") or os.path.join(os.environ.get("HANSE_BUILD_DIR", ""), "hanse")
    if not os.access(hanse, os.X_OK):
        print("set HANSE or HANSE_BUILD_DIR")
        return 77
    folder = tempfile.mkdtemp(prefix="hanse-retries-")
    run = Run(hanse, folder)
    try:
        run.all()
    except (Failure, OSError, http.client.HTTPException) as e:
        run.check("all could be done", False, f"{type(e).__name__}: {e}")
    finally:
        run.f.stop()
    if run.failed or os.environ.get("HANSE_KEEP"):
        print(f"logs are kept in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
