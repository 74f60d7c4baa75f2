#!/usr/bin/env python3
"""hanse submit -f with manifests of others: what it says of each line that it cannot keep, the Workload that it makes, and what placement
says where no target runs such a thing. Prints ok or FAILED per check; exit 1 when any failed."""
import json
import os
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for folder in (("tests", "peers", "lib"), ("deploy", "examples", "three-tier"), ("tests", "e2e", "lib")):
    sys.path.insert(0, os.path.join(TOP, *folder))
sys.dont_write_bytecode = True
from federation import wait_for  # noqa: E402
from kube_federation import KubeFederation  # noqa: E402
from parts import run  # noqa: E402

JOB = """apiVersion: batch/v1
kind: Job
metadata:
  name: train
  labels: {team: vision, hanse.dev/queue: vision}
spec:
  parallelism: 2
  completions: 2
  completionMode: Indexed
  backoffLimit: 3
  template:
    spec:
      restartPolicy: OnFailure
      priorityClassName: high
      containers:
      - name: train
        image: registry.example/train:7
        command: [python, train.py]
        resources:
          limits: {cpu: 8, memory: 32Gi, nvidia.com/gpu: 4}
"""
RUNTIME = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch-distributed}
spec:
  mlPolicy: {numNodes: 1, torch: {numProcPerNode: auto}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata:
            labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}
          spec:
            template:
              spec:
                containers:
                - {name: node, image: "registry.example/torch:2"}
"""
TRAIN = """apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: tune}
spec:
  runtimeRef: {name: torch-distributed}
  trainer:
    numNodes: 2
    command: [torchrun, tune.py]
    resourcesPerNode:
      limits: {cpu: 8, nvidia.com/gpu: 4}
"""
RAY = """apiVersion: ray.io/v1
kind: RayJob
metadata: {name: sweep}
spec:
  entrypoint: python sweep.py
  rayClusterSpec:
    headGroupSpec:
      template:
        spec:
          containers: [{name: head, image: "registry.example/ray:2"}]
    workerGroupSpecs:
    - groupName: small
      replicas: 2
      template:
        spec:
          containers: [{name: worker, image: "registry.example/ray:2"}]
"""
HOSTILE = """apiVersion: batch/v1
kind: Job
metadata:
  name: train
spec:
  completions: 10
  template:
    spec:
      hostNetwork: true
      volumes:
      - name: root
        hostPath: {path: /}
      containers:
      - name: train
        image: i
        securityContext:
          privileged: true
