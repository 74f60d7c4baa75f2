#!/usr/bin/env python3
"""Does one user who sends all he can leave room for another? Bounds count bytes, in all and for each. One user leaves many large
bodies half sent; then sends many large writes while the leader stands still (SIGSTOP), so that they wait. He is told 429 and when to
come again, and the small write of another passes, both times. Prints ok or FAILED per check; exit 1 when any failed."""
import http.client
import json
import os
import shutil
import signal
import ssl
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.dont_write_bytecode = True
from federation import Failure, Federation, wait_for  # noqa: E402

BASE = "/apis/hanse.dev/v1alpha1/namespaces/default/datasets"
OPERATIONS = "/apis/hanse.dev/v1alpha1/operations"
HALVES, HALF, WHOLE = 12, 10 << 20, 15 << 20
WRITES, SIZE = 110, 240000


def dataset(name, note=""):
    return json.dumps({"apiVersion": "hanse.dev/v1alpha1", "kind": "Dataset",
                       "metadata": {"name": name, "annotations": {"note": note}}, "spec": {"source": "x"}})


class Run:
    def __init__(self, hanse, folder):
        self.f, self.failed = Federation(hanse, "/bin/false", folder, targets=()), 0

    def check(self, what, good, detail=""):
        self.failed += not good
        print(f"  {'ok    ' if good else 'FAILED'}  {what}" + (f": {detail}" if detail != "" else ""), flush=True)

    def ask(self, url, method, path, body=None, token=None, timeout=20):
        connection = self.f.login.connect(url, timeout=timeout)
        if token:  # another user, and no certificate of the first
            connection = http.client.HTTPSConnection(connection.host, connection.port, timeout=timeout, context=self.bare)
        headers = {"Authorization": "Bearer " + token} if token else self.f.login.headers
        try:
            connection.request(method, path, body, {**headers, "Content-Type": "application/json"})
            got = connection.getresponse()
            text = got.read()
            return got.status, got.getheader("Retry-After"), json.loads(text) if text.startswith(b"{") else text
        finally:
            connection.close()

    def another(self, url):
        """A token of somebody else's."""
        pki = os.path.join(self.f.path("pki"), "ca.crt")
        self.bare = ssl.create_default_context(cafile=pki)
        status, _, got = self.ask(url, "POST", f"{OPERATIONS}/token.create",
                                  json.dumps({"user": "bob", "groups": "system:masters"}))
        if status != 200:
            raise Failure(f"token.create: {status} {got}")
        return got["token"]

    def bodies(self, url, token):
        refused, held, part = 0, [], b" " * (1 << 20)
        for _ in range(HALVES):
            connection = self.f.login.connect(url, timeout=5)
            connection.putrequest("POST", BASE)
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(WHOLE))
            connection.endheaders()
            held.append(connection)
            try:
                for _ in range(HALF >> 20):
                    connection.send(part)
            except OSError:
                pass  # refused in the middle
        for connection in held:
            connection.sock.settimeout(0.5)
            try:
                refused += connection.sock.recv(64).startswith(b"HTTP/1.1 429")
            except OSError:
                pass
        self.check(f"of {HALVES} bodies of one client that stay half sent some are refused with 429", refused > 0, refused)
        status, _, got = self.ask(url, "POST", BASE, dataset("small-1"), token)
        self.check("the small write of another passes", status == 201, status if status == 201 else got)
        for connection in held:
            connection.close()

    def writes(self, others, follower, token):
        answers, note = [], "x" * SIZE

        def one(i):
            try:
                answers.append(self.ask(follower["url"], "POST", BASE, dataset(f"large-{i}", note), timeout=30))
            except (OSError, http.client.HTTPException) as e:
                answers.append((0, None, str(e)))

        threads = [threading.Thread(target=one, args=(i,)) for i in range(WRITES)]
        small = []
        other = threading.Thread(target=lambda: small.extend(
            self.ask(follower["url"], "POST", BASE, dataset("small-2"), token, timeout=30)))
        for m in others: # nobody leads: whatever is asked waits, however slow the machine
            os.kill(m["pid"], signal.SIGSTOP)
        try:
            for thread in threads:
                thread.start()
            end = time.monotonic() + 15
            while time.monotonic() < end and not answers:
                time.sleep(0.05)
            other.start()
            time.sleep(0.3)
        finally:
            for m in others:
                os.kill(m["pid"], signal.SIGCONT)
        for thread in [*threads, other]:
            thread.join()
        self.check("the small write of another passes while they wait", small[0] == 201, small[0] if small[0] == 201 else small)
        late = [a for a in answers if a[0] == 429]
        counts = {s: sum(a[0] == s for a in answers) for s in {a[0] for a in answers}}
        self.check(f"of {WRITES} writes of {SIZE} bytes that wait for a leader some are refused with 429", late, counts)
        self.check("and are told when to come again, as Kubernetes tells it", all(
            a[1] and a[2]["reason"] == "TooManyRequests" and a[2]["details"]["retryAfterSeconds"] > 0 for a in late), late[:1])
        connection = self.f.login.connect(follower["url"], timeout=20)
        connection.request("GET", "/metrics", headers=self.f.login.headers)
        metrics = connection.getresponse().read().decode()
        connection.close()
        refused = [line for line in metrics.splitlines() if line.startswith('hanse_api_requests_refused_total{why="queue-full"}')]
        self.check("and counted", refused and float(refused[0].split()[1]) > 0, refused)
        lost = {str(a[2])[:80] for a in answers if not a[0]}
        self.check("the others are done", counts.get(201, 0) > 10 and set(counts) <= {201, 429, 504}, lost or counts)

    def all(self):
        self.f.start_members()

        def roles():
            found = {m["role"] == "leader": m for m in self.f.members() if m["pid"]}
            return found.get(True) and found.get(False) and len(self.f.members()) == 3 and found
        found = wait_for("a leader and followers", roles, 20)
        token = self.another(found[False]["url"])
        self.bodies(found[False]["url"], token)
        others = [m for m in self.f.members() if m["pid"] != found[False]["pid"]]
        self.writes(others, found[False], token)


def main():
    hanse = os.environ.get("HANSE") or os.path.join(os.environ.get("HANSE_BUILD_DIR", ""), "hanse")
    if not os.access(hanse, os.X_OK):
        print("set HANSE or HANSE_BUILD_DIR")
        return 77
    folder = tempfile.mkdtemp(prefix="hanse-crowd-")
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
