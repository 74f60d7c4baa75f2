#!/usr/bin/env python3
"""Pods whose runners have no way home: logs, exec and port-forward go through the API server, by the rights of deploy/kubernetes/streams.yaml,
on real kubelets and containers. Without these rights each is refused by a sentence that names the file."""
import json
import os
import re
import select
import socket
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "lib"), os.path.join(HERE, os.pardir, "e2e", "lib")]
sys.dont_write_bytecode = True
import kubernetes_pods as pods  # noqa: E402  it executes itself alone
from moves import document, run, wait_for  # noqa: E402

SERVER = """import os, socket, sys, time
s = socket.create_server(("127.0.0.1", 7777))
print("it listens", flush=True)
for i in range(3):
    print("line", i, flush=True)
while True:
    c, _ = s.accept()
    got = c.recv(65536)
    if got == b"bye":
        break
    c.sendall(b"<" + got + b">" + b"x" * 200000)
    c.close()
print("and ends", flush=True)
sys.exit(3)
"""


class Streams(pods.Pods):
    """The same cluster, asked for past any proxy, by a Target without runners that call home."""

    def cluster(self):
        text = super().cluster().replace(self.api.url, self.peer.url)
        return re.sub(r", lease: 8s|\n (?:   homeProxy|   runners| logs): [^\n]*", "", text)

    def client(self):
        return {**os.environ, "KUBECONFIG": self.path("kubeconfig")}

    def talk(self, name, port, data):
        """Through hanse port-forward: all that comes back."""
        child = subprocess.Popen([self.hanse, "port-forward", name, f":{port}"], env=self.client(), stdout=subprocess.PIPE, text=True)
        try:
            local = int(re.search(r"127\.0\.0\.1:(\d+)", child.stdout.readline()).group(1))
            with socket.create_connection(("127.0.0.1", local), timeout=60) as s:
                s.sendall(data)
                back = b""
                while piece := s.recv(65536):
                    back += piece
                return back
        finally:
            child.terminate()
            child.wait(10)
            child.stdout.close()


def without_rights_it_says_which_are_lacking(p):
    p.apply(document("Workload", "talker", {
        "resources": {"cpu": 1, "memory": "256Mi"}, "targets": {"names": ["east"]},
        "run": {"command": ["/usr/bin/python3", "-c", SERVER], "retries": 0}}, namespace="default"))
    wait_for("it to run", lambda: p.status("talker").get("phase") == "Running", 60)
    for words in (("logs", "talker"), ("exec", "talker", "--", "true")):
        said = p.cli(*words, check=False)
        p.check(f"hanse {words[0]} names the file with the right", said.returncode != 0 and "streams.yaml" in said.stderr, said.stderr)
    p.kubectl("apply", "-f", os.path.join(pods.DEPLOY, "streams.yaml"))
    wait_for("the rights to hold", lambda: p.cli("logs", "talker", check=False).returncode == 0, 30)


def logs_of_a_pod(p):
    wait_for("its last line", lambda: "line 2" in p.cli("logs", "talker", check=False).stdout, 60)
    whole = p.cli("logs", "talker").stdout
    p.check("logs are what it printed", whole == "it listens\nline 0\nline 1\nline 2\n", whole)
    p.check("the last lines alone", p.cli("logs", "talker", "--tail", "2").stdout == "line 1\nline 2\n")
    p.check("each with its time", re.fullmatch(r"(\d{4}-\d\d-\d\dT\S+Z line \d\n){2}", p.cli("logs", "talker", "--tail", "2", "--timestamps").stdout))
    p.check("nothing of the future", p.cli("logs", "talker", "--since-time", "2040-01-01T00:00:00Z").stdout == "")


