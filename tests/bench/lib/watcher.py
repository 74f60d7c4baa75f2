"""One watch, in a process of its own: when each object was first seen placed, running and gone, on the clock that all share."""
import json
import multiprocessing
import time


def hanse_words(o):
    status = o.get("status", {})
    return status.get("phase") not in (None, "Queued"), status.get("phase") == "Running", bool(status.get("nominated"))


def pod_words(o):
    return bool(o["spec"].get("nodeName")), o["status"].get("phase") == "Running", bool(o["status"].get("nominatedNodeName"))


def follow(connect, headers, path, version, words, out):
    """Writes (name, what, time) into the pipe; goes on where it was when the server ends the watch."""
    while True:
        connection = connect(timeout=600)
        connection.request("GET", f"{path}?watch=true&resourceVersion={version}", headers=headers)
        answer = connection.getresponse()
        known = {}
        while line := answer.readline():
            event, now = json.loads(line), time.monotonic()
            if event["type"] == "ERROR":
                out.send(("", "lost", now))
                break
            version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] == "BOOKMARK":
                continue
            name = event["object"]["metadata"]["name"]
            told = known.setdefault(name, set())
            placed, running, nominated = words(event["object"])
            for what, true in (("placed", placed), ("running", running), ("nominated", nominated), ("gone", event["type"] == "DELETED")):
                if true and what not in told:
                    told.add(what)
                    out.send((name, what, now))
        connection.close()


class Watcher:
    def __init__(self, connect, headers, path, version, words):
        self.at = {"placed": {}, "running": {}, "nominated": {}, "gone": {}}
        self.inbox, out = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.get_context("fork").Process(
            target=follow, args=(connect, headers, path, version, words, out), daemon=True)
        self.process.start()
        out.close()

    def gather(self, seconds=0.0):
        """Takes what was told meanwhile; waits so long for the first."""
        while self.inbox.poll(seconds):
            name, what, when = self.inbox.recv()
            if what == "lost":
                raise RuntimeError("the watch was lost: its window is over")
            self.at[what].setdefault(name, when)
            seconds = 0.0

    def wait(self, what, names, seconds):
        """Until all names were told as that; when the last one was."""
        end, left = time.monotonic() + seconds, set(names)
        while True:
            self.gather(0.05)
            left -= self.at[what].keys()
            if not left:
                return max(self.at[what][n] for n in names)
            if time.monotonic() > end:
                raise RuntimeError(f"{len(left)} were not {what} after {seconds} s, such as {sorted(left)[0]}")

    def close(self):
        self.process.kill()
        self.process.join()
