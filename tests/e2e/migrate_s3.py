#!/usr/bin/env python3
"""Moves between two sites that share no file system: all that goes from one to the other goes through S3. The store is the small
S3 of tests/support/s3, which checks each signature; tests/peers/s3.py does the same with moto. Prints ok or FAILED per check;
exit 1 when any failed. HANSE_ONLY names parts."""
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "lib"))
sys.path.insert(0, os.path.join(HERE, "..", "support", "s3"))
sys.dont_write_bytecode = True
import server  # noqa: E402
from moves import Moves, run, wait_for  # noqa: E402
from federation import descendants  # noqa: E402 (moves knows where it is)

SECRET = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "key", "AWS_SESSION_TOKEN": "token"}  # names in the Secret


class Sites(Moves):
    """Each agent has a folder of its own, which is its TMPDIR, too; and keys of its own, for workloads that bring none."""

    def __init__(self, *a, **k):
        self.s3 = self.begin_store()
        super().__init__(*a, **k)
        os.rmdir(self.path("checkpoints"))  # nobody may come to need it

    def begin_store(self):
        return server.Server("checkpoints")

    def secret(self):
        return self.s3.environment()["AWS_SECRET_ACCESS_KEY"].encode()

    def _spawn(self, name, argv, **env):
        if not name.startswith("agent-"):
            return super()._spawn(name, argv, **env)
        site = self.path("site-" + name)
        os.makedirs(site, mode=0o700, exist_ok=True)
        return super()._spawn(name, argv, TMPDIR=site, **self.s3.environment(), **env)

    def keys(self):
        """The environment of a workload that brings its own keys: those of a Secret."""
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s3", "namespace": "default"},
                    "stringData": {SECRET[k]: v for k, v in self.s3.environment().items() if k in SECRET}})
        return [{"name": k, "valueFrom": {"secret": "s3", "key": SECRET[k]}} if k in SECRET else {"name": k, "value": v}
                for k, v in self.s3.environment().items()]

    def state(self, target):
        return self.path("agent-" + target)

    def files(self, target, *parts):
        return sorted(os.path.relpath(os.path.join(top, n), self.state(target))
                      for top, _, names in os.walk(os.path.join(self.state(target), *parts)) for n in names)

    def no_secret(self, what, *folders):
        found = []
        for folder in folders:
            for top, _, names in os.walk(folder):
                for name in (n for n in names if os.path.isfile(os.path.join(top, n))):
                    with open(os.path.join(top, name), "rb") as file:
                        if self.secret() in file.read():
                            found.append(os.path.join(top, name))
        self.check(f"the key is nowhere in {what}", not found, " ".join(found))

    def verify(self, cut, **env):
        return subprocess.run([self.hanse, "checkpoint", "verify", cut], capture_output=True, text=True, timeout=30, check=False,
                              env={**os.environ, **self.s3.environment(), "TMPDIR": self.dir, **env})

    def store(self, name):
        return {"store": f"s3://checkpoints/{name}"}


def moved_with_its_own_keys(p):
    p.train("owner", 500, checkpoint=p.store("own/"), env=p.keys())
    p.running("owner", 1, 60)
    done = p.cli("migrate", "owner", "--to", "right", "--wait", check=False, timeout=60)
    p.check("migrate --wait exits 0", done.returncode == 0, done.stderr.strip()[-300:] if done.returncode else "")
    second = p.running("owner", 2)
    p.check("it lives on the other side", second.target == "right", second.target)
    p.check("what it resumed from was fetched there", any(x.endswith("manifest.json") for x in p.files("right", "staged")))
    catalogue = p.checkpoints("owner")
    p.check("its checkpoints are in the bucket", catalogue and all(
        c["spec"]["locations"][0]["url"].startswith("s3://checkpoints/own/default/owner-") for c in catalogue),
        str([c["spec"]["locations"][0]["url"] for c in catalogue])[:200])
    p.holds("owner", [1, 2])
    p.check("nothing was written to a folder that both see", not os.path.exists(p.path("checkpoints")))
    wait_for("the local copies to be removed", lambda: not [f for t in p.targets for f in p.files(t, "runs") if "/checkpoint/" in f], 10)
    p.no_secret("state, logs and data of all sides", p.dir)
    cut = catalogue[0]["spec"]["locations"][0]["url"]
    done = p.verify(cut)
    p.check("hanse checkpoint verify reads it from the store", done.returncode == 0 and "whole" in done.stdout, done.stderr.strip())


