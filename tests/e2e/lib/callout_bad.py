"""The callout server of deploy/examples/callout, made to misbehave: before each request about a run it looks into FAULTS, a file of
lines "VERB FAULT" (submit, find, signal, stop), and does what the first line for its verb says, once. What was done stays done.
It lists the run whose key stands in FAULTS.denied as running, whatever it has told of it, until it is asked to stop that one; and the one
whose key stands in FAULTS.zombie in a state that there is not."""
import fcntl
import json
import os
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "callout"))
sys.dont_write_bytecode = True
import server  # noqa: E402

LATE_S = 6  # an attempt is given up after 5 s


def denied():
    """The key of the run that it brings back from the dead."""
    try:
        with open(os.environ["FAULTS"] + ".denied", encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def listed_as_zombie(body):
    try:
        with open(os.environ["FAULTS"] + ".zombie", encoding="utf-8") as file:
            key = file.read().strip()
    except FileNotFoundError:
        return body
    told = json.loads(body)
    for run in told.get("runs", []):
        if run.get("key") == key:
            run["state"] = "zombie"
    return json.dumps(told).encode()


def listed_alive(body, key):
    told = json.loads(body)
    for run in told.get("runs", []):
        if run.get("key") == key:
            for name in ("exitCode", "signal", "proof", "reason", "message", "final"):
                run.pop(name, None)
            run["state"] = "running"
    return json.dumps(told).encode()


def fault_of(verb):
    with open(os.environ["FAULTS"], "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        lines = file.read().splitlines()
        mine = next((line for line in lines if line.split()[0] == verb), None)
        if mine:
            lines.remove(mine)
            file.seek(0)
            file.truncate()
            file.write("".join(line + "\n" for line in lines))
        return mine.split()[1] if mine else ""


class Bad(server.Handler):
    def raw(self, head, body=b"", length=None):
        self.close_connection = True
        self.wfile.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body)
        self.wfile.flush()

    def handle_any(self):
        parts = self.path.partition("?")[0].strip("/").split("/")
        if parts[1:2] == ["nodes"]:
            with open(os.environ["FAULTS"] + ".nodes", "a", encoding="utf-8") as file:
                file.write(self.path + "\n")
        verb = "submit" if self.command == "PUT" else parts[3] if len(parts) == 4 else ""
        self.lists = self.command == "GET" and parts[1:] == ["runs"]
        if verb == "stop" and parts[2] == denied():
            os.rename(os.environ["FAULTS"] + ".denied", os.environ["FAULTS"] + ".stopped")
        self.fault = fault_of(verb) if verb else ""
        if self.fault == "deaf":  # not even heard
            self.close_connection = True
            return
        if self.fault == "vanish":  # a proxy answers, and hands nothing on
            self.raw("200 OK", b"<html>We will be back soon</html>")
            return
        if self.fault == "500":
            self.raw("500 Internal Server Error", b"<html>not now</html>")
            return
        if self.fault == "busy":  # a refusal of the protocol: signed
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.answer(503, b'{"message":"not now"}')
            return
        super().handle_any()

    def answer(self, status, body):
        fault, self.fault = self.fault, ""
        if self.lists and status == 200 and denied():
            body = listed_alive(body, denied())
        if self.lists and status == 200:
            body = listed_as_zombie(body)
        if fault == "lost":
            self.close_connection = True
        elif fault == "late":
            time.sleep(LATE_S)
            super().answer(status, body)
        elif fault == "html":
            self.raw("200 OK", b"<html>It works!</html>")
        elif fault == "unsigned":
            self.raw("200 OK", body)
        elif fault == "redirect":
            self.raw(f"307 Temporary Redirect\r\nLocation: http://127.0.0.1:1{self.path}")
        elif fault == "half":
            self.raw("200 OK", body[:len(body) // 2], len(body))
        elif fault == "other":
            super().answer(status, json.dumps({**json.loads(body), "key": "another.1.1"}).encode())
        elif fault == "huge":
            self.raw("200 OK", b"", 1 << 30)
            for _ in range(1 << 14):
                self.wfile.write(b"x" * 65536)
        elif fault == "trickle":
            self.raw("200 OK", b"", 1 << 20)
            for _ in range(100):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.2)
        else:
            super().answer(status, body)

    do_GET = do_PUT = do_POST = do_DELETE = handle_any


if __name__ == "__main__":
    sys.exit(server.main(Bad))
