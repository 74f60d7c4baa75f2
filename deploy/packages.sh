#!/usr/bin/env bash
# Installs what Hanse needs on Debian: deploy/packages.sh SET...   (default: build)
# Sets: build, tests, example; for tests against real peers slurm and slurm-accounting, kubelet (what runs
# its pods), and go (it fetches the Go that builds Kubernetes).
#
# Each line of the tables below names a package and the probe that finds what it brings, so a library
# built by hand counts too, and nothing is asked of apt (no root, no network) when all is there.
# It never upgrades or removes what is installed, and adds one apt source at most: the backports of
# this Debian release, from the mirror that is configured already, when libraft cannot be had otherwise.
set -euo pipefail

raft_version=0.22.1

# package | probe
build_packages='
gcc                  | tool cc
libc6-dev            | header stdlib.h
cmake                | tool_version cmake 3.25
ninja-build          | tool ninja
pkg-config           | tool pkg-config
ccache               | tool ccache
libuv1-dev           | library libuv 1.44
libraft-dev          | library raft '$raft_version'
libcjson-dev         | library libcjson 1.7.15
libyaml-dev          | library yaml-0.1 0.2.5
libssl-dev           | library openssl 3.0
libcurl4-openssl-dev | library libcurl 7.88
zlib1g-dev           | library zlib 1.2.11
libc-ares-dev        | archive cares
libuv1-dev           | archive uv_a
libssl-dev           | archive crypto
http-parser          | http_parser
'
tests_packages='
libcmocka-dev        | library cmocka 1.1.5
python3              | tool python3
openssl              | tool openssl
curl                 | tool curl
git                  | tool git
clang-tidy           | tool clang-tidy
musl-tools           | tool musl-gcc
'
example_packages='
python3              | tool python3
'
# A peer for tests. Its services are never started: tests start it in folders of their own.
slurm_packages='
slurmctld                | program slurmctld
slurmd                   | program slurmd
slurmrestd               | program slurmrestd
slurm-client             | program sbatch
slurm-wlm-basic-plugins  | slurm_plugin select_cons_tres
slurm-wlm-jwt-plugin     | slurm_plugin auth_jwt
munge                    | program munged
curl                     | tool curl
'
slurm_accounting_packages='
slurmdbd                 | program slurmdbd
slurm-wlm-mysql-plugin   | slurm_plugin accounting_storage_mysql
mariadb-server           | program mariadbd
'
kubelet_packages='
containerd           | program containerd
runc                 | program runc
busybox-static       | static_busybox
iproute2             | program ip
util-linux           | tool nsenter
'
go_packages='
golang-go            | tool go
'

say() { printf 'packages: %s\n' "$*"; }
die() {
    printf 'packages: %s\n' "$*" >&2
    exit 1
}

tool() { command -v "$1" >/dev/null; }
tool_version() {
    tool "$1" || return 1
    local have
    have=$("$1" --version | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1)
    [ "$(printf '%s\n%s\n' "$2" "$have" | sort -V | head -n 1)" = "$2" ]
}
library() { tool pkg-config && pkg-config --atleast-version="$2" "$1" 2>/dev/null; }
archive() { tool cc && [ "$(cc -print-file-name="lib$1.a")" != "lib$1.a" ]; } # a static library
header() { tool cc && printf '#include <%s>\n' "$1" | cc -E -x c - >/dev/null 2>&1; }
program() { [ -x "/usr/sbin/$1" ] || tool "$1"; } # daemons are not in every user's PATH
slurm_plugin() { compgen -G "/usr/lib/*/slurm*/$1.so" >/dev/null; }
static_busybox() { tool busybox && ! ldd "$(command -v busybox)" >/dev/null 2>&1; }
http_parser() { header llhttp.h || header http_parser.h; }

