#!/usr/bin/env python3
"""Walks the product as its users do, and reads what it says line by line: submit, get, describe, explain, migrate, checkpoints,
events, cost, drain, quota, completion, errors. The pool is the three-tier example's, with its policies; programs are shell.
Prints ok or FAILED per check, and for a failed one what was said; exit 1 when any failed."""
import json
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EXAMPLE = os.path.join(TOP, "deploy", "examples", "three-tier")
sys.path.insert(0, EXAMPLE)
sys.dont_write_bytecode = True
from federation import Federation, wait_for  # noqa: E402

NS = ("-n", "vision-dev")
# Saves every 0.2 s a step, goes on from where it was; 75 says: saved, not done.
PROGRAM = """#!/bin/sh
step=0
[ -z "$HANSE_RESUME_DIR" ] || step=$(cat "$HANSE_RESUME_DIR/step")
echo "begins at $step"
trap 'exit 75' TERM
while :; do
    sleep 0.2
    step=$((step + 1))
    echo $step >"$HANSE_CHECKPOINT_DIR/step.$step"
    mv "$HANSE_CHECKPOINT_DIR/step.$step" "$HANSE_CHECKPOINT_DIR/step"
    "$HANSE" checkpoint commit --step $step step >/dev/null
done
"""


class Walk(Federation):
    def __init__(self, hanse, folder):
        super().__init__(hanse, "/bin/false", folder, members=1)
        self.failed = 0
        self.program = self.path("bin", "program")
        with open(self.program, "w", encoding="utf-8") as file:
            file.write(PROGRAM.replace('"$HANSE"', f"'{self.hanse}'"))
        os.chmod(self.program, 0o755)

    def run(self, *words, text=None):
        """(exit status, standard output, standard error)"""
        done = subprocess.run([self.hanse, *words], input=text, capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "KUBECONFIG": self.path("kubeconfig")})
        return done.returncode, done.stdout, done.stderr

    def says(self, what, words, *lines, status=0, at="out", text=None):
        """Each of `lines` (expressions) is found, in this order; what it said is printed when it is not."""
        code, out, err = self.run(*words, text=text)
        said, pos, good = {"out": out, "err": err, "both": out + err}[at], 0, code == status
        for line in lines:
            found = re.compile(line, re.M).search(said, pos)
            good = good and found is not None
            pos = found.end() if found else pos
        self.failed += not good
        print(f"  {'ok    ' if good else 'FAILED'}  {what}", flush=True)
        if not good:
            print(f"    $ hanse {' '.join(words)}  [exit {code}, expected {status}]\n    " + (out + err).replace("\n", "\n    "))
        return out

    def status(self, name):
        return json.loads(self.run("get", "workload", name, "-o", "json", *NS)[1] or "{}").get("status", {})

    def until(self, name, phase):
        wait_for(f"{name} to be {phase}", lambda: self.status(name).get("phase") == phase, 30)


