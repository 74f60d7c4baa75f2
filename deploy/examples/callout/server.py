#!/usr/bin/env python3
"""A callout target in one file, written from connectors/callout/README.md alone: it runs the commands that it is given as processes of
this machine. What it has accepted is on disk before anything starts, so it may be killed at any moment and started again.

    server.py --port 8640 --key-file KEY --state FOLDER [--nodes 2] [--gpus 4 | --counted 4 1g.10gb=7 1/4=8 | --nodes-file NODES.json]
              [--runner /usr/bin/hanse] [--offers OFFERS.json] [--principals PRINCIPALS.json]

With --counted its nodes tell how many devices they have, and no numbers of them, as a kubelet or Slurm does: whole GPUs, instances of a MIG
profile, shares of GPUs that so many are given at once. It picks them itself when an order comes, refuses one for which there is none, and
its program sees them in DEVICES.
With --principals every order has to name one of them, {"anna": {"token": "…", "user": "anna"}}, and bring its token where there is one. Its
program is started as that user (by root; without `user`, as who runs this server), and sees its name in PRINCIPAL.
With --offers it rents machines: groups of slots of this one, which take a while to boot, appear as a node each, and end themselves when
nobody renews them. A list of what there is: [{"class": "h100", "gpus": 8, "zone": "a", "market": "spot", "price": 12.5, "count": 4,
"boot": 2, "cpu": "64", "memory": "64Gi"}], with the currency EUR, read again whenever it is changed. FOLDER/machines/KEY.interrupt, with a
number of seconds in it, takes that machine away after them, as the owner of a spot machine does. With --runner, programs are started by `hanse run`, which calls home: they hold leases,
and keep checkpoints (spec.connection.runners of the Target); where they have no way home, it reports how they ended."""
import argparse
import hashlib
import hmac
import http.server
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

KEY = re.compile(r"^([A-Za-z0-9_-]{1,63})\.(\d{1,16})\.(\d{1,16})$")
STAGE_KEY = re.compile(r"^[0-9a-f]{1,64}$")
MACHINE_KEY = re.compile(r"^[A-Za-z0-9-]{1,63}$")
SKEW_MS, BODY_MAX, PAGE, CHANGES_KEPT, REPORT_MAX = 300_000, 16 << 20, 100, 10_000, 4096
# Whoever makes BEGUN first decides: the program, which then may run, or a server that found it not begun.
WRAPPER = 'mkdir "$1.begun" 2>/dev/null || exit 0; echo $$ > "$1.pid"; file=$1; shift; "$@"; echo $? > "$file.x" && mv "$file.x" "$file.exit"'

# `hanse run` writes down itself how its program ended.
RUNNER = 'mkdir "$1.begun" 2>/dev/null || exit 0; echo $$ > "$1.pid"; shift; exec "$@"'
RUNNER_PATIENCE_S = 10  # for a runner to end what it was told to end


class Refused(Exception):
    def __init__(self, status, message, **more):
        super().__init__(message)
        self.status, self.body = status, {"message": message, **more}


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def left_behind(path):
    """What a runner has written there, or its program: it is handed on, and never read."""
    try:
        with open(path, "rb") as file:
            return file.read(REPORT_MAX).decode("utf-8", "replace").replace("\0", "?")
    except FileNotFoundError:
        return ""


def write(path, text):
    """Whole, and on disk."""
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".tmp", path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def session_lives(sid):
    """Is a process of that session left?"""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[3] == str(sid) and fields[0] not in "ZX":
                return True
    return False


def said(run):
    """Of a worker's times the other side wants to know by which clock."""
    return {**run, "clock": int(time.time() * 1000)}


