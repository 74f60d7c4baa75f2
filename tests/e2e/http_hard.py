#!/usr/bin/env python3
"""One member against clients that mean it badly, or are many: descriptors that run out (accepting pauses and comes back, and no
processor is burnt meanwhile), heads and bodies that drip, connections closed on one side, everything too large. Beside each, a
client of good will must be served. Prints ok or FAILED per check; exit 1 when any failed."""
import json
import os
import resource
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
NOFILE = 420  # the member keeps 128 of them for files: api/base/uv/listen_uv.c
LOW = 0.5  # of a processor: a loop that spins takes all of one


class Member:
    def __init__(self, hanse, folder):
        self.failed = 0
        self.log = open(os.path.join(folder, "log"), "wb")  # pylint: disable=consider-using-with
        self.dev = subprocess.Popen([hanse, "dev", "--no-agent", "--dir", folder], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                    start_new_session=True, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (NOFILE, NOFILE)))
        kubeconfig = os.path.join(folder, "kubeconfig")
        env = {**os.environ, "KUBECONFIG": kubeconfig}
        said = wait_for("hanse dev; see its log", lambda: os.path.exists(kubeconfig) and
                        (m := subprocess.run([hanse, "members", "-o", "json"], capture_output=True, env=env, check=False)).returncode == 0
                        and json.loads(m.stdout), 30)
        self.pid, self.url = said[0]["pid"], said[0]["url"]
        os.makedirs(os.path.join(folder, "scratch"), exist_ok=True)
        self.login = Login(kubeconfig, os.path.join(folder, "scratch"))
        self.host, port = self.url[len("https://"):].rsplit(":", 1)
        self.port = int(port)

    def check(self, what, good, detail=""):
        self.failed += not good
        print(f"  {'ok    ' if good else 'FAILED'}  {what}" + (f": {detail}" if detail != "" else ""), flush=True)

    def plain(self, timeout=10):
        return socket.create_connection((self.host, self.port), timeout=timeout)

    def open(self, timeout=10):
        return self.login.context.wrap_socket(self.plain(timeout), server_hostname=self.host)

    def ask(self, text, timeout=20):
        """The status of the first answer; 0 when the connection ended without one."""
        tls = self.open(timeout)
        try:
            sent = text if isinstance(text, bytes) else text.encode()
            for at in range(0, len(sent), 65536):
                tls.sendall(sent[at:at + 65536])
            return self.answer(tls)
        except (ConnectionError, ssl.SSLError):
            return self.answer(tls)  # it may have answered before all was sent
        finally:
            tls.close()

    @staticmethod
    def answer(tls):
        try:
            got = tls.recv(4096)
        except (OSError, ssl.SSLError):
            return 0
        return int(got.split(b" ", 2)[1]) if got.startswith(b"HTTP/1.1 ") else 0

    def serves(self):
        return self.ask("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n") == 200

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def processor(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def share(self, seconds):
        """Of one processor, over that time: the time is what is measured."""
        begun, used = time.monotonic(), self.processor()
        one, _other = socket.socketpair()
        one.settimeout(seconds)
        try:
            one.recv(1)
        except TimeoutError:
            pass
        return (self.processor() - used) / (time.monotonic() - begun)


def served(m, sockets):
    """How many of these raw connections get a handshake and an answer now."""
    n = 0
    for s in sockets:
        try:
            s.settimeout(3)
            tls = m.login.context.wrap_socket(s, server_hostname=m.host)
            tls.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
            n += m.answer(tls) == 200
            tls.close()
        except (OSError, ssl.SSLError):
            s.close()
    return n


def descriptors_run_out(m):
    keep = m.open()
    base = m.descriptors()
    held = [m.plain() for _ in range(NOFILE - 128)]
    wait_for("accepting to pause", lambda: m.descriptors() >= NOFILE - 128 or m.descriptors() >= base + len(held) - 40, 15)
    queued = [m.plain() for _ in range(60)]
    share = m.share(2)
    m.check("at the limit of connections accepting pauses, and nothing spins", share < LOW and m.descriptors() < NOFILE, f"{share:.2f} of a processor, {m.descriptors()} descriptors")
    keep.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
    m.check("who is connected is served", m.answer(keep) == 200)
    for s in held:
        s.close()
    n = served(m, queued[:20])
    m.check("when room comes, those that waited are served", n == 20, n)
    for s in queued[20:]:
        s.close()
    wait_for("the connections to go", lambda: m.descriptors() <= base + 5, 20)
    m.check("and new ones", m.serves())
    # Below what is open: every accept fails with EMFILE, whatever the member counts.
    soft = m.descriptors()
    resource.prlimit(m.pid, resource.RLIMIT_NOFILE, (soft, NOFILE))
    dropped = [m.plain() for _ in range(30)]
    share = m.share(2)
    m.check("out of descriptors altogether, it does not spin", share < LOW, f"{share:.2f} of a processor")
    keep.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
    m.check("who is connected is served even so", m.answer(keep) == 200)
    resource.prlimit(m.pid, resource.RLIMIT_NOFILE, (NOFILE, NOFILE))
    for s in dropped:
        s.close()
    wait_for("new connections to be served again", m.serves, 15)
    m.check("with descriptors it takes connections again", True)
    keep.close()


def drips(m):
    """A head is given 10 s in all, a body 1,024 bytes a second after its first 5 s."""
    heads = [m.open(30) for _ in range(20)]
    for s in heads:
        s.sendall(b"GET /livez HTTP/1.1\r\nHost: a\r\n")
    body = m.open(30)
    body.sendall(f"POST {API} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n".encode())
    begun, dead, ended = time.monotonic(), 0, None
    body.settimeout(0.2)
    while time.monotonic() < begun + 25 and (ended is None or dead < len(heads)):
        if ended is None:
            try:
                body.sendall(b"   ")
                ended = m.answer(body) or None  # waits 0.2 s for it
            except (OSError, ssl.SSLError):
                ended = 0
        for s in list(heads):
            s.settimeout(0.05)
            try:
                s.sendall(b"X")
                if m.answer(s) == 408:
                    dead += 1
                    heads.remove(s)
                    heads.append(None)
            except (OSError, ssl.SSLError):
                dead += 1
                heads.remove(s)
                heads.append(None)
        heads = [s for s in heads if s]
        if not heads:
            break
    m.check("heads that drip are ended", not heads, f"{dead} of 20 after {time.monotonic() - begun:.0f} s")
    m.check("a body that drips is ended with 408", ended == 408, ended)
    m.check("meanwhile and after, others are served", m.serves())


def half_closed(m):
    base, many = m.descriptors(), []
    for _ in range(50):
        tls = m.open()
        tls.sendall(f"GET {API}?watch=1 HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        tls.shutdown(socket.SHUT_WR)
        many.append(tls)
    for _ in range(50):
        s = m.plain()
        s.sendall(b"\x16\x03\x01")  # the beginning of a handshake, and no more
        s.shutdown(socket.SHUT_WR)
        many.append(s)
    wait_for("half-closed connections to go", lambda: m.descriptors() <= base + 5, 20)
    m.check("connections closed on one side go, though the other stays open", True, m.descriptors() - base)
    for s in many:
        s.close()


def too_large(m):
    head = "Host: a\r\n"
    post = f"POST {API} HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
    cases = (("a target of 20,000 bytes", f"GET /{'a' * 20000} HTTP/1.1\r\n{head}\r\n", (414,)),
             ("a header of 60,000 bytes", f"GET / HTTP/1.1\r\n{head}X: {'a' * 60000}\r\n\r\n", (431,)),
             ("200 header lines", f"GET / HTTP/1.1\r\n{head}" + "X: a\r\n" * 200 + "\r\n", (431,)),
             ("a body said to be 17 MiB: refused unread", post + f"Content-Length: {17 << 20}\r\n\r\n", (413,)),
             ("a chunked body of 17 MiB", post.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + (b"100000\r\n" + b" " * (1 << 20) + b"\r\n") * 17, (413, 0)),
             ("a document 100 deep", post + f"Content-Length: 200\r\n\r\n{'[' * 100}{']' * 100}", (400,)),
             ("an absolute endless number", post + "Content-Length: 99999999999999999999999\r\n\r\n", (400, 413)))
    for what, text, expected in cases:
        status = m.ask(text)
        m.check(what, status in expected, status)
    m.check("others are served", m.serves())


def main():
    hanse = os.path.abspath(os.environ.get("HANSE") or os.path.join(TOP, "build", "release", "hanse"))
    with tempfile.TemporaryDirectory(prefix="hanse-http-") as folder:
        m = Member(hanse, folder)
        try:
            for title, part in (("Descriptors", descriptors_run_out), ("Drips", drips), ("Half-closed", half_closed), ("Too large", too_large)):
                print(title, flush=True)
                part(m)
        finally:
            m.dev.terminate()
            m.dev.wait(timeout=30)
            m.log.close()
    print(f"{m.failed} failed" if m.failed else "served, all the time")
    return 1 if m.failed else 0


if __name__ == "__main__":
    sys.exit(main())
