#!/usr/bin/env python3
"""Large deletions, from outside: a namespace of 12,000 objects goes on a cluster where nobody writes any more; an owner of 1,150
children of 250 kB goes without harm to any member; what users write meanwhile is answered before the last child has gone. Prints ok or FAILED per check;
exit 1 when any failed."""
import json
import os
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.dont_write_bytecode = True
from federation import Federation, wait_for  # noqa: E402

API = "/apis/hanse.dev/v1alpha1"
OBJECTS = int(os.environ.get("CASCADE_OBJECTS", "12000"))
CHILDREN = int(os.environ.get("CASCADE_CHILDREN", "1150"))


class Client:
    """Plain HTTP and JSON, as kubectl speaks it; follows no leader, repeats nothing."""

    def __init__(self, login):
        self.login, self.connection = login, login.connect(login.servers[0], timeout=30)

    def __call__(self, method, path, body=None):
        for last in (False, True):
            try:
                self.connection.request(method, path, json.dumps(body) if body is not None else None,
                                        {"Content-Type": "application/json", **self.login.headers})
                answer = self.connection.getresponse()
                data = answer.read()
                return answer.status, json.loads(data) if data else None
            except OSError:
                if last:
                    raise
                self.connection = self.login.connect(self.login.servers[0], timeout=30)


def check(what, good, detail=""):
    print(f"  {'ok    ' if good else 'FAILED'}  {what}" + (f": {detail}" if detail != "" else ""), flush=True)
    check.failed += not good


check.failed = 0


def dataset(name, **meta):
    return {"apiVersion": "hanse.dev/v1alpha1", "kind": "Dataset", "metadata": {"name": name, **meta}, "spec": {}}


def create(http, namespace, document):
    status, answer = http("POST", f"{API}/namespaces/{namespace}/datasets", document)
    if status != 201:
        raise SystemExit(f"create: {status} {answer}")
    return answer


def many(f, http):
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "crowd"}}
    check("a namespace is made", http("POST", "/api/v1/namespaces", namespace)[0] == 201)
    for first in range(0, OBJECTS, 3000):
        documents = "---\n".join(json.dumps(dataset(f"d{i}", namespace="crowd")) + "\n" for i in range(first, min(first + 3000, OBJECTS)))
        with open(f.path("scratch", "crowd.yaml"), "w", encoding="utf-8") as file:
            file.write(documents)
        f.cli("apply", "-f", f.path("scratch", "crowd.yaml"), "--revision", f"r{first}", timeout=180)
    begun = time.monotonic()
    status, _ = http("DELETE", "/api/v1/namespaces/crowd")
    check("its deletion is answered", status in (200, 202), status)
    slowest = 0.0

    def gone():
        nonlocal slowest
        asked = time.monotonic()
        status = http("GET", "/api/v1/namespaces/crowd")[0]
        slowest = max(slowest, time.monotonic() - asked)
        return status == 404

    wait_for("the namespace to go", gone, 120)
    check(f"a namespace of {OBJECTS} objects goes by itself", True, f"{time.monotonic() - begun:.1f} s, slowest read {slowest:.2f} s")


def large(f, http):
    owner = create(http, "default", dataset("owner"))
    reference = [{"apiVersion": owner["apiVersion"], "kind": "Dataset", "name": "owner", "uid": owner["metadata"]["uid"]}]
    text = "x" * 250000
    for i in range(CHILDREN):
        create(http, "default", dataset(f"child{i}", ownerReferences=reference, annotations={"x.dev/large": text}))
    members = {m["id"]: m["pid"] for m in f.members()}
    check("the owner is deleted", http("DELETE", f"{API}/namespaces/default/datasets/owner")[0] in (200, 202))
    writes = []

    def gone():
        asked = time.monotonic()
        create(http, "default", dataset(f"meanwhile{len(writes)}"))
        writes.append(time.monotonic() - asked)
        status, answer = http("GET", f"{API}/namespaces/default/datasets?limit=1")
        names = [i["metadata"]["name"] for i in answer.get("items", [])] if status == 200 else ["?"]
        return not any(n.startswith("child") for n in names)

    wait_for("the children to go", gone, 120)
    check("writes are answered between its slices", len(writes) >= 5, f"{len(writes)} writes, slowest {max(writes):.2f} s")
    check("no member has died of it", {m["id"]: m["pid"] for m in f.members()} == members)


def main():
    with tempfile.TemporaryDirectory(prefix="hanse-cascade-") as folder:
        f = Federation(os.environ["HANSE"], "/bin/true", folder, targets=(), members=3)
        try:
            f.start_members()
            http = Client(f.login)
            many(f, http)
            large(f, http)
        finally:
            f.stop()
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(main())