"""


class Manifests(KubeFederation):
    def begin(self):
        self.start_members()
        self.apply({"apiVersion": "hanse.dev/v1alpha1", "kind": "Target", "metadata": {"name": "machines"},
                    "spec": {"type": "agent", "tier": "hub", "capacity": "owned"}})

    def submit(self, text, *words):
        path = self.path("scratch", "job.yaml")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return self.cli("submit", "-f", path, *words, check=False), path

    def its_workload(self):
        done, path = self.submit(JOB, "--dry-run")
        said = done.stderr.splitlines()
        self.check("what is left out is told by its line", f"Warning: {path}:13: spec.template.spec.restartPolicy: becomes Never" in done.stderr and
                   f"Warning: {path}:14: spec.template.spec.priorityClassName: left out" in done.stderr, said)
        self.check("and that nothing keeps its checkpoints", f"Warning: {path}:1: its programs are started as they are, without hanse-run" in
                   done.stderr and len(said) == 3, said)
        words = ("queue: vision", "workers: 2", "count: 4", "cpu: \"8\"", "memory: \"32Gi\"", "retries: 3", "team: vision", "kind: Job")
        self.check("its Workload says what its pods do", done.returncode == 0 and all(w in done.stdout for w in words), done.stdout)

    def a_train_job(self):
        done, path = self.submit(TRAIN)
        self.check("a TrainJob without its runtime says which one, and how to get it", done.returncode != 0 and f"{path}:5: spec.runtimeRef: " in done.stderr and
                   "kubectl get clustertrainingruntime torch-distributed -o yaml" in done.stderr, done.stderr)
        done, path = self.submit(RUNTIME + "---\n" + TRAIN, "--dry-run")
        words = ("kind: JobSet", "workers: 2", "count: 4", "torchrun", "registry.example/torch:2", "PET_MASTER_ADDR", "name: tune")
        self.check("with it, it is the JobSet that the two make", done.returncode == 0 and all(w in done.stdout for w in words), done.stdout + done.stderr)
        self.check("which is said by its line", f"Warning: {path}:19: it is run as a JobSet: the one that it makes with its runtime" in done.stderr, done.stderr)
        done, path = self.submit(RUNTIME + "---\n" + TRAIN + "---\n" + JOB)
        self.check("nothing else is submitted with the two", done.returncode != 0 and "holds 3 documents" in done.stderr, done.stderr)

    def a_ray_job(self):
        done, path = self.submit(RAY, "--dry-run")
        words = ("kind: JobSet", "workers: 3", "ray start --head", "-- python sweep.py", "name: sweep")
        self.check("a RayJob is a JobSet whose pods begin ray", done.returncode == 0 and all(w in done.stdout for w in words), done.stdout + done.stderr)
        self.check("which is said", f"Warning: {path}:1: it is run as a JobSet: its pods begin ray: no RayCluster is made" in done.stderr, done.stderr)
        done, path = self.submit(RAY.replace("  rayClusterSpec:", "  rayClusterSpec:\n    enableInTreeAutoscaling: true"))
        self.check("what it cannot be is refused by its line", done.returncode != 0 and f"error: {path}:7: spec.rayClusterSpec.enableInTreeAutoscaling: " in
                   done.stderr and not done.stdout, done.stderr)

    def what_is_refused(self):
        done, path = self.submit(HOSTILE)
        lines = [f"error: {path}:6: spec.completions: 10 completions of which 1 run at a time", f"error: {path}:9: spec.template.spec.hostNetwork: ",
                 f"error: {path}:12: spec.template.spec.volumes[0].hostPath: ",
                 f"error: {path}:17: spec.template.spec.containers[0].securityContext.privileged: "]
        self.check("each line is named", all(line in done.stderr for line in lines), done.stderr)
        self.check("and nothing was submitted", done.returncode == 1 and f"error: {path}: 4 of what it says cannot be kept (above), so nothing was submitted"
                   in done.stderr and not done.stdout, (done.returncode, done.stderr))
        done, path = self.submit(JOB.replace("batch/v1", "apps/v1"))
        self.check("a kind that is not known is named, and those that are", done.returncode != 0 and '"Job" (apps/v1)' in done.stderr and
                   "Job (batch/v1)" in done.stderr, done.stderr)
        done, path = self.submit(JOB, "--gpus", "2")
        self.check("no flag says less than its pods ask for", "spec.resources.gpu" in done.stderr and "asks for 4 nvidia.com/gpu" in done.stderr, done.stderr)
        done, path = self.submit(JOB, "--checkpoint-store", "/ckpt")
        self.check("nor what only a runner could do", "spec.checkpoint" in done.stderr and "without the runner" in done.stderr, done.stderr)

    def nobody_runs_it(self):
        done, _ = self.submit(JOB.replace(", hanse.dev/queue: vision", ""))
        self.check("it is taken", done.returncode == 0 and done.stdout == "train\n", done.stderr)
        self.check("whole", self.object("workloads", "train", "-n", "default")["spec"]["run"]["manifest"]["spec"]["template"]["spec"]["containers"][0]
                   ["command"] == ["python", "train.py"])
        said = wait_for("placement to say why", lambda: (t := self.cli("explain", "train", "-n", "default", check=False).stdout) and "machines" in t and t, 60)
        self.check("why no target takes it, and which could", "only targets of type kubernetes run manifests" in said, said)
        doc = self.object("workloads", "train", "-n", "default")
        doc = {"apiVersion": doc["apiVersion"], "kind": "Workload", "metadata": {"name": "less", "namespace": "default"},
               "spec": {"run": {"manifest": json.loads(json.dumps(doc["spec"]["run"]["manifest"]))}, "gang": {"workers": 2},
                        "resources": {"cpu": 1, "memory": "32Gi", "gpu": {"count": 4}}}}
        done = self.apply(doc, check=False)
        self.check("a Workload that asks for less than its pods is refused", done.returncode != 0 and "spec.resources.cpu" in done.stderr and
                   "asks for 8" in done.stderr, done.stderr)


if __name__ == "__main__":
    sys.exit(run(Manifests, "manifests", [Manifests.its_workload, Manifests.a_train_job, Manifests.a_ray_job, Manifests.what_is_refused, Manifests.nobody_runs_it]))
