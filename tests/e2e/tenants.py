#!/usr/bin/env python3
"""Two tenants on one machine, one of them hostile: `hanse agent --users`. The spy tries what programs of one namespace could do to
another's before: its Secret, its files, its shim, the agent's key and state, the kernel. Then it takes what it can of memory and
processes. What a workload or a policy asks for is refused where tenants are not kept apart. Exit 1 when any check failed."""
import atexit
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
from cluster import Cluster  # noqa: E402
from federation import Failure, descendants, wait_for  # noqa: E402

SECRET = "red-alone-may-read-this"
FIRST, LAST = 310000, 310099
KEEPER = """trap 'exit 75' TERM
echo "user $(id -u) groups $(id -G) home $HOME"
echo "$TOKEN" >/tmp/red-note; echo "$TOKEN" >note
[ "$TOKEN" = red-alone-may-read-this ] && echo has its secret
echo to stdout >>/dev/stdout
n=0
while :; do sleep 0.1; n=$((n + 1)); echo tick $n; done
"""
# STOLE is what must never be said; $SHIM and $PROGRAM are pids outside, $STATE and $KEY the agent's, $STORE where red saves.
SPY = """try() { what=$1; shift; if out=$("$@" 2>/dev/null) && [ -n "$out" ]; then echo "STOLE $what: $out" | head -c 300; else echo "tried $what"; fi; }
try secret sh -c 'cat /proc/[0-9]*/environ | tr "\\0" "\\n" | grep red-alone'
try proc sh -c 'ls -d /proc/$PROGRAM /proc/$SHIM'
try order sh -c 'cat $STATE/runs/*/order.json'
try listing sh -c 'ls $STATE $STATE/runs $STATE/book'
try key cat "$KEY"
try tmp sh -c 'ls /tmp/red-note /var/tmp/red-note'
try store sh -c 'find $STORE -type f'
try shim sh -c 'kill -9 $SHIM && echo killed'
try program sh -c 'kill -9 $PROGRAM && echo killed'
try init sh -c 'kill -9 1 && sleep 0.2 && [ ! -d /proc/1 ] && echo killed'
try namespace sh -c 'unshare -Ur true && echo made'
try mount sh -c 'mount -t tmpfs x /mnt && echo mounted'
try uncover sh -c 'umount $STATE && echo uncovered'
try rights sh -c 'su -c "id -u" root </dev/null | grep -x 0'
try devices sh -c 'head -c 1 /dev/kmsg /dev/mem /dev/vda'
try groups sh -c 'find /sys/fs/cgroup -name cgroup.procs -writable'
try inherited readlink /proc/self/fd/9
echo "seccomp $(sed -n 's/^Seccomp:[^0-9]*//p' /proc/self/status) nnp $(sed -n 's/^NoNewPrivs:[^0-9]*//p' /proc/self/status) caps $(sed -n 's/^CapEff:[^0-9]*//p' /proc/self/status)"
echo "user $(id -u) groups $(id -G) sees $(ls -d /proc/[0-9]* | wc -l)"
echo spied
"""
SAVER = """[ -z "$HANSE_RESUME_DIR" ] || { echo "resumed $(cat "$HANSE_RESUME_DIR/state") as $(id -u)"; touch "$HANSE_RESUME_DIR/x" 2>/dev/null && echo STOLE; exit 0; }
echo 41 >"$HANSE_CHECKPOINT_DIR/state" && "$HANSE_BINARY" checkpoint commit --step 1 state && echo saved
trap 'exit 75' TERM
while :; do sleep 0.1; done
"""


def seen_by_tenants(program):
    """Their /tmp is their own: what was built there is copied to where they see it."""
    if not os.path.realpath(program).startswith(("/tmp/", "/var/tmp/")):
        return program
    folder = tempfile.mkdtemp(prefix="hanse-tenants-", dir="/var/lib")
    atexit.register(shutil.rmtree, folder)
    os.chmod(folder, 0o755)
    return shutil.copy2(program, folder)


