#!/usr/bin/env python3
"""What people get wrong, against real processes: each case must say in words what is wrong, where, and what to do, and must
change nothing (the cluster's resourceVersion stays). Exit 0 when all hold, 77 when the build has no binary."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HANSE = os.path.realpath(os.environ.get("HANSE", "build/asan/hanse"))
DEADLINE_S = 30
failures = []


def check(name, ok, detail):
    print(("ok      " if ok else "FAILED  ") + name, flush=True)
    if not ok:
        failures.append(name)
        print("        " + detail.replace("\n", "\n        "), flush=True)


def until(look):
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if look():
            return True
        time.sleep(0.05)
    return False


class Dev:
    def __init__(self, folder):
        self.dir = folder
        self.env = dict(os.environ, HOME=folder, KUBECONFIG=folder + "/kubeconfig")
        self.process = subprocess.Popen([HANSE, "dev", "--dir", folder], env=self.env,
                                        stdout=subprocess.DEVNULL)
        until(lambda: os.path.exists(folder + "/m1.ready"))
        until(lambda: " True " in self.run("get", "targets")[1])
        pid = open(folder + "/m1.pid").read().strip()
        self.server_argv = open(f"/proc/{pid}/cmdline").read().split("\0")[:-1]

    def run(self, *args, stdin=None, env=None, limit=DEADLINE_S):
        p = subprocess.run([HANSE, *args], env=env or self.env, input=stdin, capture_output=True,
                           text=True, timeout=limit)
        return p.returncode, p.stdout + p.stderr

    def names(self):
        """Every object that a user may have made; leases of running things move, these may not."""
        kinds = ("targets", "queues", "placementpolicies", "workloads", "namespaces")
        text = ""
        for kind in kinds:
            text += self.run("get", kind, "-o", "json")[1]
        return re.findall(r'"name": ?"[^"]*"|"generation": ?"?\d+', text)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(DEADLINE_S)


def document(kind, name, spec, namespace=None):
    place = f"  namespace: {namespace}\n" if namespace else ""
    return f"apiVersion: hanse.dev/v1alpha1\nkind: {kind}\nmetadata:\n  name: {name}\n{place}spec:\n{spec}\n"


def refused(dev, name, text, *said):
    path = f"{dev.dir}/{name}.yaml"
    with open(path, "w") as f:
        f.write(text)
    before = dev.names()
    status, out = dev.run("apply", "-f", path)
    wanted = [path, *said]
    ok = status != 0 and all(w in out for w in wanted) and dev.names() == before
    check("apply: " + name, ok, f"exit {status}, said: {out}\nwanted: {wanted}")


def documents(dev):
    refused(dev, "unknown-field", document("PlacementPolicy", "p1", "  precedense: 3"),
            ":6: spec.precedense: unknown field; did you mean precedence?")
    refused(dev, "wrong-unit", document("Workload", "w1", "  run:\n    command: [/bin/true]\n"
                                        "  resources:\n    memory: 12Gx", "default"),
            ":10: spec.resources.memory:", "12Gx")
    refused(dev, "cyclic-queue", document("Queue", "qa", "  parent: qb") + "---\n" +
            document("Queue", "qb", "  parent: qa"),
            "spec.parent: queue qa: its parents form a cycle; make one of them a root")
    refused(dev, "not-a-document", "kind: [\n", ":")
    status, out = dev.run("apply", "-f", "-", stdin=document(
        "Target", "far", "  type: slurm\n  tier: spoke\n  capacity: owned"))
    ok = status == 0 and until(lambda: "this build drives no target of type slurm" in
                               dev.run("get", "target", "far", "-o", "yaml")[1])
    check("a target that nothing drives says so in its status", ok,
          out + dev.run("get", "target", "far", "-o", "yaml")[1])


def ended(argv, env=None):
    """A process that must end by itself with an error."""
    p = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, env=env)
    return p.returncode, p.stdout + p.stderr


def changed(argv, **values):
    argv = [a for a in argv if a != "--die-with-parent"]
    for key, value in values.items():
        flag = "--" + key.replace("_", "-")
        if value is True:
            argv += [flag] if flag not in argv else []
        else:
            argv[argv.index(flag) + 1] = value
    return argv


def server_refused(name, argv, *said):
    try:
        status, out = ended(argv)
    except subprocess.TimeoutExpired as e:
        status, out = 0, "it went on: " + str(e.stderr)
    check("server: " + name, status not in (0, None) and status > 0 and all(s in out for s in said),
          f"exit {status}, said: {out}\nwanted: {said}")


def servers(dev):
    base, d = dev.server_argv, dev.dir
    fresh = dict(data=d + "/fresh", listen="127.0.0.1:0", peer_listen="127.0.0.1:0",
                 key_ring=d + "/fresh-ring", ready_file=d + "/fresh.ready")
    server_refused("second on one data directory",
                   changed(base, listen="127.0.0.1:0", peer_listen="127.0.0.1:0",
                           ready_file=d + "/x"), d + "/m1/lock is locked by process", "use another directory")
    port = base[base.index("--listen") + 1]
    server_refused("port in use", changed(base, **dict(fresh, listen=port), bootstrap=True),
                   port, "in use")
    shutil.rmtree(d + "/fresh", ignore_errors=True)
    server_refused("certificate of someone else",
                   changed(base, **fresh, bootstrap=True, cert=d + "/pki/admin.crt",
                           key=d + "/pki/admin.key"), "member:1", "admin")
    server_refused("certificate that is not there",
                   changed(base, **fresh, bootstrap=True, cert=d + "/none.crt"), d + "/none.crt")
    shutil.rmtree(d + "/fresh", ignore_errors=True)
    ring = d + "/open-ring"
    shutil.copy(d + "/pki/key-ring", ring)
    os.chmod(ring, 0o644)
    server_refused("key ring that others may read",
                   changed(base, **dict(fresh, key_ring=ring), bootstrap=True), ring, "chmod 600")
    no_bootstrap = [a for a in changed(base, **fresh) if a != "--bootstrap"]
    server_refused("key ring missing",
                   [a for a in changed(base, key_ring=d + "/none") if a != "--bootstrap"],
                   d + "/none")
    shutil.copy(d + "/pki/key-ring", d + "/fresh-ring")
    os.chmod(d + "/fresh-ring", 0o600)
    server_refused("peers, an empty data directory and no --bootstrap", no_bootstrap,
                   d + "/fresh", "--bootstrap")


def strangers(dev):
    other = dev.dir + "/other"
    p = subprocess.Popen([HANSE, "dev", "--dir", other, "--no-agent"], stdout=subprocess.DEVNULL,
                         env=dict(dev.env, HOME=other))
    until(lambda: os.path.exists(other + "/m1.ready"))
    p.send_signal(signal.SIGTERM)
    p.wait(DEADLINE_S)
    before = dev.names()
    text = open(dev.dir + "/kubeconfig").read()
    with open(other + "/stolen", "w") as f:
        f.write(text.replace(dev.dir + "/pki/admin", other + "/pki/admin"))
    status, out = dev.run("get", "targets", "--timeout", "3s",
                          env=dict(dev.env, KUBECONFIG=other + "/stolen"))
    check("user: certificate of another CA", status != 0 and "certificate" in out, out)
    with open(other + "/wrong-ca", "w") as f:
        f.write(text.replace(dev.dir + "/pki/ca.crt", other + "/pki/ca.crt"))
    status, out = dev.run("get", "targets", "--timeout", "3s",
                          env=dict(dev.env, KUBECONFIG=other + "/wrong-ca"))
    check("user: server of another CA", status != 0 and "certificate" in out, out)
    agent_refused(dev, "certificate of another CA", other + "/pki/admin", "certificate")
    agent_refused(dev, "certificate of a user", dev.dir + "/pki/admin",
                  "certificate with common name agent:TARGET is needed, this one says admin")
    check("strangers changed nothing", dev.names() == before, "")


def agent_refused(dev, name, cert, said):
    log = dev.dir + "/stranger.log"
    server = dev.server_argv[dev.server_argv.index("--listen") + 1]
    with open(log, "w") as f:
        p = subprocess.Popen([HANSE, "agent", "--server", server, "--target", "local", "--state",
                              dev.dir + "/stranger", "--cert", cert + ".crt", "--key",
                              cert + ".key", "--ca", dev.dir + "/pki/ca.crt"], stderr=f, stdout=f)
    ok = until(lambda: said in open(log).read() + open(dev.dir + "/m1.log").read())
    if p.poll() is None:
        p.terminate()
        p.wait(DEADLINE_S)
    check("agent: " + name, ok, open(log).read())


def full_disk(dev):
    """Acknowledged writes survive a disk that is full; it serves again once there is space."""
    disk = dev.dir + "/disk"
    os.mkdir(disk)
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", disk],
                                           capture_output=True).returncode:
        print("skipped full disk: a small tmpfs cannot be mounted here")
        return
    server = None
    try:
        d = dev.dir
        argv = changed(dev.server_argv, data=disk + "/m", peer_listen="127.0.0.1:0",
                       listen="127.0.0.1:0", key_ring=d + "/disk-ring",
                       ready_file=d + "/disk.ready", bootstrap=True)
        with open(d + "/disk.log", "w") as log:
            server = subprocess.Popen(argv, stderr=log, stdout=log)
        if not until(lambda: os.path.exists(d + "/disk.ready")):
            check("full disk: starts", False, open(d + "/disk.log").read())
            return
        port = open(d + "/disk.ready").read().strip()
        full_disk_writes(dev, disk, ("-s", f"https://127.0.0.1:{port}"))
    finally:
        if server:
            server.terminate()
            try:
                server.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        subprocess.run(["umount", disk], check=True)


def full_disk_writes(dev, disk, at):
    def write(i, pad=""):
        return dev.run("apply", *at, "--timeout", "5s", "--set", f"s{i}", "-f", "-", stdin=(
            f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: full-{i}\n"
            f"  annotations: {{pad: \"{pad}\"}}\n"))
    kept = []
    check("full disk: a write before", write(0)[0] == 0, write(0)[1])
    kept.append(0)
    with open(disk + "/ballast", "wb") as f:
        try:
            while True:
                f.write(b"x" * 65536)
                f.flush()
        except OSError:
            pass
    said = ""
    for i in range(1, 200):
        status, out = write(i, "y" * 200000)
        if status == 0:
            kept.append(i)
        else:
            said = out
            break
    check("full disk: a write fails within its deadline and says why",
          bool(re.search("space|disk|unknown|deadline|time", said, re.I)), said)
    os.unlink(disk + "/ballast")
    again = until(lambda: write(500)[0] == 0)
    out = dev.run("get", "namespaces", *at, "-o", "json")[1]
    check("full disk: serves again once there is space", again, out + open(dev.dir + "/disk.log").read()[-2000:])
    lost = [i for i in kept if f'"full-{i}"' not in out]
    check(f"full disk: none of {len(kept)} acknowledged writes is lost", not lost, str(lost))


def helps(dev):
    for command in ("server", "dev", "agent", "run"):
        status, out = dev.run(command, "--help")
        check(f"hanse {command} --help", status == 0 and out.startswith("usage: hanse"), out)


def main():
    if not os.access(HANSE, os.X_OK):
        print("skipped: there is no binary " + HANSE)
        return 77
    with tempfile.TemporaryDirectory() as folder:
        dev = Dev(folder + "/d")
        try:
            for part in (helps, documents, servers, strangers, full_disk):
                part(dev)
        finally:
            dev.stop()
    print(f"{len(failures)} failed: {failures}" if failures else "all as expected")
    return 1 if failures else 0


sys.exit(main())