def moved_with_the_keys_of_the_agents(p):
    p.train("guest", 500, checkpoint=p.store("guests"))
    p.saved("guest")
    seen = []
    for agent in p.agents.values():
        for pid, _ in [x for child, _ in descendants(agent.pid) for x in [(child, 0), *descendants(child)]]:
            try:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    seen.append(p.secret() in file.read())
            except OSError:
                pass
    p.check("neither its program nor its shims show the agent's key", len(seen) >= 2 and not any(seen), str(seen))
    done = p.cli("migrate", "guest", "--to", "right", "--wait", check=False, timeout=60)
    p.check("migrate --wait exits 0", done.returncode == 0, done.stderr.strip()[-300:] if done.returncode else "")
    p.holds("guest", [1, 2])


def the_store_goes_away_and_comes_back(p):
    p.train("patient", 700, checkpoint=p.store("patient"))
    life, before = p.running("patient", 1, 60), len(p.saved("patient"))
    p.s3.away()
    wait_for("it to go on without the store", lambda: p.lives("patient")[0].last_step > life.last_step + 100, 30)
    p.check("nothing was told that is not there", len(p.checkpoints("patient")) <= before + 1)
    p.s3.back()
    wait_for("its checkpoints to come through again", lambda: p.checkpoints("patient")[0]["spec"]["step"] > life.last_step + 40, 40)
    done = p.cli("migrate", "patient", "--to", "right", "--wait", check=False, timeout=60)
    p.check("it is moved", done.returncode == 0, done.stderr.strip()[-300:] if done.returncode else "")
    p.holds("patient", [1, 2])


def spoilt_in_the_store(p):
    p.train("spoilt", 700, checkpoint={**p.store("spoilt"), "keep": 6})
    p.saved("spoilt", 3)
    p.suspend("spoilt", True)
    wait_for("it to be held", lambda: p.status("spoilt").get("phase") == "Queued", 20)
    catalogue = p.saved("spoilt", 3)
    steps = [c["spec"]["step"] for c in catalogue]
    (state,) = [k for k in p.s3.keys("spoilt/") if f"/s{steps[0]}/" in k and not k.endswith("manifest.json")]
    p.s3.bend(state, "byte")
    p.s3.bend(next(k for k in p.s3.keys("spoilt/") if k.endswith(f"/s{steps[1]}/manifest.json")), "remove")
    shutil.rmtree(os.path.join(p.state("left"), "staged"), ignore_errors=True)
    p.suspend("spoilt", False)
    second = wait_for("it to go on", lambda: (x := p.lives("spoilt"))[-1].resumed >= 0 and x[-1], 60)
    p.check("it resumes from the newest that is whole", second.resumed == steps[2], f"{second.resumed} of {steps}")
    told = {c["spec"]["step"]: c.get("status", {}).get("reason") for c in p.checkpoints("spoilt")}
    p.check("the others say why", (told.get(steps[0]), told.get(steps[1])) == ("CheckpointAltered", "CheckpointTorn"), str(told))
    p.holds("spoilt", [1, 2], lost=1000)


def a_site_is_lost_with_all_its_disks(p):
    p.train("survivor", 700, checkpoint=p.store("survivor"), partition={"replaceAfter": "1s"})
    p.running("survivor", 1, 60)
    p.saved("survivor")
    p.kill_target("left")
    shutil.rmtree(p.state("left"))
    second = p.running("survivor", 2, seconds=60)
    p.check("it goes on elsewhere, from what the store has", second.target == "right" and second.resumed > 0,
            f"{second.target} {second.resumed}")
    p.holds("survivor", [1, 2], lost=90)


def tls_is_verified(p):
    """A store of TLS with a certificate of its own: taken only where it is trusted, and only under its own name."""
    def certificate(name, names):
        path = p.path("scratch", name + ".pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=" + name, "-addext", "subjectAltName=" + names, "-keyout", path, "-out", path + ".crt"],
                       check=True, capture_output=True)
        with open(path, "a", encoding="ascii") as both, open(path + ".crt", encoding="ascii") as cert:
            both.write(cert.read())
        return path
    for name, names, trusted, good in (("right", "IP:127.0.0.1", True, True), ("unknown", "IP:127.0.0.1", False, False),
                                       ("other", "DNS:elsewhere.example", True, False)):
        path = certificate(name, names)
        store = server.Server("checkpoints", path)
        ca = {"AWS_CA_BUNDLE": path + ".crt"} if trusted else {}
        done = p.verify("s3://checkpoints/x/sealed/e1/cut-1.json", **store.environment(), **ca)
        said = done.stderr.strip()
        if good:
            p.check("a certificate that is trusted: it is asked", done.returncode == 5 and "CheckpointMissing" in said, said)
        else:
            p.check(f"a certificate that is {name}: it is not asked", done.returncode not in (0, 5) and "StoreUnreachable" in said and
                    not store.store.log, said)
        store.away()


if __name__ == "__main__":
    sys.exit(run((moved_with_its_own_keys, moved_with_the_keys_of_the_agents, the_store_goes_away_and_comes_back, spoilt_in_the_store,
                  a_site_is_lost_with_all_its_disks, tls_is_verified), kind=Sites))
