#!/usr/bin/env bash
# Builds kubectl from the Go module k8s.io/kubernetes (cmd/kubectl, unmodified; versions and sums are
# pinned in lib/kubectl) into the cache folder, once, and prints its path. Other tests call it:
#     kubectl=$(tests/peers/kubectl.sh) || exit $?
# Exit 77 when there is no Go that can build it. The first build takes minutes of CPU and a network;
# later calls neither.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${HANSE_CACHE:-$here/../../.cache}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

version=$(awk '$1 == "require" && $2 == "k8s.io/kubernetes" || $1 == "k8s.io/kubernetes" { print $NF; exit }' \
    "$here/lib/kubectl/go.mod")
kubectl=$cache/kubectl-$version
skip() {
    printf 'kubectl %s cannot be built: %s\n' "$version" "$*" >&2
    exit 77
}
# No pipe to grep -q: it ends at what it looks for, and who still writes then has failed.
works() { grep -qF "Client Version: $version" <<<"$("$kubectl" version --client 2>/dev/null)"; }

# One builder at a time; the others wait and then find it done.
exec 9>"$cache/kubectl.lock"
flock 9
if ! works; then
    wanted=$(awk '$1 == "go" { print $2; exit }' "$here/lib/kubectl/go.mod")
    go=$("$here/lib/go" "$wanted") || exit $?
    export PATH=${go%/go}:$PATH GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false"
    unset GOROOT
    printf 'building kubectl %s with %s (minutes, once)\n' "$version" "$(go env GOVERSION)" >&2
    IFS=. read -r major minor _ <<<"${version#v}"
    flags="-s -w"
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        flags+=" -X $package.gitVersion=$version -X $package.gitMajor=$major -X $package.gitMinor=$minor"
        flags+=" -X $package.gitTreeState=clean"
    done
    cd "$here/lib/kubectl"
    # Fetching is a step of its own: without a network this is a skip, a wrong checksum never is.
    if ! said=$(go list -deps k8s.io/kubernetes/cmd/kubectl 2>&1 >/dev/null); then
        printf '%s\n' "$said" | tail -n 5 >&2
        ! grep -qE 'checksum mismatch|SECURITY ERROR' <<<"$said" || exit 1
        skip "its modules could not be fetched (is there a network?)"
    fi
    nice -n 10 go build -trimpath -p "$(nproc)" -ldflags "$flags" -o "$kubectl.new" \
        k8s.io/kubernetes/cmd/kubectl >&2
    mv "$kubectl.new" "$kubectl"
    works || {
        printf 'kubectl was built but does not answer with %s\n' "$version" >&2
        exit 1
    }
fi
printf '%s\n' "$kubectl"