def policies(w):
    w.says("apply says what it did, under which commit", ("apply", "-f", os.path.join(EXAMPLE, "policies"), "--revision", "4be1c0f8aa", "--prune"),
           "^target/fra-hub created$", "^queue/vision created$", r"^\d+ created, 4 configured, 0 unchanged, 0 pruned at 4be1c0f8aa$")
    w.says("and again: nothing", ("apply", "-f", os.path.join(EXAMPLE, "policies"), "--revision", "4be1c0f8aa", "--prune"),
           r"^0 created, 0 configured, \d+ unchanged, 0 pruned")
    w.says("diff: nothing", ("diff", "-f", os.path.join(EXAMPLE, "policies"), "--revision", "4be1c0f8aa"))
    for name in w.targets:
        w.start_agent(name)
    wait_for("the targets", lambda: w.connected() == set(w.targets), 30)
    w.says("get targets", ("get", "targets"), r"^NAME +TYPE +TIER +REGION +CONNECTED +NODES +GPUS +USED +AGE$",
           r"^cloud-burst +agent +burst +us-west +True +1 +8 +0 ", r"^fra-hub +agent +hub +eu-central +True +4 +16 +0 ")
    wait_for("what holds a run's processes to be told",
             lambda: w.run("get", "target", "fra-hub", "-o", "jsonpath={.status.isolation.processes}")[1].strip(), 10)
    w.says("what holds a run's processes together, of a Target and of a Node", ("describe", "target", "fra-hub"),
           r"^ +processes: +(cgroup|pidNamespace|searched)$")
    w.says("the same in a column", ("get", "nodes", "-o", "wide"), "PROCESSES", r"^fra-hub\.fra-n1 .* (cgroup|pidNamespace|searched) +")
    w.says("get nodes", ("get", "nodes"), r"^NAME +TARGET +HEALTH +RACK", r"^fra-hub\.fra-n1 +fra-hub +Ready +r1 +96 +1Ti +4×h100-sxm-80gb ")
    w.says("several kinds: a table each, with their kinds", ("get", "targets,nodes"),
           r"\ANAME +TYPE +TIER .*\n(target/.*\n)+\nNAME +TARGET +HEALTH .*\n(node/.*\n)+\Z")
    w.says("one of each", ("get", "target/fra-hub", "node/fra-hub.fra-n1", "-o", "name"), r"\Atarget/fra-hub\nnode/fra-hub\.fra-n1\n\Z")
    w.says("as one list", ("get", "targets,nodes", "-o", "jsonpath={.kind} {.items[*].kind}"), r"\AList (Target )+(Node ?)+\n\Z")
    w.says("and as JSON", ("get", "nodes,targets", "-o", "json"), r'\A\{\n +"apiVersion": "v1",\n +"kind": "List",', '"kind": "Node"', '"kind": "Target"')
    w.says("what is there is shown, what is missing told", ("get", "target/fra-hub", "node/none"), r'nodes\.hanse\.dev "none" not found', status=3, at="err")
    w.says("a kind that there is none of", ("get", "targets,nodez"), r"did you mean nodes\?", status=2, at="err")
    w.says("a watch is of one kind", ("get", "targets,nodes", "-w"), "--watch takes one kind", status=2, at="err")
    w.says("all by KIND/NAME, or none", ("get", "target/fra-hub", "x"), "KIND/NAME and other words exclude each other", status=2, at="err")


