#!/usr/bin/env python3
"""Work in real pods: a training that begins on an agent, is moved into a pod of a cluster, and from there to another agent, by checkpoint each
time, comes to what an undisturbed run comes to; logs and exec go through its runner. Then a kubelet is killed, a node is powered off, and a
pod is deleted by force, under a kubelet and under a dead one: never do two copies live. The hub has the rights of deploy/kubernetes/rbac.yaml
and no other; all of them are used, and nothing else was asked for."""
import base64
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "e2e", "lib")]
sys.dont_write_bytecode = True
import kube  # noqa: E402

kube.alone()
from connect_proxy import ConnectProxy  # noqa: E402
from fault_proxy import FaultProxy  # noqa: E402
from moves import TOP, Failure, Moves, document, run, wait_for  # noqa: E402

DEPLOY = os.path.join(TOP, "deploy", "kubernetes")
SPACE = "hanse-runs"
NODES = ("node-a", "node-b")
MODEL = "NVIDIA-H100-80GB-HBM3"


class Pods(Moves):
    """left and right have agents; east is a cluster with two real nodes, between them in the order of placement."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.peer = self.api = self.proxy = None

    def target_document(self, name):
        return document("Target", name, {**super().target_document(name)["spec"], "partition": {"suspectAfter": "2s", "lease": "8s"}})

    def policies(self):
        own = list(super().policies())
        own[0] = document("GpuClass", "h100", {"memory": "80Gi", "aliases": [MODEL]})
        own[-1] = document("PlacementPolicy", "left-first", {"order": [{"targets": {"names": [n]}} for n in ("left", "east", "right")]})
        return own

    def begin(self):
        self.peer = kube.Kube(tempfile.mkdtemp(prefix="hanse-kube-"), "kubelet")  # apart from what pods mount
        self.proxy = ConnectProxy("anna:s3cret", host="10.199.0.1")
        self.runner_image()
        for node in NODES:
            self.kubectl("label", "node", node, "nvidia.com/gpu.product=" + MODEL, "nvidia.com/gpu.memory=81559")
        self.kubectl("apply", "-f", os.path.join(DEPLOY, "rbac.yaml"))
        self.api = FaultProxy(self.peer.address, ca=self.peer.ca, cert=self.peer.cert, key=self.peer.key)
        os.makedirs(self.path("kept"), exist_ok=True)
        super().begin()
        done = self.cli("apply", "-f", "-", text=self.cluster(), check=False)
        self.check("deploy/kubernetes/target.yaml is taken", done.returncode == 0, done.stderr.strip()[-300:])
        wait_for("east to be connected", lambda: "east" in self.connected(), 60)

    def check(self, what, good, detail=""):
        return super().check(what, good, "" if good else detail)

    def runner_image(self):
        archive = self.path("runner.tar")
        subprocess.run([os.path.join(DEPLOY, "runner-image"), os.environ["HANSE_RUN"], archive, "localhost/hanse-run:1"], check=True)
        for node in NODES:
            self.peer.node(node, "ctr", "images", "import", archive)

    def cluster(self):
        """target.yaml, filled in as its README tells."""
        secret = wait_for("the token of the account", lambda: (s := self.get(f"/api/v1/namespaces/hanse/secrets/hanse-token").get("data")) and
                          "token" in s and s, 60)
        with open(os.path.join(DEPLOY, "target.yaml"), encoding="utf-8") as file:
            text = file.read()
        for word, value in (
                ("TOKEN", base64.b64decode(secret["token"]).decode()), ("CA", json.dumps(base64.b64decode(secret["ca.crt"]).decode())),
                ("SERVER", self.api.url), ("REGISTRY/hanse-run:VERSION", "localhost/hanse-run:1"), ("IMAGE", "localhost/host:1"),
                ("[/checkpoints]", f"[{self.path('checkpoints')}]"), ("30s", "2s"), ("2m", "8s"),
                ("    - {path: /checkpoints, claim: checkpoints}", "\n".join(
                    f"    - {{path: {x}, hostPath: {x}}}" for x in ("/usr", self.dir, TOP)) + "\n    #")):
            if len(re.findall(r"(?<![\w/])" + re.escape(word) + r"(?!\w)", text)) != 1:
                raise ValueError(f"target.yaml has {word} not once")
            text = re.sub(r"(?<![\w/])" + re.escape(word) + r"(?!\w)", lambda _, v=value: v, text)
        text = text.replace("  partition:", f"  jurisdiction: DE\n  priceSheet: own\n  logs: {{store: {self.path('kept')}}}\n  partition:", 1)
        text = text.replace("stringData:\n", f"stringData:\n  proxy: {self.proxy.login}\n", 1)
        return text.replace("    runners: true", f"    homeProxy: {self.proxy.url}\n    runners: true", 1)

    def kubectl(self, *words):
        said = self.peer.kubectl(*words)
        self.check("kubectl " + " ".join(words)[:100], said is not None)
        return said

    def get(self, path):
        return self.peer.call("GET", path)[1]

    def pods(self):
        return self.get(f"/api/v1/namespaces/{SPACE}/pods")["items"]

    def pod(self, name):
        """The newest pod of that workload."""
        uid = self.workloads()[name]["metadata"]["uid"]
        of = [p for p in self.pods() if p["metadata"]["labels"].get("hanse.dev/key", "").startswith(uid)]
        return max(of, key=lambda p: p["metadata"]["creationTimestamp"])

    def train(self, name, steps, *words, **more):
        """Its trainer is found by the same path in pods."""
        super().train(name, steps, *words, env=[{"name": "PATH", "value": self.path("bin") + ":/usr/bin:/bin"}], **more)

    def in_pods(self, name, steps, **more):
        self.train(name, steps, targets={"names": ["east"]}, **more)

    def moved(self, name, to, epoch):
        done = self.cli("migrate", name, "--to", to, "--wait", check=False, timeout=120)
        self.check(f"{name} is moved to {to}", done.returncode == 0, done.stderr.strip()[-200:] if done.returncode else "")
        life = self.running(name, epoch, seconds=60)
        s = self.moves_of(name)[-1]["status"]
        self.check(f"it went on there from the step that it saved ({s.get('step')})", s.get("step", 0) > 0 and life.resumed == s["step"],
                   f"{life.resumed} {s}" if life.resumed != s.get("step") else "")

    def running(self, name, *words, **more):
        try:
            return super().running(name, *words, **more)
        except Failure:
            print(self.cli("describe", "workload", name, check=False).stdout[-3000:])
            print(self.cli("logs", name, check=False))
            for pod in self.pods():
                print(pod["metadata"]["name"], pod["spec"].get("schedulingGates"), json.dumps(pod["status"])[:3000])
                print(self.peer.kubectl("-n", SPACE, "logs", pod["metadata"]["name"]))
            raise

    def stop(self):
        super().stop()
        if self.peer:
            self.peer.close()


def agent_to_pod_and_on(p):
    p.train("tourist", 900)
    p.running("tourist", 1, 60)
    p.moved("tourist", "east", 2)
    wait_for("two checkpoints of it there", lambda: len([c for c in p.checkpoints("tourist") if c["spec"]["epoch"] == 2]) > 1, 60)
    pod = p.pod("tourist")
    p.check("it runs in a pod of a real node", pod["spec"].get("nodeName") in NODES and pod["status"]["phase"] == "Running", pod["status"]["phase"])
    mounts = [m["name"] for c in pod["spec"]["containers"] for m in c["volumeMounts"]]
    p.check("whose main container has not the Secret", "hanse-secret" not in mounts and "hanse" in mounts, str(mounts))
    logs = p.cli("logs", "tourist", check=False)
    p.check("hanse logs has what it prints", logs.returncode == 0 and "step" in logs.stdout, (logs.stdout + logs.stderr)[-200:])
    said = p.cli("exec", "tourist", "--", "/bin/sh", "-c", "hostname; ls /.hanse/key; echo $HANSE_EPOCH", check=False)
    p.check("hanse exec is in that pod, where no key is left", said.stdout.split() == [pod["metadata"]["name"], "2"] or
            said.stdout.split()[1:] == ["2"], said.stdout + said.stderr)
    told = p.cli("describe", "workload", "tourist").stdout
    p.check("hanse describe names the pod, its node and what the cluster says of it",
            re.search(rf"{SPACE}/{pod['metadata']['name']} +0 +{pod['spec']['nodeName']} +Running", told) and
            re.search(rf"Started +Pod/{pod['metadata']['name']} ", told), told[:2000])
    p.moved("tourist", "right", 3)
    p.holds("tourist", [1, 2, 3])
    p.check("it lived where it was moved to", [x.target for x in p.lives("tourist")] == ["left", "east", "right"],
            str([x.target for x in p.lives("tourist")]))
    p.check("its runner called home through the proxy", p.proxy.asked, str(p.proxy.refused))


def a_kubelet_that_dies_ends_nothing(p):
    """Its program goes on; what it came to counts once the kubelet, which alone can prove it, is back."""
    p.in_pods("steady", 500)
    p.running("steady", 1, 40)
    node = p.pod("steady")["spec"]["nodeName"]
    p.peer.node(node, "kill-kubelet")
    step = p.lives("steady")[-1].last_step
    wait_for("it to go on without a kubelet", lambda: p.lives("steady")[-1].last_step > step + 60, 60)
    p.peer.node(node, "start-kubelet")
    p.holds("steady", [1])


def a_node_without_power_is_replaced(p):
    """Its runner's lease proves the end, for nobody else can: with mode replace it goes on on another node before that one is back."""
    p.train("mover", 700, targets={"names": ["east", "right"]}, partition={"mode": "replace", "replaceAfter": "3s"})
    p.running("mover", 1, 60)
    p.saved("mover")
    node = p.pod("mover")["spec"]["nodeName"]
    p.peer.node(node, "power-off")
    life = p.running("mover", 2, seconds=120)
    now = p.pod("mover")["spec"].get("nodeName")
    p.check("it went on from a checkpoint on the other node of its cluster", life.resumed > 0 and life.target == "east" and now not in (None, node),
            f"{life.resumed} {life.target} {now}")
    p.peer.node(node, "boot")
    p.holds("mover", [1, 2], lost=400)


