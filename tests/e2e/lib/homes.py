"""A pool as in moves.py, with a callout target `rack` beside its agents, whose server starts programs by `hanse run --home`. Its runners,
and the agent of `right`, get to the hub through an HTTP proxy alone."""
import os
import signal
import socket
import sys

sys.dont_write_bytecode = True
from moves import TOP, Moves, document, wait_for  # noqa: E402
from connect_proxy import ConnectProxy  # noqa: E402
from federation import descendants  # noqa: E402

SECRET = "a-secret-of-thirty-two-letters-or-more"


class Homes(Moves):
    lease = "15s"

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        with open(self.path("key"), "w", encoding="utf-8") as file:
            file.write(SECRET)
        self.proxy = ConnectProxy("anna:s3cret")

    def agent_options(self, target):
        if target != "right":
            return []
        with open(self.path("login"), "w", encoding="utf-8") as file:
            file.write(self.proxy.login + "\n")
        return ["--proxy", self.proxy.url, "--proxy-auth", self.path("login")]

    def connection(self):
        return {"server": f"http://127.0.0.1:{self.port}", "credentialsFrom": {"secret": "rack"}, "runners": True, "homeProxy": self.proxy.url}

    def keeper(self):
        """What the server starts as hanse: it keeps a line of each look at a checkpoint."""
        with open(self.path("keeper"), "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\n[ \"$2\" != --stage ] || echo \"$*\" >> '{self.path('staged')}'\nexec '{self.hanse}' \"$@\"\n")
        os.chmod(self.path("keeper"), 0o755)
        return self.path("keeper")

    def staged(self):
        try:
            with open(self.path("staged"), encoding="utf-8") as file:
                return file.read().splitlines()
        except FileNotFoundError:
            return []

    def begin(self):
        super().begin()
        self.server = self._spawn("server", [
            sys.executable, os.path.join(TOP, "deploy", "examples", "callout", "server.py"), "--port", str(self.port), "--gpus", "4",
            "--key-file", self.path("key"), "--state", self.path("state-rack"), "--runner", self.keeper()],
            PATH=self.path("bin") + ":" + os.environ["PATH"], HANSE_TARGET="rack", HANSE_NODE="n1")
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "rack", "namespace": "hanse-system"},
                    "stringData": {"key": SECRET, "proxy": self.proxy.login}},
                   document("Target", "rack", {
                       "type": "callout", "tier": "spoke", "capacity": "owned", "jurisdiction": "DE", "priceSheet": "own",
                       "partition": {"suspectAfter": "2s", "lease": self.lease}, "connection": self.connection()}),
                   document("PlacementPolicy", "left-first", {"order": [{"targets": {"names": [n]}} for n in ("left", "rack", "right")]}))
        wait_for("rack to be connected", lambda: "rack" in self.connected(), 30)

    def stop(self):
        self.proxy.stop()
        for pid, _ in [(self.server.pid, 0)] + descendants(self.server.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.server.wait()
        super().stop()
