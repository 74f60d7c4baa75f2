#!/usr/bin/env bash
# That lib/kubernetes gives a real Kubernetes: nodes that kwok plays are ready, a Job takes their GPUs, runs and succeeds, a second
# one waits while all are taken, a token works and a wrong one does not; its parts are killed, started, and put back to an older
# state; and that nothing of it is left afterwards. Hanse has no part in this: benches, and tests of a connector, stand on it.
set -euo pipefail
lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib/kubernetes
dir=$(mktemp -d "${TMPDIR:-/tmp}/hanse-kube-XXXXXX")
failed=0
trap '[ ! -e "$dir/pids" ] || "$lib/down" "$dir"; [ "$failed" != 0 ] || rm -rf "$dir"' EXIT

HANSE_KUBE_FSYNC=0 "$lib/up" "$dir" || exit $?
cp "$dir/pids" "$dir/started"
. "$lib/env" "$dir"

. "$(dirname "$lib")/checks"
node() {
    cat <<NODE
---
apiVersion: v1
kind: Node
metadata: {name: gpu-$1, labels: {type: kwok, kubernetes.io/hostname: gpu-$1}}
status:
  capacity: {cpu: "64", memory: 512Gi, pods: "110", nvidia.com/gpu: "8"}
  allocatable: {cpu: "64", memory: 512Gi, pods: "110", nvidia.com/gpu: "8"}
NODE
}
job() { # name pods GPUs-of-each seconds
    cat <<JOB
apiVersion: batch/v1
kind: Job
metadata: {name: $1}
spec:
  parallelism: $2
  completions: $2
  template:
    metadata: {annotations: {pod-complete.test/delay: "$4s"}}
    spec:
      restartPolicy: Never
      containers:
      - {name: train, image: none, resources: {limits: {nvidia.com/gpu: "$3"}}}
JOB
}
ready() { [ "$(kubectl get nodes -o 'jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status}{.spec.taints}{" "}{end}')" = "True True " ]; }
running() { [ "$(kubectl get job "$1" -o 'jsonpath={.status.ready}')" = "$2" ]; }
succeeded() { [ "$(kubectl get job "$1" -o 'jsonpath={.status.succeeded}')" = "$2" ]; }
code() { curl -s -o "$dir/answer" -w '%{http_code}' --cacert "$KUBE_CA" -H "Authorization: Bearer $1" "$KUBE_SERVER/api/v1/nodes"; }

{ node 0; node 1; } | kubectl create -f - >/dev/null
check "two nodes of 8 GPUs become ready" within 60 ready
job first 2 8 6 | kubectl create -f - >/dev/null
check "a Job with all their GPUs runs" within 60 running first 2
job second 1 8 1 | kubectl create -f - >/dev/null
check "another one waits meanwhile" within 30 grep -q . <(kubectl get pods -l job-name=second --field-selector spec.nodeName= -o name)
check "the first succeeds" within 60 succeeded first 2
check "then the second one" within 60 succeeded second 1
check "the token is an administrator's" [ "$(code "$KUBE_TOKEN")" = 200 ]
check "another one is refused" [ "$(code none)" = 401 ]
exists() { kubectl get configmap "$1" >/dev/null 2>&1; }
begun() { kubectl get --raw /metrics | sed -n 's/^process_start_time_seconds //p'; }
kubectl create configmap before >/dev/null
"$lib/part" "$dir" etcd backup "$dir/backup"
check "with etcd stopped for a moment all goes on" within 60 eval "kubectl create configmap after >/dev/null"
first=$(begun)
"$lib/part" "$dir" apiserver kill
check "an API server that was killed answers nobody" bash -c '! curl -sk "$KUBE_SERVER"'
"$lib/part" "$dir" apiserver start
check "it starts again where it was" [ "$(begun)" != "$first" ]
check "with what it knew" exists after
"$lib/part" "$dir" etcd restore "$dir/backup"
check "after a restore it knows what was there at the backup" exists before
check "and nothing of later" eval '! exists after'
cat "$dir/pids" >>"$dir/started"
"$lib/down" "$dir"
gone() {
    local pid start name
    while read -r pid start name; do
        [ "$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }')" != "$start" ] || return 1
    done <"$dir/started"
}
check "nothing is left of it" within 10 gone
[ "$failed" = 0 ] || printf 'logs are kept in %s\n' "$dir"
exit "$failed"
