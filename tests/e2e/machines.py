#!/usr/bin/env python3
"""Pools of machines at a real callout server (deploy/examples/callout): filled, kept alive, given work, let go. The leader is killed
by SIGKILL in the midst of orders, answers are lost and late. Whatever happens, there are as many machines as were asked for, none was
ordered that no Machine in the state tells of, and none that has ended there costs any more."""
import json
import os
import sys
import time

from callout import Callout, run, wait_for

OFFERS = [{"class": "h100", "gpus": 1, "zone": z, "market": "spot", "price": p, "count": 6, "boot": 0.3, "cpu": "64", "memory": "64Gi"}
          for z, p in (("a", 2.5), ("b", 4))]


class Rented(Callout):
    def __init__(self, hanse, folder):
        super().__init__(hanse, folder)
        with open(self.path("offers"), "w", encoding="utf-8") as file:
            json.dump(OFFERS, file)

    def serve(self):
        self.server = self._spawn("server", [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "callout_bad.py"),
                                             "--port", str(self.port), "--key-file", self.path("key"), "--state", self.path("state"),
                                             "--nodes", "0", "--offers", self.path("offers")],
                                  FAULTS=self.path("faults"))

    def pools(self, *pools):
        rack = self.target()
        rack["spec"]["machines"] = [{"class": "h100", "gpus": 1, "zone": "a", "market": "spot", "timeToLive": "20s", **p} for p in pools]
        self.apply(rack)

    def rented(self):
        """What the server has, from its own files."""
        folder, found = self.path("state", "machines"), []
        for name in os.listdir(folder):
            if name.endswith(".json"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    found.append(json.load(file))
        return found

    def alive(self):
        return [m["key"] for m in self.rented() if m["state"] != "ended" and m.get("state")]

    def machines(self):
        return json.loads(self.cli("get", "machines", "-o", "json").stdout)["items"]

    def known(self, *phases):
        return [m["metadata"]["name"] for m in self.machines() if m["status"]["phase"] in phases]

    def there_are(self, n, seconds=60):
        def same():
            joined, alive = self.known("Joined"), self.alive()
            return sorted(joined) == sorted(alive) and len(alive) == n and not self.known("Ordered", "Asked", "Booting")
        wait_for(f"{n} machines that are joined, here and there", same, seconds, 0.3)

    def kept_books(self, what):
        names = {m["metadata"]["name"] for m in self.machines()}
        strange = [m["key"] for m in self.rented() if m["key"] not in names]
        ended = set(self.known("Ended")) & set(self.alive())
        self.check(f"{what}: each machine is in the state, and what has ended there lives nowhere", not strange and not ended, strange or list(ended) or "")

    def die(self):
        """The leader, and with it the whole hub; then it is there again."""
        self.kill_leader()
        self.dev.terminate()
        self.dev.wait(30)
        self.start_members()

    # ---- parts ------------------------------------------------------------------------------------------

    def a_pool_is_filled(self):
        self.pools({"name": "warm", "count": 2})
        self.there_are(2)
        table = self.cli("get", "machines").stdout
        self.check("hanse get machines shows pool, phase and price", "POOL" in table and "Joined" in table and "2.5" in table, table)
        status = json.loads(self.cli("get", "target", "rack", "-o", "json").stdout)["status"]["machines"][0]
        self.check("the Target tells how many, and what they cost", (status["live"], status["joined"], status["costPerHour"], status["currency"])
                   == (2, 2, 5, "EUR"), status)
        text = self.cli("describe", "machine", self.known("Joined")[0]).stdout
        self.check("describe tells its order, and Events", "timeToLive" in text and "Ordered" in text, text[:2000])

    def work_runs_on_them(self):
        self.work("w", ticks=400, resources={"cpu": 1, "memory": "64Mi", "gpu": {"count": 1}})
        self.phase("w", "Running")
        self.pools({"name": "warm", "count": 0})
        wait_for("the idle one to go", lambda: len(self.alive()) == 1, 30, 0.3)
        time.sleep(25)  # longer than its time to live
        self.check("the one on which work runs stays, and is renewed", len(self.alive()) == 1 and self.status("w")["phase"] == "Running")
        self.go("w")
        self.check("the work succeeds", self.phase("w", "Succeeded", "Failed")["phase"] == "Succeeded")
        wait_for("it to go, too", lambda: not self.alive(), 30, 0.3)
        self.kept_books("all are gone")

    def one_becomes_dearer_than_its_cap(self):
        """What runs there stays; nothing new comes, though there is room, and it goes when that has ended."""
        self.pools({"name": "warm", "count": 1, "maxPrice": 3, "currency": "EUR"})
        self.there_are(1)
        key, small = self.alive()[0], {"cpu": 1, "memory": "64Mi"}
        self.work("first", ticks=100000, resources=small)
        self.phase("first", "Running")
        self.kill_server()
        with open(self.path("state", "machines", f"{key}.json"), encoding="utf-8") as file:
            machine = json.load(file)
        with open(self.path("state", "machines", f"{key}.json"), "w", encoding="utf-8") as file:
            json.dump({**machine, "price": 7}, file)
        self.serve()

        def told():
            of = [c for m in self.machines() if m["metadata"]["name"] == key for c in m["status"]["conditions"] if c["type"] == "AsOrdered"]
            return of and of[0]["reason"] == "PriceAboveCap"
        wait_for("the hub to hear of its price", told, 60, 0.3)
        self.work("second", resources=small)
        self.go("second")
        time.sleep(5)
        self.check("nothing new is placed on it, and what runs there stays", self.status("second").get("phase") == "Queued"
                   and self.status("first")["phase"] == "Running" and self.alive() == [key], self.status("second"))
        self.cli("delete", "workload", "first", "--wait")
        self.check("another one takes its place, for the work that waited", self.phase("second", "Succeeded", "Failed")["phase"] == "Succeeded"
                   and key not in self.alive() and len(self.alive()) == 1, self.alive())
        self.pools({"name": "warm", "count": 0})
        wait_for("all to go", lambda: not self.alive(), 60, 0.3)
        self.kept_books("after one was too dear")

    def answers_are_lost_and_late(self):
        for fault in ("lost", "late", "deaf", "500", "html"):
            before = len(self.rented())
            self.faults(f"submit {fault}")
            self.pools({"name": "warm", "count": 1})
            self.there_are(1, 90)
            self.check(f"order, {fault}: there is one, and one was made", len(self.rented()) == before + 1, len(self.rented()) - before)
            self.pools({"name": "warm", "count": 0})
            wait_for("it to go", lambda: not self.alive(), 60, 0.3)
        self.kept_books("after bad answers")

    def the_leader_dies_in_the_midst(self):
        for count, fault in ((3, "late"), (1, ""), (4, "lost"), (0, "")):
            if fault:
                self.faults(f"submit {fault}", f"submit {fault}")
            self.pools({"name": "warm", "count": count})
            began = len(self.rented())
            deadline = time.monotonic() + 5
            while len(self.rented()) == began and time.monotonic() < deadline:
                time.sleep(0.02)
            self.die()
            self.there_are(count, 90)
            self.kept_books(f"killed on the way to {count}")

    def nobody_renews(self):
        self.pools({"name": "warm", "count": 2})
        self.there_are(2)
        self.kill_leader()
        self.dev.terminate()
        self.dev.wait(30)
        wait_for("all to end by their time to live", lambda: not self.alive(), 40, 0.5)
        self.check("a dead hub costs a time to live", True)
        self.start_members()
        self.there_are(2, 90)
        self.kept_books("after the hub was dead")


    def they_end_early(self):
        """The server takes each back as soon as it is there: few are ordered, and it is said why. Then the Target goes."""
        before = len(self.rented())
        self.pools({"name": "bad", "count": 1, "timeToLive": "60s"})
        deadline, pauses = time.monotonic() + 10, []
        while time.monotonic() < deadline:
            for key in self.alive():
                with open(self.path("state", "machines", f"{key}.interrupt"), "w", encoding="utf-8") as file:
                    file.write("0")
            status = json.loads(self.cli("get", "target", "rack", "-o", "json").stdout)["status"]
            pauses = pauses or [(p["scope"], p["name"]) for p in status.get("pauses", [])]
            time.sleep(0.1)
        made = len(self.rented()) - before
        self.check("of a pool whose machines end early few are ordered", 1 <= made <= 3, made)
        self.check("status.pauses tells of the pool", pauses == [("pool", "bad")], pauses)
        text = self.cli("describe", "target", "rack").stdout
        self.check("so does a Warning", "MachinesEndEarly" in text and "in a row what was ordered ended early" in text, text[-1500:])
        refused = self.target()
        refused["spec"]["machines"] = [{"name": "bad", "count": 1, "maxPrice": 0}]
        done = self.apply(refused, check=False)
        self.check("maxPrice 0 is refused with a sentence", done.returncode != 0 and "spec.machines[0].maxPrice" in done.stderr, done.stderr)
        self.pools({"name": "last", "count": 1})
        self.there_are(1)
        said = self.cli("delete", "target", "rack", "--wait").stdout
        self.check("its deletion says what it waits for, and --wait waits", "deletion began; it goes once its machines have ended (1 live)" in said
                   and said.endswith("target/rack deleted\n") and not self.alive()
                   and "rack" not in self.cli("get", "targets", "-o", "name").stdout, said)
        wait_for("what has ended to leave for the archive", lambda: not self.machines(), 40, 0.5)

    def what_is_left_is_named(self):
        """Its Target is deleted while it is out of reach: which machines may still cost is said to who does it, and stays to be read."""
        self.pools({"name": "warm", "count": 2, "timeToLive": "60s"})
        self.there_are(2)
        there = {m["metadata"]["name"]: m["status"]["id"] for m in self.machines() if m["status"]["phase"] == "Joined"}
        self.kill_server()
        wait_for("the Target to be out of reach", lambda: "rack" not in self.connected(), 90, 0.5)
        said = self.cli("delete", "target", "rack", "--leave-machines", "--wait").stdout
        self.check("the command names each, by its own id, and until when it lives", len(there) == 2
                   and all(f"machine/{name}: id {there[name]}, lives until 2" in said for name in there), said)
        wait_for("the machines to leave the state", lambda: not self.machines(), 90, 0.5)

        def told():
            events = json.loads(self.cli("get", "events", "-n", "hanse-system", "-o", "json").stdout)["items"]
            return {e["involvedObject"]["name"]: e["message"] for e in events if e["reason"] == "MachineLeft"}
        events = wait_for("an Event of each", lambda: len(told()) == 2 and told(), 60, 0.5)
        self.check("and so does an Event of each, which stays", all(there[name] in events.get(name, "") for name in there), events)


PARTS = (Rented.a_pool_is_filled, Rented.work_runs_on_them, Rented.one_becomes_dearer_than_its_cap,
         Rented.answers_are_lost_and_late, Rented.the_leader_dies_in_the_midst, Rented.nobody_renews, Rented.they_end_early,
         Rented.what_is_left_is_named)


if __name__ == "__main__":
    sys.exit(run(Rented, "machines", PARTS))