# Prints the packages of the given tables whose probe fails.
missing_packages() {
    local table package probe
    for table in "$@"; do
        while IFS='|' read -r package probe; do
            package=${package// /}
            # The probe is words of this file: split on purpose.
            # shellcheck disable=SC2086
            [ -z "$package" ] || $probe || printf '%s\n' "$package"
        done <<<"$table"
    done | sort -u
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}
# What apt says is shown only when it fails: a first run should be readable.
apt_get() {
    local log status=0
    log=$(mktemp)
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 "$@" >"$log" 2>&1 ||
        status=$?
    if [ "$status" != 0 ]; then
        { grep -E '^(E|W|dpkg): ' "$log" || cat "$log"; } | tail -n 8 | sed 's/^/    /' >&2
    fi
    rm -f "$log"
    return "$status"
}

# A package's newest version that apt can see, from any suite.
newest_version() { apt-cache madison "$1" 2>/dev/null | cut -d'|' -f2 | tr -d ' ' | sort -V | tail -n 1; }
raft_available() {
    local have
    have=$(newest_version libraft-dev)
    [ -n "$have" ] && dpkg --compare-versions "$have" ge "$raft_version"
}

# Adds RELEASE-backports beside the configured mirror, and says so.
add_backports() {
    local codename mirror file keyring
    codename=$(. /etc/os-release && [ "${ID:-}" = debian ] && printf '%s' "${VERSION_CODENAME:-}") ||
        die "libraft >= $raft_version is not packaged here, and this is not Debian:" \
            "build github.com/cowsql/raft and install it, then run this again"
    mirror=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
        awk -v release="$codename" '$1 == release { print $2; exit }')
    [ -n "$mirror" ] || die "no apt source for $codename is configured: add a Debian mirror first"
    file=/etc/apt/sources.list.d/hanse-backports.sources
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    say "libraft >= $raft_version is in $codename-backports: adding $file ($mirror)"
    {
        printf 'Types: deb\nURIs: %s\nSuites: %s-backports\nComponents: main\n' "$mirror" "$codename"
        [ ! -e "$keyring" ] || printf 'Signed-By: %s\n' "$keyring"
    } | as_root tee "$file" >/dev/null
    apt_get update || say "apt-get update reported errors; going on"
    raft_available || die "$mirror offers no libraft >= $raft_version in $codename-backports"
}

# Debian starts the services of a package at once, unless this file forbids it.
services_hold() {
    local file=/usr/sbin/policy-rc.d
    if [ "$hold" = 0 ] || [ -e "$file" ]; then return; fi
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$file" >/dev/null
    as_root chmod 755 "$file"
    trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
}

install_packages() {
    local package names=()
    tool apt-get || die "missing: $*; there is no apt-get here, please install them yourself"
    [ "$(id -u)" = 0 ] || tool sudo ||
        die "missing: $*; run this as root, or install sudo, or have an administrator install them"
    say "installing $*"
    apt_get update || say "apt-get update reported errors; going on"
    for package in "$@"; do
        case $package in
        libraft-dev)
            raft_available || add_backports
            # A version by name: backports are never chosen by themselves, and nothing else moves.
            names+=("libraft-dev=$(newest_version libraft-dev)" "libraft0=$(newest_version libraft0)")
            ;;
        http-parser)
            if [ -n "$(newest_version libhttp-parser-dev)" ]; then
                names+=(libhttp-parser-dev)
            else
                names+=(libllhttp-dev)
            fi
            ;;
        *) names+=("$package") ;;
        esac
    done
    services_hold
    apt_get install -y --no-install-recommends "${names[@]}" ||
        die "apt-get could not install ${names[*]}: see its message above (is there a network?)"
}

main() {
    local set tables=() missing hold=0
    [ $# -gt 0 ] || set -- build
    for set in "$@"; do
        case $set in
        build) tables+=("$build_packages") ;;
        tests) tables+=("$tests_packages") ;;
        example) tables+=("$example_packages") ;;
        slurm) tables+=("$slurm_packages") hold=1 ;;
        slurm-accounting) tables+=("$slurm_accounting_packages") hold=1 ;;
        kubelet) tables+=("$kubelet_packages") hold=1 ;;
        go) tables+=("$go_packages") ;;
        *) die "unknown set \"$set\": build, tests, example, slurm, slurm-accounting, kubelet or go" ;;
        esac
    done
    missing=$(missing_packages "${tables[@]}")
    if [ -z "$missing" ]; then
        say "all there ($*)"
        return
    fi
    # shellcheck disable=SC2086
    install_packages $missing
    missing=$(missing_packages "${tables[@]}")
    [ -z "$missing" ] || die "still missing after the installation:" $missing
    say "done"
}

main "$@"
