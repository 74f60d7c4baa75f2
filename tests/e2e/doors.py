#!/usr/bin/env python3
"""Who may come in, and as whom, against a real server: tokens that go with their account, are for their audiences, and are
nobody's to write. What clients do is done with plain HTTPS, and with kubectl where there is one. Exit 0 when all hold, 77 when
the build has no binary."""
import base64
import hashlib
import http.client
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time

HANSE = os.path.realpath(os.environ.get("HANSE", "build/asan/hanse"))
HERE = os.path.dirname(os.path.abspath(__file__))
DEADLINE_S = 60
RBAC = "rbac.authorization.k8s.io/v1"
failures = []


def check(name, ok, detail=""):
    print(("ok      " if ok else "FAILED  ") + name, flush=True)
    if not ok:
        failures.append(name)
        print("        " + str(detail)[:1500].replace("\n", "\n        "), flush=True)


def until(look):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if look():
            return True
        time.sleep(0.05)
    return False


class Dev:
    def __init__(self, folder):
        self.folder = folder
        self.env = dict(os.environ, HOME=folder, KUBECONFIG=folder + "/kubeconfig")
        self.process = subprocess.Popen([HANSE, "dev", "--dir", folder], env=self.env, stdout=subprocess.DEVNULL)
        until(lambda: os.path.exists(folder + "/m1.ready"))
        config = {}
        for line in open(folder + "/kubeconfig", encoding="utf-8").read().replace("{", "\n").replace("}", "\n").replace(", ", "\n").split("\n"):
            key, _, value = line.strip().lstrip("- ").partition(": ")
            config.setdefault(key, value.strip().strip('"'))
        self.address = config["server"].removeprefix("https://")
        self.tls, self.admin = [ssl.create_default_context(cadata=self.pem(config, "certificate-authority", folder)) for _ in range(2)]
        cert, key = (self.file(config, name, folder) for name in ("client-certificate", "client-key"))
        self.admin.load_cert_chain(cert, key)
        self.certificate = cert
        for context in (self.tls, self.admin):
            context.check_hostname = False

    @staticmethod
    def pem(config, name, folder):
        if name + "-data" in config:
            return base64.b64decode(config[name + "-data"]).decode()
        return open(os.path.join(folder, config[name]), encoding="utf-8").read()

    @classmethod
    def file(cls, config, name, folder):
        if name in config:
            return os.path.join(folder, config[name])
        path = os.path.join(folder, "admin-" + name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(cls.pem(config, name, folder))
        return path

    def ask(self, method, path, body=None, token=None, headers=()):
        """The status and the answer; without a token it is the administrator's certificate."""
        c = http.client.HTTPSConnection(self.address, context=self.tls if token else self.admin, timeout=DEADLINE_S)
        given = dict(headers, **({"Authorization": "Bearer " + token} if token else {}))
        given.setdefault("Content-Type", "application/json")
        c.request(method, path, json.dumps(body) if body is not None else None, given)
        answer = c.getresponse()
        text = answer.read().decode()
        c.close()
        return answer.status, json.loads(text) if text.startswith("{") else text

    def run(self, *args):
        p = subprocess.run([HANSE, *args], env=self.env, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        return p.returncode, p.stdout + p.stderr

    def must(self, method, path, body=None, token=None):
        status, answer = self.ask(method, path, body, token)
        if status not in (200, 201):
            raise RuntimeError(f"{method} {path}: {status} {answer}")
        return answer

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE_S)


def account(dev, ns, name, role=None):
    dev.must("POST", f"/api/v1/namespaces/{ns}/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    if role:
        dev.must("POST", f"/apis/{RBAC}/namespaces/{ns}/rolebindings", {
            "apiVersion": RBAC, "kind": "RoleBinding", "metadata": {"name": name}, "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": ns}]})


def token_for(dev, ns, name, token=None, **spec):
    return dev.ask("POST", f"/api/v1/namespaces/{ns}/serviceaccounts/{name}/token",
                   {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}, token)


def namespace(dev, name):
    dev.must("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def who(dev, token):
    status, answer = dev.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, token)
    return answer["status"]["userInfo"] if status == 201 else status