def exec_in_a_pod(p):
    said = p.cli("exec", "talker", "--", "/bin/sh", "-c", "echo out; echo err >&2; exit 7", check=False)
    p.check("output, errors and exit status come apart", (said.returncode, said.stdout, said.stderr) == (7, "out\n", "err\n"), str(said))
    said = p.cli("exec", "talker", "--", "/bin/sh", "-c", "echo \"$1\"", "x", "a b&c=%41\n", check=False)
    p.check("arguments are as they were given", said.stdout == "a b&c=%41\n\n", said.stdout)
    text = "".join(f"{i}\n" for i in range(100000))
    done = subprocess.run([p.hanse, "exec", "-i", "talker", "--", "sort", "-n", "-r"], input=text, capture_output=True, text=True, check=False,
                          env=p.client())
    p.check("input comes whole, and its end", done.returncode == 0 and done.stdout.split() == text.split()[::-1],
            f"{done.returncode} {len(done.stdout)} {done.stderr}")
    said = p.cli("exec", "talker", "--", "/no/such", check=False)
    p.check("what cannot be started is told", said.returncode != 0 and "/no/such" in said.stderr, said.stderr)


def ports_of_a_pod(p):
    back = p.talk("talker", 7777, b"hello")
    p.check("bytes go to its port and come back, all of them", back == b"<hello>" + b"x" * 200000, f"{len(back)} {back[:20]}")


def a_followed_log_ends_with_its_program(p):
    child = subprocess.Popen([p.hanse, "logs", "-f", "talker"], env=p.client(), stdout=subprocess.PIPE, text=True)
    wait_for("it to be followed", lambda: select.select([child.stdout], [], [], 0)[0], 30)
    p.talk("talker", 7777, b"bye")
    said, _ = child.communicate(timeout=60)
    p.check("to its last line, as work that failed", child.returncode == 1 and said.endswith("line 2\nand ends\n"), f"{child.returncode} {said}")
    p.check("its exit status is told", p.ended("talker").get("ends", [{}])[-1].get("exitCode") == 3, p.status("talker"))


def pods_keep_to_the_standard_that_is_asked_for(p):
    """A namespace that takes restricted pods alone: what does not keep to that waits, with the cluster's reason; a Target can say that it does."""
    p.kubectl("label", "namespace", pods.SPACE, "pod-security.kubernetes.io/enforce=restricted")
    p.apply(pods.small("lax", "true"))
    wait_for("it to be told why it waits", lambda: "violates PodSecurity" in json.dumps(p.status("lax")), 120)
    p.cli("delete", "workload", "lax")
    strict = re.sub(r"\n    volumes:[^\n]*|\n    - \{path[^\n]*|\n  stores:[^\n]*", "", p.cluster())
    p.cli("apply", "-f", "-", text=strict.replace("\n  kubernetes:", "\n  kubernetes:\n    podSecurity: restricted\n    runAsUser: 1000", 1))
    line = "test $(id -u) = 1000 && grep -q 'CapBnd:.*0000000000000000' /proc/self/status && grep -q 'Seccomp:.*2' /proc/self/status && exit 9"
    p.apply(document("Workload", "strict", {"resources": {"cpu": 1, "memory": "64Mi"}, "targets": {"names": ["east"]},
                                            "run": {"image": "localhost/box:1", "command": ["sh", "-c", line], "retries": 0}}, namespace="default"))
    p.check("its program is nobody's root, without capabilities and with the runtime's filter",
            p.ended("strict").get("ends", [{}])[-1].get("exitCode") == 9, p.status("strict"))


if __name__ == "__main__":
    if not os.environ.get("HANSE_RUN"):
        print("SKIPPED: hanse-run was not built (HANSE_STATIC_RUNNER)")
        sys.exit(77)
    sys.exit(run((without_rights_it_says_which_are_lacking, logs_of_a_pod, exec_in_a_pod, ports_of_a_pod,
                  a_followed_log_ends_with_its_program, pods_keep_to_the_standard_that_is_asked_for, pods.nothing_of_them_is_left), kind=Streams))
