#!/usr/bin/env python3
"""`hanse exec -it` on a real terminal, `hanse port-forward`, and logs by time, at a member that need not lead. The terminal is as it was whatever
ends the command; its size goes to the program; connections are many at a time, each side ends its own, and no port leads to another
run's program. Prints ok or FAILED per check; exit 1 when any failed."""
import concurrent.futures
import datetime
import fcntl
import hashlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import CONTEXTS, Cluster  # noqa: E402
from federation import Failure, wait_for  # noqa: E402
from parts import walk  # noqa: E402

# One port gives back all that came once there is no more, one says a line and closes at once, one never says anything.
SERVER = """import os, socket, sys, threading
def echo(c):
    got = b""
    while (b := c.recv(65536)):
        got += b
    c.sendall(got)
    c.close()
def bye(c):
    c.sendall(b"bye\\n")
    c.close()
def half(c):
    c.sendall(b"first\\n")
    c.shutdown(socket.SHUT_WR)
    n = 0
    while (b := c.recv(65536)):
        n += len(b)
    open(sys.argv[1] + ".half", "w").write(str(n))
    c.close()
def serve(s, each):
    while True:
        c, _ = s.accept()
        threading.Thread(target=each, args=(c,), daemon=True).start()
v = []
for each in (echo, bye, half):
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
    s.listen(64)
    v.append(str(s.getsockname()[1]))
    threading.Thread(target=serve, args=(s, each), daemon=True).start()
open(sys.argv[1] + ".tmp", "w").write(" ".join(v))
os.rename(sys.argv[1] + ".tmp", sys.argv[1])
threading.Event().wait()
"""


