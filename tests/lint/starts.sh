#!/usr/bin/env bash
# Each program that an agent runs begins with two starts of hanse. A library that few starts need is loaded when it is used
# (connectors/libcurl.c); this fails when the linker binds such a library to the binary again.
# Arguments: the binary
set -euo pipefail
needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
if grep -qE '^lib(curl|ssh2|ldap|gssapi)' <<<"$needed"; then
    printf 'FAILED: hanse is bound to a library that it should load when it is used:\n%s\n' "$needed" >&2
    exit 1
fi
printf 'ok: %s libraries are bound to hanse\n' "$(wc -l <<<"$needed")"
