#!/usr/bin/env python3
"""A target that picks devices itself and tells how many it has, as a kubelet and Slurm do (connectors/callout): the real binary and the
example server. What is asked for is given once, never more than there is; who waits hears why; the ledger's sums are those of the devices;
and a node that cannot be read is seen."""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from callout import NODE, OVER, PROGRAM, TOP, Callout, document, run, wait_for  # noqa: E402

COUNTED = {**NODE, "counted": [{"class": "h100", "memory": "80Gi", "count": 4}]}


class Counted(Callout):
    def serve(self, *options):
        self.server = self._spawn("server", [sys.executable, os.path.join(TOP, "deploy", "examples", "callout", "server.py"), "--port",
                                             str(self.port), "--key-file", self.path("key"), "--state", self.path("state"),
                                             *(options or ("--nodes", "1", "--counted", "4"))])

    def ask(self, name, gpu, ticks=6000):
        """A run that writes down which devices its server gave it."""
        program = f'echo "$DEVICES" > "{self.path("devices." + name)}"\n' + PROGRAM.format(dir=self.dir, ticks=ticks, code=0)
        self.apply(document("Workload", name, {
            "type": "batch", "targets": {"names": ["rack"]}, "resources": {"cpu": 1, "memory": "64Mi", "gpu": gpu},
            "run": {"command": ["/bin/sh", "-c", program], "retries": 0}}, namespace="default"))

    def given(self, name):
        def told():
            with open(self.path("devices." + name), encoding="utf-8") as file:
                return (text := file.read()).endswith("\n") and text.split()
        self.phase(name, "Running")
        return wait_for(f"the devices of {name}", lambda: os.path.exists(self.path("devices." + name)) and told(), 30)

    def done(self, *names):
        for name in names:
            self.go(name)
        for name in names:
            self.check(f"{name} succeeds", self.phase(name, *OVER)["phase"] == "Succeeded")

    def waits(self, name, *words):
        """It is not placed, and explain says why."""
        said = wait_for(f"the decision on {name}", lambda: (t := self.cli("explain", name, check=False).stdout) and all(w in t for w in words) and t, 60)
        self.check(f"{name} waits, and hears why", self.phase(name, "Queued") and said, next(x.strip() for x in said.splitlines() if words[0] in x))

    def from_now_on(self, *nodes):
        """Its server is started again, with other nodes."""
        self.nodes(*nodes)
        self.kill_server()
        self.serve("--nodes-file", self.path("nodes"))

    def cost(self, *options):
        return json.loads(self.cli("cost", "-o", "json", *options).stdout)

    # ---- parts ------------------------------------------------------------------------------------------

    def devices_by_count(self):
        wait_for("rack.n1 to count its devices", lambda: self.node("rack.n1").get("spec", {}).get("counted"), 30)
        self.ask("two", {"count": 2})
        self.ask("one", {"count": 1})
        two, one = self.given("two"), self.given("one")
        self.check("each has as many as it asked for, and none has another's", len(two) == 2 and len(one) == 1 and not set(two) & set(one), two + one)
        self.ask("more", {"count": 2})
        self.waits("more", "GpusInUse", "1 of 2 free on one node")
        told = self.cli("describe", "workload", "two").stdout
        self.check("describe says which its server picked", ",".join(d.rpartition(":")[2] for d in two) in told.split("Workers:")[-1])
        self.done("one")
        self.check("it runs once there is room", len(self.given("more")) == 2, self.given("more"))
        self.done("two", "more")

    def instances_and_shares_by_count(self):
        """Of one class whole GPUs, instances of two MIG profiles, and shares: each is given for itself, and waited for by itself."""
        self.kill_server()
        self.serve("--nodes", "1", "--counted", "1", "1g.10gb=2", "3g.40gb=1", "1/4=4")
        wait_for("the rows of rack.n1", lambda: len(self.node("rack.n1").get("spec", {}).get("counted", [])) == 4, 60)
        asked = {"seventh": {"mig": "1g.10gb"}, "other": {"mig": "1g.10gb"}, "half": {"mig": "3g.40gb"}, "whole": {"count": 1},
                 **{f"part-{i}": {"fraction": 0.25 if i else 0.1} for i in range(4)}}
        for name, gpu in asked.items():
            self.ask(name, gpu)
        given = {name: self.given(name) for name in asked}
        self.check("each has one of what it asked for, and none has another's", all(len(d) == 1 for d in given.values())
                   and len({d[0] for d in given.values()}) == len(asked) and given["half"] == ["n1:3g.40gb:0"] and "share" in given["part-0"][0], given)
        self.ask("third", {"mig": "1g.10gb"})
        self.waits("third", "MigProfileMissing", "none of the 2 1g.10gb instances of h100 is free")
        self.ask("none", {"mig": "7g.80gb"})
        self.waits("none", "MigProfileMissing", "no 7g.80gb instances of h100: there is")
        self.ask("part-4", {"fraction": 0.25})
        self.waits("part-4", "FractionDoesNotFit", "none of the 4 shares of h100 is free")
        self.ask("large", {"fraction": 0.5})
        self.waits("large", "FractionDoesNotFit", "a share of a GPU there is 1/4, 0.500 is asked for")
        self.ask("hard", {"fraction": 0.25, "isolation": "hard"})
        self.waits("hard", "IsolationImpossible")
        self.check("describe says what it has", "any 3g.40gb" in self.cli("describe", "workload", "half").stdout
                   and "any 1/4" in self.cli("describe", "workload", "part-1").stdout)
        held = {n: self.status(n)["placement"]["gpus"] for n in asked}
        self.check("each holds the part of a GPU that it is", [held[n] for n in ("seventh", "half", "whole", "part-0", "part-1")] == [143, 429, 1000, 250, 250], held)
        wide = self.cli("get", "nodes", "rack.n1", "-o", "wide").stdout.splitlines()
        self.check("get -o wide shows them", "MIG" in wide[0] and "1g.10gb" in wide[-1], wide[-1:])
        for name in ("none", "large", "hard"):
            self.cli("delete", "workload", name)
        self.done("seventh", "part-2")
        self.check("who waited has what fell free", self.given("third") == given["seventh"] and self.given("part-4") == given["part-2"])
        self.done("third", "part-4", *[n for n in asked if n not in ("seventh", "part-2")])
        self.check("the ledger's balance is exact", self.cost()["balance"]["exact"], self.cost()["balance"])
        self.check("nothing lay beyond what is there", self.cost()["balance"]["overhangTime"] == "0")
        for name, part in (("seventh", 0.143), ("half", 0.429), ("part-1", 0.25)):
            spent = self.status(name)["spent"]
            self.check(f"{name} is charged for that part", abs(spent["gpuHours"] - spent["cpuHours"] * part) < 1e-7, spent)

    def others_hold_of_a_kind(self):
        rows = [{"class": "h100", "count": 1}, {"class": "h100", "mig": "1g.10gb", "count": 3, "unhealthy": 1}]
        self.from_now_on({**NODE, "counted": rows, "others": {"classes": [{"class": "h100", "mig": "1g.10gb", "count": 1}]}})
        wait_for("what others hold", lambda: self.node("rack.n1").get("status", {}).get("others"), 60)
        self.ask("first", {"mig": "1g.10gb"})
        self.check("what is left is given", len(self.given("first")) == 1)
        self.ask("next", {"mig": "1g.10gb"})
        self.waits("next", "HeldByOthers", "others than Hanse hold 1 1g.10gb instances of h100")
        self.ask("beside-it", {"count": 1}, ticks=1)
        self.check("a whole one is none of theirs", self.phase("beside-it", *OVER)["phase"] == "Succeeded")
        self.nodes({**NODE, "counted": rows})
        self.check("it runs once they are gone", len(self.given("next")) == 1)
        self.ask("last-one", {"mig": "1g.10gb"})
        self.waits("last-one", "GpusUnhealthy", "1 1g.10gb instances of h100 of node rack.n1 are unhealthy")
        self.done("first")
        self.check("and so does the last once there is room", len(self.given("last-one")) == 1)
        self.done("next", "last-one")

    def sums_are_those_of_the_devices(self):
        report = self.cost("--by", "workload")
        rows = {row["workload"]: row for row in report["rows"]}
        self.check("the ledger's balance is exact", report["balance"]["exact"], report["balance"])
        for name, gpus in (("two", 2), ("one", 1), ("more", 2)):
            spent = self.status(name)["spent"]
            self.check(f"{name} is charged for what it held", abs(rows[name]["gpuHours"] - spent["gpuHours"]) < 1e-6 and spent["gpuHours"] > 0
                       and self.held(name, gpus), spent)

    def held(self, name, gpus):
        """GPU-hours by its own times are no more than those that it is charged, and not far from them."""
        status = self.status(name)
        return status["spent"]["usedGpuHours"] <= status["spent"]["gpuHours"] + 1e-9 and status["spent"]["usedGpuHours"] > 0 and \
            abs(status["spent"]["usedGpuHours"] + status["spent"]["unusedGpuHours"] - status["spent"]["gpuHours"]) < gpus * 1e-5

    def others_and_unhealthy_ones(self):
        self.from_now_on({**COUNTED, "counted": [{"class": "h100", "count": 4, "unhealthy": 1}], "others": {"classes": [{"class": "h100", "count": 2}]}})
        wait_for("what others hold", lambda: self.node("rack.n1").get("status", {}).get("others"), 60)
        self.ask("last", {"count": 1})
        self.check("what is left is given", len(self.given("last")) == 1)
        self.ask("held", {"count": 2})
        self.waits("held", "HeldByOthers", "others than Hanse hold 2 h100")
        self.from_now_on({**COUNTED, "counted": [{"class": "h100", "count": 4, "unhealthy": 2}]})
        wait_for("others to be gone", lambda: not self.node("rack.n1").get("status", {}).get("others"), 60)
        self.waits("held", "GpusUnhealthy", "2 of 4 h100 of node rack.n1 are unhealthy")
        self.done("last")
        self.check("it runs once they are gone", len(self.given("held")) == 2)
        self.done("held")

    def a_node_that_cannot_be_read(self):
        def refused():
            found = json.loads(self.cli("get", "targets", "rack", "-o", "json").stdout)["status"]["conditions"]
            return next((c for c in found if c["type"] == "NodesRefused"), {})
        self.from_now_on(COUNTED)
        wait_for("rack.n1 to be whole", lambda: self.node("rack.n1")["spec"]["counted"][0].get("unhealthy", 0) == 0, 60)
        self.check("nothing is said of nodes that can be read", not refused(), refused())
        self.nodes(COUNTED, {**NODE, "name": "n2", "gpus": [{"class": "h100"}]})
        said = wait_for("its Target to say so", refused, 60)
        self.check("it says how many, which and why", said["status"] == "True" and "1 node cannot be read" in said["message"]
                   and "rack.n2: a GPU without an index" in said["message"], said)
        self.ask("beside", {"count": 4}, ticks=1)
        self.check("the others of its page are used", self.phase("beside", *OVER)["phase"] == "Succeeded" and not self.node("rack.n2"))
        self.nodes(COUNTED)
        wait_for("it to be said no more", lambda: not refused(), 60)
        self.check("nor once it is gone", True)

    def nothing_ever_ran_twice(self):
        with open(self.path("witness"), encoding="utf-8") as file:
            self.check("no two copies ever lived at once", "double" not in file.read())
        self.check("the ledger's balance is exact", self.cost()["balance"]["exact"], self.cost()["balance"])


PARTS = (Counted.devices_by_count, Counted.sums_are_those_of_the_devices, Counted.instances_and_shares_by_count,
         Counted.others_hold_of_a_kind, Counted.others_and_unhealthy_ones, Counted.a_node_that_cannot_be_read,
         Counted.nothing_ever_ran_twice)


if __name__ == "__main__":
    sys.exit(run(Counted, "counted", PARTS))