# A job of a shell, in the foreground: who is alone in his session is not stopped.
SHELL = """import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if not child:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[2], sys.argv[2:])
open(sys.argv[1], "w").write(str(child))
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, c, *words, rows=31, columns=97, job=None):
        self.master, self.slave = os.openpty()
        self.size(rows, columns)
        self.was = termios.tcgetattr(self.slave)

        def begin():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        shell = [sys.executable, "-c", SHELL, job] if job else []
        self.p = subprocess.Popen([*shell, c.hanse, *words], stdin=self.slave, stdout=self.slave, stderr=self.slave, start_new_session=True, preexec_fn=begin,
                                  env={**os.environ, "KUBECONFIG": c.path("kubeconfig")})
        self.text = ""

    def size(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.master, text.encode())

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            self.text += os.read(self.master, 65536).decode(errors="replace")

    def until(self, text, seconds=30):
        end = time.monotonic() + seconds
        while text not in self.text:
            if time.monotonic() > end:
                raise Failure(f"the terminal never showed {text!r}, but {self.text[-300:]!r}")
            self.read(0.2)

    def raw(self):
        return not termios.tcgetattr(self.slave)[3] & (termios.ICANON | termios.ECHO | termios.ISIG)

    def end(self, seconds=30):
        """Its exit status; negative: the signal."""
        end = time.monotonic() + seconds
        while self.p.poll() is None:
            if time.monotonic() > end:
                raise Failure(f"it does not end; the terminal shows {self.text[-300:]!r}")
            self.read(0.1)
        self.read(0)
        return self.p.returncode

    def restored(self):
        return termios.tcgetattr(self.slave) == self.was

    def close(self):
        if self.p.poll() is None:
            self.p.kill()
            self.p.wait()
        os.close(self.master)
        os.close(self.slave)


class Forward:
    """hanse port-forward, until it is interrupted."""

    def __init__(self, c, *words, at=()):
        self.p = subprocess.Popen([c.hanse, "port-forward", *words, *at], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  env={**os.environ, "KUBECONFIG": c.path("kubeconfig"), "ASAN_OPTIONS": "detect_leaks=1"})
        self.ports, self.said = [], []
        for _ in words[1:]:
            line = self.p.stdout.readline()
            if not line:
                raise Failure(f"port-forward ended: {self.p.stderr.read()[-500:]}")
            self.said.append(line.strip())
            self.ports.append(int(line.split(":")[1].split()[0]))

    def dial(self, i=0):
        return socket.create_connection(("127.0.0.1", self.ports[i]), timeout=60)

    def interrupt(self):
        """(exit status, standard output, standard error)"""
        self.p.send_signal(signal.SIGINT)
        try:
            out, err = self.p.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.p.kill()
            out, err = self.p.communicate()
        return self.p.returncode, out, err


def everything(s):
    got = b""
    while True:
        part = s.recv(65536)
        if not part:
            return got
        got += part


def begin(c):
    c.start()
    for name in ("serves", "other"):
        path = c.path("ports." + name)
        c.apply(c.workload(name, resources={"cpu": "100m", "memory": "256Mi"}, run={"command": [sys.executable, "-c", SERVER, path], "retries": 0}))
    c.at = {}
    for name in ("serves", "other"):
        path = c.path("ports." + name)
        wait_for(f"{name} to listen", lambda: os.path.exists(path), 30)
        with open(path, encoding="utf-8") as file:
            c.at[name] = file.read().split()
        wait_for(f"{name} to be Running", lambda: c.status(name).get("phase") == "Running", 30)


def terminals(c):
    t = Terminal(c, "exec", "-it", "serves", "--", "sh", "-c",
                 "trap 'stty size' WINCH; test -t 0 && test -t 1 && test -t 2 && stty size; while :; do sleep 0.05; [ ! -e \"$0\" ] || exit 7; done",
                 c.path("go"))
    t.until("31 97\r\n")
    c.check("its program has a terminal of the size of this one", True)
    c.check("which is raw meanwhile", t.raw())
    t.size(50, 132)
    t.until("50 132\r\n")
    c.check("the program is told of another size", True)
    t.size(65535, 5000)
    t.until("4096 4096\r\n")
    c.check("a size above the limit is cut to it, and the session goes on", True)
    with open(c.path("go"), "w", encoding="utf-8"):
        pass
    c.check("its exit status is the command's", t.end() == 7, t.text[-200:])
    c.check("the terminal is as it was", t.restored())
    t.close()
    t = Terminal(c, "exec", "serves", "-it", "--", "sh", "-c", "echo ready; exec cat")
    t.until("ready")
    t.type("typed\n")
    t.until("typed\r\ntyped\r\n")
    c.check("what is typed is shown by the terminal there, once", t.text.count("typed") == 2, repr(t.text))
    t.type("\x03")
    c.check("Ctrl-C goes to the program", t.end() == 130 and t.restored(), t.p.returncode)
    t.close()


def signals(c):
    for signo in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1):
        t = Terminal(c, "exec", "-it", "serves", "--", "sh", "-c", "echo ready; exec sleep 600")
        t.until("ready")
        wait_for("raw mode", t.raw, 10)
        t.p.send_signal(signo)
        c.check(f"{signo.name} ends it, and the terminal is as it was", t.end() == -signo and t.restored(), t.p.returncode)
        t.close()
    t = Terminal(c, "exec", "-it", "serves", "--", "sh", "-c", "echo ready; exec cat", job=c.path("job"))
    t.until("ready")
    wait_for("raw mode", t.raw, 10)
    with open(c.path("job"), encoding="utf-8") as file:
        job = int(file.read())
    os.kill(job, signal.SIGTSTP)
    wait_for("it to be stopped", lambda: open(f"/proc/{job}/stat", encoding="utf-8").read().rsplit(") ", 1)[1][0] == "T", 10)
    c.check("stopped: the terminal is as it was", t.restored())
    os.kill(job, signal.SIGCONT)
    wait_for("raw mode again", t.raw, 10)
    t.type("once more\n")
    t.until("once more\r\nonce more\r\n")
    c.check("and goes on", True)
    t.type("\x04")
    c.check("Ctrl-D ends the program's input", t.end() == 0 and t.restored(), t.p.returncode)
    t.close()
    done = c.cli_in("hello\n", "exec", "-it", "serves", "--", "sh", "-c", "read x; echo got $x; exit 4", check=False)
    c.check("without a terminal here it says so, and goes on", done.returncode == 4 and "got hello" in done.stdout and "is no terminal" in done.stderr,
            (done.returncode, done.stdout, done.stderr))
    t = Terminal(c, "exec", "-it", "nobody", "--", "true")
    c.check("what cannot be done is an error, on a terminal that is as it was", t.end() == 255 and "not found" in t.text and t.restored(), (t.p.returncode, t.text))
    t.close()


def many(c):
    f = Forward(c, "serves/0", *[":" + port for port in c.at["serves"]])
    c.check("it says what leads where", f.said == [f"Forwarding from 127.0.0.1:{f.ports[i]} -> {c.at['serves'][i]}" for i in range(3)], f.said)
    with open("/proc/net/tcp", encoding="utf-8") as file:
        table = [line.split()[1] for line in file.readlines()[1:]]
    c.check("it listens on 127.0.0.1 alone", all(f"0100007F:{p:04X}" in table and f"00000000:{p:04X}" not in table for p in f.ports))

    def one(i):
        data = hashlib.sha256(str(i).encode()).digest() * (1 << 15)
        with f.dial() as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            return everything(s) == data
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        good = list(pool.map(one, range(10)))
    c.check("ten connections at a time, 1 MB each there and back, after their own end", all(good), good)
    with f.dial(1) as s:
        c.check("a server that closes first: what it said, and the end", everything(s) == b"bye\n")
    with f.dial(2) as s:
        first = everything(s)
        s.sendall(b"x" * 300000)
        s.shutdown(socket.SHUT_WR)
        wait_for("the rest to have come", lambda: os.path.exists(c.path("ports.serves.half")), 20)
        with open(c.path("ports.serves.half"), encoding="utf-8") as file:
            n = wait_for("its length", file.read, 5)
        c.check("it ends its own side, and still takes ours", first == b"first\n" and n == "300000", (first, n))
    with f.dial() as s:  # breaks off: the other side hears of it
        s.sendall(b"x")
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    c.check("who breaks off harms nobody", one(99))
    busy = c.cli("port-forward", "serves", f"{f.ports[0]}:{c.at['serves'][0]}", check=False)
    c.check("a port that is in use here is refused with a sentence", busy.returncode != 0 and "in use by another program" in busy.stderr, busy.stderr)
    with f.dial() as s:
        s.sendall(b"x")
        code, out, err = f.interrupt()
        c.check("SIGINT ends it, with a connection open, as a success and without a word", code == 0 and not err, (code, err))
        c.check("it told of each connection", out.count(f"Handling connection for {f.ports[0]}\n") >= 12, out[-300:])


def refused(c):
    f = Forward(c, "serves", ":" + c.at["other"][0], ":1")
    for i, why in ((0, "not of this run"), (1, "no process listens on port 1 ")):
        with f.dial(i) as s:
            try:
                got = everything(s)
            except ConnectionResetError:
                got = b""
        c.check("nothing comes from where it may not lead", got == b"")
        line = f.p.stderr.readline()
        c.check(f"and it says why: {why.strip()}", why in line and line.startswith(f"error: port {f.ports[i]} -> "), line)
    c.check("it goes on until it is interrupted", f.p.poll() is None and f.interrupt()[0] == 0)
    for words, code, why in ((("nobody", "80"), 3, "not found"), (("serves/7", "80"), 3, "no rank 7"), (("serves", "0"), 2, "[LOCAL:]REMOTE"),
                             (("serves", "70000"), 2, "[LOCAL:]REMOTE"), (("serves", "a:80"), 2, "[LOCAL:]REMOTE"), (("serves",), 2, "which ports"),
                             (("serves/x", "80"), 2, "WORKLOAD/RANK")):
        done = c.cli("port-forward", *words, check=False)
        c.check(f"port-forward {' '.join(words)} is refused with a sentence", done.returncode == code and why in done.stderr, (done.returncode, done.stderr))
    c.cli("submit", "--name", "short", "--cpu", "100m", "--memory", "16Mi", "--", "/bin/true")
    c.ended("short")
    done = c.cli("port-forward", "short", "80", check=False)
    c.check("so is what does not run", done.returncode != 0 and "does not run: it is Succeeded" in done.stderr, done.stderr)
    words = c.cli("__complete", "--", "port-forward", "ser").stdout.split()
    c.check("completion knows workloads", words == ["serves"], words)
    c.check("and no ports", c.cli("__complete", "--", "port-forward", "serves", "").stdout == "")


def the_run_ends(c):
    f = Forward(c, "serves", ":" + c.at["serves"][0])
    with f.dial() as s:
        s.sendall(b"x")
        wait_for("the connection", lambda: "Handling" in f.p.stdout.readline(), 10)
        c.cli("delete", "workload", "serves")
        try:
            got = everything(s)
        except ConnectionResetError:
            got = b""
        c.check("a connection ends with the run", got in (b"", b"x"), got)
    f.interrupt()


def logs(c):
    """A line every 0.2 s, and what of them is asked for, at each member."""
    c.apply(c.workload("talks"))
    c.running("talks")
    wait_for("some lines", lambda: c.cli("logs", "talks").stdout.count("\n") > 12, 20)

    def times(*words):
        found = []
        for line in c.cli("logs", "talks", "--timestamps", *words).stdout.splitlines():
            stamp, _, text = line.partition(" ")
            found.append((datetime.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=datetime.timezone.utc).timestamp(), text))
        return found
    for context in CONTEXTS:
        at = ("--context", context)
        v = times(*at)
        c.check(f"{context}: each line has its time, in order, and the last one came just now",
                v[0][1] == "first line of talks" and all(a[0] <= b[0] for a, b in zip(v, v[1:])) and len({t for t, _ in v}) > 3 and abs(time.time() - v[-1][0]) < 5,
                (v[0], v[-1]))
        n = c.cli("logs", "talks", "--since", "1s", *at).stdout.splitlines()
        c.check(f"{context}: --since 1s gives the last ones alone", 1 <= len(n) < len(v) - 3 and n[0] != "first line of talks", len(n))
    middle = v[len(v) // 2][0]
    text = datetime.datetime.fromtimestamp(middle, datetime.timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    got = times("--since-time", text)
    c.check("--since-time gives all from then on", got[0][0] == middle and v[len(v) // 2][1] in [t for _, t in got], (text, got[:2]))
    c.check("with --tail the last of those", len(times("--since-time", text, "--tail", "2")) in (2, 3))
    for words, why in ((("--since", "soon"), "30s, 5m"), (("--since", "5m", "--since-time", text), "leave one out"), (("--since-time", "noon"), "write it as")):
        done = c.cli("logs", "talks", *words, check=False)
        c.check(f"logs {' '.join(words)} is refused with a sentence", done.returncode == 2 and why in done.stderr, done.stderr)


def main():
    hanse = os.environ.get("HANSE") or os.path.join(os.environ.get("HANSE_BUILD_DIR", ""), "hanse")
    if not os.access(hanse, os.X_OK):
        print("there is no hanse: set HANSE or HANSE_BUILD_DIR")
        return 77
    folder = tempfile.mkdtemp(prefix="hanse-ports-")
    c = Cluster(hanse, folder)
    return walk(c, folder, [begin, terminals, signals, many, refused, logs, the_run_ends])


if __name__ == "__main__":
    sys.exit(main())
