#!/usr/bin/env python3
"""What a newcomer meets first: how soon a server is ready, how soon a submitted command runs, and what an idle server costs.

Everything is seen from outside: /readyz over TLS, the file that the program itself writes, /proc. Prints one JSON object.
The figure submit_to_running counts from the start of the `hanse submit` process to the file that the program makes.
The work folder must be on the disk that is meant to be measured: each step of a run is an fsync of the log.
"""
import argparse
import http.client
import json
import os
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import time

DEADLINE_S = 20


def binary():
    here = os.path.dirname(os.path.realpath(__file__))
    return os.environ.get("HANSE") or os.path.join(here, "../../build/release/hanse")


class Dev:
    """`hanse dev` in a folder; ended by its own pid."""

    def __init__(self, folder, hanse):
        self.dir, self.hanse = folder, hanse
        self.env = dict(os.environ, KUBECONFIG=folder + "/kubeconfig", HOME=folder)
        self.process = subprocess.Popen([hanse, "dev", "--dir", folder], env=self.env,
                                        stdout=subprocess.DEVNULL)

    def pid(self, name):
        return int(open(f"{self.dir}/{name}.pid").read())

    def argv(self, name):
        return open(f"/proc/{self.pid(name)}/cmdline").read().split("\0")[:-1]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE_S)


def until(what, look, pause_s=0.002):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        value = look()
        if value is not None:
            return value
        time.sleep(pause_s)
    sys.exit(f"first-run: {what} did not happen within {DEADLINE_S} s")


def ready(folder, port):
    tls = ssl.create_default_context(cafile=folder + "/pki/ca.crt")
    tls.load_cert_chain(folder + "/pki/admin.crt", folder + "/pki/admin.key")

    def look():
        try:
            c = http.client.HTTPSConnection("127.0.0.1", port, context=tls, timeout=2)
            c.request("GET", "/readyz")
            ok = c.getresponse().status == 200
            c.close()
            return True if ok else None
        except OSError:
            return None
    return look


def ports(folder):
    return int(open(folder + "/ports").read().split()[0])


def agent_connected(dev):
    p = subprocess.run([dev.hanse, "get", "targets"], env=dev.env, capture_output=True, text=True)
    return True if any(" True " in line for line in p.stdout.splitlines()) else None


def start_times(runs, hanse):
    """A member that begins an empty cluster, and the same member again: from exec to /readyz ok."""
    first, again = [], []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            dev = Dev(folder, hanse)
            try:
                until("the first start", lambda: os.path.exists(folder + "/m1.ready") or None)
                argv = dev.argv("m1")
            finally:
                dev.stop()
            argv.remove("--die-with-parent")
            fresh = list(argv)
            fresh[fresh.index("--data") + 1] = folder + "/fresh"
            fresh[fresh.index("--key-ring") + 1] = folder + "/fresh-ring"
            if "--bootstrap" not in fresh:
                fresh.append("--bootstrap")
            for args, times in ((fresh, first), (argv, again)):
                if times is again:
                    args = [a for a in args if a != "--bootstrap"]
                look = ready(folder, ports(folder))
                t = time.monotonic()
                server = subprocess.Popen(args, stderr=open(folder + "/log", "a"))
                until("ready", look)
                times.append((time.monotonic() - t) * 1000)
                server.terminate()
                server.wait(DEADLINE_S)
    return first, again


def run_times(runs, dev):
    """From the start of `hanse submit` to the program's first write."""
    out = dev.dir + "/began"
    shell = f": > {out}"
    times = []
    for i in range(runs):
        if os.path.exists(out):
            os.unlink(out)
        t = time.monotonic()
        subprocess.run([dev.hanse, "submit", "--name", f"first-{i}", "--", "/bin/sh", "-c", shell],
                       env=dev.env, check=True, stdout=subprocess.DEVNULL)
        until("the program's first write", lambda: os.path.exists(out) or None, 0.0005)
        times.append((time.monotonic() - t) * 1000)
        until("the end", lambda: True if "Succeeded" in subprocess.run(
            [dev.hanse, "get", "workload", f"first-{i}"], env=dev.env, capture_output=True,
            text=True).stdout else None, 0.05)
    return times


def rss_mb(pid):
    for line in open(f"/proc/{pid}/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return None


def cpu_ns(pid):
    """Of all threads, in nanoseconds; the ticks of stat are too coarse for one percent."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        total += int(open(f"/proc/{pid}/task/{task}/schedstat").read().split()[0])
    return total


def idle(seconds, pids):
    before = {n: cpu_ns(p) for n, p in pids.items()}
    time.sleep(seconds)
    return {n: ((cpu_ns(p) - before[n]) / 1e7 / seconds, rss_mb(p)) for n, p in pids.items()}


def row(name, value, unit):
    return {"name": name, "value": round(value, 3), "unit": unit, "peer": None, "peer_value": None,
            "ratio": None}


def spread(name, values):
    values = sorted(values)
    return [row(name + "_p50", statistics.median(values), "ms"),
            row(name + "_max", values[-1], "ms")]


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--runs", type=int, default=10)
    a.add_argument("--seconds", type=float, default=20)
    o = a.parse_args()
    hanse = os.path.realpath(binary())
    first, again = start_times(o.runs, hanse)
    results = spread("server_first_start_to_ready", first) + spread("server_restart_to_ready", again)
    with tempfile.TemporaryDirectory() as folder:
        dev = Dev(folder, hanse)
        try:
            until("the first start", lambda: os.path.exists(folder + "/m1.ready") or None)
            until("the agent's session", lambda: agent_connected(dev), 0.05)
            pids = {"server": dev.pid("m1"), "agent": dev.pid("agent-local")}
            for name, (cpu, rss) in idle(o.seconds, pids).items():
                results += [row(f"{name}_idle_cpu", cpu, "% of a core"),
                            row(f"{name}_idle_rss", rss, "MiB")]
            results += spread("submit_to_running", run_times(o.runs, dev))
        finally:
            dev.stop()
    print(json.dumps({"name": "first-run", "parameters": vars(o), "results": results}, indent=1))


main()
