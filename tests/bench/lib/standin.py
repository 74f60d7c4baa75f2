"""What kwok is to Kubernetes: an agent of Hanse that says that it runs what it is given, and runs nothing. It speaks the frames of
connectors/wire/wire.h. Checkpoints are told as the bench says; a run that is asked to stop ends at once."""
import json
import socket
import ssl
import struct
import threading
import time

HELLO, WELCOME, REDIRECT, BEAT, INVENTORY, NODES = 1, 2, 3, 5, 10, 11
SUBMIT, FIND, SIGNAL, STOP, LIST, FORGET, RENEW, RESULT, OBSERVED, STAGE = 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
TREE_GONE, NEVER_STARTED = "ProcessTreeGone", "NeverStarted"


class StandIn(threading.Thread):
    """nodes: documents as the agent tells them. runs: {key: observation}; ended: {key: when it was stopped}."""

    def __init__(self, address, pki, target, nodes):
        super().__init__(daemon=True)
        self.target, self.nodes, self.runs, self.orders, self.ended = target, nodes, {}, {}, {}
        self.lock, self.closing = threading.Lock(), False
        context = ssl.create_default_context(cafile=f"{pki}/ca.crt")
        context.load_cert_chain(f"{pki}/agent-{target}.crt", f"{pki}/agent-{target}.key")
        context.set_alpn_protocols(["hanse-agent/1"])
        raw = socket.create_connection(address)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(raw, server_hostname="127.0.0.1")
        self.send(HELLO, 0, {"target": target, "version": "stand-in", "session": "1", "bootId": "b", "stateId": "s",
                             "at": self.now(), "inventory": "1", "runs": []})
        self.start()
        threading.Thread(target=self.beat, daemon=True).start()

    @staticmethod
    def now():
        return int(time.monotonic() * 1000)

    def send(self, kind, number, body):
        data = json.dumps(body, separators=(",", ":")).encode()
        with self.lock:
            self.socket.sendall(struct.pack("<IBBHQ", len(data) + 12, kind, 0, 0, number) + data)

    def beat(self):
        while not self.closing:
            try:
                self.send(BEAT, 0, {"at": self.now()})
            except OSError:
                return
            time.sleep(1)

    def exactly(self, n):
        data = b""
        while len(data) < n:
            more = self.socket.recv(n - len(data))
            if not more:
                raise OSError("the server has closed")
            data += more
        return data

    def run(self):
        try:
            while True:
                size, kind, _, _, number = struct.unpack("<IBBHQ", self.exactly(16))
                body = self.exactly(size - 12)
                self.frame(kind, number, json.loads(body) if body else {})
        except OSError:
            if not self.closing:
                raise

    def result(self, number, seen=None, **more):
        self.send(RESULT, number, {"outcome": 0, **({"seen": seen} if seen else {}), **more})

    @staticmethod
    def seen(key, state, **more):
        return {"key": key, "state": state, "exitCode": 0, "signal": 0, "leaseLost": False, "reason": "", "message": "", **more}

    def frame(self, kind, number, body):
        key = body.get("key", "")
        if kind == INVENTORY:
            self.send(NODES, number, {"nodes": self.nodes})
        elif kind == SUBMIT:
            self.result(number, self.seen(key, "starting"))
            self.runs[key], self.orders[key] = self.seen(key, "running"), body
            self.send(OBSERVED, 0, self.runs[key])
        elif kind == STAGE or kind == FORGET:
            self.result(number)
            if kind == FORGET:
                self.runs.pop(key, None)
        elif kind == LIST:
            self.result(number, runs=list(self.runs.values()))
        elif kind in (FIND, SIGNAL, STOP):
            run = self.runs.get(key) or self.seen(key, "absent", proof=NEVER_STARTED)
            stops = kind != FIND and run["state"] == "running"
            ended = {**run, "state": "ended", "signal": 15, "proof": TREE_GONE}
            self.result(number, ended if stops and kind == STOP else run)
            if stops:
                self.ended[key], self.runs[key] = time.monotonic(), ended
                self.send(OBSERVED, 0, ended)

    def checkpoint(self, key, age_s):
        """Tells of one that was whole age_s ago."""
        run = self.runs[key]
        if run["state"] != "running":
            return
        run["checkpoint"] = {"step": 1, "bytes": 1 << 30, "writeTime": "1s", "writtenAt": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - age_s)), "ranks": 1,
                             "digest": "sha256:" + "0" * 64, "path": "/checkpoints/" + key}
        self.send(OBSERVED, 0, run)

    def close(self):
        self.closing = True
        self.socket.shutdown(socket.SHUT_RDWR)