def a_cluster_that_is_cut_off_is_replaced(p):
    """Nothing comes through to it any more, nor from its pods, and both halves live: by its lease the runner in the pod ends its program
    ahead of the next one, which begins elsewhere."""
    p.train("severed", 800, targets={"names": ["east", "right"]}, partition={"mode": "replace", "replaceAfter": "3s"})
    p.running("severed", 1, 60)
    p.saved("severed")
    p.api.freeze()
    p.proxy.cut(away=True)
    life = p.running("severed", 2, seconds=120)
    p.check("it goes on elsewhere from a checkpoint while its cluster is cut off", life.target == "right" and life.resumed > 0,
            f"{life.target} {life.resumed}")
    p.api.thaw()
    p.proxy.cut()
    wait_for("east to be connected again", lambda: "east" in p.connected(), 120)
    p.holds("severed", [1, 2], lost=400)


def a_node_without_power_is_waited_for(p):
    """The default: nothing begins anew until its kubelet is back, which then says that nothing of it is left."""
    p.in_pods("waiter", 600, retries=1)
    p.running("waiter", 1, 60)
    p.saved("waiter")
    pod = p.pod("waiter")
    p.peer.node(pod["spec"]["nodeName"], "power-off")
    wait_for("Kubernetes to give the pod up", lambda: p.pod("waiter")["metadata"].get("deletionTimestamp") or
             next(c["status"] for c in p.pod("waiter")["status"]["conditions"] if c["type"] == "Ready") == "False", 120)
    p.check("nothing else begins", [int(x.epoch) for x in p.lives("waiter")] == [1] and p.pod("waiter")["metadata"]["uid"] == pod["metadata"]["uid"])
    p.peer.node(pod["spec"]["nodeName"], "boot")
    p.running("waiter", 2, seconds=120)
    p.holds("waiter", [1, 2], lost=400)


