#!/usr/bin/env python3
"""What a Target asks for of namespaces, on a real API server: the label of Pod Security and the NetworkPolicy are applied without force, are put
right, and go once they are not asked for, also after a restart; what others have there stays. By the rights of deploy/kubernetes/rbac.yaml and
namespaces.yaml, each of which is used, and no other."""
import base64
import os
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for folder in (("tests", "peers", "lib"), ("deploy", "examples", "three-tier"), ("tests", "e2e", "lib")):
    sys.path.insert(0, os.path.join(TOP, *folder))
sys.dont_write_bytecode = True
import kube  # noqa: E402
from fault_proxy import FaultProxy  # noqa: E402
from federation import wait_for  # noqa: E402
from kube_federation import KubeFederation  # noqa: E402
from parts import run  # noqa: E402

API, NS, DEPLOY = "hanse.dev/v1alpha1", "hanse-runs", os.path.join(TOP, "deploy", "kubernetes")
ENFORCE, OWNER = "pod-security.kubernetes.io/enforce", "hanse.dev/target"
POLICIES = f"/apis/networking.k8s.io/v1/namespaces/{NS}/networkpolicies"


class Namespaces(KubeFederation):
    def target(self, standard="restricted", **row):
        return {"apiVersion": API, "kind": "Target", "metadata": {"name": "east"}, "spec": {
            "type": "kubernetes", "tier": "spoke",
            "connection": {"server": self.proxy.url, "credentialsFrom": {"secret": "east"}, "namespace": NS},
            "kubernetes": {"runner": {"image": "hanse-run"}, "image": "box", "podSecurity": standard,
                           "namespaces": [{"namespace": "default", "as": NS, **row}]}}}

    def labels(self):
        return self.peer.call("GET", "/api/v1/namespaces/" + NS)[1]["metadata"]["labels"]

    def policies(self):
        return self.peer.call("GET", POLICIES)[1]["items"]

    def begin(self):
        self.peer = kube.Kube(tempfile.mkdtemp(prefix="hanse-kube-"))
        for name in ("rbac.yaml", "namespaces.yaml"):
            self.check(f"{name} is taken", self.peer.kubectl("apply", "-f", os.path.join(DEPLOY, name)) is not None)
        self.peer.kubectl("label", "namespace", NS, "team=vision")
        token = wait_for("its token", lambda: base64.b64decode((self.peer.call(
            "GET", "/api/v1/namespaces/hanse/secrets/hanse-token")[1] or {}).get("data", {}).get("token", "")).decode(), 60)
        self.proxy = FaultProxy(self.peer.address, ca=self.peer.ca, cert=self.peer.cert, key=self.peer.key)
        self.start_members()
        with open(self.peer.ca, encoding="utf-8") as f:
            ca = f.read()
        self.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "east", "namespace": "hanse-system"},
                    "stringData": {"token": token, "ca.crt": ca}}, self.target(managed=True, network="isolated"))

    def what_is_asked_for_is_applied(self):
        wait_for("the policy", self.policies, 60)
        found = self.labels()
        self.check("the standard is enforced", found.get(ENFORCE) == "restricted", found)
        self.check("it says whose it is", found.get(OWNER, "").endswith(".east"), found)
        self.check("what others have there stays", found.get("team") == "vision", found)
        spec = self.policies()[0]["spec"]
        runs = {"matchExpressions": [{"key": "hanse.dev/key", "operator": "Exists"}]}
        self.check("the policy is of pods of runs alone", spec == {
            "podSelector": runs, "ingress": [{"from": [{"podSelector": runs}]}], "policyTypes": ["Ingress"]}, spec)

    def one_of_two_goes(self):
        self.apply(self.target("baseline", managed=True))
        wait_for("another standard", lambda: self.labels().get(ENFORCE) == "baseline", 60)
        wait_for("the policy to go", lambda: not self.policies(), 60)
        self.apply(self.target(network="isolated"))
        wait_for("the policy again", self.policies, 60)
        wait_for("the standard to go", lambda: ENFORCE not in self.labels(), 60)

    def a_restart_forgets_nothing(self):
        self.proxy.refuse()  # it does not hear of what was applied
        self.apply(self.target())
        self.kill_leader()  # it is started again
        self.proxy.accept()
        wait_for("the policy to go", lambda: not self.policies(), 90)
        wait_for("its label, too", lambda: OWNER not in self.labels(), 60)
        self.check("what others have there stays", self.labels().get("team") == "vision", self.labels())

    def nothing_is_forced(self):
        self.peer.kubectl("label", "namespace", NS, ENFORCE + "=privileged")
        self.apply(self.target(managed=True, network="isolated"))
        wait_for("a word in the log", lambda: "kubernetes.namespace" in open(self.path("m1.log"), encoding="utf-8").read(), 60)
        said = wait_for("an Event of it", lambda: (t := self.cli("describe", "target", "east", check=False).stdout) and "NamespaceNotKept" in t and t, 60)
        self.check("by the cluster's words", "conflict" in said, said)
        self.check("somebody else's label stays", self.labels().get(ENFORCE) == "privileged", self.labels())
        self.peer.kubectl("label", "namespace", NS, ENFORCE + "-")
        self.apply(self.target("baseline", managed=True, network="isolated"))  # else it is asked for again after half a minute
        wait_for("it is applied once nobody else has it", lambda: self.labels().get(ENFORCE) == "baseline" and self.policies(), 90)

    def a_target_that_is_deleted_takes_them_along(self):
        self.cli("delete", "target", "east", check=False)
        wait_for("the Target to go", lambda: not self.object("targets", "east"), 90)
        self.check("nothing is left of it", OWNER not in self.labels() and ENFORCE not in self.labels() and not self.policies(), self.labels())

    def its_rights_are_enough_and_used(self):
        log = self.proxy.log()
        refused = [(x["method"], x["target"]) for x in log if x["status"] in (401, 403)]
        self.check("no request was refused for want of a right", not refused, refused[:5])
        used = {(x["method"], x["target"].split("?")[0]) for x in log}
        one, policy = "/api/v1/namespaces/" + NS, POLICIES + "/hanse-isolated"
        wanted = {("GET", "/api/v1/namespaces"), *((m, one) for m in ("GET", "PATCH")), *((m, policy) for m in ("GET", "PATCH", "DELETE"))}
        self.check("each was used", wanted <= used, wanted - used)
        beyond = {u for u in used if "networkpolicies" in u[1] or u[1].startswith(one)} - wanted
        self.check("and nothing else of namespaces and policies was asked for",
                   not {u for u in beyond if not u[1].startswith(one + "/")}, beyond)


if __name__ == "__main__":
    sys.exit(run(Namespaces, "kube-namespaces", [
        Namespaces.what_is_asked_for_is_applied, Namespaces.one_of_two_goes, Namespaces.a_restart_forgets_nothing, Namespaces.nothing_is_forced,
        Namespaces.a_target_that_is_deleted_takes_them_along, Namespaces.its_rights_are_enough_and_used]))
