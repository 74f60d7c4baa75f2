"""Controllers of other kinds, played on a real API server by what they document: JobSet, PyTorchJob and MPIJob, of which the test
installs the least CRD that takes them. They make what the real ones make, under the same names and owners, in their order; what their
webhooks judge is not played."""
import copy
import http.client
import threading
import time

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SETS, TRAINING = ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"), ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs")
MPI = ("kubeflow.org", "v2beta1", "MPIJob", "mpijobs")
MERGE = "application/merge-patch+json"


def crd(group, version, kind, plural):
    any_ = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec = {**any_, "properties": {"network": {**any_, "properties": {"enableDNSHostnames": {"type": "boolean"}}}}}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                     "versions": [{"name": version, "served": True, "storage": True, "subresources": {"status": {}},
                                   "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": any_}}}}]}}


def owner(o, kind):
    return [{"apiVersion": f"{kind[0]}/{kind[1]}", "kind": kind[2], "name": o["metadata"]["name"], "uid": o["metadata"]["uid"],
             "controller": True, "blockOwnerDeletion": True}]


def has(o, *types):
    return any(c["type"] in types and c["status"] == "True" for c in o.get("status", {}).get("conditions", []))


class Controllers:
    def __init__(self, peer, namespace, *kinds):
        self.peer, self.namespace, self.kinds, self.stopping, self.failed = peer, namespace, kinds, False, []
        for kind in kinds:
            peer.call("POST", CRDS, crd(*kind))
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def stop(self):
        self.stopping = True
        self.thread.join()

    def path(self, kind, name=""):
        group = f"/apis/{kind[0]}/{kind[1]}" if kind[0] else f"/api/{kind[1]}"
        return f"{group}/namespaces/{self.namespace}/{kind[3]}" + (f"/{name}" if name else "")

    def all(self, kind):
        status, answer = self.peer.call("GET", self.path(kind))
        return answer["items"] if status == 200 else []

    def _run(self):
        play = {SETS: self._set, TRAINING: self._training, MPI: self._mpi}
        while not self.stopping:
            for kind in self.kinds:
                try:
                    for o in self.all(kind):
                        if "deletionTimestamp" not in o["metadata"] and not has(o, "Completed", "Succeeded", "Failed"):
                            play[kind](o)
                except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as e:
                    self.failed.append(repr(e))
            time.sleep(0.2)

    def _status(self, kind, o, type_):
        self.peer.call("PATCH", self.path(kind, o["metadata"]["name"]) + "/status", {"status": {"conditions": [
            {"type": type_, "status": "True", "reason": type_, "message": f"{kind[2]} {type_}", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}},
            kind=MERGE)

    def _make(self, kind, o):
        status, answer = self.peer.call("POST", self.path(kind), o)
        if status not in (201, 409):
            self.failed.append(f"{o['metadata']['name']}: {status} {answer}")

    # ---- JobSet: a Job a replica, and their pods are the Job controller's ------------------------------------

    def _set(self, o):
        jobs, name, there, spec = ("batch", "v1", "Job", "jobs"), o["metadata"]["name"], {}, o["spec"]
        if spec.get("suspend"):
            return
        for job in self.all(jobs):
            if any(r["uid"] == o["metadata"]["uid"] for r in job["metadata"].get("ownerReferences", [])):
                there[job["metadata"]["name"]] = job
        wanted = [(f"{name}-{r['name']}-{i}", r["template"], r["name"]) for r in spec["replicatedJobs"] for i in range(r.get("replicas", 1))]
        for child, template, role in wanted:
            if child not in there:
                labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": role}
                made = copy.deepcopy(template["spec"])
                made["template"]["metadata"].setdefault("labels", {}).update(labels)
                made["template"]["spec"]["subdomain"] = name
                meta = template.get("metadata", {})
                self._make(jobs, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {
                    "name": child, "labels": {**meta.get("labels", {}), **labels}, "annotations": meta.get("annotations", {}),
                    "ownerReferences": owner(o, SETS)}, "spec": made})
        failed = [j for j in there.values() if has(j, "Failed")]
        decide = spec.get("successPolicy", {}).get("targetReplicatedJobs") or [r["name"] for r in spec["replicatedJobs"]]
        good = all(has(there.get(child, {}), "Complete") for child, _, role in wanted if role in decide)
        if failed or good:
            self._status(SETS, o, "Failed" if failed else "Completed")
            for child, job in there.items():
                if not has(job, "Failed", "Complete"):
                    self.peer.call("DELETE", self.path(jobs, child), {"propagationPolicy": "Background"})

    # ---- PyTorchJob: pods of its own, again where one is missing ---------------------------------------------

    def _pods(self, o, kind, roles, finalizers=True):
        pods = {p["metadata"]["name"]: p for p in self.all(("", "v1", "Pod", "pods"))}
        phases = {}
        for role, spec in roles.items():
            for i in range(spec.get("replicas", 1)):
                name = f"{o['metadata']['name']}-{role.lower()}-{i}"
                phases[(role, i)] = pods.get(name, {}).get("status", {}).get("phase")
                if name in pods:
                    continue
                template = copy.deepcopy(spec["template"])
                meta = {k: v for k, v in template["metadata"].items() if k in ("labels", "annotations") or (k == "finalizers" and finalizers)}
                meta.setdefault("labels", {})["training.kubeflow.org/replica-type"] = role.lower()
                template["spec"]["restartPolicy"] = spec["restartPolicy"]
                self._make(("", "v1", "Pod", "pods"), {"apiVersion": "v1", "kind": "Pod", "metadata": {
                    **meta, "name": name, "ownerReferences": owner(o, kind)}, "spec": template["spec"]})
        return phases

    def _training(self, o):
        if o["spec"].get("runPolicy", {}).get("suspend"):
            return
        roles = o["spec"]["pytorchReplicaSpecs"]
        phases = self._pods(o, TRAINING, roles)
        first = phases.get(("Master" if "Master" in roles else "Worker", 0))
        if "Failed" in phases.values() or first == "Succeeded":
            self._status(TRAINING, o, "Failed" if "Failed" in phases.values() else "Succeeded")

    # ---- MPIJob: workers that nobody holds, and a Job of the launcher ----------------------------------------

    def _mpi(self, o):
        specs, name, jobs = o["spec"]["mpiReplicaSpecs"], o["metadata"]["name"], ("batch", "v1", "Job", "jobs")
        if "Worker" in specs:
            self._pods(o, MPI, {"Worker": specs["Worker"]}, finalizers=False)
        template = copy.deepcopy(specs["Launcher"]["template"])
        template["spec"]["restartPolicy"] = specs["Launcher"]["restartPolicy"]
        status, job = self.peer.call("GET", self.path(jobs, name + "-launcher"))
        if status == 404:
            self._make(jobs, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name + "-launcher", "ownerReferences": owner(o, MPI)},
                              "spec": {"backoffLimit": o["spec"]["runPolicy"]["backoffLimit"], "template": template}})
        elif has(job, "Complete", "Failed"):
            self._status(MPI, o, "Succeeded" if has(job, "Complete") else "Failed")