class Tenants(Cluster):
    def start(self):
        self.more = ["--users", f"{FIRST}-{LAST}", "--pids", "64"]
        super().start()
        for name in ("red", "blue"):
            self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "red"}, "stringData": {"token": SECRET}})

    def _spawn(self, name, argv, **env):
        if name == "agent-local":  # it inherits a file from who starts it, as from a careless unit or script
            argv = ["/bin/sh", "-c", 'exec 9>>"$0"; exec "$@"', self.path("roots-own"), *argv, *self.more]
        return super()._spawn(name, argv, **env)

    def run_it(self, namespace, name, script, env=(), memory="64Mi", **spec):
        self.apply({"apiVersion": "hanse.dev/v1alpha1", "kind": "Workload", "metadata": {"name": name, "namespace": namespace},
                    "spec": {"type": "batch", "resources": {"cpu": "100m", "memory": memory}, "checkpoint": {"grace": "2s"},
                             "run": {"script": script, "env": list(env)}, **spec}})

    def state_of(self, namespace, name):
        return self.get("workload", name, "-n", namespace).get("status", {})

    def ends(self, namespace, name, seconds=30):
        return wait_for(f"{name} to end; {self.dir}", lambda: (s := self.state_of(namespace, name)).get("phase") in
                        ("Succeeded", "Failed", "Cancelled") and s, seconds)

    def log(self, namespace, name):
        return self.cli("logs", name, "-n", namespace, check=False).stdout

    def says(self, namespace, name, word, seconds=20):
        return wait_for(f"{name} to say {word}; {self.dir}", lambda: word in (t := self.log(namespace, name)) and t, seconds)


def user_of(text):
    return int(re.search(r"user (\d+)", text).group(1))


def hostile(c):
    c.run_it("red", "keeper", KEEPER, [{"name": "TOKEN", "valueFrom": {"secret": "s", "key": "token"}}])
    red = c.says("red", "keeper", "tick")
    c.check("it has its secret, a home and /dev/stdout", "has its secret" in red and "to stdout" in red and "/work" in red, red[:200])
    c.check("it is nobody else", FIRST <= user_of(red) <= LAST and f"groups {user_of(red)} " in red, red.splitlines()[0])
    below = [pid for pid, _ in descendants(c.agents["local"].pid)]
    shim = next(p for p in below if b"--socket" in open(f"/proc/{p}/cmdline", "rb").read())
    program = next(p for p in below if os.stat(f"/proc/{p}").st_uid == user_of(red))
    store = c.path("checkpoints")
    c.run_it("red", "saver", SAVER, [{"name": "HANSE_BINARY", "value": seen_by_tenants(c.hanse)}], checkpoint={"store": store, "grace": "2s"})
    c.says("red", "saver", "saved")
    wait_for("it to be sealed", lambda: glob.glob(store + "/**/cut-*.json", recursive=True), 20)
    values = {"SHIM": shim, "PROGRAM": program, "STATE": c.path("agent-local"), "KEY": c.path("pki", "agent-local.key"), "STORE": store}
    c.run_it("blue", "spy", SPY, [{"name": k, "value": str(v)} for k, v in values.items()])
    spied = c.says("blue", "spy", "spied", 40)
    tried = re.findall(r"^(?:tried|STOLE) (\w+)", spied, re.M)
    c.check("the spy has tried it all", len(tried) == SPY.count("\ntry "), " ".join(tried))
    for line in spied.splitlines():
        if line.startswith("STOLE"):
            c.check("nothing is stolen", False, line)
    c.check("and got nothing", "STOLE" not in spied)
    c.check("system calls are filtered, rights cannot be had", "seccomp 2 nnp 1 caps 0000000000000000" in spied, spied.splitlines()[-3])
    c.check("the tenants have different users", FIRST <= user_of(spied) <= LAST and user_of(spied) != user_of(red))
    c.check("its shim and its program live", all(os.path.exists(f"/proc/{p}") for p in (shim, program)) and
            c.state_of("red", "keeper")["phase"] == "Running")
    done = c.cli("exec", "keeper", "-n", "red", "--", "/bin/sh", "-c", "id -u; cat note; ls /proc/2/fd >/dev/null && echo sees it", check=False)
    c.check("exec is the program's user, in its folder, beside it",
            done.stdout.split() == [str(user_of(red)), SECRET, "sees", "it"], done.stdout + done.stderr)
    return user_of(red)


def greedy(c):
    c.run_it("blue", "hog", "head -c 200m /dev/zero | tail >/dev/null", memory="32Mi")
    s = c.ends("blue", "hog")
    c.check("200 MB under 32 Mi end as OutOfMemory", s["phase"] == "Failed" and "OutOfMemory" in json.dumps(s), json.dumps(s)[:300])
    c.check("and the sentence names the limit", "32 MiB" in json.dumps(s))
    c.run_it("blue", "bomb", "i=0; while [ $i -lt 300 ]; do sleep 3 & i=$((i + 1)); done; echo all 300", memory="256Mi")
    c.ends("blue", "bomb", 60)
    c.check("300 processes are more than 64", "all 300" not in c.log("blue", "bomb"), c.log("blue", "bomb")[-100:])
    c.check("red has not felt it", c.state_of("red", "keeper")["phase"] == "Running")