def placed(w):
    gang = {"apiVersion": "hanse.dev/v1alpha1", "kind": "Workload",
            "metadata": {"name": "resnet-a", "namespace": "vision-dev", "labels": {"tier": "training", "experiment": "aug-7"}},
            "spec": {"priorityClassName": "training", "gang": {"workers": 4}, "topology": "rack",
                     "resources": {"gpu": {"count": 2, "classes": ["h100-sxm-80gb", "a100-sxm-80gb"], "minMemory": "40Gi"},
                                   "cpu": "1", "memory": "64Mi"},
                     "run": {"command": [w.program]}, "expected": {"duration": "9h"}, "maxCost": 900, "partition": "wait",
                     "checkpoint": {"store": w.path("checkpoints"), "interval": "20m", "signal": "SIGTERM", "grace": "5s"}}}
    w.says("submit prints the name, and nothing else", ("submit", "-f", "-"), r"\Aresnet-a\n\Z", text=json.dumps(gang))
    w.until("resnet-a", "Running")
    w.says("explain: where it runs and why there, why not elsewhere", ("explain", "resnet-a", *NS),
           r"\ADecision \d+ · epoch 1 · policies at git 4be1c0f · placed on fra-hub, rack r[12], 8 × h100-sxm-80gb at \$1\.92\n\n"
           r"TARGET +TIER +FITS +WHY +\$/USEFUL-GPU-H +DATA +TOPOLOGY +SCORE\n"
           r"fra-hub +hub +yes +chosen +1\.92 +– +1 rack +\d+\.\d\n",
           r"^cloud-burst +burst +no +SpillOverWaits: opens in \d+s +– +– +– +–$",
           r"^ohio-spoke +spoke +no +NoSuchGpuClass: ", r"^par-spoke +spoke +no +SpillOverWaits: ")
    w.says("the same as JSON", ("explain", "resnet-a", *NS, "-o", "json"), '"outcome": "Placed"', '"candidates": ')
    w.says("and as YAML", ("explain", "resnet-a", *NS, "-o", "yaml"), "^  outcome: Placed$")
    w.says("get workloads", ("get", "workloads", *NS), r"\ANAME +PHASE +TARGET +EPOCH +REASON +INDEXES +AGE\n",
           r"^resnet-a +Running +fra-hub +1 +Running +- +\d+s$")
    w.says("wide", ("get", "wl", "-A", "-o", "wide"), r"\ANAMESPACE +NAME +PHASE .* QUEUE +POSITION +PENDING +DOMAIN +GPU-USE +PRICE +COST +AGE\n",
           r"^vision-dev +resnet-a +Running .* vision +- +- +eu-central/fra1/b1/r[12] +not measured +1\.92 ")
    w.says("name", ("get", "wl", *NS, "-o", "name"), r"\Aworkload/resnet-a\n\Z")
    w.says("jsonpath", ("get", "wl", "resnet-a", *NS, "-o", "jsonpath={.status.placement.target}"), r"\Afra-hub\n\Z")
    wait_for("a checkpoint", lambda: w.status("resnet-a").get("checkpoint", {}).get("step", 0) > 0, 30)
    w.says("get checkpoints", ("get", "checkpoints", *NS), r"\ANAME +WORKLOAD +EPOCH +STEP +BYTES +VERIFIED +REASON +AGE\n",
           r"^resnet-a-e1-s\d+ +resnet-a +1 +\d+ +\d+ +\d+s +- ")
    w.says("get events", ("get", "events", *NS), r"\ALAST-SEEN +TYPE +REASON +OBJECT +MESSAGE\n", r"^\d+s +Normal +Placed +resnet-a +on fra-hub in epoch 1: ")
    w.says("describe: what it is, what it could resume from, its events", ("describe", "workload", "resnet-a", *NS),
           r"^Kind: +Workload \(hanse\.dev/v1alpha1\)$", r"^Labels:$", r"^  experiment: aug-7$", r"^CHECKPOINT +EPOCH +STEP +BYTES +AGE +VERIFIED", r"^resnet-a-e1-s\d+ .* resumes from here$",
           "^Spec:$", "^Status:$", "^Events:$", r"^\d+s +Normal +Started +on fra-hub in epoch 1$")
    if "searched" not in w.run("get", "nodes", "-o", "wide")[1]:
        proved = {"apiVersion": "hanse.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "proved", "namespace": "vision-dev"},
                  "spec": {"resources": {"cpu": "1", "memory": "64Mi"}, "isolation": {"processes": "proved"}, "run": {"command": ["true"]}}}
        w.says("who asks for a proof that nothing is left runs where it can be had", ("submit", "-f", "-"), r"\Aproved\n\Z", text=json.dumps(proved))
        w.until("proved", "Succeeded")
    w.says("logs", ("logs", "resnet-a", *NS, "--rank", "3"), r"\Abegins at 0\n")
    w.says("exec passes the exit status on", ("exec", "resnet-a", *NS, "--", "/bin/sh", "-c", "echo in $HANSE_RANK; exit 7"), r"\Ain 0\n\Z", status=7)
    w.says("exec that cannot be done says so by a status of its own", ("exec", "nobody", *NS, "--", "true"), r"not found", status=255, at="err")
    w.says("so do words that it does not know", ("exec", "resnet-a", *NS, "--rnak", "3", "--", "true"), r"rnak", status=255, at="err")
    words = [str(i) for i in range(600)]
    w.says("exec takes a command of 600 words", ("exec", "resnet-a", *NS, "--", "/bin/echo", *words), rf"\A{' '.join(words)}\n\Z")