def a_pod_that_is_deleted_by_force(p):
    p.in_pods("forced", 600)
    p.running("forced", 1, 60)
    p.saved("forced")
    p.kubectl("-n", SPACE, "delete", "pod", p.pod("forced")["metadata"]["name"], "--force", "--grace-period=0", "--wait=false")
    p.running("forced", 2, seconds=120)
    p.holds("forced", [1, 2], lost=400)


def a_pod_that_is_deleted_by_force_under_a_dead_kubelet(p):
    """Nobody ends it, and nobody else begins: until its kubelet is back it is the one copy."""
    p.in_pods("orphan", 900)
    p.running("orphan", 1, 60)
    p.saved("orphan")
    pod = p.pod("orphan")
    p.peer.node(pod["spec"]["nodeName"], "kill-kubelet")
    p.kubectl("-n", SPACE, "delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0", "--wait=false")
    step = p.lives("orphan")[-1].last_step
    wait_for("it to go on", lambda: p.lives("orphan")[-1].last_step > step + 60, 60)
    p.check("and it alone", len(p.lives("orphan")) == 1)
    p.peer.node(pod["spec"]["nodeName"], "start-kubelet")
    p.running("orphan", 2, seconds=120)
    p.holds("orphan", [1, 2], lost=400)


def small(name, line, **spec):
    return document("Workload", name, {"resources": {"cpu": 1, "memory": "64Mi"}, "targets": {"names": ["east"]},
                                       "run": {"command": ["/bin/sh", "-c", line], "retries": 0}, **spec}, namespace="default")


