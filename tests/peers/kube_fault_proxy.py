#!/usr/bin/env python3
"""That lib/fault_proxy.py does to a real API server's clients what it says: each fault once, and whether the server heard of the
request. Hanse has no part in this: tests of a connector stand on it. Prints ok or FAILED per check; exit 1 when any failed."""
import concurrent.futures
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(TOP, "tests", "peers", "lib"))
from fault_proxy import FaultProxy  # noqa: E402
from kube import Kube  # noqa: E402

MAPS = "/api/v1/namespaces/default/configmaps"
GONE = (ConnectionError, http.client.RemoteDisconnected, http.client.IncompleteRead)
failed = []


def check(what, good):
    print(f"  {'ok     ' if good else 'FAILED '} {what}", flush=True)
    if not good:
        failed.append(what)


def within(seconds, true):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Watch:
    """Of all ConfigMaps: the names and types that came, or how it ended."""

    def __init__(self, peer, port, since):
        self.connection = peer.connect(port)
        self.connection.request("GET", f"{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={since}", headers={
            "Authorization": "Bearer " + peer.token})
        self.answer = self.connection.getresponse()

    def line(self):
        """By chunks, since http.client takes a connection that breaks off for an end."""
        if not self.answer.chunked:
            return self.answer.readline()
        line = b""
        while not line.endswith(b"\n"):
            size = int(self.answer.fp.readline() or b"-1", 16)
            if size <= 0:
                raise EOFError if size == 0 else ConnectionResetError
            line += self.answer.fp.read(size)
            self.answer.fp.readline()
        return line

    def next(self):
        try:
            event = json.loads(self.line())
        except GONE:
            return "reset"
        except EOFError:
            return "end"
        return event["type"], event["object"]["metadata"].get("name") or event["object"].get("code")


def faults(peer, proxy):
    def call(method="GET", name="", body=None):
        try:
            return peer.call(method, MAPS + name, body, proxy.port)
        except GONE:
            return "reset", None

    def make(name, text="1"):
        return call("POST", body={"metadata": {"name": name}, "data": {"text": text}})[0]

    def there(name):
        return peer.call("GET", f"{MAPS}/{name}")[0] == 200

    check("a request passes", make("plain") == 201 and there("plain"))
    check("and is in the log", [(e["method"], e["status"]) for e in proxy.log()] == [("POST", 201)])

    rule = proxy.rule(do="answer", status=429, retry_after=2, method="POST", path="/configmaps$", times=2)
    check("two are told to come later", [make("late") for _ in range(3)] == [429, 429, 201] and proxy.hits(rule) == 2)
    for status in (409, 410, 500, 503):
        proxy.rule(do="answer", status=status, method="POST")
        check(f"{status} without an effect", make(f"never-{status}") == status and not there(f"never-{status}"))
    proxy.rule(do="lose", method="POST")
    check("a lost answer has its effect", make("lost") == "reset" and there("lost"))
    check("of which the client hears when it asks again", make("lost") == 409)
    proxy.rule(do="reset", method="POST", skip=1)
    check("a reset has none, and comes when it is due", make("first") == 201 and make("second") == "reset" and not there("second"))
    proxy.rule(do="half", path="/configmaps/lost")
    check("half an answer", call(name="/lost") == ("reset", None))
    proxy.rule(do="half", path="/configmaps$", bytes=10)
    check("ten bytes of one", call() == ("reset", None))
    proxy.rule(do="pass", delay=0.5)
    begun = time.monotonic()
    check("a slow one", call()[0] == 200 and time.monotonic() - begun >= 0.5)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        rule = proxy.rule(do="hang", method="POST", after=True, times=0)
        hanging = pool.submit(make, "hung")
        check("one that hangs after its effect", within(30, lambda: there("hung")) and not hanging.done())
        proxy.drop(rule)
        check("goes on when it may", hanging.result(30) == 201)
        proxy.freeze()
        frozen = pool.submit(make, "frozen")
        check("nothing moves", not within(1, frozen.done) and not there("frozen"))
        proxy.thaw()
        check("and then does", frozen.result(30) == 201)

    proxy.rule(do="record", path="/configmaps$")
    before = call()[1]
    make("newer")
    proxy.rule(do="stale", path="/configmaps$", method="GET")
    check("a list of before comes again, once", call()[1] == before != call()[1])
    proxy.rule(do="edit", path="/configmaps/newer", pattern=r'"creationTimestamp":"\d+', to='"creationTimestamp":"2001')
    check("an object of another clock", call(name="/newer")[1]["metadata"]["creationTimestamp"].startswith("2001-"))
    proxy.drop()

    since = call()[1]["metadata"]["resourceVersion"]
    watches = [Watch(peer, proxy.port, since) for _ in range(3)]
    make("seen")
    check("watches see what is made", [w.next() for w in watches] == [("ADDED", "seen")] * 3 and proxy.stats()["watches"] == 3)
    kept = peer.connect(proxy.port)
    kept.request("GET", MAPS, headers={"Authorization": "Bearer " + peer.token})
    kept.getresponse().read()
    check("all watches are cut, and nothing else", proxy.cut() == 3 and [w.next() for w in watches] == ["reset"] * 3)
    kept.request("GET", MAPS, headers={"Authorization": "Bearer " + peer.token})
    check("what rests goes on", kept.getresponse().status == 200)
    watch = Watch(peer, proxy.port, since)
    check("a watch goes on from where it was", watch.next() == ("ADDED", "seen"))
    proxy.cut(how="end")
    check("and can end as by itself", watch.next() == "end")
    proxy.rule(do="event", path="watch=true")
    check("a watch from too long ago is told so", Watch(peer, proxy.port, since).next() == ("ERROR", 410))

    proxy.refuse()
    check("nobody is let in", call() == ("reset", None))
    proxy.accept()
    check("and then again", call()[0] == 200)


def outside(peer, folder):
    """As a shell does it; bytes alone, for a client certificate."""
    ports = os.path.join(folder, "ports")
    words = [os.path.join(TOP, "tests", "peers", "lib", "fault_proxy.py"), "--upstream", peer.address, "--mode", "tcp", "--ports", ports]
    with subprocess.Popen(words) as process:
        try:
            if not within(30, lambda: os.path.exists(ports)):
                raise RuntimeError("the proxy does not start")
            with open(ports, encoding="utf-8") as f:
                port, control = f.read().split()

            def tell(name, **said):
                with urllib.request.urlopen(f"http://127.0.0.1:{control}/{name}", json.dumps(said).encode()) as answer:
                    return json.load(answer)

            server = ("--server", f"https://127.0.0.1:{port}")
            check("a client certificate passes", "plain" in (peer.kubectl("get", "configmaps", "-o", "name", *server) or ""))
            rule = tell("rule", do="reset", times=0)
            check("a connection can be reset", peer.kubectl("get", "configmaps", *server) is None and tell("hits", id=rule) > 0)
            tell("drop")
            check("and then no more", peer.kubectl("get", "configmaps", *server) is not None)
        finally:
            process.kill()


def main():
    with tempfile.TemporaryDirectory(prefix="hanse-faults-") as folder:
        with Kube(os.path.join(folder, "kube"), HANSE_KUBE_COMPONENTS="kcm") as peer:
            faults(peer, FaultProxy(peer.address, peer.ca, peer.cert, peer.key))
            outside(peer, folder)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
