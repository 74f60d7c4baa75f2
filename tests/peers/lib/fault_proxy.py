#!/usr/bin/env python3
"""A proxy before an API server that does what networks and servers do on bad days. It ends the clients' TLS with the server's own
certificate and speaks TLS to the server, so clients must come with tokens; or it passes bytes on (mode tcp), for client certificates.

In a Python test:    proxy = FaultProxy("127.0.0.1:6443", ca=..., cert=..., key=...); proxy.url; proxy.rule(do="lose", method="POST")
From a shell:        fault_proxy.py --upstream 127.0.0.1:6443 --ca CA --cert CERT --key KEY --ports FILE &     # "PORT CONTROL" in FILE
                     curl -d '{"do": "answer", "status": 429, "retry_after": 2, "times": 3}' http://127.0.0.1:CONTROL/rule

A rule is met by a request whose method and whose target (path?query) match its regular expressions `method` (whole) and `path`
(anywhere). It holds for `times` requests (1; 0 for ever) after the first `skip` (0) of them; the first rule that is met counts:
  answer      status, retry_after, body: the server never hears of it. Without a body it is a Status as Kubernetes sends them
  event       status: a watch that begins and says just that it failed (410: too old)
  lose        the request has its effect, and the client sees a reset instead of the answer
  reset       the client sees a reset, and there was no effect
  half        bytes (else half of what comes first): so much of the answer's body, then a reset
  hang        no answer until the rule is dropped or the client leaves; after: true lets the effect happen first
  stale       the answer that the same target got before, if a rule `record` was met then
  record      passed on, and remembered for `stale`
  edit        pattern, to: replaced in the answer's body (not in a watch)
  pass        nothing: for `delay` alone
Each takes `delay`, in seconds, before anything happens.

Without rules: skew(seconds): all times in answers and watches, and their Date, are that far off; cut(path, how) ends what is under way (how: reset, close, or end: well-formed as at a server's own time limit), refuse()
and accept(), freeze() and thaw() (nothing moves, nobody is told), certificate(cert, key) for those who come next, upstream(address);
drop(), rules(), log(), stats(). Over the control port each is a POST of a JSON object to /NAME, answered by JSON. Loopback only."""
import argparse
import calendar
import collections
import email.utils
import http.server
import json
import os
import re
import select
import socket
import ssl
import struct
import sys
import threading
import time

REASONS = {400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired", 422: "Invalid",
           429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
ACTIONS = ("answer", "event", "lose", "reset", "half", "hang", "stale", "record", "edit", "pass")
FIELDS = ("do", "method", "path", "times", "skip", "delay", "status", "retry_after", "body", "bytes", "after", "pattern", "to")
WATCH = r"[?&]watch=(true|1)"
PIECE, HEAD_MAX, LOG_MAX = 65536, 1 << 20, 20000
TIME = re.compile(rb"\b(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?Z")


def shifted(data, seconds):
    """The same with its times that far off."""
    def move(found):
        at = calendar.timegm(time.strptime(found[1].decode(), "%Y-%m-%dT%H:%M:%S")) + seconds
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)).encode() + (found[2] or b"") + b"Z"
    return TIME.sub(move, data)


def readable(socks, seconds):
    """Those of them that can be read. No select(), which knows only numbers below 1024."""
    poll = select.poll()
    for sock in socks:
        poll.register(sock, select.POLLIN)
    found = {number for number, _ in poll.poll(seconds * 1000)}
    return [sock for sock in socks if sock.fileno() in found]


class Ended(Exception):
    """This connection is over; `how` as in cut()."""

    def __init__(self, how="close"):
        super().__init__(how)
        self.how = how