def a_gang_begins_whole(p):
    out = p.path("scratch", "pair")
    p.apply(small("pair", f"echo $HANSE_RANK $HANSE_WORLD_SIZE $MASTER_ADDR >> {out}.$HANSE_RANK", gang={"workers": 2}))
    p.check("a gang of two pods ends well", p.ended("pair")["phase"] == "Succeeded", p.status("pair"))
    said = []
    for rank in (0, 1):
        with open(f"{out}.{rank}", encoding="utf-8") as file:
            said.append(file.read().split())
    p.check("each rank began once, and knows where they meet", [x[:2] for x in said] == [["0", "2"], ["1", "2"]] and said[0][2:] == said[1][2:] and
            all(len(x) == 3 and x[2].endswith(f".{SPACE}.svc") for x in said), said)


def an_image_that_is_not_there(p):
    p.apply(document("Workload", "absent", {"resources": {"cpu": 1, "memory": "64Mi"}, "targets": {"names": ["east"]},
                                            "run": {"image": "localhost/absent:1", "command": ["true"]}}, namespace="default"))
    said = wait_for("describe to tell why its pod waits", lambda: (t := p.cli("describe", "workload", "absent").stdout) and
                    re.search(r"Pending +(ErrImagePull|ImagePullBackOff)", t) and t, 60)
    p.check("with the kubelet's Event of it", re.search(r"Warning +Failed +Pod/hanse-\S+ +.*localhost/absent:1", said), said[:3000])
    p.cli("delete", "workload", "absent")


def an_example_that_calls_hanse(p):
    """deploy/examples/programs/append commits by `hanse checkpoint`, which every pod has."""
    program = [os.path.join(TOP, "deploy", "examples", "programs", "append", "run.sh"), "--steps", "300", "--every", "20"]
    path = f"/.hanse/bin:/usr/bin:/bin:{os.path.dirname(p.hanse)}"
    p.documents["records"] = document("Workload", "records", {
        "resources": {"cpu": 1, "memory": "64Mi"}, "targets": {"names": ["east", "right"]},
        "checkpoint": {"store": p.path("checkpoints"), "grace": "10s"},
        "run": {"command": program + ["--pause", "0.02"], "retries": 0, "env": [{"name": "PATH", "value": path}]}}, namespace="default")
    p.apply(p.documents["records"])
    p.saved("records", 2, 60)
    done = p.cli("migrate", "records", "--to", "right", "--wait", check=False, timeout=120)
    p.check("it is moved from its pod to an agent", done.returncode == 0, done.stderr.strip()[-300:])
    p.check("and ends well", p.ended("records")["phase"] == "Succeeded", p.status("records"))
    ends = [(e["target"], e.get("exitCode", 0)) for e in p.status("records")["ends"]]
    p.check("having saved in the pod", ends == [("east", 75), ("right", 0)], ends)
    clean = subprocess.run([p.hanse, "run", "--checkpoint-dir", p.path("scratch", "records"), "--", *program, "--pause", "0"],
                           capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})
    results = [re.findall(r"result (\S+)", text) for text in (clean.stdout, p.cli("logs", "records", check=False).stdout)]
    p.check("its result is an undisturbed run's", results[0] and results[0] == results[1], (results, clean.stderr[-300:]))