class Runs:
    """Every run that was ever accepted or promised, one file each."""

    def __init__(self, folder, runner=None, principals=None):
        self.principals = principals
        self.folder, self.runner, self.lock, self.gone, self.node = folder, runner, threading.Condition(), lambda node: False, lambda name: {}
        self.runs, self.children, self.changes, self.at = {}, {}, [], 0
        os.makedirs(folder, exist_ok=True)
        if not read(self.path("instance")):
            write(self.path("instance"), uuid.uuid4().hex)
        # The changes are not kept over a restart, so whoever asks after it is told to look for all again.
        self.uid = read(self.path("instance")).strip()
        self.instance = read(self.path("instance"))[:20] + "-" + uuid.uuid4().hex[:12]
        for name in sorted(os.listdir(folder)):
            if name.endswith(".json"):
                run = json.loads(read(self.path(name)))
                self.runs[run["key"]] = run
        with self.lock:
            for run in self.runs.values():
                if run["state"] in ("starting", "running"):
                    self.look(run, restarted=True)

    def path(self, *name):
        return os.path.join(self.folder, *name)

    def keep(self, run):
        write(self.path(run["key"] + ".json"), json.dumps(run))

    def told(self, run):
        self.at += 1
        self.changes = (self.changes + [(self.at, run["key"])])[-CHANGES_KEPT:]
        self.lock.notify_all()

    def look(self, run, restarted=False):
        """Reads from the outside what has become of a run."""
        files = self.path(run["key"])
        pid, exited, before, reports = read(files + ".pid").strip(), read(files + ".exit").strip(), run["state"], run.get("reports")
        if restarted and not pid:
            try:
                os.mkdir(files + ".begun")
                run.update(state="absent", proof="NeverStarted", message="the server ended before it began")
            except FileExistsError:  # its program begins this moment, or has begun
                for _ in range(100):
                    if pid := read(files + ".pid").strip():
                        break
                    time.sleep(0.05)
        if run["state"] in ("starting", "running") and pid:
            child = self.children.get(run["key"])
            if child:
                child.poll()
            lives = session_lives(pid)
            if run.get("reporting") and (text := left_behind(files + ".report")):
                run["reports"] = [text]
            if lives:
                run["state"] = "running"
            else:
                exited = read(files + ".exit").strip()
                if run.get("reporting") and child and child.poll() is not None:
                    exited = str(child.returncode if child.returncode >= 0 else 128 - child.returncode)
                if run.get("reporting") or not self.reported(run, read(files + ".report")):
                    run.update(state="ended", proof="ProcessTreeSearched", **({"exitCode": int(exited)} if exited else {"signal": 9}))
        if run["state"] in ("ended", "absent") and os.path.exists(files + ".proxy"):
            os.unlink(files + ".proxy")
        if run["state"] != before and run["state"] in ("running", "ended"):
            self.worker(run, pid)
        if run["state"] != before or run.get("reports") != reports or restarted:
            self.keep(run)
            self.told(run)

    def worker(self, run, pid):
        """One process runs here: a gang is refused. What is told of it is told of rank 0."""
        rank = run.setdefault("workers", [{"rank": 0}])[0]
        rank.setdefault("startedAt", int(time.time() * 1000))
        rank["id"] = f"{pid}@{read('/proc/sys/kernel/random/boot_id').strip()}"
        if run["state"] == "ended":
            rank.update(endedAt=int(time.time() * 1000), **{k: run[k] for k in ("exitCode", "signal") if k in run})

    def reported(self, run, text):
        """What its runner wrote down at the end; one that was killed has written nothing."""
        if not text:
            return False
        told = json.loads(text)
        if told.get("neverStarted"):
            run.update(state="absent", proof="NeverStarted", **{k: told[k] for k in ("reason", "message") if k in told})
            return True
        run.update(state="ended", proof="ProcessTreeSearched" if told.get("searched") else "ProcessTreeGone",
                   **{k: told[k] for k in ("exitCode", "signal", "stopped", "leaseLost", "reason", "message") if k in told},
                   **({"checkpoint": told["cut"]} if told.get("cut") else {}))
        return True

    def watch(self, nodes):
        while True:
            with self.lock:
                before = nodes.revision()
                nodes.look()
                if nodes.revision() != before:
                    self.lock.notify_all()
                for run in list(self.runs.values()):
                    if run["state"] not in ("starting", "running"):
                        continue
                    self.look(run)
                    if run["state"] == "running" and run.get("killAt", 1e18) <= time.time():
                        self.send(run, signal.SIGKILL)
            time.sleep(0.05)

    def newest(self, uid):
        return max((tuple(map(int, k.split(".")[1:])) for k in self.runs if k.split(".")[0] == uid), default=(-1, -1))

    def absent(self, key, about):
        uid, epoch, attempt = KEY.match(key).groups()
        run = {"key": key, "state": "absent", "proof": "NeverStarted", **{k: about[k] for k in ("cluster", "stateRv") if k in about}}
        if (int(epoch), int(attempt)) > self.newest(uid):
            self.runs[key] = run
            self.keep(run)
        return run

    # ---- devices that its nodes count -------------------------------------------------------------------

    @staticmethod
    def kind(worker, class_):
        """What it gets a number of: no two kinds have a device in common."""
        return worker.get("node", ""), class_, worker.get("mig", ""), bool(worker.get("shares"))

    def held(self, kind):
        """By those that live, so a server that was started again knows it, too."""
        return {d for run in self.runs.values() if run["state"] in ("starting", "running")
                for w in run.get("workers", []) if self.kind(w, run.get("class", "")) == kind for d in w.get("given", [])}

    def give(self, worker, class_, taken):
        """Picks devices for it; taken: what the same order has been given."""
        kind, node = self.kind(worker, class_), self.node(worker.get("node", ""))
        rows = [r for r in node.get("counted", []) if self.kind({**r, "node": kind[0]}, r.get("class", "")) == kind]
        others = sum(o["count"] for o in node.get("others", {}).get("classes", []) if self.kind({**o, "node": kind[0]}, o.get("class", "")) == kind)
        held = self.held(kind) | taken.setdefault(kind, set())
        free = [d for d in range(sum(r["count"] - r.get("unhealthy", 0) for r in rows)) if d not in held]
        if len(free) - others < worker["count"]:
            raise Refused(507, f"node {kind[0]} has no {worker['count']} of its {' '.join(str(k) for k in kind[1:3])} left",
                          **{"class": "capacity", "scope": "class", "name": class_})
        taken[kind] |= set(given := free[:worker["count"]])
        return {**worker, "given": given, **({} if kind[2] or kind[3] else {"gpus": given})}

    # ---- the requests -----------------------------------------------------------------------------------

    def submit(self, key, order):
        uid, epoch, attempt = KEY.match(key).groups()
        run = self.runs.get(key)
        if run and run["state"] != "absent":
            return run
        if run or (int(epoch), int(attempt)) <= self.newest(uid):
            raise Refused(409, "this key was promised to be refused, or a newer one is known", **{"class": "conflict"})
        if order.get("image"):
            raise Refused(422, "this target starts no containers", **{"class": "invalid", "scope": "workload"})
        if len(order.get("workers", [])) > 1:
            raise Refused(422, "this target starts one process for each order, and no gang", **{"class": "invalid", "scope": "workload"})
        if any(self.gone(w.get("node", "")) for w in order.get("workers", [])):
            raise Refused(503, "the machine that it was ordered on has ended")
        who = self.principal(order)
        argv = order.get("argv") or (["/bin/sh", "-c", order["script"]] if order.get("script") else None)
        if not argv:
            raise Refused(422, "this target runs argv or script", **{"class": "invalid", "scope": "workload"})
        argv = ["runuser", "-u", who["user"], "--", *argv] if who.get("user") else argv
        taken = {}
        if "workers" in order:
            order["workers"] = [self.give(w, order.get("class", ""), taken) if w.get("count") else w for w in order["workers"]]
        run = {"key": key, "state": "starting", "since": int(time.time() * 1000),
               **{k: order[k] for k in ("cluster", "stateRv", "namespace", "workload", "workers", "class", "principal") if k in order}}
        self.runs[key] = run
        self.keep(run)
        env = {**os.environ, **dict(e.split("=", 1) for e in order.get("env", [])),
               "HANSE_RUN_KEY": key, "HANSE_WORKLOAD_NAME": order.get("workload", ""), "PRINCIPAL": order.get("principal", ""),
               "DEVICES": " ".join(f"{w.get('node', '')}:{w.get('mig') or (w.get('shares') and 'share') or ''}:{d}"
                                   for w in order.get("workers", []) for d in w.get("given", []))}
        worker = (order.get("workers") or [{}])[0]
        at = {"HANSE_NODE": worker.get("node", ""), **({"HANSE_GPUS": ",".join(map(str, worker.get("gpus", [])))} if not worker.get("count") else {})}
        home, report = (order.get("home"), order.get("report")) if self.runner else (None, None)
        if home or report:
            argv = self.by_runner(key, home or {}, report, order, at, argv)
            run.update(home=home is not None, reporting=report is not None)
            self.keep(run)
        else:
            env.update(at)
        if not self.in_time(run, order):
            return run
        self.children[key] = subprocess.Popen(["/bin/sh", "-c", RUNNER if home or report else WRAPPER, "run", self.path(key)] + argv, env=env,
                                              cwd=order.get("cwd") or None, stdin=subprocess.DEVNULL, start_new_session=True)
        self.told(run)
        return run

    def in_time(self, run, order):
        """Right before it is started, on the machine that starts it. What a server finds here that was not begun is never begun."""
        by, at = order.get("startBy"), now_ms()
        if not by or order.get("startFrom", 0) <= at <= by:
            return True
        run.update(state="absent", proof="NeverStarted", **({"reason": "StartedTooLate", "message": "it came after its time to start"} if at > by else
                                                            {"reason": "ClockWrong", "message": "by the clock of this machine it is not ordered yet"}))
        self.keep(run)
        self.told(run)
        return False

    def principal(self, order):
        """In whose name it is to be started."""
        name = order.get("principal", "")
        if self.principals is None:
            if name:
                raise Refused(422, "this server starts nothing in anybody's name", **{"class": "invalid", "scope": "workload"})
            return {}
        who = self.principals.get(name)
        if who is None or not hmac.compare_digest(who.get("token", "").encode(), order.get("principalToken", "").encode()):
            raise Refused(403, f"nothing is started here in the name of \"{name[:64]}\"", **{"class": "authorisation", "scope": "workload"})
        return who

    @staticmethod
    def secret(path, text):
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)

    def by_runner(self, key, home, report, order, at, argv):
        files = self.path(key)
        self.secret(files + ".token", (home or report)["tokens"][0])
        form = "file:" if report else ""
        argv = ["--report", form + files + ".report", *(["--start-by", str(order["startBy"]), "--start-from", str(order.get("startFrom", 0))]
                                                        if order.get("startBy") else []), "--grace", str(order.get("graceMs", 30_000)), *home.get("options", []), "--"] + argv
        if not home:  # else the hub tells where it is: as it was ordered
            seat = ["--node", at["HANSE_NODE"], *(["--devices", at["HANSE_GPUS"]] if "HANSE_GPUS" in at else [])]
            return [self.runner, "run", "--token-file", files + ".token", *seat] + argv
        write(files + ".ca", home["ca"])
        proxy = ["--home-proxy", home["proxy"]] if home.get("proxy") else []
        if home.get("proxyAuth"):
            self.secret(files + ".proxy", home["proxyAuth"])
            proxy += ["--home-proxy-auth", files + ".proxy"]
        return [self.runner, "run", "--home", ",".join(home["addresses"]), "--home-ca", files + ".ca", "--token-file", files + ".token", *proxy] + argv

    def send(self, run, number):
        pid = read(self.path(run["key"] + ".pid")).strip()
        if pid and session_lives(pid):
            try:
                os.killpg(int(pid), number)
            except ProcessLookupError:
                pass

    def about(self, key, verb, body):
        run = self.runs.get(key)
        if verb == "delete":
            if run and run["state"] in ("ended", "absent") and not run.get("final"):
                run.pop("workers", None)
                run.pop("reports", None)
                run["final"] = True
                self.keep(run)
            return {}
        if not run:
            return self.absent(key, body)
        if verb == "claim":
            run["cluster"] = body.get("cluster", "")
            self.keep(run)
        elif verb == "signal":
            self.send(run, body.get("signal") or signal.SIGTERM)
        elif verb == "stop" and run["state"] in ("starting", "running"):
            patience = RUNNER_PATIENCE_S if run.get("home") or run.get("reporting") else 0
            run.update(stopped=True, killAt=min(run.get("killAt", 1e18), time.time() + body.get("graceMs", 0) / 1000 + patience))
            self.keep(run)
            if not body.get("told"):
                self.send(run, signal.SIGTERM)
        return run

    def since(self, after, wait, nodes):
        until, revision = time.monotonic() + min(wait, 20), nodes.revision()
        if after > self.at or (self.changes and after < self.changes[0][0] - 1):
            raise Refused(410, "that is not known any more")
        while self.at == after and nodes.revision() == revision and (left := until - time.monotonic()) > 0:
            self.lock.wait(left)
        keys = dict.fromkeys(k for at, k in self.changes if at > after)
        return {"instance": self.instance, "next": self.at, "revision": nodes.revision(), "runs": [said(self.runs[k]) for k in keys]}

    def listed(self, after):
        keys = sorted(k for k in self.runs if k > after)[:PAGE]
        return {"runs": [self.runs[k] for k in keys], **({"next": keys[-1]} if len(keys) == PAGE else {})}