class Side:
    """One side of a connection: a socket, what came and was not yet taken, and the other one, whose end is noticed meanwhile."""

    def __init__(self, link, sock):
        self.link, self.sock, self.buffer, self.over = link, sock, b"", False

    def _receive(self):
        try:
            data = self.sock.recv(PIECE)
        except (ssl.SSLWantReadError, BlockingIOError):
            return
        except OSError as error:
            raise Ended("reset") from error
        self.over = self.over or not data
        self.buffer += data

    def wait(self, other=None):
        """Until there is more, or either side has ended."""
        before = len(self.buffer)
        while len(self.buffer) == before and not self.over:
            self.link.moves()
            watched = [self.sock, self.link.waked] + ([other.sock] if other and not other.over and len(other.buffer) < PIECE else [])
            if not (isinstance(self.sock, ssl.SSLSocket) and self.sock.pending()):
                ready = readable(watched, 60)
                if self.link.waked in ready:
                    self.link.moves()
                    continue
                if other and other.sock in ready:
                    other._receive()
                    if other.over:
                        raise Ended("close")
                if self.sock not in ready:
                    continue
            self._receive()

    def send(self, data):
        self.link.moves()
        try:
            self.sock.settimeout(60)
            self.sock.sendall(data)
        except OSError as error:
            raise Ended("reset") from error
        finally:
            self.sock.settimeout(0)

    def until(self, mark, other=None):
        while mark not in self.buffer:
            if self.over or len(self.buffer) > HEAD_MAX:
                raise Ended("close")
            self.wait(other)
        taken, self.buffer = self.buffer.split(mark, 1)
        return taken + mark

    def pieces(self, left, other=None):
        """So many bytes as they come; None: all until the end."""
        while left is None or left > 0:
            if not self.buffer:
                if self.over:
                    if left is None:
                        return
                    raise Ended("reset")
                self.wait(other)
                continue
            taken, self.buffer = (self.buffer, b"") if left is None else (self.buffer[:left], self.buffer[left:])
            left = None if left is None else left - len(taken)
            yield taken

    def body(self, head, other=None, answer_to=None):
        """(data, bytes as they came) of what follows a head."""
        status = head.status if answer_to else 0
        if answer_to and (answer_to == "HEAD" or status in (204, 304)):
            return
        if "chunked" in head.get("transfer-encoding", "").lower():
            while True:
                line = self.until(b"\r\n", other)
                size = int(line.split(b";")[0], 16)
                if size == 0:
                    while line != b"\r\n":
                        yield b"", line
                        line = self.until(b"\r\n", other)
                    yield b"", line
                    return
                yield b"", line
                for data in self.pieces(size, other):
                    yield data, data
                yield b"", self.until(b"\r\n", other)
        else:
            length = head.get("content-length")
            if length is not None or answer_to:
                for data in self.pieces(None if length is None else int(length), other):
                    yield data, data


class Head:
    def __init__(self, text):
        lines = text.decode("latin1").split("\r\n")
        self.first, self.fields = lines[0], [line.split(":", 1) for line in lines[1:] if ":" in line]
        words = self.first.split(" ", 2)
        self.method, self.target = (words + ["", ""])[:2]
        self.status = int(self.target) if self.first.startswith("HTTP/") and self.target.isdigit() else 0

    def get(self, name, default=None):
        return next((value.strip() for key, value in self.fields if key.lower() == name), default)

    def without(self, *names):
        self.fields = [(key, value) for key, value in self.fields if key.lower() not in names]
        return self

    def add(self, name, value):
        self.fields.append((name, " " + str(value)))
        return self

    def text(self):
        return "\r\n".join([self.first] + [key + ":" + value for key, value in self.fields] + ["", ""]).encode("latin1")


