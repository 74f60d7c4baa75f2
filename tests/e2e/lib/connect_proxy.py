"""An HTTP proxy that does CONNECT alone, in threads of the test; or a real one (tinyproxy), where it is installed. It keeps a list of
what it was asked for, can ask for a user and a password, and can be cut off."""
import base64
import os
import select
import shutil
import socket
import subprocess
import threading


class ConnectProxy:
    def __init__(self, login=None, host="127.0.0.1"):
        self.host = host
        self.login, self.asked, self.refused, self.open, self.away = login, [], [], set(), False
        self.lock, self.listener = threading.Lock(), socket.create_server((host, 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.listen, daemon=True).start()

    @property
    def url(self):
        return f"http://{self.host}:{self.port}"

    def listen(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        try:
            with sock:
                sock.settimeout(30)
                head = b""
                while b"\r\n\r\n" not in head and len(head) < 65536:
                    more = sock.recv(4096)
                    if not more:
                        return
                    head += more
                self.answer(sock, head.split(b"\r\n\r\n")[0].decode("latin-1").split("\r\n"))
        except OSError:
            pass

    def answer(self, sock, lines):
        method, where, _ = lines[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        wanted = "Basic " + base64.b64encode(self.login.encode()).decode() if self.login else None
        status = ("405 No" if method != "CONNECT" else "502 Away" if self.away else
                  "407 Login" if wanted and headers.get("proxy-authorization") != wanted else "")
        out = None
        if not status:
            try:
                out = socket.create_connection(tuple(where.rsplit(":", 1)), 5)
            except OSError:
                status = "502 Not there"
        with self.lock:
            (self.refused if status else self.asked).append((where, status[:3]) if status else where)
        sock.sendall(f"HTTP/1.1 {status or '200 Connection established'}\r\nVia: 1.1 test\r\n\r\n".encode())
        if out:
            with out:
                self.carry(sock, out)

    def carry(self, *ends):
        with self.lock:
            self.open.update(ends)
        try:
            for end in ends:
                end.settimeout(None)
            while True:
                for end in select.select(ends, [], [])[0]:
                    data = end.recv(65536)
                    if not data:
                        return
                    ends[1 - ends.index(end)].sendall(data)
        finally:
            with self.lock:
                self.open.difference_update(ends)

    def cut(self, away=False):
        """All that goes through it breaks off; away: and what comes anew is refused, until it is called again."""
        with self.lock:
            self.away = away
            for end in self.open:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def stop(self):
        self.listener.close()
        self.cut(away=True)


class RealProxy:
    """tinyproxy; None from make() where it is not installed."""
    @staticmethod
    def make(folder, login):
        program = shutil.which("tinyproxy") or shutil.which("tinyproxy", path="/usr/sbin:/sbin")
        return RealProxy(program, folder, login) if program else None

    def __init__(self, program, folder, login):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        config, self.log = os.path.join(folder, "tinyproxy.conf"), os.path.join(folder, "tinyproxy.log")
        with open(config, "w", encoding="utf-8") as file:
            file.write(f"Port {self.port}\nListen 127.0.0.1\nAllow 127.0.0.1\nLogFile \"{self.log}\"\nLogLevel Connect\n"
                       f"BasicAuth {login.replace(':', ' ')}\nTimeout 600\n")
        self.process = subprocess.Popen([program, "-d", "-c", config], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def stop(self):
        self.process.kill()
        self.process.wait()