def now_ms():
    return int(time.time() * 1000)


class Machines:
    """What was ordered, one file each. A key that was ever heard of stays: it gives one machine, or none."""

    FIELDS = ("class", "gpus", "zone", "market")
    LASTING = ("image", "maxPrice", "currency", "tags", "cluster", "pool", "timeToLiveMs")

    def __init__(self, folder, offers, runs):
        self.folder, self.path, self.runs, self.read_at, self.offers = folder, offers, runs, None, []
        os.makedirs(folder, exist_ok=True)
        self.machines = {m["key"]: m for m in (json.loads(read(os.path.join(folder, n))) for n in sorted(os.listdir(folder)) if n.endswith(".json"))}

    def file(self, key, kind="json"):
        return os.path.join(self.folder, f"{key}.{kind}")

    def keep(self, machine):
        write(self.file(machine["key"]), json.dumps(machine))
        self.machines[machine["key"]] = machine

    def told(self, machine):
        return {**{k: v for k, v in machine.items() if k not in ("order", "bootedAt", "takenAt")}, "clock": now_ms()}

    def fits(self, offer, order):
        return all(not order.get(f) or order[f] == offer.get(f) for f in self.FIELDS)

    # ---- the requests -----------------------------------------------------------------------------------

    def order(self, key, order):
        wanted = {k: order[k] for k in (*self.FIELDS, *self.LASTING) if k in order}
        known = self.machines.get(key)
        if known:
            if known.get("order") != wanted:
                raise Refused(409, "this key was ordered otherwise, or released", **{"class": "conflict", "scope": "workload"})
            return self.told(known)
        if order.get("image"):
            raise Refused(422, "machines of this target boot no image of others", **{"class": "invalid", "scope": "workload"})
        offers = [o for o in self.offers if self.fits(o, order)]
        if not offers:
            raise Refused(422, "no such machine is offered here", **{"class": "invalid", "scope": "workload"})
        blamed = {"scope": "zone", "name": order["zone"]} if order.get("zone") else {"scope": "class", "name": order.get("class", "")}
        if order.get("maxPrice") and order.get("currency", "EUR") != "EUR":
            raise Refused(422, "prices are in EUR here", **{"class": "invalid", "scope": "workload"})
        cheap = [o for o in offers if not order.get("maxPrice") or o["price"] <= order["maxPrice"]]
        if not cheap:
            raise Refused(507, f"it costs {min(o['price'] for o in offers)} EUR an hour", **{"class": "capacity", **blamed})
        free = [o for o in cheap if o["count"] > self.live(o)]
        if not free:
            raise Refused(507, "there is no such machine left", **{"class": "capacity", **blamed})
        offer = min(free, key=lambda o: o["price"])
        self.keep({"key": key, "order": wanted, "state": "booting", **{f: offer[f] for f in self.FIELDS if f in offer},
                   "cluster": order.get("cluster", ""), "pool": order.get("pool", ""), "id": "m-" + hashlib.sha256(key.encode()).hexdigest()[:12],
                   "billedFrom": now_ms(), "until": now_ms() + int(order["timeToLiveMs"]), "bootedAt": now_ms() + int(offer.get("boot", 1) * 1000),
                   "price": offer["price"], "currency": "EUR", "cpu": offer.get("cpu", "8"), "memory": offer.get("memory", "8Gi")})
        return self.told(self.machines[key])

    def live(self, offer):
        return sum(m["state"] != "ended" and all(m.get(f) == offer.get(f) for f in self.FIELDS) for m in self.machines.values())

    def release(self, key):
        machine = self.machines.get(key)
        if not machine:  # never to be given
            self.keep({"key": key, "state": "ended", "reason": "Released"})
        elif machine["state"] != "ended":
            self.end(machine, "Released")
        return self.told(self.machines[key])

    def renew(self, keys, ttl_ms):
        alive = [self.machines[k] for k in keys if k in self.machines]
        for machine in alive:
            if machine["state"] != "ended" and machine["until"] > now_ms() and not machine.get("reason"):
                machine["until"] = max(machine["until"], now_ms() + ttl_ms)
                self.keep(machine)
        return {"machines": [self.told(m) for m in alive]}

    def listed(self, after):
        keys = sorted(k for k in self.machines if k > after)[:PAGE]
        return {"machines": [self.told(self.machines[k]) for k in keys], **({"next": keys[-1]} if len(keys) == PAGE else {})}

    def prices(self):
        return {"currency": "EUR", "prices": [{**{f: o[f] for f in self.FIELDS if f in o}, "price": o["price"]} for o in self.offers]}

    # ---- their life -------------------------------------------------------------------------------------

    def end(self, machine, reason):
        """It is over once nothing of it runs: what is on it is killed, as when a machine is switched off."""
        machine["reason"] = machine.get("reason") or reason
        alive = [r for r in self.runs.runs.values() if r["state"] in ("starting", "running")
                 and any(w.get("node") == machine["id"] for w in r.get("workers", []))]
        for run in alive:
            self.runs.send(run, signal.SIGKILL)
        if not alive:
            machine.update(state="ended", billedTo=now_ms())
        self.keep(machine)

    def look(self):
        if self.path and (at := os.stat(self.path).st_mtime_ns) != self.read_at:
            try:
                self.offers, self.read_at = json.loads(read(self.path)), at
            except ValueError:  # it is being written
                pass
        for machine in [m for m in self.machines.values() if m["state"] != "ended"]:
            if seconds := read(self.file(machine["key"], "interrupt")).strip():
                os.unlink(self.file(machine["key"], "interrupt"))
                machine.update(state="noticed", takenAt=now_ms() + int(float(seconds) * 1000))
                self.keep(machine)
            if machine.get("reason") or now_ms() >= min(machine["until"], machine.get("takenAt", 1 << 60)):
                self.end(machine, "TimeToLive" if now_ms() >= machine["until"] else "TakenBack")
            elif machine["state"] == "booting" and now_ms() >= machine["bootedAt"]:
                machine["state"] = "joined"
                self.keep(machine)

    def nodes(self):
        for m in self.machines.values():
            if m["state"] in ("joined", "noticed") and not m.get("reason"):
                yield {"name": m["id"], "machine": m["key"], "cpu": m["cpu"], "memory": m["memory"], "capacity": m.get("market", "onDemand"),
                       **({"topology": {"zone": m["zone"]}} if m.get("zone") else {}),
                       "gpus": [{"index": g, "class": m["class"], "memory": "80Gi"} for g in range(m.get("gpus", 0))],
                       **({"takenAt": m["takenAt"]} if "takenAt" in m else {})}

    def gone(self, node):
        return any(m.get("id") == node and (m["state"] == "ended" or m.get("reason")) for m in self.machines.values())