class Link:
    """A client's connection and the one to the server that belongs to it: a thread of their own."""

    def __init__(self, proxy, sock):
        self.proxy, self.raw, self.what, self.how = proxy, sock, None, None
        self.waked, self.waker = socket.socketpair()
        self.client = self.server = None

    def wake(self, how=None):
        self.how = self.how or how
        try:
            self.waker.send(b"x")
        except OSError:
            pass

    def moves(self):
        """Waits while nothing may move; raises Ended when this connection was cut."""
        while readable([self.waked], 0):
            self.waked.recv(PIECE)
        while self.how is None and not self.proxy.flows.is_set():
            readable([self.waked], 60)
            while readable([self.waked], 0):
                self.waked.recv(PIECE)
        if self.how:
            raise Ended(self.how)

    def sleep(self, seconds, rule=None):
        """So long, or while the rule holds; ends early with the client."""
        end = None if seconds is None else time.monotonic() + seconds
        while (end is None or time.monotonic() < end) and (rule is None or rule in self.proxy.held):
            left = 0.2 if end is None else min(0.2, max(0, end - time.monotonic()))
            self.moves()
            if self.client.sock in readable([self.client.sock, self.waked], left):
                self.client._receive()
                if self.client.over:
                    raise Ended("close")

    def connect(self):
        if self.server and readable([self.server.sock], 0):  # kept, and the server may have ended it meanwhile
            try:
                self.server._receive()
            except Ended:
                self.server.over = True
            if self.server.over:
                self.server.sock.close()
                self.server = None
        if self.server is None:
            sock = socket.create_connection(self.proxy.address, timeout=30)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.proxy.outward and self.proxy.mode != "tcp":
                sock = self.proxy.outward.wrap_socket(sock, server_hostname=self.proxy.address[0])
            sock.settimeout(0)
            self.server = Side(self, sock)

    def run(self):
        how = "close"
        try:
            self.raw.settimeout(30)
            self.raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.moves()
            sock = self.proxy.inward.wrap_socket(self.raw, server_side=True) if self.proxy.inward else self.raw
            sock.settimeout(0)
            self.client = Side(self, sock)
            if self.proxy.mode == "tcp":
                self.tunnel_all()
            while self.proxy.mode != "tcp":
                self.request()
                self.what["open"] = False
        except Ended as ended:
            how = ended.how
        except OSError:
            how = "reset"
        finally:
            self.close(how)

    def close(self, how):
        self.proxy.forget(self)
        client = self.client.sock if self.client else self.raw
        try:
            if how == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif how == "end" and self.what and self.what["chunked"]:
                client.settimeout(5)
                client.sendall(b"0\r\n\r\n")
        except OSError:
            pass
        for sock in (client, self.server.sock if self.server else None, self.waked, self.waker):
            if sock is not None:
                sock.close()

    def tunnel(self):
        """Bytes both ways, until one side ends."""
        sides = ((self.client, self.server), (self.server, self.client))
        while True:
            self.moves()
            for here, there in sides:
                if here.buffer:
                    there.send(here.buffer)
                    here.buffer = b""
            if self.client.over or self.server.over:
                raise Ended("close")
            if not any(isinstance(here.sock, ssl.SSLSocket) and here.sock.pending() for here, _ in sides):
                readable([self.client.sock, self.server.sock, self.waked], 60)
            for here, _ in sides:
                here._receive()

    def tunnel_all(self):
        rule = self.proxy.met(self, "CONNECT", "/") or {"do": "pass"}
        self.sleep(rule.get("delay", 0))
        if rule["do"] in ("reset", "lose"):
            raise Ended("reset")
        if rule["do"] == "hang":
            self.sleep(None, rule)
        self.connect()
        if rule["do"] == "half":
            self.server.wait(self.client)
            self.client.send(self.server.buffer[: rule.get("bytes", len(self.server.buffer) // 2)])
            raise Ended("reset")
        self.tunnel()

    def request(self):
        head = Head(self.client.until(b"\r\n\r\n"))
        rule = self.proxy.met(self, head.method, head.target) or {"do": "pass"}
        if "100-continue" in head.get("expect", "").lower():
            self.client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = b"".join(raw for _, raw in self.client.body(head.without("expect")))
        self.sleep(rule.get("delay", 0))
        do = rule["do"]
        if do == "reset":
            raise Ended("reset")
        if do == "hang" and not rule.get("after"):
            self.sleep(None, rule)
        elif do in ("answer", "event"):
            self.answer(head, rule)
            return
        elif do == "stale" and head.target in self.proxy.records:
            self.whole(*self.proxy.records[head.target])
            return
        skewed = self.proxy.skewed
        if do in ("record", "edit") or skewed:
            head.without("accept-encoding")
        self.connect()
        self.server.send(head.text() + body)
        answer = Head(self.server.until(b"\r\n\r\n", self.client))
        while answer.status == 100:
            answer = Head(self.server.until(b"\r\n\r\n", self.client))
        if skewed and answer.get("date"):
            date = calendar.timegm(email.utils.parsedate(answer.get("date"))) + skewed
            answer.without("date").add("Date", email.utils.formatdate(date, usegmt=True))
        self.what["status"], self.what["chunked"] = answer.status, "chunked" in answer.get("transfer-encoding", "").lower()
        if do == "lose":
            raise Ended("reset")
        if do == "hang" and rule.get("after"):
            self.sleep(None, rule)
        if do in ("record", "edit"):
            self.edited(head, answer, rule)
        elif skewed and answer.status != 101:
            self.skewed(head, answer, skewed)
        else:
            self.relay(head, answer, rule)
        self.what["chunked"] = False  # it has ended by itself
        if answer.get("connection", "").lower() == "close" or head.get("connection", "").lower() == "close":
            raise Ended("close")

    def relay(self, head, answer, rule):
        self.client.send(answer.text())
        if answer.status == 101:
            self.tunnel()
        left = rule.get("bytes") if rule["do"] == "half" else None
        for data, raw in self.server.body(answer, self.client, head.method):
            if rule["do"] == "half" and data:
                left = (int(answer.get("content-length", len(data))) // 2) if left is None else left
                self.client.send(data[:left])
                left -= len(data)
                if left <= 0:
                    raise Ended("reset")
            else:
                self.client.send(raw)
        if answer.get("content-length") is None and not self.what["chunked"] and answer.status not in (204, 304):
            raise Ended("close")

    def skewed(self, head, answer, seconds):
        """By lines where they come one by one, as a watch's do: no time is cut in two."""
        if not self.what["chunked"]:
            data = b"".join(data for data, _ in self.server.body(answer, self.client, head.method))
            self.client.send(answer.without("content-length").add("Content-Length", len(data)).text() + shifted(data, seconds))
            return
        self.client.send(answer.text())
        kept = b""
        for data, _ in self.server.body(answer, self.client, head.method):
            *lines, kept = (kept + data).split(b"\n")
            told = shifted(b"".join(line + b"\n" for line in lines), seconds)
            if told:
                self.client.send(b"%x\r\n%s\r\n" % (len(told), told))
        self.client.send((b"%x\r\n%s\r\n" % (len(kept), shifted(kept, seconds)) if kept else b"") + b"0\r\n\r\n")

    def whole(self, first, kind, data):
        self.what["status"] = int(first.split(" ")[1])
        head = Head(first.encode("latin1")).add("Content-Type", kind).add("Content-Length", len(data))
        self.client.send(head.text() + data)

    def edited(self, head, answer, rule):
        data = b"".join(data for data, _ in self.server.body(answer, self.client, head.method))
        if rule["do"] == "edit":
            data = re.sub(rule["pattern"].encode(), rule["to"].encode(), data)
        kept = (answer.first, answer.get("content-type", "application/json"), data)
        if rule["do"] == "record":
            self.proxy.records[head.target] = kept
        self.whole(*kept)

    def answer(self, head, rule):
        status = rule.get("status", 503 if rule["do"] == "answer" else 410)
        reason = "AlreadyExists" if (status, head.method) == (409, "POST") else REASONS.get(status, "Unknown")
        said = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "the fault proxy said so",
                "reason": reason, "code": status}
        if rule["do"] == "event":
            said, status = {"type": "ERROR", "object": said}, 200
        data = rule["body"] if "body" in rule else json.dumps(said) + "\n"
        answer = Head(f"HTTP/1.1 {status} {reason if status != 200 else 'OK'}".encode())
        answer.add("Content-Type", "application/json").add("Content-Length", len(data.encode()))
        if "retry_after" in rule:
            answer.add("Retry-After", rule["retry_after"])
        self.what["status"] = status
        self.client.send(answer.text() + data.encode())


class FaultProxy:
    def __init__(self, upstream, ca=None, cert=None, key=None, mode="http", port=0):
        """Without cert and key clients speak plain HTTP, without ca the server does."""
        self.mode, self.flows, self.lock = mode, threading.Event(), threading.Lock()
        self.held, self.links, self.said, self.records = [], set(), collections.deque(maxlen=LOG_MAX), {}
        self.total = self.connections = self.numbered = self.skewed = 0
        self.inward = self.outward = None
        self.upstream(upstream)
        if ca:
            self.outward = ssl.create_default_context(cafile=ca)
        if cert and mode != "tcp":
            self.certificate(cert, key)
        self.flows.set()
        if not port:  # a number of its own survives refuse() only if it was asked for by name
            with socket.create_server(("127.0.0.1", 0)) as found:
                port = found.getsockname()[1]
        self.port, self.open = port, threading.Event()
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("127.0.0.1", port))
        self.accept()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def url(self):
        return f"http{'s' if self.inward or self.mode == 'tcp' else ''}://127.0.0.1:{self.port}"

    def _listen(self):
        while True:
            self.open.wait()
            try:
                sock, _ = self.listener.accept()
            except OSError:
                time.sleep(0.01)
                continue
            link = Link(self, sock)
            with self.lock:
                self.links.add(link)
                self.connections += 1
            threading.Thread(target=link.run, daemon=True).start()

    def forget(self, link):
        with self.lock:
            self.links.discard(link)

    def met(self, link, method, target):
        """The rule that this request meets; it is written down."""
        with self.lock:
            self.total += 1
            link.what = {"n": self.total, "method": method, "target": target, "rule": None, "status": 0, "chunked": False, "open": True}
            self.said.append(link.what)
            for rule in self.held:
                if re.fullmatch(rule["method"], method) and re.search(rule["path"], target):
                    if rule["skip"] > 0:
                        rule["skip"] -= 1
                        continue
                    if 0 < rule["times"] <= rule["hits"]:
                        continue
                    rule["hits"] += 1
                    link.what["rule"] = rule["id"]
                    return rule
        return None

    # What tests say.

    def rule(self, **words):
        """Its number; a rule that was used up stays in rules(), with its hits."""
        unknown = set(words) - set(FIELDS)
        if unknown or words.get("do") not in ACTIONS:
            raise ValueError(f"no such field: {', '.join(sorted(unknown))}" if unknown else f"do is one of {', '.join(ACTIONS)}")
        with self.lock:
            self.numbered += 1
            rule = {"method": ".*", "path": "", "times": 1, "skip": 0} | words | {"id": self.numbered, "hits": 0}
            for pattern in (rule["method"], rule["path"], rule.get("pattern", "")):
                re.compile(pattern)  # it is refused here, and not in a thread
            self.held.append(rule)
            return rule["id"]

    def drop(self, id=None):
        """This rule, or all of them; what hangs by it goes on."""
        with self.lock:
            self.held[:] = [rule for rule in self.held if id is not None and rule["id"] != id]

    def rules(self):
        with self.lock:
            return [dict(rule) for rule in self.held]

    def hits(self, id):
        return next(rule["hits"] for rule in self.rules() if rule["id"] == id)

    def cut(self, path=WATCH, how="reset"):
        """How many were cut: connections with a request under way that matches; path "" also those that rest."""
        with self.lock:
            links = [link for link in self.links if path == "" or link.what and link.what["open"] and re.search(path, link.what["target"])]
        for link in links:
            link.wake(how)
        return len(links)

    def refuse(self):
        """From now on nobody gets through, and what is under way is reset."""
        self.open.clear()
        self.listener.shutdown(socket.SHUT_RDWR)  # it keeps its port
        self.cut("")

    def accept(self):
        self.listener.listen(256)
        self.open.set()

    def skew(self, seconds):
        """For answers that begin from now on."""
        self.skewed = seconds

    def freeze(self):
        self.flows.clear()

    def thaw(self):
        self.flows.set()
        with self.lock:
            links = list(self.links)
        for link in links:
            link.wake()

    def certificate(self, cert, key):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        self.inward = context

    def upstream(self, address):
        host, port = address.split("//")[-1].rstrip("/").rsplit(":", 1)
        self.address = (host, int(port))

    def log(self, since=0):
        """The requests after number `since`: n, method, target, rule, status (0: not answered)."""
        with self.lock:
            return [{key: entry[key] for key in ("n", "method", "target", "rule", "status")} for entry in self.said if entry["n"] > since]

    def stats(self):
        with self.lock:
            watches = sum(1 for link in self.links if link.what and link.what["chunked"] and re.search(WATCH, link.what["target"]))
            return {"requests": self.total, "connections": self.connections, "open": len(self.links), "watches": watches}


CONTROLS = ("rule", "drop", "rules", "hits", "cut", "refuse", "accept", "skew", "freeze", "thaw", "certificate", "upstream", "log", "stats")


def control(proxy):
    """The server of the control port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_POST(self):
            data, status = self.rfile.read(int(self.headers.get("Content-Length") or 0)), 200
            try:
                if self.path[1:] not in CONTROLS:
                    raise ValueError(f"no such control: there are {', '.join(CONTROLS)}")
                said = getattr(proxy, self.path[1:])(**json.loads(data or b"{}"))
            except (ValueError, TypeError, StopIteration, OSError, re.error) as error:
                said, status = f"{error}", 400
            data = json.dumps(said).encode() + b"\n"
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST

    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upstream", required=True, metavar="HOST:PORT")
    parser.add_argument("--mode", choices=("http", "tcp"), default="http")
    for name in ("--ca", "--cert", "--key", "--ports"):
        parser.add_argument(name, metavar="FILE")
    parser.add_argument("--port", type=int, default=0)
    words = parser.parse_args()
    proxy = FaultProxy(words.upstream, words.ca, words.cert, words.key, words.mode, words.port)
    server = control(proxy)
    told = f"{proxy.port} {server.server_port}\n"
    if words.ports:
        with open(words.ports + ".new", "w", encoding="utf-8") as f:
            f.write(told)
        os.rename(words.ports + ".new", words.ports)
    else:
        sys.stdout.write(told)
        sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
