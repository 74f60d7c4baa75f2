#!/usr/bin/env bash
# kubectl, unmodified, against the API: apply (client and server side), get, table, watch, describe, three kinds of patch,
# explain, diff, edit, conflicts, 410, dry run, wait, tokens, rights, deletion, and every kind that users write.
# With KUBECONFIG and HANSE_E2E_SERVER=running it uses a server that runs (hanse dev); else it serves a backend in memory.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kubectl=$("$here/../peers/kubectl.sh") || exit $?
dir=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server"; } || true
    rm -rf "$dir"
}
trap cleanup EXIT
export HOME=$dir
tick() { read -rt 0.02 <> <(:) || true; } # between polls with a deadline

if [ "${HANSE_E2E_SERVER:-}" != running ]; then
    "$HANSE_BUILD_DIR/tests/unit/unit_api_server_server" --serve "$dir" >"$dir/port" 2>"$dir/log" &
    server=$!
    for _ in $(seq 1000); do
        [ -s "$dir/port" ] && break
        kill -0 "$server" || { cat "$dir/log"; exit 1; }
        tick
    done
    cat >"$dir/kubeconfig" <<END
apiVersion: v1
kind: Config
clusters: [{name: t, cluster: {server: "https://127.0.0.1:$(cat "$dir/port")", certificate-authority: $dir/ca.crt}}]
users: [{name: admin, user: {client-certificate: $dir/admin.crt, client-key: $dir/admin.key}}]
contexts: [{name: t, context: {cluster: t, user: admin}}]
current-context: t
END
    export KUBECONFIG=$dir/kubeconfig
else
    cp "$KUBECONFIG" "$dir/kubeconfig" # the namespace is set in a copy
    export KUBECONFIG=$dir/kubeconfig
fi

passed=0
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    [ ! -s "$dir/out" ] || cat "$dir/out" >&2
    exit 1
}
k() { "$kubectl" --request-timeout=20s "$@" >"$dir/out" 2>&1; }
ok() { k "$@" || fail "kubectl $*"; passed=$((passed + 1)); }
no() { ! k "$@" || fail "kubectl $* should have failed"; passed=$((passed + 1)); }
says() { grep -qE -- "$1" "$dir/out" || fail "expected /$1/"; }

ok version
ok api-resources
says 'workloads +wl +hanse.dev/v1alpha1 +true +Workload'
ok create namespace e2e
ok config set-context --current --namespace=e2e

cat >"$dir/w.yaml" <<'END'
apiVersion: hanse.dev/v1alpha1
kind: Workload
metadata: {name: resnet, labels: {tier: training}}
spec:
  suspend: true
  gang: {workers: 4}
  topology: {within: rack}
  run: {command: [python, train.py], env: [{name: A, value: "1"}, {name: B, value: "2"}]}
END
ok apply -f "$dir/w.yaml" --dry-run=server
says 'created \(server dry run\)'
no get workload resnet
says NotFound
ok apply -f "$dir/w.yaml"
says created
ok apply -f "$dir/w.yaml"
says unchanged
ok get wl
says '^NAME +PHASE +TARGET +EPOCH +REASON +INDEXES +AGE'
ok get wl resnet -o wide
says QUEUE
ok get wl resnet -o json
ok get wl -l 'tier=training,nope!=x' -o name
says workload.hanse.dev/resnet
ok get wl --field-selector spec.suspend=true -o name
says resnet
ok describe wl resnet
says 'Events:'
ok explain workload.spec.gang.workers
says 'FIELD: workers <integer>'
ok explain workload --output=plaintext-openapiv2
says '^KIND: +Workload'

sed -i 's/{name: A, value: "1"}, //; s/workers: 4/workers: 8/' "$dir/w.yaml"
no diff -f "$dir/w.yaml"
says '\+ +workers: 8'
ok apply -f "$dir/w.yaml"
says configured
ok get wl resnet -o 'jsonpath={.spec.run.env[*].name}{.spec.gang.workers}'
says '^B8$'

ok apply --server-side -f "$dir/w.yaml"
sed -i 's/workers: 8/workers: 2/' "$dir/w.yaml"
no apply --server-side --field-manager=other -f "$dir/w.yaml"
says 'conflict.*\.spec\.gang\.workers'
ok apply --server-side --force-conflicts --field-manager=other -f "$dir/w.yaml"
ok patch wl resnet --type=merge -p '{"spec":{"gang":{"workers":3}}}'
ok patch wl resnet --type=json -p '[{"op":"replace","path":"/spec/gang/workers","value":5}]'
ok patch namespace e2e -p '{"metadata":{"labels":{"a":"b"}}}'
no patch wl resnet --type=merge -p '{"spec":{"gnag":1}}'
says 'spec.gnag'
ok label wl resnet x=y
ok annotate wl resnet n=1
ok get wl resnet -o 'jsonpath={.spec.gang.workers}{.metadata.labels.x}'
says '^5y$'

