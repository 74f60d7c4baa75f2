#!/usr/bin/env bash
# That lib/kubelet gives real nodes: a Job runs on real python in a real pod and its termination message is read, a pod reaches
# this machine, exec and logs work, an image with hanse-run runs; the loss of a kubelet and of a whole node look as they do anywhere;
# and that nothing of it is left afterwards. Hanse has no part in this: tests of a connector stand on it.
set -euo pipefail
lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib/kubelet
[ "${HANSE_KUBELET_NET:-}" = "$(readlink /proc/self/ns/net)" ] || exec "$lib/alone" "$0" "$@"
dir=$(mktemp -d "${TMPDIR:-/tmp}/hanse-pods-XXXXXX")
failed=0
trap '[ ! -e "$dir/pids" ] || "$lib/down" "$dir"; [ "$failed" != 0 ] || rm -rf "$dir"' EXIT
machine() { # what nodes could leave or change
    grep -E "containerd|kubelet|$dir" /proc/self/mountinfo || true
    (cd /proc/sys && head vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_max*)
    ip -o addr | awk '{ print $2, $4 }'
    find /sys/fs/cgroup -maxdepth 2 -name "${HANSE_KUBELET_CGROUP:-hanse-none}*" # others may run nodes beside
    ls -d /run/containerd /var/lib/kubelet /var/lib/containerd /run/runc 2>/dev/null || true
}
others() { # processes in this network namespace that are not this script
    local pid
    for pid in /proc/[0-9]*; do
        [ "$(readlink "$pid/ns/net" 2>/dev/null)" = "$HANSE_KUBELET_NET" ] || continue
        tr '\0' ' ' <"$pid/cmdline" 2>/dev/null | grep -v "^bash .*kubelet_up\.sh" || true
    done
}
machine >"$dir.before"
HANSE_KUBE_FSYNC=0 "$lib/up" "$dir" || exit $?
. "$lib/env" "$dir"
. "$dir/nodes/settings"

. "$(dirname "$lib")/checks"
work=$dir/work
mkdir -m 777 "$work"
cat >"$work/train.py" <<'PYTHON'
import os, sys, urllib.request
said = urllib.request.urlopen(sys.argv[1] + "/hello", timeout=30).read().decode().strip()
open("/dev/termination-log", "w").write(f"python {sys.version_info[0]} heard {said} with pid {os.getpid()}")
PYTHON
cat >"$work/count.py" <<'PYTHON'
import signal, sys, time
def save(*_):
    open(f"/job/{sys.argv[1]}.saved", "w").write(str(n))
    sys.exit(85)
signal.signal(signal.SIGTERM, save)
n = 0
while True:
    n += 1
    open(f"/job/{sys.argv[1]}.count", "w").write(str(n))
    print("step", n, flush=True)
    time.sleep(0.2)
PYTHON
echo welcome >"$work/hello"
pod() { # what a pod of the machine's python is, from `spec` on, indented by $1: argument...
    local indent=$1 words
    shift
    words=$(printf ', "%s"' "$@")
    sed "s/^/$indent/" <<POD
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 10
  nodeSelector: {kubernetes.io/hostname: ${node:-node-a}}
  tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 600}]
  volumes: [{name: usr, hostPath: {path: /usr}}, {name: work, hostPath: {path: "$work"}}]
  containers:
  - name: main
    image: localhost/host:1
    imagePullPolicy: Never
    command: [/usr/bin/python3, -u$words]
    resources: {limits: {nvidia.com/gpu: "1"}}
    volumeMounts: [{name: usr, mountPath: /usr, readOnly: true}, {name: work, mountPath: /job}]
