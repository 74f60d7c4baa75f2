#!/usr/bin/env bash
# hanse-run takes nothing of the image that it runs in: no loader, no library, no module of the C library (NSS) that would be
# loaded at run time, and none of the C library's own functions that load one. And it stays small: images get it with each start.
# Arguments: the binary
set -euo pipefail
most=$((8 * 1000 * 1000)) # bytes, stripped
fail() {
    printf 'FAILED: %s\n' "$*" >&2
    exit 1
}
headers=$(readelf -lW "$1")
! grep -q INTERP <<<"$headers" || fail "hanse-run asks for a loader"
needed=$(readelf -dW "$1" | grep NEEDED || true)
[ -z "$needed" ] || fail "hanse-run is bound to libraries: $needed"
# Warnings of the linker name the same functions; they are easily overlooked.
loads=$(nm "$1" | grep -E ' (_+nss_[a-z]*_?(lookup|module|functions|get)|dlopen_doit|getpwuid_r@|gaih_|__gethostby|__getserv)' || true)
[ -z "$loads" ] || fail "something brings in functions that load modules of the image (connectors/static/absent.c):
$loads"
[ "$(nm "$1" | grep -cE ' T (dlopen|getaddrinfo|freeaddrinfo|getpwuid_r)$')" = 4 ] || fail "the symbols were not found: is it stripped?"
small=$(mktemp)
trap 'rm -f "$small"' EXIT
strip -o "$small" "$1"
bytes=$(stat -c %s "$small")
[ "$bytes" -le "$most" ] || fail "$bytes bytes stripped are more than $most"
printf 'ok: static; %s bytes stripped, of at most %s\n' "$bytes" "$most"
