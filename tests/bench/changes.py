#!/usr/bin/env python3
"""What a large object that changes often costs its members: PATCHES (9000) one-line merge patches of a Dataset with SIZE (250000)
bytes of annotations, at three members. Prints one JSON object: seconds, patches a second, and each member's resident memory in MiB
before, at most, and after. Arguments: PATCHES SIZE."""
import json
import os
import shutil
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.dont_write_bytecode = True
from federation import Failure, Federation, wait_for  # noqa: E402

BASE = "/apis/hanse.dev/v1alpha1/namespaces/default/datasets"
CLIENTS = 4


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        for line in file:
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) // 1024
    return 0


class Bench:
    def __init__(self, f, patches, size):
        self.f, self.patches, self.size = f, patches, size
        self.lock, self.next, self.most = threading.Lock(), 0, {}

    def ask(self, connection, method, path, body, kind="application/json"):
        connection.request(method, path, json.dumps(body), {**self.f.login.headers, "Content-Type": kind})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status not in (200, 201):
            raise Failure(f"{method} {path}: {answer.status} {text[:200]!r}")

    def look(self, pids):
        for pid in pids:
            self.most[pid] = max(self.most.get(pid, 0), resident(pid))

    def client(self, url, number):
        connection = self.f.login.connect(url, timeout=60)
        while True:
            with self.lock:
                i, self.next = self.next, self.next + 1
            if i >= self.patches:
                return
            self.ask(connection, "PATCH", f"{BASE}/big-{number}?fieldManager=bench", {"spec": {"source": str(i)}},
                     "application/merge-patch+json")

    def run(self):
        self.f.start_members()
        members = wait_for("three members", lambda: len(self.f.members()) == 3 and self.f.members(), 20)
        pids = [m["pid"] for m in members]
        url = next(m["url"] for m in members if m["role"] == "leader")
        connection = self.f.login.connect(url, timeout=60)
        for i in range(CLIENTS):
            self.ask(connection, "POST", BASE, {"apiVersion": "hanse.dev/v1alpha1", "kind": "Dataset", "metadata": {
                "name": f"big-{i}", "annotations": {"note": "x" * self.size}}, "spec": {"source": "-"}})
        before = [resident(pid) for pid in pids]
        began = time.monotonic()
        threads = [threading.Thread(target=self.client, args=(url, i)) for i in range(CLIENTS)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.look(pids)
            time.sleep(0.2)
        seconds = time.monotonic() - began
        time.sleep(2)
        self.look(pids)
        return {"bench": "changes", "patches": self.patches, "bytes": self.size, "seconds": round(seconds, 1),
                "patches_per_second": round(self.patches / seconds), "rss_before_mib": before,
                "rss_most_mib": [self.most[pid] for pid in pids], "rss_after_mib": [resident(pid) for pid in pids]}


def main():
    hanse = os.environ.get("HANSE") or os.path.join(os.environ.get("HANSE_BUILD_DIR", ""), "hanse")
    if not os.access(hanse, os.X_OK):
        print("set HANSE or HANSE_BUILD_DIR", file=sys.stderr)
        return 77
    sizes = [int(a) for a in sys.argv[1:3]] + [9000, 250000][len(sys.argv) - 1:]
    folder = tempfile.mkdtemp(prefix="hanse-changes-")
    f = Federation(hanse, "/bin/false", folder, targets=())
    try:
        print(json.dumps(Bench(f, *sizes).run()))
    finally:
        f.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