def stays(c, uid):
    c.agents["local"].kill()
    c.agents["local"].wait()
    c.cli("delete", "workload", "keeper", "-n", "red", check=False)
    c.agents["local"] = c.begin_agent()
    wait_for("the agent to be back", c.connected, 30)
    c.run_it("red", "again", "echo user $(id -u)")
    c.ends("red", "again")
    c.check("a namespace keeps its user, also with the next agent", user_of(c.log("red", "again")) == uid)
    held = c.get("workload", "saver", "-n", "red")
    for suspend in (True, False):
        held["spec"]["suspend"] = suspend
        c.apply({k: held[k] for k in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "saver", "namespace": "red"}})
        if suspend:
            wait_for("it to stand", lambda: c.state_of("red", "saver").get("phase") == "Queued", 30)
    c.ends("red", "saver", 40)
    text = c.log("red", "saver")
    c.check("what it saved it resumes from, and cannot change", f"resumed 41 as {uid}" in text and "STOLE" not in text, text[-200:])


def demanded(c):
    i = c.get("target", "local")["status"]["isolation"]
    c.check("the target tells that tenants are separate", i.get("tenants") == "separate", json.dumps(i))
    node = json.loads(c.cli("get", "nodes", "-o", "json").stdout)["items"][0]["status"]["isolation"]
    c.check("the node tells what it lacks", node["tenants"] == "separate" and set(node.get("lacks", [])) <= {"cpu", "devices"}, json.dumps(node))
    c.run_it("blue", "asks", "echo apart", isolation={"tenants": "separate"})
    c.check("who asks for it runs", c.ends("blue", "asks")["phase"] == "Succeeded")
    c.agents["local"].terminate()
    c.agents["local"].wait()
    c.more = []
    c.agents["local"] = c.begin_agent()
    wait_for("the target to tell that tenants are shared",
             lambda: c.get("target", "local")["status"].get("isolation", {}).get("tenants") == "shared", 30)
    with open(c.path("log", "agent-local.log"), encoding="utf-8") as file:
        c.check("the agent says so at its start", "agent.tenants_shared" in file.read())
    c.run_it("blue", "asks-again", "echo apart", isolation={"tenants": "separate"})
    wait_for("a decision", lambda: "TenantsShareAUser" in c.cli("explain", "asks-again", "-n", "blue", check=False).stdout, 20)
    c.check("explain says why it waits", True)
    c.apply({"apiVersion": "hanse.dev/v1alpha1", "kind": "CompliancePolicy", "metadata": {"name": "apart"},
             "spec": {"selects": {"namespaces": ["red"]}, "allow": {"tenants": "separate"}}})
    c.run_it("red", "ruled", "echo apart")
    wait_for("the policy to keep it", lambda: "TenantsShareAUser" in c.cli("explain", "ruled", "-n", "red", check=False).stdout, 20)
    c.check("a policy holds it back as well", c.state_of("red", "ruled").get("phase") == "Queued")


def main():
    if os.geteuid() != 0:
        print("only root can keep tenants apart")
        return 77
    hanse = os.environ.get("HANSE") or os.path.join(os.environ.get("HANSE_BUILD_DIR", ""), "hanse")
    c, began = Tenants(hanse, tempfile.mkdtemp(prefix="hanse-tenants-")), time.monotonic()
    try:
        c.start()
        uid = hostile(c)
        greedy(c)
        stays(c, uid)
        demanded(c)
    except (Failure, subprocess.SubprocessError, KeyError, ValueError, IndexError, StopIteration, AttributeError) as e:
        c.check("it could be done", False, f"{type(e).__name__}: {e}")
    finally:
        c.stop()
    print(f"{c.failed} failed, {time.monotonic() - began:.0f} s")
    if c.failed or os.environ.get("HANSE_KEEP"):
        print(f"logs are kept in {c.dir}")
    else:
        import shutil
        shutil.rmtree(c.dir)
    return 1 if c.failed else 0


if __name__ == "__main__":
    sys.exit(main())
