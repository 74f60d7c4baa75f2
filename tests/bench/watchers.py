#!/usr/bin/env python3
"""10,000 watchers on one member, over TLS, from one epoll loop: how long they take to be there, what each costs the server in
memory, and how long an event takes to reach all of them. One of them does not read: it must end alone. Options: --watchers N
(default 10000, fewer where descriptors are short), --events N (default 20). Prints one JSON object; exit 1 when anybody missed
an event, or came too late (--limit SECONDS, default 300)."""
import argparse
import json
import os
import resource
import select
import socket
import ssl
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.dont_write_bytecode = True
from federation import Login, wait_for  # noqa: E402

API = "/apis/hanse.dev/v1alpha1/namespaces/default/datasets"
AT_ONCE = 64  # handshakes that are open at the same time


def memory(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


def processor(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Watcher:
    def __init__(self, context, host, port, epoll):
        self.sock = socket.create_connection((host, port), timeout=30)
        self.sock.setblocking(False)
        self.tls = context.wrap_socket(self.sock, server_hostname=host, do_handshake_on_connect=False)
        self.epoll, self.open, self.events, self.tail = epoll, False, 0, b""
        epoll.register(self.tls, select.EPOLLIN | select.EPOLLOUT)

    def request(self, host, since, token):
        self.tls.send(f"GET {API}?watch=1&resourceVersion={since} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())

    def read(self):
        """Bytes that came; None at the end."""
        got = b""
        while True:
            try:
                more = self.tls.recv(65536)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return got
            except (ConnectionError, ssl.SSLError):
                return None
            if not more:
                return None
            got += more


def connect(login, server, count, since, tokens):
    """count watchers whose watch was answered 200, of several users: one may not have so many."""
    host, port = server
    epoll, by_fd, waiting, done = select.epoll(), {}, 0, []
    while len(done) < count:
        while waiting < AT_ONCE and len(by_fd) < count:
            w = Watcher(login.context, host, port, epoll)
            by_fd[w.tls.fileno()] = w
            waiting += 1
        ready = epoll.poll(30)
        if not ready:
            raise SystemExit(f"watchers: no progress at {len(done)} of {count}")
        for fd, _ in ready:
            w = by_fd[fd]
            if not w.open:
                try:
                    w.tls.do_handshake()
                except ssl.SSLWantReadError:
                    epoll.modify(fd, select.EPOLLIN)
                    continue
                except ssl.SSLWantWriteError:
                    epoll.modify(fd, select.EPOLLOUT)
                    continue
                w.open = True
                epoll.modify(fd, select.EPOLLIN)
                w.request(host, since, tokens[fd % len(tokens)])
            got = w.read()
            if got is None:
                raise SystemExit("watchers: a connection was ended")
            w.tail += got
            if w.tail.startswith(b"HTTP/1.1 200") and b"\r\n\r\n" in w.tail:
                w.tail = w.tail.split(b"\r\n\r\n", 1)[1]
                waiting -= 1
                done.append(w)
    return epoll, by_fd


def written(login, url, name):
    connection = login.connect(url, timeout=20)
    body = json.dumps({"apiVersion": "hanse.dev/v1alpha1", "kind": "Dataset", "metadata": {"name": name}, "spec": {"source": "x" * 200}})
    connection.request("POST", API, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status == 201


def spread(epoll, by_fd, deaf, count, login, url):
    """Writes one object at a time; seconds from its request until all but the deaf one have it, and who missed any."""
    took = []
    for i in range(count):
        begun, missing = time.monotonic(), len(by_fd) - 1
        if not written(login, url, f"event-{os.getpid()}-{i}"):
            raise SystemExit("watchers: the write was refused")
        while missing and time.monotonic() < begun + 30:
            for fd, _ in epoll.poll(1):
                w = by_fd[fd]
                if w is deaf:
                    continue
                got = w.read()
                if got is None:
                    raise SystemExit("watchers: a connection was ended")
                w.tail += got
                new = w.tail.count(b'"type":"ADDED"')
                w.tail = w.tail[w.tail.rfind(b"\n") + 1:]
                w.events += new
                missing -= new
        took.append(time.monotonic() - begun)
    return took, [w for w in by_fd.values() if w is not deaf and w.events != count]


def main():
    options = argparse.ArgumentParser()
    for name, default in (("--watchers", 10000), ("--events", 20), ("--limit", 300)):
        options.add_argument(name, type=int, default=default)
    args = options.parse_args()
    hanse = os.path.abspath(os.environ.get("HANSE") or os.path.join(TOP, "build", "release", "hanse"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(args.watchers, hard - 512)
    with tempfile.TemporaryDirectory(prefix="hanse-watchers-") as folder, open(os.path.join(folder, "log"), "wb") as log:
        server = subprocess.Popen([hanse, "dev", "--no-agent", "--dir", folder], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            kubeconfig = os.path.join(folder, "kubeconfig")
            env = {**os.environ, "KUBECONFIG": kubeconfig}
            members = wait_for("hanse dev", lambda: os.path.exists(kubeconfig) and
                               (said := subprocess.run([hanse, "members", "-o", "json"], capture_output=True, env=env, check=False)).returncode == 0
                               and json.loads(said.stdout), 20)
            pid, url = members[0]["pid"], members[0]["url"]
            os.makedirs(os.path.join(folder, "scratch"), exist_ok=True)
            login = Login(kubeconfig, os.path.join(folder, "scratch"))
            login.context.set_alpn_protocols(["http/1.1"])
            host, port = url[len("https://"):].rsplit(":", 1)
            since = subprocess.run([hanse, "get", "datasets", "-o", "jsonpath={.metadata.resourceVersion}"], capture_output=True, text=True,
                                   env=env, check=True).stdout.strip()
            tokens = [subprocess.run([hanse, "token", "create", "--user", f"watcher-{i}", "--group", "system:masters"], capture_output=True, text=True,
                                     env=env, check=True).stdout.strip() for i in range(4)]
            before, begun, cpu = memory(pid), time.monotonic(), processor(pid)
            epoll, by_fd = connect(login, (host, int(port)), count, since, tokens)
            connected, cpu = time.monotonic() - begun, processor(pid) - cpu
            after = memory(pid)
            idle, at = processor(pid), time.monotonic()
            epoll.poll(3)
            idle = (processor(pid) - idle) / (time.monotonic() - at)
            deaf = next(iter(by_fd.values()))
            cpu_events = processor(pid)
            took, missed = spread(epoll, by_fd, deaf, args.events, login, url)
            cpu_events = processor(pid) - cpu_events
            took.sort()
            peak = memory(pid)
        finally:
            server.terminate()
            server.wait(timeout=20)
    result = {"watchers": count, "connect_seconds": round(connected, 2), "handshake_cpu_ms": round(cpu / count * 1000, 3),
              "bytes_a_watcher": (after - before) * 1024 // count, "rss_mib": after // 1024, "rss_mib_at_events": peak // 1024,
              "idle_cpu_share": round(idle, 4), "events": args.events,
              "event_to_all_ms": {"p50": round(took[len(took) // 2] * 1000, 1), "max": round(took[-1] * 1000, 1)},
              "delivery_cpu_us": round(cpu_events / (args.events * (count - 1)) * 1e6, 2), "missed": len(missed)}
    print(json.dumps(result))
    return 1 if missed or connected > args.limit else 0


if __name__ == "__main__":
    sys.exit(main())
