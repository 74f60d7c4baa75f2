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
    """Writes (name, what, time) into the pipe. When the server ends the watch it goes on where it was; when it was too slow and its
    window is over (410), it lists and watches from there, as an informer does."""
    known = {}

    def take(o, gone=False):
        now, name = time.monotonic(), o["metadata"]["name"]
        told = known.setdefault(name, set())
        placed, running, nominated = words(o)
        for what, true in (("placed", placed), ("running", running), ("nominated", nominated), ("gone", gone)):
            if true and what not in told:
                told.add(what)
                out.send((name, what, now))

    def ask(query):
        connection = connect(timeout=600)
        connection.request("GET", path + query, headers=headers)
        return connection, connection.getresponse()

    while True:
        connection, answer = ask(f"?watch=true&resourceVersion={version}")
        over = answer.status == 410
        while not over and (line := answer.readline()):
            event = json.loads(line)
            over = event["type"] == "ERROR"
            if not over:
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    take(event["object"], event["type"] == "DELETED")
        connection.close()
        if over:
            out.send(("", "listed", time.monotonic()))
            connection, answer = ask("")
            items = json.loads(answer.read())
            connection.close()
            version = items["metadata"]["resourceVersion"]
            there = {o["metadata"]["name"] for o in items["items"]}
            for o in items["items"]:
                take(o)
            for name in known.keys() - there:
                if "gone" not in known[name]:
                    known[name].add("gone")
                    out.send((name, "gone", time.monotonic()))


class Watcher:
    def __init__(self, connect, headers, path, version, words):
        self.at = {"placed": {}, "running": {}, "nominated": {}, "gone": {}}
        self.lists = 0  # how often it was too slow
        self.inbox, out = multiprocessing.Pipe(duplex=False)
        self.process = multiprocessing.get_context("fork").Process(
            target=follow, args=(connect, headers, path, version, words, out), daemon=True)
        self.process.start()
        out.close()

    def gather(self, seconds=0.0):
        """Takes what was told meanwhile; waits so long for the first."""
        while self.inbox.poll(seconds):
            name, what, when = self.inbox.recv()
            if what == "listed":
                self.lists += 1
            else:
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