JOB = """apiVersion: batch/v1
kind: Job
metadata: {name: theirs, namespace: default}
spec:
  completions: 1
  backoffLimit: 1
  template:
    spec:
      restartPolicy: OnFailure
      containers:
      - name: program
        image: localhost/box:1
        command: [sh, -c, "case $KEY in *.1.*) sleep 600;; esac"]
        env: [{name: KEY, valueFrom: {fieldRef: {fieldPath: "metadata.labels['hanse.dev/key']"}}}]
        resources: {requests: {cpu: 100m, memory: 64Mi}}
"""


def a_job_of_others_after_a_power_cut(p):
    """Carried whole, without a runner: its kubelet alone proves that the first epoch is over, and the second one comes to the end."""
    path = p.path("scratch", "job.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(JOB)
    done = p.cli("submit", "-f", path, check=False)
    p.check("a Job is submitted as it is", done.returncode == 0 and done.stdout == "theirs\n", done.stderr)
    wait_for("it to run", lambda: p.status("theirs").get("phase") == "Running", 120)
    pod = p.pod("theirs")
    p.check("no runner is in its pod", not pod["spec"].get("initContainers") and [c["name"] for c in pod["spec"]["containers"]] == ["program"], pod["spec"])
    p.peer.node(pod["spec"]["nodeName"], "power-off")
    wait_for("Kubernetes to give the pod up", lambda: p.pod("theirs")["metadata"].get("deletionTimestamp") or
             next(c["status"] for c in p.pod("theirs")["status"]["conditions"] if c["type"] == "Ready") == "False", 120)
    p.check("nothing else begins", p.status("theirs")["epoch"] == 1 and p.pod("theirs")["metadata"]["uid"] == pod["metadata"]["uid"], p.status("theirs"))
    p.peer.node(pod["spec"]["nodeName"], "boot")
    s = p.ended("theirs", 180)
    p.check("once its kubelet is back it is begun again, and ends", s["phase"] == "Succeeded" and s["epoch"] == 2, s)


def the_runner_of_a_node(p):
    """Instead of an image of the runner: a folder of the node; as everywhere, nothing of it is asked of the image."""
    image, node = "{image: localhost/hanse-run:1}", f"{{hostPath: {os.path.dirname(os.environ['HANSE_RUN'])}}}"
    p.cli("apply", "-f", "-", text=p.cluster().replace(image, node))
    p.apply(small("local", "test -x /.hanse/bin/hanse-run && exit 3"))
    p.check("its program ran, and its exit status is told", p.ended("local").get("ends", [{}])[-1].get("exitCode") == 3, p.status("local"))
    p.cli("apply", "-f", "-", text=p.cluster())


def a_script(p):
    p.apply(document("Workload", "script", {
        "resources": {"cpu": 1, "memory": "64Mi"}, "targets": {"names": ["east"]},
        "run": {"script": f"#!/bin/sh\necho \"$1 $WORD\" > {p.path('scratch', 'script')}\n", "args": ["a b"], "retries": 0,
                "env": [{"name": "WORD", "value": "$(NOT) \"$$x\""}]}}, namespace="default"))
    p.check("a script ends well", p.ended("script")["phase"] == "Succeeded", p.status("script"))
    with open(p.path("scratch", "script"), encoding="utf-8") as file:
        said = file.read()
    p.check("with its arguments and environment as they were given", said == "a b $(NOT) \"$$x\"\n", said)


def a_quota_of_the_cluster_holds_it(p):
    """Why no pod of it comes is told; it runs once one may."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {"hard": {"pods": "0"}}}
    p.peer.call("POST", f"/api/v1/namespaces/{SPACE}/resourcequotas", quota)
    wait_for("the quota to hold", lambda: p.get(f"/api/v1/namespaces/{SPACE}/resourcequotas/full").get("status", {}).get("hard"), 60)
    p.apply(small("held", "true"))
    said = wait_for("it to be told why it waits", lambda: (t := json.dumps(p.status("held"))) and "exceeded quota" in t and t, 120)
    p.check("by the cluster's own words", "full" in said, said[-300:])
    p.peer.call("DELETE", f"/api/v1/namespaces/{SPACE}/resourcequotas/full")
    p.check("and runs once it may", p.ended("held", 120)["phase"] == "Succeeded", p.status("held"))


def asked(method, target):
    """What a request is to RBAC: (namespace or not, group, resource, verb); None: no resource."""
    path, _, query = target.partition("?")
    parts = path.strip("/").split("/")
    if parts[0] not in ("api", "apis"):
        return None
    group, parts = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    inside = parts[0] == "namespaces" and len(parts) > 2
    parts = parts[2:] if inside else parts
    named = len(parts) > 1
    verb = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete" if named else "deletecollection"}.get(method)
    verb = verb or ("get" if named else "watch" if re.search(r"(^|&)watch=(true|1)", query) else "list")
    return inside, group, "/".join(parts[:1] + parts[2:3]), verb


def its_rights_are_all_used_and_enough(p):
    rights = {(inside, group, resource, verb)
              for inside, name in ((False, "hanse-reads"), (True, "hanse-runs"))
              for rule in p.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}")["rules"]
              for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]}
    log = p.api.log()
    refused = [(x["method"], x["target"]) for x in log if x["status"] in (401, 403)]
    p.check("no request was refused for want of a right", not refused, refused[:5])
    used = {a for x in log if (a := asked(x["method"], x["target"]))}
    beyond = {a for a in used - rights if not (a[0] and (False, *a[1:]) in rights)}  # a right in all namespaces is one in each
    p.check("nothing beyond rbac.yaml was asked for", not beyond, sorted(beyond))
    p.check("all that rbac.yaml gives was used", rights <= used, sorted(rights - used))


def nothing_of_them_is_left(p):
    try:
        wait_for("no pod to be left", lambda: not p.pods(), 120)
    except Failure:
        for pod in p.pods():
            print(pod["metadata"]["name"], pod["metadata"].get("finalizers"), json.dumps(pod["status"]), flush=True)
        raise
    of_runs = [s["metadata"]["name"] for s in p.get(f"/api/v1/namespaces/{SPACE}/secrets")["items"]]
    wait_for("no Secret of a run to be left", lambda: not p.get(f"/api/v1/namespaces/{SPACE}/secrets")["items"], 30)
    p.check("Secrets of runs went with them", True, str(of_runs))


if __name__ == "__main__":
    if not os.environ.get("HANSE_RUN"):
        print("SKIPPED: hanse-run was not built (HANSE_STATIC_RUNNER)")
        sys.exit(77)
    sys.exit(run((agent_to_pod_and_on, a_kubelet_that_dies_ends_nothing, a_node_without_power_is_replaced, a_cluster_that_is_cut_off_is_replaced,
                  a_node_without_power_is_waited_for,
                  a_pod_that_is_deleted_by_force,
                  a_pod_that_is_deleted_by_force_under_a_dead_kubelet, a_gang_begins_whole, an_image_that_is_not_there, an_example_that_calls_hanse,
                  a_job_of_others_after_a_power_cut, the_runner_of_a_node, a_script, a_quota_of_the_cluster_holds_it,
                  nothing_of_them_is_left, its_rights_are_all_used_and_enough), kind=Pods))