# a version that is no longer the newest
ok get wl resnet -o yaml
cp "$dir/out" "$dir/old.yaml"
ok label wl resnet x=z --overwrite
no replace -f "$dir/old.yaml"
says Conflict
printf '#!/bin/sh\nsed -i "s/workers: 5/workers: 6/" "$1"\n' >"$dir/editor"
chmod +x "$dir/editor"
export EDITOR=$dir/editor
ok edit wl resnet
ok get wl resnet -o 'jsonpath={.spec.gang.workers}'
says '^6$'

"$kubectl" get wl -w -o name >"$dir/watch" 2>&1 &
watch=$!
for _ in $(seq 500); do
    [ -s "$dir/watch" ] && break
    tick
done
cat >"$dir/gen.json" <<'END'
{"apiVersion":"hanse.dev/v1alpha1","kind":"Workload","metadata":{"generateName":"gen-"},"spec":{"suspend":true,"run":{"command":["true"]}}}
END
ok create -f "$dir/gen.json"
for _ in $(seq 500); do
    grep -q gen- "$dir/watch" && break
    tick
done
kill "$watch"
grep -q gen- "$dir/watch" || fail "the watch did not show the new workload"
ok wait --for=jsonpath='{.spec.gang.workers}'=6 wl/resnet --timeout=10s
ok get --raw '/apis/hanse.dev/v1alpha1/namespaces/e2e/workloads?limit=1'
says '"continue":'
no get --raw '/apis/hanse.dev/v1alpha1/workloads?resourceVersion=1&resourceVersionMatch=Exact'
says 'no longer'
ok get wl --chunk-size=1
says resnet

ok auth can-i create workloads
says yes
ok auth whoami
ok create serviceaccount bot
ok create token bot
ok create secret generic s --from-literal=a=b
ok get secret s -o 'jsonpath={.data.a}'
says '^Yg==$'
ok create role r --verb=get --resource=workloads.hanse.dev
ok create rolebinding rb --role=r --user=u
ok get events

cat >"$dir/all.yaml" <<'END'
apiVersion: hanse.dev/v1alpha1
kind: Target
metadata: {name: e2e-target}
spec: {type: agent, tier: hub, unschedulable: true}
---
apiVersion: hanse.dev/v1alpha1
kind: GpuClass
metadata: {name: e2e-class}
spec: {memory: 80Gi}
---
apiVersion: hanse.dev/v1alpha1
kind: PriceSheet
metadata: {name: e2e-sheet}
spec: {gpuHour: [{class: e2e-class, amortised: 1.92}]}
---
apiVersion: hanse.dev/v1alpha1
kind: Queue
metadata: {name: e2e-queue}
spec: {namespaces: [e2e], gpus: [{class: e2e-class, guaranteed: 1, burst: 2}]}
---
apiVersion: hanse.dev/v1alpha1
kind: PriorityClass
metadata: {name: e2e-priority}
spec: {value: 7}
---
apiVersion: hanse.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: e2e-placement}
spec: {workloads: {matchLabels: {e2e: "yes"}}, order: [{targets: {tier: hub}}]}
---
apiVersion: hanse.dev/v1alpha1
kind: CompliancePolicy
metadata: {name: e2e-compliance}
spec: {selects: {namespaces: [e2e]}, allow: {jurisdictions: [DE]}, mode: audit}
---
apiVersion: hanse.dev/v1alpha1
kind: Dataset
metadata: {name: e2e-data}
spec: {bytes: 1Gi}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: e2e-lease}
spec: {holderIdentity: me}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-role}
rules: [{apiGroups: [hanse.dev], resources: [workloads], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-binding}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-role}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: nobody}]
END
ok apply -f "$dir/all.yaml"
k apply -f - <<'END' || fail "a queue with gpuHours"
apiVersion: hanse.dev/v1alpha1
kind: Queue
metadata: {name: e2e-hours}
spec: {gpuHours: {limit: 20000, period: month}}
END
says '^Warning: Queue e2e-hours: spec.gpuHours: GPU-hours over time are not limited yet'
ok delete queue e2e-hours
no apply -f - <<'END'
apiVersion: hanse.dev/v1alpha1
kind: Budget
metadata: {name: e2e-budget}
spec: {queue: e2e-queue, amount: 100, period: month}
END
says 'nothing is held to a Budget yet: limit a Queue'
ok apply --server-side --force-conflicts -f "$dir/all.yaml"
ok get -f "$dir/all.yaml"
ok describe -f "$dir/all.yaml"
ok delete -f "$dir/all.yaml" --wait
for kind in nodes.hanse.dev decisions checkpoints gitsources migrations; do
    ok get "$kind" -A
    ok explain "$kind"
done
ok delete wl resnet --wait --timeout=10s
no get wl resnet
ok delete wl --all
ok delete namespace e2e --wait=false
printf '%s passed, 0 failed\n' "$passed"
