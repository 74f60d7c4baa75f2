#!/usr/bin/env python3
"""A target that is somebody else's server (connectors/callout): the real binary, a real server that was written from its README, real
processes. Answers are lost, late, half, wrong, unsigned, endless; the server is killed and comes back; it is away. Whatever happens,
what was asked for runs once: each program holds a lock while it lives, and writes a line for each life."""
import json
import os
import signal
import socket
import subprocess
import sys
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "deploy", "examples", "three-tier"))
sys.path.insert(0, os.path.join(TOP, "tests", "e2e", "lib"))
sys.dont_write_bytecode = True
from federation import Federation, wait_for  # noqa: E402
from parts import run  # noqa: E402

API, SECRET, TOKEN = "hanse.dev/v1alpha1", "a-secret-of-thirty-two-letters-or-more", "annas-own-token"
OVER = ("Succeeded", "Failed", "Cancelled")
PROGRAM = """exec 9>>"{dir}/lock.$HANSE_WORKLOAD_NAME"
flock -n 9 || {{ echo "double $HANSE_RUN_KEY" >> "{dir}/witness"; exit 9; }}
echo "start $HANSE_RUN_KEY $HANSE_WORKLOAD_NAME" >> "{dir}/witness"
i=0
while [ ! -e "{dir}/go.$HANSE_WORKLOAD_NAME" ] && [ $i -lt {ticks} ]; do sleep 0.1; i=$((i+1)); done
echo "end $HANSE_RUN_KEY $HANSE_WORKLOAD_NAME" >> "{dir}/witness"
exit {code}
"""
NODE = {"name": "n1", "cpu": "64", "memory": "64Gi"}
FAULTS = ("lost", "late", "html", "unsigned", "redirect", "half", "other", "huge", "trickle", "deaf", "500", "busy")


def document(kind, name, spec, **meta):
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