POD
}
counter() { # name node
    { printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\n' "$1"; node=$2 pod '' /job/count.py "$1"; } | kubectl create -f - >/dev/null
}
get() { kubectl get pod "$1" --ignore-not-found -o "jsonpath=$2" 2>/dev/null; }
is() { [ "$(get "$1" "$2")" = "$3" ]; }
node_is() { [ "$(kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}')" = "$2" ]; }
count() { cat "$work/$1.count" 2>/dev/null || echo 0; }
beyond() { [ "$(count "$1")" -gt "$2" ]; }

check "two nodes are ready" [ "$(kubectl get nodes -o 'jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status}{" "}{end}')" = "node-a=True node-b=True " ]

python3 -m http.server --bind "$KUBELET_HOST" --directory "$work" 8000 >"$dir/http.log" 2>&1 &
http=$!
{
    printf 'apiVersion: batch/v1\nkind: Job\nmetadata: {name: train}\nspec:\n  backoffLimit: 0\n  template:\n    metadata: {labels: {run: train}}\n'
    node=node-b pod '    ' /job/train.py "http://$KUBELET_HOST:8000"
} | kubectl create -f - >/dev/null
done_() { [ "$(kubectl get job train -o 'jsonpath={.status.succeeded}')" = 1 ]; }
check "a Job on python succeeds in a pod" within 60 done_
check "its message says that it reached this machine" [ "$(kubectl get pod -l run=train \
    -o 'jsonpath={.items[0].status.containerStatuses[0].state.terminated.message}')" = "python 3 heard welcome with pid 1" ]
kill "$http"

if [ -x "${HANSE_RUN:-}" ]; then
    image runner bare "/hanse-run=$HANSE_RUN"
    kubectl run runner --image=localhost/runner:1 --image-pull-policy=Never --restart=Never --command -- /hanse-run --version >/dev/null
    check "an image with hanse-run alone runs" within 60 is runner '{.status.phase}' Succeeded
    check "and says its version" grep -q '^hanse-run ' <<<"$(kubectl logs runner)"
fi

kubectl create -f - >/dev/null <<'POD'
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  restartPolicy: Never
  securityContext: {runAsUser: 1000, runAsGroup: 1000, runAsNonRoot: true, fsGroup: 1000}
  volumes: [{name: own, emptyDir: {}}]
  containers:
  - name: main
    image: localhost/box:1
    imagePullPolicy: Never
    command: [sh, -c, "cd /own && id -u >it && cp it /dev/termination-log"]
    volumeMounts: [{name: own, mountPath: /own}]
POD
check "a pod of a user that is not root writes where it may" within 60 is user \
    '{.status.phase} {.status.containerStatuses[0].state.terminated.message}' "Succeeded 1000"

counter a node-a
counter b node-b
check "two pods count" within 60 eval 'beyond a 5 && beyond b 5'
check "exec works, and passes the exit code on" [ "$(kubectl exec a -- sh -c 'echo in $(hostname); exit 7' 2>/dev/null; echo $?)" = $'in a\n7' ]
check "logs are read" grep -q '^step 5$' <<<"$(kubectl logs a)"

id=$(get a '{.status.containerStatuses[0].containerID}')
node node-a kill-kubelet
n=$(count a)
check "a node whose kubelet was killed is unknown" within 120 node_is node-a Unknown
check "its pod counts on meanwhile" beyond a "$((n + 5))"
check "and is still called running" is a '{.status.phase}' Running
node node-a start-kubelet
check "the kubelet is back" within 60 node_is node-a True
check "with the same container" is a '{.status.containerStatuses[0].containerID}{.status.containerStatuses[0].restartCount}' "${id}0"
n=$(count a)
check "which still counts" within 60 beyond a "$n"
kubectl delete pod a --wait=false >/dev/null
check "and saves when it is deleted" within 60 test -s "$work/a.saved"

node node-b power-off
n=$(count b)
check "a node without power is unknown" within 120 node_is node-b Unknown
check "its pod is called running" is b '{.status.phase}' Running
check "and counts no more" [ "$(count b)" = "$n" ]
node node-b boot
check "after a boot its pod has failed" within 120 is b '{.status.phase}' Failed
check "and could not save" [ ! -e "$work/b.saved" ]

"$lib/down" "$dir"
gone() { [ -z "$(others)" ]; }
check "no process is left of it" within 20 gone
machine >"$dir.after"
check "no mount, group, address or setting either" diff "$dir.before" "$dir.after"
rm -f "$dir.before" "$dir.after"
if [ "$failed" != 0 ]; then
    others
    printf 'logs are kept in %s\n' "$dir"
fi
exit "$failed"
