#!/usr/bin/env python3
"""An API server whose clock is hours off, whose certificate is made anew, and whose tokens change, each while work is dispatched: what runs
goes on, what is asked for runs once, times are told by the hub's clock, and a server that cannot be trusted is told as that."""
import calendar
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
sys.dont_write_bytecode = True
from kube_hub import TOKENS, Hub  # noqa: E402
from parts import run  # noqa: E402

HOURS = 3600


def utc(text):
    return calendar.timegm(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))


class Trust(Hub):
    ends = False
    many = 24

    def batch(self, word):
        return [f"{word}{i}" for i in range(self.many)]

    def made(self, names, least):
        """So many of them have a Job."""
        uids = [self.uid(n) for n in names]
        self.looks(f"{least} of them to have Jobs", lambda: sum(1 for u in uids if self.history.there("jobs", u)) >= least, 60, 0.05)

    def over(self, names):
        for n in names:
            self.finish(n)
        self.all_ended(names)
        self.once(*names)

    def a_clock_that_is_off(self):
        """Behind, then ahead: the session begins anew each time, as after a cut."""
        for hours in (-3, 3):
            before, names = time.time() - 2, self.batch("behind" if hours < 0 else "ahead")
            self.proxy.skew(hours * HOURS)
            self.proxy.cut("")
            self.work(*names)
            self.over(names)
            after, bad = time.time() + 2, {}
            for n, w in self.workloads().items():
                s = w.get("status", {})
                if n in names and not all(before <= utc(s.get(f, "1970-01-01T00:00:00")) <= after for f in ("startedAt", "endedAt")):
                    bad[n] = s
            self.check(f"a server {hours} hours off: times are the hub's", not bad, list(bad.items())[:2])
        self.proxy.skew(0)
        self.proxy.cut("")
        self.clean()

    def another_certificate(self):
        own, names = self.path("kube-other"), self.batch("cert")
        os.makedirs(own)
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
                "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", own + "/key", "-out", own + "/crt"]
        subprocess.run(made, check=True, capture_output=True)
        self.work("lives")
        self.phase("lives", "Running")
        self.work(*names)
        self.made(names, 3)
        self.proxy.certificate(own + "/crt", own + "/key")
        self.proxy.cut("")
        self.reached(status="False")
        told = self.looks("that to be told as what it is", lambda: "certificate" in (r := self.reach()).get("message", "") and r)
        self.check("a certificate that nobody vouches for is told as that", told["status"] == "False", told)
        self.check("what runs goes on", self.status("lives").get("epoch") == 1, self.status("lives"))
        self.secret("east", kubeconfig=self.east.kubeconfig(ca=own + "/crt"))
        self.reached()
        self.over(names + ["lives"])

    def another_token(self):
        names = self.batch("token")
        self.peer.call("POST", TOKENS, {"metadata": {"name": "second", "annotations": {"kubernetes.io/service-account.name": "hanse"}},
                                        "type": "kubernetes.io/service-account-token"})
        second = self.east.token("second")
        self.work(*names)
        self.made(names, 3)
        self.peer.call("DELETE", f"{TOKENS}/hanse-token")
        self.secret("east", kubeconfig=self.east.kubeconfig(token=second, ca=self.path("kube-other", "crt")))
        self.over(names)
        self.reached()
        self.clean()


if __name__ == "__main__":
    sys.exit(run(Trust, "kube-trust", [Trust.a_clock_that_is_off, Trust.another_certificate, Trust.another_token]))