def forged(name):
    return {"apiVersion": "v1", "kind": "Secret", "type": "hanse.dev/token", "metadata": {"name": name, "annotations": {
        "hanse.dev/user": "root", "hanse.dev/groups": "system:masters", "hanse.dev/expires": "2099-01-01T00:00:00Z",
        "hanse.dev/sha256": "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"}}}


def tokens_are_nobodys_to_write(dev):
    account(dev, "hanse-system", "deputy", "edit")
    token = token_for(dev, "hanse-system", "deputy")[1]["status"]["token"]
    check("an account with edit in hanse-system is who it is", who(dev, token)["username"] == "system:serviceaccount:hanse-system:deputy")
    status, answer = dev.ask("POST", "/api/v1/namespaces/hanse-system/secrets", forged("token-f1"), token)
    check("and makes no token out of a Secret", status == 422 and who(dev, "hanse-f1.secret") == 401, answer)
    tokens = "/apis/hanse.dev/v1alpha1/namespaces/hanse-system/tokens"
    own = [t["metadata"]["name"] for t in dev.must("GET", tokens)["items"] if t["spec"]["serviceAccount"] == "deputy"]
    check("its token is an object of its own", len(own) == 1, own)
    patch = {"spec": {"user": "root", "groups": ["system:masters"]}}
    for whose, given in (("it", token), ("system:masters", None)):
        status, answer = dev.ask("PATCH", f"{tokens}/{own[0]}", patch, given, {"Content-Type": "application/merge-patch+json"})
        check(f"and {whose} cannot patch it", status in (403, 405), answer)
        made = {"apiVersion": "hanse.dev/v1alpha1", "kind": "Token", "metadata": {"name": "t"}, **patch}
        status, answer = dev.ask("POST", tokens, made, given)
        check(f"nor can {whose} make one by hand", status in (403, 405), answer)
    text = json.dumps(dev.must("GET", tokens))
    check("no token, nor a hash of one, is in what is listed", "hash" not in text and token.split(".")[2] not in text, text)