class Callout(Federation):
    def __init__(self, hanse, folder):
        super().__init__(hanse, "/bin/false", folder, targets=(), members=1)
        self.failed, self.server = 0, None
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        for name, text in (("key", SECRET), ("faults", ""), ("witness", ""), ("nodes", json.dumps([NODE]))):
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(text)

    def check(self, what, good, detail=""):
        self.failed += not good
        print(f"  {'ok    ' if good else 'FAILED'}  {what}" + (f": {detail}" if detail != "" else ""), flush=True)

    def serve(self):
        self.server = self._spawn("server", [sys.executable, os.path.join(TOP, "tests", "e2e", "lib", "callout_bad.py"),
                                             "--port", str(self.port), "--key-file", self.path("key"), "--state", self.path("state"),
                                             "--nodes-file", self.path("nodes")],
                                  FAULTS=self.path("faults"))

    def kill_server(self):
        self.server.kill()
        self.server.wait()

    def faults(self, *lines):
        with open(self.path("faults"), "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))

    def apply(self, *documents, check=True):
        return self.cli("apply", "-f", "-", check=check, text="---\n".join(json.dumps(d) + "\n" for d in documents))

    def target(self, server=None, **connection):
        return document("Target", "rack", {
            "type": "callout", "tier": "spoke", "capacity": "owned", "partition": {"suspectAfter": "2s"},
            "connection": {"server": server or f"http://127.0.0.1:{self.port}", "credentialsFrom": {"secret": "rack"}, **connection}})

    def work(self, name, ticks=1, code=0, **spec):
        program = PROGRAM.format(dir=self.dir, ticks=ticks, code=code)
        self.apply(document("Workload", name, {
            "type": "batch", "targets": {"names": ["rack"]}, "resources": {"cpu": 1, "memory": "64Mi"},
            "run": {"command": ["/bin/sh", "-c", program], "retries": 0}, **spec}, namespace="default"))

    def phase(self, name, *wanted, seconds=90):
        return wait_for(f"{name} to be {' or '.join(wanted)}", lambda: (s := self.status(name)).get("phase") in wanted and s, seconds, 0.2)

    def lives(self, name, word="start"):
        with open(self.path("witness"), encoding="utf-8") as file:
            return [line.split()[1] for line in file if line.split()[0] == word and line.split()[2:] == [name]]

    def go(self, name):
        with open(self.path("go." + name), "w", encoding="utf-8"):
            pass

    # ---- parts ------------------------------------------------------------------------------------------

    def begin(self):
        self.start_members()
        self.serve()
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "rack", "namespace": "hanse-system"},
                    "stringData": {"key": SECRET, "token": "a-bearer-token-besides"}}, self.target())
        wait_for("the target to be connected", lambda: "rack" in self.connected(), 30)

    def runs_and_tells_the_end(self):
        self.work("good")
        self.work("bad", code=3)
        self.check("what ends with 0 succeeds", self.phase("good", *OVER)["phase"] == "Succeeded")
        self.check("what ends with 3 fails", self.phase("bad", *OVER)["phase"] == "Failed")
        ends = self.status("good").get("ends", [{}])
        worker = (self.status("bad").get("workers") or [{}])[0]
        self.check("its worker is told of", worker.get("exitCode") == 3 and "@" in worker.get("id", "") and worker.get("node", "").startswith("rack.")
                   and worker.get("startedAt", "") and worker["startedAt"] <= worker.get("endedAt", ""), worker)
        text = self.cli("describe", "workload", "bad").stdout
        row = [line.split() for line in text.split("Workers:")[-1].splitlines()[2:3]]
        self.check("describe names its node, id and exit", row and row[0][1] == worker.get("node") and row[0][-1] == worker.get("id")
                   and row[0][5] == "3", text[:1500])
        def final():
            with open(self.path("state", f"{self.lives('bad')[0]}.json"), encoding="utf-8") as file:
                return json.load(file).get("final")
        self.check("the server hears that the log has its end", wait_for("that it is final", final, 30))
        self.check("the end has the server's proof", ends[-1].get("proof") == "ProcessTreeSearched", ends[-1].get("proof"))

    def refuses_what_it_has_not(self):
        for what, connection in (("http to another machine", {"server": "http://192.0.2.1:80"}), ("no Secret", {"credentialsFrom": None}),
                                 ("a user", {"user": "x"})):
            done = self.apply(self.target(**connection), check=False)
            self.check(f"{what} is refused", done.returncode != 0 and "callout" in done.stderr and "target" in done.stderr, done.stderr.strip()[:120])
        done = self.cli("logs", "good", check=False)
        self.check("logs are refused with a sentence", done.returncode != 0 and "no runners that call home" in done.stderr, done.stderr.strip()[:120])
        done = self.cli("exec", "good", "--", "true", check=False)
        self.check("exec is refused with a sentence", done.returncode != 0 and "has no exec" in done.stderr, done.stderr.strip()[:120])
        self.work("saver", checkpoint={"store": self.path("checkpoints")})
        self.work("replacer", partition={"mode": "replace"})
        for name, word in (("saver", "nothing on this target keeps checkpoints"), ("replacer", "nothing on this target stops itself")):
            self.phase(name, "Queued")
            said = wait_for(f"the decision on {name}", lambda n=name: (t := self.cli("explain", n, check=False).stdout) and "rack" in t and t, 30)
            self.check(f"{name} is not placed there, with the reason", word in said, "" if word in said else said[:300])

    def a_second_target_at_its_server(self):
        """What the server has must not count twice: the younger Target is refused, by each leader, until the older one is gone."""
        def reach(name):
            found = json.loads(self.cli("get", "targets", name, "-o", "json").stdout).get("status", {})
            return next((c for c in found.get("conditions", []) if c["type"] == "Connected"), {})
        def nodes():
            return sorted(n["metadata"]["name"] for n in json.loads(self.cli("get", "nodes", "-o", "json").stdout)["items"])
        before, twin = nodes(), self.target()
        twin["metadata"]["name"] = "again"
        self.apply(twin)
        said = wait_for("again to be refused", lambda: "count twice" in (r := reach("again")).get("message", "") and r, 30)
        self.check("a second Target at one server is refused, and says by which", said["status"] == "False" and "Target rack" in said["message"], said)
        self.check("no node is listed twice", nodes() == before, nodes())
        self.check("the first one stays", reach("rack").get("status") == "True", reach("rack"))
        self.cli("delete", "target", "rack")
        wait_for("again to be connected", lambda: reach("again").get("status") == "True", 30)
        self.apply(self.target())
        wait_for("rack to be refused", lambda: "Target again" in reach("rack").get("message", ""), 30)
        said = self.cli("delete", "target", "again", "--leave-behind").stderr
        self.check("who gives up on what is kept there is told so", "target/again: what Hanse keeps there" in said, said)
        wait_for("rack to be connected", lambda: reach("rack").get("status") == "True", 30)
        self.check("the younger one has its turn once the older one is gone", True)

    def answers_that_are_none(self):
        for fault in FAULTS:
            self.faults(f"submit {fault}")
            name = f"submit-{fault}"
            self.work(name)
            phase = self.phase(name, *OVER)["phase"]
            self.check(f"submit, {fault}: it succeeds, and ran once", phase == "Succeeded" and len(self.lives(name)) == 1,
                       f"{phase}, {len(self.lives(name))} lives")

    def orders_that_never_came(self):
        for n in (1, 3):
            self.faults(*["submit vanish"] * n)
            name = f"vanished-{n}"
            self.work(name)
            phase = self.phase(name, *OVER)["phase"]
            self.check(f"{n} times not handed on: the same order came in the end, and ran once, in its first try", phase == "Succeeded" and
                       [key.split(".")[1:] for key in self.lives(name)] == [["1", "1"]], f"{phase}, {self.lives(name)}")
        told = self.cli("describe", "workload", "vanished-3").stdout
        self.check("an Event says for what it waited", "NotAnswered" in told and "what became of its order is not known" in told, told[-600:])

    def two_bad_answers_in_a_row(self):
        for faults in (("submit lost", "find html"), ("submit html", "find other"), ("submit half", "find lost")):
            self.faults(*faults)
            name = "-".join(w for f in faults for w in f.split())
            self.work(name)
            phase = self.phase(name, *OVER)["phase"]
            self.check(f"{', '.join(faults)}: it succeeds, and ran once", phase == "Succeeded" and len(self.lives(name)) == 1,
                       f"{phase}, {len(self.lives(name))} lives")

    def stops(self):
        for fault in ("", "lost", "html", "other"):
            name = f"stop-{fault or 'good'}"
            self.work(name, ticks=6000)
            self.phase(name, "Running")
            wait_for(f"{name} to live", lambda n=name: self.lives(n), 20)
            self.faults(*[f"stop {fault}", f"signal {fault}"] if fault else [])
            self.cli("delete", "workload", name)
            wait_for(f"{name} to be gone", lambda n=name: n not in self.workloads(), 60)
            free = subprocess.run(["flock", "-n", self.path("lock." + name), "true"], check=False).returncode == 0
            self.check(f"deleted, {fault or 'well answered'}: its program is gone", free and not self.lives(name, "end"))

    def the_server_dies_and_comes_back(self):
        self.work("over-restart", ticks=6000)
        wait_for("over-restart to live", lambda: self.lives("over-restart"), 30)
        self.kill_server()
        self.work("meanwhile")
        self.serve()
        self.go("over-restart")
        for name in ("over-restart", "meanwhile"):
            phase = self.phase(name, *OVER)["phase"]
            self.check(f"{name} succeeds, and ran once", phase == "Succeeded" and len(self.lives(name)) == 1, phase)

    def an_end_that_is_taken_back(self):
        """The server lists a run as alive that it had called ended, and the log has its end."""
        self.work("taken-back")
        self.phase("taken-back", "Succeeded")
        key, spent = self.lives("taken-back")[0], self.status("taken-back").get("spent")
        time.sleep(2.5)  # a list that was on its way meanwhile is no lie
        self.kill_server()
        with open(self.path("faults.denied"), "w", encoding="utf-8") as file:
            file.write(key)
        self.serve()
        wait_for("the run to be stopped by its key", lambda: os.path.exists(self.path("faults.stopped")), 30)
        with open(self.path("faults.stopped"), encoding="utf-8") as file:
            self.check("it is stopped by its key", file.read() == key)
        def consistent():
            found = json.loads(self.cli("get", "targets", "rack", "-o", "json").stdout)["status"]["conditions"]
            return next((c for c in found if c["type"] == "Consistent"), {})
        said = wait_for("the Target to say so", lambda: consistent().get("status") == "False" and consistent(), 30)
        self.check("its Target says what it took back", said["reason"] == "EndDenied" and key in said["message"] and "default/taken-back" in said["message"], said)
        events = wait_for("the Events", lambda: (e := [x for x in self.cli("get", "events", "-A").stdout.splitlines() if "EndDenied" in x]) and len(e) > 1 and e, 30)
        self.check("Events tell it, of the Target and of the Workload", any("rack" in e for e in events) and any("taken-back" in e for e in events), events)
        wait_for("nothing of it to be listed any more", lambda: key not in self.cli("get", "orphans").stdout, 30)
        now = self.status("taken-back")
        self.check("it stays as it ended: one life, no second charge", now["phase"] == "Succeeded" and now.get("spent") == spent
                   and len(self.lives("taken-back")) == 1, f"{now['phase']}, {now.get('spent')} and {spent}")

    def a_row_that_cannot_be_read(self):
        """One run is listed in a state that there is not: all else goes on, and people hear of it."""
        def refused():
            found = json.loads(self.cli("get", "targets", "rack", "-o", "json").stdout)["status"]["conditions"]
            return next((c for c in found if c["type"] == "RunsRefused"), {})
        self.work("not-read", ticks=6000)
        wait_for("not-read to live", lambda: self.lives("not-read"), 30)
        self.phase("not-read", "Running")
        key = self.lives("not-read")[0]
        self.kill_server()
        with open(self.path("faults.zombie"), "w", encoding="utf-8") as file:
            file.write(key)
        self.serve()
        said = wait_for("the Target to say so", lambda: refused().get("status") == "True" and refused(), 60)
        self.check("its Target says which run cannot be read, and why", key in said["message"] and "zombie" in said["message"], said)
        told = wait_for("the Event", lambda: [x for x in self.cli("get", "events", "-A").stdout.splitlines() if "RunNotRead" in x], 30)
        self.check("an Event of the Workload says it", any("not-read" in x for x in told), told)
        self.work("beside-it")
        self.check("other work goes on", self.phase("beside-it", *OVER)["phase"] == "Succeeded")
        self.kill_server()
        os.remove(self.path("faults.zombie"))
        self.serve()
        wait_for("all to be readable", lambda: not refused(), 60)
        self.go("not-read")
        self.check("it goes on, and ran once", self.phase("not-read", *OVER)["phase"] == "Succeeded" and len(self.lives("not-read")) == 1)

    def the_server_is_away(self):
        self.work("over-silence", ticks=6000)
        wait_for("over-silence to live", lambda: self.lives("over-silence"), 30)
        self.phase("over-silence", "Running")
        self.server.send_signal(signal.SIGSTOP)
        self.phase("over-silence", "Unknown")
        wait_for("the status to call its target unreachable", lambda: any(
            x.startswith("rack ") and x.split()[-1] == "unreachable" for x in self.cli("status").stdout.splitlines()), 60)
        self.check("it is Unknown, and not started elsewhere", len(self.lives("over-silence")) == 1)
        self.server.send_signal(signal.SIGCONT)
        self.phase("over-silence", "Running")
        self.go("over-silence")
        self.check("it goes on and succeeds", self.phase("over-silence", *OVER)["phase"] == "Succeeded")
        self.check("it ran once", len(self.lives("over-silence")) == 1)

    def nodes(self, *nodes):
        with open(self.path("nodes.new"), "w", encoding="utf-8") as file:
            json.dump(nodes, file)
        os.rename(self.path("nodes.new"), self.path("nodes"))

    def node(self, name):
        done = self.cli("get", "nodes", name, "-o", "json", check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def nodes_asked(self):
        with open(self.path("faults.nodes"), encoding="utf-8") as file:
            return file.read().splitlines()

    def nodes_change_by_delta(self):
        wait_for("rack.n1 to be listed", lambda: self.node("rack.n1"), 30)
        time.sleep(1)
        before = len(self.nodes_asked())
        self.nodes({**NODE, "cpu": "1"}, {**NODE, "name": "n2", "cpu": "128"})
        wait_for("rack.n2 to come", lambda: self.node("rack.n2"), 30)
        self.check("rack.n1 has less CPU with it", self.node("rack.n1")["spec"]["cpu"] in (1, "1"), self.node("rack.n1")["spec"]["cpu"])
        self.work("large", resources={"cpu": 100, "memory": "64Mi"})
        self.check("what the new node alone has room for runs", self.phase("large", *OVER)["phase"] == "Succeeded" and len(self.lives("large")) == 1)
        self.nodes(NODE)
        wait_for("rack.n2 to be gone", lambda: not self.node("rack.n2"), 30)
        self.check("rack.n1 is as it was", self.node("rack.n1")["spec"]["cpu"] in (64, "64"), self.node("rack.n1")["spec"]["cpu"])
        asked = self.nodes_asked()[before:]
        self.check("it was asked for changes alone", asked and all("since=" in path for path in asked), " ".join(asked))

    def others_hold_what_they_hold(self):
        gpus = [{"index": i, "class": "h100", "memory": "80Gi"} for i in range(4)]
        self.nodes({**NODE, "gpus": gpus, "others": {"cpu": "60", "memory": "1Gi", "gpus": [0], "classes": [{"class": "h100", "count": 2}]}})
        wait_for("what others hold of rack.n1", lambda: self.node("rack.n1").get("status", {}).get("others"), 30)
        self.work("one-gpu", resources={"gpu": {"count": 1}})
        self.check("what is left is used", self.phase("one-gpu", *OVER)["phase"] == "Succeeded")
        for name, resources in (("two-gpus", {"gpu": {"count": 2}}), ("five-cpus", {"cpu": 5})):
            self.work(name, resources=resources)
            said = wait_for(f"the decision on {name}", lambda n=name: (t := self.cli("explain", n, check=False).stdout) and "rack" in t and t, 30)
            self.check(f"{name} waits for others, with the reason", self.phase(name, "Queued") and "HeldByOthers" in said
                       and "others than Hanse hold" in said, said[:400])
        wide = self.cli("get", "nodes", "rack.n1", "-o", "wide").stdout.splitlines()
        self.check("get -o wide shows it", "OTHERS-GPUS" in wide[0] and {"3", "60", "1Gi"} <= set(wide[-1].split()), wide[-1:])
        told = self.cli("describe", "node", "rack.n1").stdout
        self.check("describe shows it", "othersGpus: 3" in told, "" if "othersGpus: 3" in told else told[-800:])
        self.nodes({**NODE, "gpus": gpus, "others": {"cpu": "8", "gpus": [3]}})
        for name in ("two-gpus", "five-cpus"):
            self.check(f"{name} runs once they are gone", self.phase(name, *OVER)["phase"] == "Succeeded")
        self.nodes({**NODE, "others": {"gpus": [0]}})
        wait_for("a node whose others cannot be to be NotReady", lambda: self.node("rack.n1")["status"].get("health") == "NotReady", 30)
        self.check("with the reason", "others hold GPU 0" in self.node("rack.n1")["status"].get("reason", ""), self.node("rack.n1")["status"])
        self.nodes(NODE)
        wait_for("rack.n1 to be Ready", lambda: self.node("rack.n1")["status"].get("health") == "Ready", 30)

    def runs_go_by_their_principals(self):
        """A second server, which starts programs in the names of two principals alone."""
        with open(self.path("names"), "w", encoding="utf-8") as file:
            json.dump({"anna": {"token": TOKEN}, "ben": {}}, file)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        server = self._spawn("server-2", [sys.executable, os.path.join(TOP, "tests", "e2e", "lib", "callout_bad.py"), "--port", str(port),
                                          "--key-file", self.path("key"), "--state", self.path("state-2"), "--nodes-file", self.path("nodes"),
                                          "--principals", self.path("names")], FAULTS=self.path("faults"))
        target = self.target(f"http://127.0.0.1:{port}")
        target["metadata"]["name"] = "named"
        target["spec"]["principals"] = [{"name": "anna", "namespaces": ["default"], "credentialsFrom": {"secret": "anna"}},
                                        {"name": "ben", "namespaces": ["team-b"]}]
        self.apply(target, *[{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": n}} for n in ("team-b", "team-c")])
        wait_for("the second target to be connected", lambda: "named" in self.connected(), 30)

        def work(name, namespace):
            self.apply(document("Workload", name, {
                "type": "batch", "targets": {"names": ["named"]}, "resources": {"cpu": 1, "memory": "64Mi"},
                "run": {"command": ["/bin/sh", "-c", f'echo "$PRINCIPAL" > "{self.path("by." + name)}"'], "retries": 0}}, namespace=namespace))

        def of(name, namespace):
            done = self.cli("get", "workloads", name, "-n", namespace, "-o", "json", check=False)
            return json.loads(done.stdout).get("status", {}) if done.returncode == 0 else {}

        def by(name, namespace):
            wait_for(f"{name} to be over", lambda: of(name, namespace).get("phase") in OVER, 60)
            with open(self.path("by." + name), encoding="utf-8") as file:
                return file.read().strip()
        work("by-anna", "default")
        wait_for("her missing Secret to be told", lambda: "for its principal anna" in json.dumps(of("by-anna", "default")).replace("\\", ""), 60)
        self.check("without her Secret nothing starts in her name", not os.path.exists(self.path("by.by-anna")))
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "anna", "namespace": "hanse-system"}, "stringData": {"token": TOKEN}})
        work("by-ben", "team-b")
        work("by-none", "team-c")
        self.check("a run goes by the name of its namespace's principal", by("by-ben", "team-b") == "ben")
        work("by-anna-2", "default")
        self.check("and with her own token", by("by-anna-2", "default") == "anna")
        said = wait_for("the decision", lambda: (t := self.cli("explain", "by-none", "-n", "team-c", check=False).stdout) and "named" in t and t, 30)
        self.check("a namespace that nobody stands for is not placed, with the reason",
                   "NoPrincipal" in said and "nobody for namespace team-c" in said and not os.path.exists(self.path("by.by-none")), said[:600])
        told = self.cli("get", "workloads", "by-anna-2", "-o", "yaml").stdout + self.cli("get", "events", "-o", "yaml").stdout
        for folder in ("state-2", "log"):
            for name in os.listdir(self.path(folder)):
                if os.path.isfile(self.path(folder, name)):
                    with open(self.path(folder, name), encoding="utf-8", errors="replace") as file:
                        told += file.read()
        self.check("her token is in no status, no Event, no log and no file of the server", TOKEN not in told)
        self.cli("delete", "workload", "by-none", "-n", "team-c")
        server.kill()
        server.wait()

    def what_is_wrong_is_told(self):
        gpus = [{"index": i, "class": "h100", "memory": "80Gi"} for i in range(2)]
        self.nodes({**NODE, "gpus": gpus})
        wait_for("rack.n1 to have GPUs", lambda: self.node("rack.n1").get("spec", {}).get("gpus"), 30)
        self.work("on-both", ticks=6000, resources={"gpu": {"count": 2}})
        self.phase("on-both", "Running")
        self.nodes({**NODE, "gpus": gpus, "faults": [{"gpu": 1, "reason": "Xid79", "source": "dcgmXid", "message": "fallen off the bus"}]})
        fault = wait_for("its fault", lambda: (self.node("rack.n1").get("status", {}).get("faults") or [{}])[0], 30)
        self.check("it has its source and since when", fault.get("source") == "dcgmXid" and fault.get("since"), fault)
        events = lambda: self.cli("get", "events", "-A", check=False).stdout  # noqa: E731
        self.check("the run on it is told", wait_for("the event", lambda: any("on-both" in line and "Xid79" in line for line in events().splitlines()), 30))
        self.check("and so is the node", "Faulty" in events())
        self.go("on-both")
        self.phase("on-both", *OVER)
        self.work("on-two", resources={"gpu": {"count": 2}})
        said = wait_for("the decision on on-two", lambda: (t := self.cli("explain", "on-two", check=False).stdout) and "rack" in t and t, 30)
        self.check("explain says which GPU, why and by whom", "GpusUnhealthy" in said and "Xid79, by dcgmXid" in said, said[:400])
        self.check("describe shows it", "fallen off the bus" in self.cli("describe", "node", "rack.n1").stdout)
        self.nodes({**NODE, "gpus": gpus})
        self.check("it runs once the fault is gone", self.phase("on-two", *OVER)["phase"] == "Succeeded")
        self.nodes(NODE)

    def nothing_ever_ran_twice(self):
        with open(self.path("witness"), encoding="utf-8") as file:
            double = [line.strip() for line in file if line.startswith("double")]
        self.check("no two copies ever lived at once", not double, ", ".join(double))
        log = ""
        for name in os.listdir(self.path("log")):
            with open(self.path("log", name), encoding="utf-8", errors="replace") as file:
                log += file.read()
        self.check("no secret is in a log", SECRET not in log and "a-bearer-token" not in log)

    def stop(self):
        if self.server:
            self.server.send_signal(signal.SIGCONT)
            self.kill_server()
        for name in os.listdir(self.path("state")) if os.path.isdir(self.path("state")) else []:
            if name.endswith(".pid"):
                with open(self.path("state", name), encoding="utf-8") as file:
                    try:
                        os.killpg(int(file.read()), signal.SIGKILL)
                    except (ProcessLookupError, ValueError):
                        pass
        super().stop()


PARTS = (Callout.runs_and_tells_the_end, Callout.refuses_what_it_has_not, Callout.a_second_target_at_its_server, Callout.answers_that_are_none, Callout.orders_that_never_came,
         Callout.two_bad_answers_in_a_row, Callout.stops,
         Callout.nodes_change_by_delta, Callout.others_hold_what_they_hold, Callout.what_is_wrong_is_told,
         Callout.the_server_dies_and_comes_back, Callout.an_end_that_is_taken_back,
         Callout.a_row_that_cannot_be_read, Callout.the_server_is_away, Callout.runs_go_by_their_principals, Callout.nothing_ever_ran_twice)


if __name__ == "__main__":
    sys.exit(run(Callout, "callout", PARTS))