class Stages:
    """Checkpoints that are looked at, by `hanse run --stage`, one process a key; what it printed is handed on unread. Nothing is kept on disk:
    who asks again after this server was started again is answered by another look."""

    AT_ONCE, KEPT_S, SAID_MAX = 4, 60, 8192

    def __init__(self, runner):
        self.runner, self.under_way = runner, {}

    def ask(self, key, document):
        for old in [k for k, s in self.under_way.items() if s["ended"] and s["ended"] + self.KEPT_S < time.time()]:
            del self.under_way[old]
        stage = self.under_way.get(key)
        if stage is None:
            if document.get("argv", [])[:2] != ["run", "--stage"]:
                raise Refused(422, "this server stages by hanse run --stage alone")
            if sum(not s["ended"] for s in self.under_way.values()) >= self.AT_ONCE:
                raise Refused(429, "enough checkpoints are read here at the moment")
            output = tempfile.TemporaryFile()
            process = subprocess.Popen([self.runner, *document["argv"]], env={**os.environ, **dict(e.split("=", 1) for e in document.get("env", []))},
                                       stdin=subprocess.DEVNULL, stdout=output)
            stage = self.under_way[key] = {"process": process, "output": output, "ended": None}
        if not stage["ended"]:
            if stage["process"].poll() is None:
                return {"key": key}
            stage["output"].seek(0)
            stage.update(ended=time.time(), said=stage["output"].read(self.SAID_MAX).decode("utf-8", "replace"))
            stage["output"].close()
        return {"key": key, "done": True, "said": stage["said"],
                **({} if stage["said"] else {"message": f"hanse run --stage ended with {stage['process'].returncode}, and said nothing"})}