def a_token_goes_with_its_account(dev):
    namespace(dev, "gone")
    account(dev, "gone", "bot", "edit")
    status, answer = token_for(dev, "gone", "bot", expirationSeconds=600, audiences=["hanse", "vault"])
    token = answer["status"]["token"]
    check("TokenRequest answers as Kubernetes does", status == 201 and answer["kind"] == "TokenRequest" and
          answer["spec"]["expirationSeconds"] == 600 and answer["spec"]["audiences"] == ["hanse", "vault"] and
          answer["status"]["expirationTimestamp"].endswith("Z"), answer)
    uid = dev.must("GET", "/api/v1/namespaces/gone/serviceaccounts/bot")["metadata"]["uid"]
    me = who(dev, token)
    check("whose uid is the account's", me.get("uid") == uid and me["groups"][:2] == ["system:serviceaccounts", "system:serviceaccounts:gone"], me)
    dev.must("DELETE", "/api/v1/namespaces/gone/serviceaccounts/bot")
    check("with its account it goes", who(dev, token) == 401, who(dev, token))
    dev.must("POST", "/api/v1/namespaces/gone/serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}})
    check("and an account of the same name does not revive it", who(dev, token) == 401, who(dev, token))
    listed = "/apis/hanse.dev/v1alpha1/namespaces/gone/tokens"
    check("it leaves the state", until(lambda: not dev.must("GET", listed)["items"]), dev.must("GET", listed))
    token = token_for(dev, "gone", "bot")[1]["status"]["token"]
    dev.must("DELETE", "/api/v1/namespaces/gone")
    check("with its namespace it goes", until(lambda: who(dev, token) == 401))
    namespace(dev, "gone2")
    account(dev, "gone2", "bot")
    dev.must("POST", "/api/v1/namespaces/gone2/secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}})
    bound = {"apiVersion": "v1", "kind": "Secret", "name": "s"}
    status, answer = token_for(dev, "gone2", "bot", boundObjectRef=dict(bound, uid="of-another"))
    check("a bound object of another uid is refused", status == 409, answer)
    status, answer = token_for(dev, "gone2", "bot", boundObjectRef=bound)
    token = answer["status"]["token"]
    check("what it is bound to is told with its uid", bool(answer["spec"]["boundObjectRef"].get("uid")) and isinstance(who(dev, token), dict), answer)
    dev.must("DELETE", "/api/v1/namespaces/gone2/secrets/s")
    check("with what it is bound to it goes", who(dev, token) == 401, who(dev, token))
    for spec, field in (({"expirationSeconds": 60}, "spec.expirationSeconds"), ({"boundObjectRef": {"kind": "Pod", "name": "p"}}, "spec.boundObjectRef.kind"),
                        ({"audiences": "x"}, "spec.audiences")):
        status, answer = token_for(dev, "gone2", "bot", **spec)
        check(f"{spec} is refused by its field", status == 422 and answer["details"]["causes"][0]["field"] == field, answer)


def audiences_and_reviews(dev):
    namespace(dev, "aud")
    account(dev, "aud", "bot")
    token = token_for(dev, "aud", "bot", audiences=["vault"])[1]["status"]["token"]
    check("a token for another audience does not open this API", who(dev, token) == 401, who(dev, token))

    def review(token, *audiences):
        return dev.must("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, **({"audiences": list(audiences)} if audiences else {})}})["status"]

    check("nor is it reviewed as one that does", review(token)["authenticated"] is False)
    seen = review(token, "vault", "other")
    check("TokenReview tells its audience whose it is", seen["authenticated"] and seen["audiences"] == ["vault"] and
          seen["user"]["username"] == "system:serviceaccount:aud:bot" and "system:authenticated" in seen["user"]["groups"] and
          seen["user"]["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("JTI="), seen)
    check("a wrong token is not authenticated, and no error", review("hanse-aud.00.00")["authenticated"] is False)
    dev.must("DELETE", "/api/v1/namespaces/aud/serviceaccounts/bot")
    check("TokenReview knows that the account is gone", review(token, "vault")["authenticated"] is False)


def the_command_line(dev):
    code, token = dev.run("token", "create", "--user", "ci", "--group", "vision", "--ttl", "2s")
    token = token.strip()
    me = who(dev, token)
    check("hanse token create makes one for a user", code == 0 and me["username"] == "ci" and "vision" in me["groups"], token)
    check("it ends when its time is over", until(lambda: who(dev, token) == 401))
    token = dev.run("token", "create", "--user", "ci")[1].strip()
    name = "token-" + token.split(".")[1]
    code, text = dev.run("token", "list")
    check("hanse token list shows it, and not the token", code == 0 and name in text and token.split(".")[2] not in text, text)
    code, text = dev.run("token", "revoke", name)
    check("hanse token revoke takes it back at once", code == 0 and who(dev, token) == 401, text)
    account(dev, "default", "bot")
    token = dev.run("token", "create", "--service-account", "bot")[1].strip()
    check("and one of an account, by the token itself", who(dev, token)["username"] == "system:serviceaccount:default:bot" and
          dev.run("token", "revoke", token)[0] == 0 and who(dev, token) == 401)
    code, text = dev.run("token", "create")
    check("for whom it is must be said", code != 0 and "--service-account" in text, text)


def acting_as_another(dev):
    namespace(dev, "acts")
    account(dev, "acts", "gateway", "edit")
    dev.must("POST", f"/apis/{RBAC}/clusterroles", {"apiVersion": RBAC, "kind": "ClusterRole", "metadata": {"name": "acts-as-vic"}, "rules": [
        {"apiGroups": [""], "resources": ["users"], "resourceNames": ["vic"], "verbs": ["impersonate"]}]})
    dev.must("POST", f"/apis/{RBAC}/clusterrolebindings", {
        "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": {"name": "acts-as-vic"}, "roleRef": {"kind": "ClusterRole", "name": "acts-as-vic"},
        "subjects": [{"kind": "ServiceAccount", "name": "gateway", "namespace": "acts"}]})
    token = token_for(dev, "acts", "gateway")[1]["status"]["token"]
    datasets = "/apis/hanse.dev/v1alpha1/namespaces/acts/datasets"
    dataset = {"apiVersion": "hanse.dev/v1alpha1", "kind": "Dataset", "metadata": {"name": "d"}, "spec": {}}
    dev.must("POST", datasets, dataset, token)
    for headers, want in (({"Impersonate-User": "vic"}, 403), ({"Impersonate-User": "root"}, 403), ({"Impersonate-Group": "system:masters"}, 400),
                          ({"Impersonate-User": "vic", "Impersonate-Group": "system:masters"}, 403)):
        status, answer = dev.ask("DELETE", datasets + "/d", None, token, headers)
        check(f"{headers} deletes nothing with the gateway's rights", status == want, answer)
    status, answer = dev.ask("GET", datasets + "/d", None, token)
    check("and what was to be deleted is there", status == 200, answer)
    kubectl = kubectl_of()

    def k(*args):
        p = subprocess.run([kubectl, "--request-timeout=20s", *args], env=dev.env, capture_output=True, text=True, check=False)
        return p.returncode, p.stdout + p.stderr

    for name, run in [("hanse", dev.run)] + ([("kubectl", k)] if kubectl else []):
        code, text = run("delete", "dataset", "d", "-n", "acts", "--as", "vic")
        check(f"{name} delete --as vic is vic's", code != 0 and 'user "vic"' in text.lower(), text)
    if kubectl:
        code, text = k("auth", "can-i", "delete", "datasets.hanse.dev", "-n", "acts", "--as", "vic")
        check("kubectl auth can-i --as tells of him", code != 0 and text.startswith("no"), text)
        code, text = k("auth", "can-i", "delete", "datasets.hanse.dev", "-n", "acts", "--as", "system:serviceaccount:acts:gateway")
        check("and of an account", code == 0 and text.strip() == "yes", text)
        code, text = k("auth", "whoami", "-o", "json", "--as", "vic", "--as-group", "a", "--as-group", "b", "--as-uid", "7")
        me = json.loads(text)["status"]["userInfo"] if code == 0 else {}
        check("kubectl auth whoami tells all of it", me.get("username") == "vic" and me.get("uid") == "7" and
              me.get("groups") == ["a", "b", "system:authenticated"], text)
    code, text = dev.run("submit", "--name", "his", "--cpu", "1", "--memory", "64Mi", "--as", "vic", "--as-group", "system:masters", "--", "/bin/true")
    told = dev.must("GET", "/apis/hanse.dev/v1alpha1/namespaces/default/workloads/his")["spec"].get("user")
    check("what is submitted as him is his", code == 0 and told == "vic", (text, told))
    log = "".join(open(os.path.join(dev.folder, n), encoding="utf-8", errors="replace").read() for n in os.listdir(dev.folder) if n.endswith(".log"))
    check("both names are in the member's log", "access.impersonated" in log and "as=vic" in log and "user=system:serviceaccount:acts:gateway" in log.replace('"', ""),
          [line for line in log.splitlines() if "impersonated" in line][:3])


def certificates_are_revoked(dev):
    root = dev.run("token", "create", "--user", "root", "--group", "system:masters")[1].strip()
    kind = "/apis/hanse.dev/v1alpha1/certificaterevocations"
    pem = open(dev.certificate, encoding="utf-8").read()
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    der = ssl.PEM_cert_to_DER_cert(begin + pem.split(begin)[1].split(end)[0] + end + "\n")
    printed = hashlib.sha256(der).hexdigest().upper()
    printed = ":".join(printed[i:i + 2] for i in range(0, 64, 2))

    def revocation(**spec):
        return {"apiVersion": "hanse.dev/v1alpha1", "kind": "CertificateRevocation", "metadata": {"name": "admin"}, "spec": spec}

    for spec, field in (({}, "spec.fingerprint"), ({"fingerprint": "12"}, "spec.fingerprint"), ({"fingerprint": printed, "commonName": "a"}, "spec.fingerprint"),
                        ({"commonName": "member:1"}, "spec.commonName"), ({"fingerprint": printed, "issuedBefore": "2026-01-01T00:00:00Z"}, "spec.issuedBefore")):
        status, answer = dev.ask("POST", kind, revocation(**spec), root)
        check(f"{field} of {sorted(spec)} is refused", status == 422 and answer["details"]["causes"][0]["field"] == field, answer)
    name = dev.must("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})["status"]["userInfo"]["username"]
    for spec, takes in ((dict(fingerprint=printed), True), (dict(commonName=name), True), (dict(commonName=name, issuedBefore="2099-01-01T00:00:00Z"), True),
                        (dict(commonName=name, issuedBefore="2001-01-01T00:00:00Z"), False), (dict(commonName=name + "x"), False)):
        standing = http.client.HTTPSConnection(dev.address, context=dev.admin, timeout=DEADLINE_S)

        def on_standing(standing=standing):
            standing.request("GET", "/api")
            answer = standing.getresponse()
            answer.read()
            return answer.status

        def refused():
            try:
                return dev.ask("GET", "/api")[0] == 401
            except (OSError, http.client.HTTPException):
                return True

        before = on_standing()
        dev.must("POST", kind, revocation(**spec), root)
        if takes:
            check(f"{sorted(spec)}: a connection that stands brings no more requests", before == 200 and on_standing() == 401)
            check("and a new one is not let in", refused())
            check("nor is hanse", dev.run("get", "nodes", "--timeout", "2s")[0] != 0)
        else:
            check(f"{spec} takes nobody else's", on_standing() == 200 and not refused())
        standing.close()
        dev.must("DELETE", kind + "/admin", None, root)
        check("once it is deleted the certificate holds again", not refused())


def an_agent_is_revoked(dev):
    targets, kind = "/apis/hanse.dev/v1alpha1/targets", "/apis/hanse.dev/v1alpha1/certificaterevocations"

    def connected():
        found = dev.must("GET", targets)["items"]
        told = [c["status"] for t in found for c in t.get("status", {}).get("conditions", []) if c["type"] == "Connected"]
        return bool(told) and set(told) == {"True"}

    check("the agent is connected", until(connected))
    name = dev.must("GET", targets)["items"][0]["metadata"]["name"]
    dev.must("POST", kind, {"apiVersion": "hanse.dev/v1alpha1", "kind": "CertificateRevocation", "metadata": {"name": "agent"},
                            "spec": {"commonName": "agent:" + name, "reason": "the machine is another's"}})
    check("its session ends when its certificate is revoked", until(lambda: not connected()))
    dev.must("DELETE", kind + "/agent")
    check("and it comes again once it is not", until(connected))


def a_missing_secret_costs_little(dev):
    """Not placed and taken back as fast as the log goes, and run at once when the Secret comes."""
    workloads = "/apis/hanse.dev/v1alpha1/namespaces/default/workloads"
    check("a target is there", until(lambda: any(c["type"] == "Connected" and c["status"] == "True" for t in dev.must("GET", "/apis/hanse.dev/v1alpha1/targets")["items"]
                                                 for c in t.get("status", {}).get("conditions", []))))
    dev.must("POST", workloads, {"apiVersion": "hanse.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "lacks"}, "spec": {
        "resources": {"cpu": 1, "memory": "16Mi"},
        "run": {"command": ["/bin/true"], "env": [{"name": "A", "valueFrom": {"secret": "absent", "key": "a"}}]}}})

    def status():
        return dev.must("GET", workloads + "/lacks").get("status", {})

    check("it is refused for its Secret", until(lambda: status().get("reason") == "SecretMissing"), status())
    end, before = time.monotonic() + 8, status().get("epoch", 0)
    until(lambda: time.monotonic() > end)
    after = status()
    check("in 8 s it is tried a few times", after.get("epoch", 0) - before <= 4 and "absent" in after.get("message", ""), (before, after))
    began = time.monotonic()
    dev.must("POST", "/api/v1/namespaces/default/secrets", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "absent"}, "stringData": {"a": "b"}})
    check("it runs once the Secret is there", until(lambda: status().get("phase") == "Succeeded"), status())
    check("and does not wait for its next try", time.monotonic() - began < 8, time.monotonic() - began)


def kubectl_of():
    found = subprocess.run([HERE + "/../peers/kubectl.sh"], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else None


def with_kubectl(dev):
    kubectl = kubectl_of()
    if not kubectl:
        print("skipped with kubectl: there is none")
        return

    def k(*args):
        p = subprocess.run([kubectl, "--request-timeout=20s", *args], env=dev.env, capture_output=True, text=True, check=False)
        return p.returncode, p.stdout + p.stderr

    code, token = k("create", "token", "bot", "--duration", "10m", "--audience", "hanse")
    me = who(dev, token.strip())
    check("kubectl create token", code == 0 and me["username"] == "system:serviceaccount:default:bot", token)
    name = "token-" + token.strip().split(".")[1]
    code, text = k("get", "tokens", name)
    check("kubectl get tokens", code == 0 and "EXPIRES" in text, text)
    code, text = k("delete", "token", name)
    check("kubectl delete token revokes", code == 0 and who(dev, token.strip()) == 401, text)


WORKLOADS = "/apis/hanse.dev/v1alpha1/namespaces/default/workloads"
DEAF = "trap 'echo told' TERM; echo ready; while :; do sleep 0.05; done"


def a_deletion_says_its_grace(dev):
    def begin(name):
        dev.must("POST", WORKLOADS, {"apiVersion": "hanse.dev/v1alpha1", "kind": "Workload", "metadata": {"name": name}, "spec": {
            "resources": {"cpu": "100m", "memory": "64Mi"}, "checkpoint": {"grace": "10m"}, "run": {"command": ["/bin/sh", "-c", DEAF]}}})
        return until(lambda: "ready" in str(dev.ask("GET", f"{WORKLOADS}/{name}/log")[1]))

    def meta(name):
        status, answer = dev.ask("GET", f"{WORKLOADS}/{name}")
        return answer["metadata"] if status == 200 else {}

    def gone(name):
        began = time.monotonic()
        return until(lambda: not meta(name)) and time.monotonic() - began < 20

    check("a program that does not listen to SIGTERM runs", begin("once") and begin("twice"))
    status, answer = dev.ask("DELETE", f"{WORKLOADS}/once?gracePeriodSeconds=1")
    check("a deletion shows the grace that it gives", status == 200 and answer["metadata"]["deletionGracePeriodSeconds"] == 1, answer)
    check("and is over by then, whatever the contract says", gone("once"), meta("once"))
    dev.must("DELETE", f"{WORKLOADS}/twice", {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 300})
    check("a longer one lets it go on", until(lambda: "told" in str(dev.ask("GET", f"{WORKLOADS}/twice/log")[1])) and
          meta("twice").get("deletionGracePeriodSeconds") == 300, meta("twice"))
    dev.must("DELETE", f"{WORKLOADS}/twice?gracePeriodSeconds=600")
    check("which no second deletion makes longer", meta("twice").get("deletionGracePeriodSeconds") == 300, meta("twice"))
    dev.must("DELETE", f"{WORKLOADS}/twice?gracePeriodSeconds=0")
    check("and one of 0 ends at once", gone("twice"), meta("twice"))
    kubectl = kubectl_of()
    if kubectl and begin("thrice"):
        p = subprocess.run([kubectl, "delete", "workload", "thrice", "--grace-period=1", "--timeout=30s"], env=dev.env, capture_output=True, text=True, check=False)
        check("kubectl delete --grace-period", p.returncode == 0 and not meta("thrice"), p.stdout + p.stderr)


PARTS = (tokens_are_nobodys_to_write, a_token_goes_with_its_account, audiences_and_reviews, the_command_line, acting_as_another, with_kubectl, certificates_are_revoked, an_agent_is_revoked,
         a_missing_secret_costs_little, a_deletion_says_its_grace)


def main():
    if not os.access(HANSE, os.X_OK):
        print("there is no hanse: set HANSE")
        return 77
    folder, only = tempfile.mkdtemp(prefix="hanse-doors-"), os.environ.get("HANSE_ONLY", "")
    dev = Dev(folder)
    try:
        for part in PARTS:
            if only not in part.__name__:
                continue
            print(part.__name__.replace("_", " "), flush=True)
            try:
                part(dev)
            except (RuntimeError, OSError, KeyError, IndexError, TypeError, AttributeError, subprocess.SubprocessError) as error:
                check(f"{part.__name__} could be done", False, f"{type(error).__name__}: {error}")
    finally:
        dev.stop()
    shutil.rmtree(folder)
    print(f"{len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