def waiting(w):
    big = ("submit", "--name", "big-sweep", *NS, "--gpus", "4", "--workers", "12", "--cpu", "1", "--memory", "64Mi",
           "--class", "h100-sxm-80gb", "--priority", "training", "--label", "tier=training")
    w.says("submit by flags", (*big, "--", "sleep", "500"), r"\Abig-sweep\n\Z")
    wait_for("a decision", lambda: w.status("big-sweep").get("reason"), 10)
    w.says("explain: since when, which place in the queue, what is missing, what would help", ("explain", "big-sweep", *NS),
           r"\APending \d+s · position 1 of queue vision · policies at git 4be1c0f · QuotaBurstExhausted: 8 of 24 h100-sxm-80gb in use by queue vision\n"
           r"Would run now with any one of:\n  · \d+ workers instead of 12 \(fra-hub, \$1\.92/h\)\n",
           r"^TARGET +TIER +FITS +WHY", r"^fra-hub +hub +no +QuotaBurstExhausted: ")
    workers = re.search(r"· (\d+) workers instead", w.run("explain", "big-sweep", *NS)[1])
    w.says("the hint is true: with that many it runs",
           ("submit", "--name", "as-told", *big[3:7], "--workers", workers.group(1) if workers else "0", *big[9:], "--", "sleep", "500"))
    w.until("as-told", "Running")
    w.says("queues: what waits and what holds, parents with all below", ("get", "queues"),
           r"\ANAME +PARENT +PENDING +RUNNING +GPUS +AGE\n", r"^batch +root +0 +0 ", r"^research +root +1 +2 +16 ", r"^root +- +1 +2 +16 ", r"^vision +research +1 +2 +16 ")
    w.says("the same as JSON", ("get", "queue", "root", "-o", "json"), '"pending": 1', '"running": 2', '"allocated": 16')
    w.says("targets: what is held", ("get", "target", "fra-hub", "-o", "jsonpath={.status.gpus[0].allocated} of {.status.gpus[0].total}"), r"\A16 of 16\n\Z")
    w.says("nodes: what is held", ("get", "node", "fra-hub.fra-n1", "-o", "jsonpath={.status.gpuMilliAllocated}"), r"\A4000\n\Z")
    w.says("status at a glance", ("status",), r"^Member 1 \(leads\), ready; leader 1", r"^Policies at git 4be1c0f8aa$", r"^fra-hub +hub +agent +True +4 +16 of 16 used +open$",
           r"^QUEUE +PARENT +WEIGHT +PENDING +RUNNING +GPUS +GUARANTEED +BURST$", r"^vision +research +2 +1 +2 +16 +10 +24$")
    w.says("logs of what has not run: why", ("logs", "big-sweep", *NS), "has not run yet", status=5, at="err")
    for name in ("big-sweep", "as-told"):
        w.says(f"delete {name}", ("delete", "workload", name, *NS), rf"\Aworkload/{name}( deleted|: deletion began; it goes once its run has ended)\n\Z")
    wait_for("the room", lambda: "as-told" not in w.run("get", "wl", *NS, "-o", "name")[1], 20)
    w.says("counts follow", ("get", "queue", "vision"), r"^vision +research +0 +1 +8 ")


def moved(w):
    w.says("migrate waits until it runs there", ("migrate", "resnet-a", *NS, "--to", "par-spoke", "--wait"),
           r"\Aresnet-a-move-\w+\n",  # steps that are over before it looks are not told
           r" Succeeded +fra-hub epoch 1 → par-spoke epoch 2, from step \d+, paused [\dms]+, [\d.]+ GPU-seconds to do again$", at="both")
    w.says("get migrations", ("get", "migrations", *NS), r"\ANAME +WORKLOAD +CAUSE +FROM +TO +PHASE +AGE\n",
           r"^resnet-a-move-\w+ +resnet-a +asked +fra-hub +par-spoke +Succeeded ")
    w.says("it went on from its step", ("logs", "resnet-a", *NS), r"^begins at [1-9]")
    w.says("explain: the new place", ("explain", "resnet-a", *NS), r"\ADecision \d+ · epoch 2 · policies at git 4be1c0f · placed on par-spoke, rack p1, 8 × a100-sxm-80gb at \$1\.11\n",
           r"^par-spoke +spoke +yes +chosen +2\.22 +.*\d\n")
    w.says("drain waits until nothing is left", ("drain", "par-spoke", "--wait"), "par-spoke")
    w.says("it says so", ("status",), r"^par-spoke +spoke +agent +True +3 +0 of 12 used +draining$")
    w.says("uncordon", ("uncordon", "par-spoke"), r"\Atarget/par-spoke uncordoned\n")
    w.says("cost by cause closes", ("cost", "--by", "cause"), r"\ACost to .* in USD\n", r"^CAUSE +GPU-HOURS +COST +WASTED +HELD-IDLE +SHARE +CPU-HOURS$", r"^total +", r"^Capacity: [\d.]+ GPU-hours(, what was held beyond it,)? and [1-9][\d.]* CPU-hours, all of them accounted for$")
    w.says("cost by queue and project", ("cost", "--by", "queue,project"), r"^vision +vision-dev +\d")
    w.says("cost as CSV", ("cost", "--by", "queue", "-o", "csv"), r"\Aqueue,")