class Nodes:
    """What this server offers. What changes of it gets a new revision, so that whoever knows an older one is told the difference."""

    def __init__(self, path, nodes, machines):
        self.path, self.read_at, self.number, self.own, self.machines = path, None, 0, nodes, machines
        self.mark = uuid.uuid4().hex[:8]  # revisions of a server that was started again are other ones
        self.nodes, self.changed = {}, {}  # name: node, or None when it is gone; name: number of its last change
        self.look()

    def revision(self):
        return f"{self.mark}.{self.number}"

    def take(self, nodes):
        now = {node["name"]: node for node in nodes}
        for name in [*now, *self.nodes]:
            if now.get(name) != self.nodes.get(name):
                self.number += 1
                self.nodes[name], self.changed[name] = now.get(name), self.number

    def look(self):
        """Reads the file again when it is another one: a list of nodes as `GET /v1/nodes` tells them. Machines that run are nodes, too."""
        if self.path and (at := os.stat(self.path).st_mtime_ns) != self.read_at:
            try:
                self.own, self.read_at = json.loads(read(self.path)), at
            except ValueError:  # it is being written
                pass
        self.machines.look()
        self.take([*self.own, *self.machines.nodes()])

    def shown(self, node):
        """When a node goes is told as a span from now on."""
        left = max(node.get("takenAt", 0) - now_ms(), 0)
        return {**{k: v for k, v in node.items() if k != "takenAt"}, **({"notice": {"kind": "spot", "in": f"{left}ms"}} if "takenAt" in node else {})}

    def listed(self, after):
        names = sorted(name for name, node in self.nodes.items() if node and name > after)[:PAGE]
        return {"revision": self.revision(), "nodes": [self.shown(self.nodes[name]) for name in names],
                **({"next": names[-1]} if len(names) == PAGE else {})}

    def since(self, revision):
        mark, _, number = revision.partition(".")
        if mark != self.mark or not number.isdigit() or int(number) > self.number:
            raise Refused(410, "that revision is not known any more")
        changed = [name for name, at in self.changed.items() if at > int(number)]
        return {"since": revision, "revision": self.revision(), "nodes": [self.shown(self.nodes[name]) for name in changed if self.nodes[name]],
                "removed": [name for name in changed if not self.nodes[name]]}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def sign(self, *parts):
        return hmac.new(self.server.key, "\n".join([*parts, ""]).encode(), hashlib.sha256).hexdigest()

    def authorised(self, body):
        date, told = self.headers.get("Hanse-Date", ""), self.headers.get("Hanse-Signature", "")
        wanted = self.sign("hanse-callout-v1", self.command, self.path, date, hashlib.sha256(body).hexdigest())
        return hmac.compare_digest(told, wanted) and abs(int(date) - time.time() * 1000) <= SKEW_MS

    def serve(self, body):
        path, _, query = self.path.partition("?")
        query = dict(p.partition("=")[::2] for p in query.split("&") if p)
        parts, runs = path.strip("/").split("/")[1:], self.server.runs
        document = json.loads(body) if body else {}
        with runs.lock:
            if self.command == "GET" and parts == ["hello"]:
                return {"version": 1, "instance": runs.instance, "uid": runs.uid, "next": runs.at, "runner": runs.runner is not None,
                        "checkpoints": runs.runner is not None, "proxies": runs.runner is not None, "reports": runs.runner is not None, "stages": runs.runner is not None, "repeats": True, "startBy": True, "principals": runs.principals is not None}
            if self.command == "GET" and parts == ["changes"]:
                return runs.since(int(query["after"]), int(query.get("wait", 0)), self.server.nodes)
            if self.command == "GET" and parts == ["nodes"]:
                nodes = self.server.nodes
                return nodes.since(query["since"]) if query.get("since") else nodes.listed(query.get("after", ""))
            if self.command == "GET" and parts == ["runs"]:
                return runs.listed(query.get("after", ""))
            if self.command == "PUT" and len(parts) == 2 and parts[0] == "stages" and STAGE_KEY.match(parts[1]) and runs.runner:
                return self.server.stages.ask(parts[1], document)
            if parts[:1] == ["machines"] or parts == ["prices"]:
                return self.machines(parts[1:], query, document) if parts[0] == "machines" else self.server.machines.prices()
            if len(parts) < 2 or parts[0] != "runs" or not KEY.match(parts[1]):
                raise Refused(404, "there is no such thing here")
            if self.command == "PUT" and len(parts) == 2:
                return said(runs.submit(parts[1], document))
            if self.command == "DELETE" and len(parts) == 2:
                return runs.about(parts[1], "delete", document)
            if self.command == "POST" and len(parts) == 3 and parts[2] in ("find", "signal", "stop", "claim"):
                return said(runs.about(parts[1], parts[2], document))
        raise Refused(404, "there is no such thing here")

    def machines(self, parts, query, document):
        machines = self.server.machines
        if self.command == "GET" and not parts:
            return machines.listed(query.get("after", ""))
        if self.command == "POST" and not parts:
            return machines.renew(document["keys"], int(document["timeToLiveMs"]))
        if len(parts) == 1 and MACHINE_KEY.match(parts[0]) and self.command in ("PUT", "DELETE"):
            return machines.order(parts[0], document) if self.command == "PUT" else machines.release(parts[0])
        raise Refused(404, "there is no such thing here")

    def handle_any(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > BODY_MAX:
            return self.close_with(413)
        body, status = self.rfile.read(length), 200
        try:
            if not self.authorised(body):
                raise Refused(401, "the signature or its date does not hold")
            answer = self.serve(body)
        except Refused as refused:
            status, answer = refused.status, refused.body
        except (ValueError, KeyError) as error:
            status, answer = 400, {"message": f"the request cannot be read: {error}"}
        return self.answer(status, json.dumps(answer).encode())

    def answer(self, status, body):
        mark = self.headers.get("Hanse-Signature", "")
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Hanse-Signature", self.sign("hanse-callout-v1 answer", mark, str(status), hashlib.sha256(body).hexdigest()))
        self.end_headers()
        self.wfile.write(body)

    def close_with(self, status):
        self.close_connection = True
        self.answer(status, b"{}")

    do_GET = do_PUT = do_POST = do_DELETE = handle_any


class Server(http.server.ThreadingHTTPServer):
    daemon_threads, allow_reuse_address = True, True

    def handle_error(self, request, client_address):  # the other side went away
        pass


def row(text):
    """Of a node's `counted`: "4", "1g.10gb=7" or "1/4=8"."""
    what, _, count = text.rpartition("=")
    of = {"shares": int(what[2:])} if what.startswith("1/") else {"mig": what} if what else {}
    return {"class": "h100", "memory": "80Gi", **of, "count": int(count)}


def main(handler=Handler):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--key-file", required=True, help="holds what requests and answers are signed with")
    p.add_argument("--state", required=True)
    p.add_argument("--nodes", type=int, default=1)
    p.add_argument("--gpus", type=int, default=0, help="of class h100, of each node")
    p.add_argument("--counted", nargs="+", default=[], metavar="ROW",
                   help="likewise, but by count alone: 4 whole ones, 1g.10gb=7 instances, or 1/4=8 shares")
    p.add_argument("--nodes-file", default="", help="a JSON list of nodes instead, read again whenever it is changed")
    p.add_argument("--offers", default="", help="a JSON list of the machines that may be rented")
    p.add_argument("--principals", default="", help="a JSON object of those in whose names programs are started")
    p.add_argument("--runner", help="hanse, whose `hanse run` starts the programs")
    a = p.parse_args()
    s = Server(("127.0.0.1", a.port), handler)
    s.key, s.runs = read(a.key_file).strip().encode(), Runs(
        os.path.abspath(a.state), a.runner, json.loads(read(a.principals)) if a.principals else None)
    s.stages = Stages(a.runner)
    s.machines = Machines(os.path.join(os.path.abspath(a.state), "machines"), a.offers, s.runs)
    s.runs.gone, s.runs.node = s.machines.gone, lambda name: s.nodes.nodes.get(name) or {}
    s.nodes = Nodes(a.nodes_file, [{"name": f"n{i + 1}", "cpu": "64", "memory": "64Gi",
                                    "gpus": [{"index": g, "class": "h100", "memory": "80Gi"} for g in range(a.gpus)],
                                    **({"counted": [row(text) for text in a.counted]} if a.counted else {})}
                                   for i in range(0 if a.nodes_file else a.nodes)], s.machines)
    threading.Thread(target=s.runs.watch, args=(s.nodes,), daemon=True).start()
    s.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