def wrong(w):
    w.says("a missing object: where it was looked for", ("get", "workload", "nope"), r'^error: workloads\.hanse\.dev "nope" not found in namespace default; -n NAMESPACE', status=3, at="err")
    w.says("some found, one missing", ("get", "queues", "vision", "nope"), r"^vision +research", status=3)
    w.says("a kind that is nearly one", ("get", "workloadz"), "did you mean workloads", status=2, at="err")
    w.says("a command that is nearly one", ("stat",), "did you mean status", status=2, at="err")
    w.says("a command of other tools", ("squeue",), "hanse get workloads", status=2, at="err")
    w.says("a kind as a command", ("queues",), "hanse get queues", status=2, at="err")
    w.says("file, line, field and what is expected", ("apply", "-f", "-"), r"^error: standard input:6: spec\.weigth: unknown field; did you mean weight\?", status=2, at="err",
           text="apiVersion: hanse.dev/v1alpha1\nkind: Queue\nmetadata:\n  name: q\nspec:\n  weigth: 2\n")
    w.says("a target that is not there", ("migrate", "resnet-a", *NS, "--to", "nowhere"), 'no target "nowhere"', status=3, at="err")
    w.says("a number that is none", ("submit", "--gpus", "two", "--", "true"), "--gpus two: expected a number from 0 to 256", status=2, at="err")
    w.says("an unknown shell", ("completion", "tcsh"), "usage: hanse completion", status=2, at="err")


def looked_up(w):
    w.says("explain KIND.FIELD", ("explain", "workload.spec.gang"), r"^workers +integer +processes that start together or not at all; default 1$")
    w.says("explain KIND", ("explain", "queue"), r"\AQueue \(hanse\.dev/v1alpha1\)\n", "^spec ")
    for verb in re.findall(r"^  (\w+) ", w.run("help")[1], re.M):
        if verb != "help":
            told = w.says(f"{verb} --help", (verb, "--help"), r"\Ausage: hanse " + verb)
            w.says(f"help {verb}", ("help", verb), r"\A" + re.escape(told) + r"\Z")
    complete = ("__complete", "--")
    w.says("completion: commands", (*complete, "exp"), r"\Aexplain\n\Z")
    w.says("completion: kinds", (*complete, "get", "que"), r"\Aqueues\n\Z")
    w.says("completion: names, of the namespace that the line names", (*complete, "logs", "-n", "vision-dev", "res"), r"\Aresnet-a\n\Z")
    w.says("completion: values", (*complete, "migrate", "resnet-a", "--to", "fra"), r"\Afra-hub\n\Z")
    w.says("completion: formats", (*complete, "get", "wl", "-o", "js"), r"\Ajson\njsonpath=\n\Z")
    shells = {"bash": ("bash", "-c", "source /dev/stdin; complete -p hanse"), "zsh": ("zsh", "-n"), "fish": ("fish", "-n")}
    for shell, check in shells.items():
        script = w.says(f"completion for {shell}", ("completion", shell), "__complete")
        if any(os.access(os.path.join(d, shell), os.X_OK) for d in os.environ["PATH"].split(":")):
            done = subprocess.run(check, input=script, capture_output=True, text=True, timeout=20, check=False)
            w.failed += done.returncode != 0
            print(f"  {'ok    ' if done.returncode == 0 else 'FAILED'}  {shell} takes it{done.stderr and ': ' + done.stderr}")
    done = subprocess.run(["bash", "-c", f"'{w.hanse}' get queues -o json | true; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True,
                          timeout=20, check=False, env={**os.environ, "KUBECONFIG": w.path("kubeconfig")})
    good = done.stdout.strip() in ("0", "141") and not done.stderr
    w.failed += not good
    print(f"  {'ok    ' if good else 'FAILED'}  a reader that goes away is no error: {done.stdout.strip()} {done.stderr.strip()}")


def main():
    hanse = os.path.abspath(os.environ.get("HANSE") or os.path.join(TOP, "build", "release", "hanse"))
    with tempfile.TemporaryDirectory(prefix="hanse-walk-") as folder:
        w = Walk(hanse, folder)
        try:
            w.start_members()
            for title, part in (("Policies", policies), ("Placed", placed), ("Waiting", waiting), ("Moved", moved), ("Wrong", wrong), ("Looked up", looked_up)):
                print(title, flush=True)
                part(w)
        finally:
            w.stop()
    print(f"{w.failed} failed" if w.failed else "all of it reads as promised")
    return 1 if w.failed else 0


if __name__ == "__main__":
    sys.exit(main())
