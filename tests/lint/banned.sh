#!/usr/bin/env bash
# Refuses calls that this tree has better answers for, includes that are not written from the top,
# and files that name a path of one machine. Prints file:line: text for each; exit 1 when there is any.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

found=0
report() { # report WHAT < lines
    local lines
    lines=$(cat)
    [ -n "$lines" ] || return 0
    printf '%s:\n%s\n' "$1" "$lines"
    found=1
}

sources() {
    find . \( -path ./build -o -path ./.cache -o -path ./.git \) -prune -o \
        -type f \( -name '*.c' -o -name '*.h' -o -name '*.def' \) -print | sed 's|^\./||' | sort
}
everything() {
    find . \( -path ./build -o -path ./.cache -o -path ./.git -o -name .git \) -prune -o \
        -type f -print | sed 's|^\./||' | sort
}

# The code of a file without comments and without the text of strings, lines kept, as file:line:code.
code() {
    awk '
        FNR == 1 { comment = 0 }
        {
            line = $0; out = ""
            gsub(/\\./, "", line)
            while (line != "") {
                if (comment) {
                    i = index(line, "*/")
                    if (!i) { line = ""; break }
                    line = substr(line, i + 2); comment = 0
                } else if (match(line, /"[^"]*"|\047[^\047]*\047|\/\/|\/\*/)) {
                    token = substr(line, RSTART, RLENGTH)
                    out = out substr(line, 1, RSTART - 1)
                    if (token == "//") { line = ""; break }
                    if (token == "/*") comment = 1; else out = out "\"\""
                    line = substr(line, RSTART + RLENGTH)
                } else { out = out line; line = "" }
            }
            if (out ~ /[^ \t]/) print FILENAME ":" FNR ":" out
        }' "$@"
}

mapfile -t files < <(sources)
if [ ${#files[@]} -gt 0 ]; then
    # Not after . or >: a member of that name is no call of the C library.
    call='(^|[^A-Za-z0-9_.>])'
    names='v?sprintf|strcpy|strcat|strtok|gets|system|s?rand|alloca|ato[ifl]|atoll'
    report "banned call" < <(code "${files[@]}" | grep -E "${call}($names)[[:space:]]*\\(")
    report "sleep: poll with a deadline instead" \
        < <(code "${files[@]}" | grep -v '^tests/peers/' | grep -E "${call}u?sleep[[:space:]]*\\(")
    # A leader whose clock was wrong stamped the state for ever: core_time_ms is the time.
    report "a machine's own clock, where the cluster's time is meant (core_time_ms)" \
        < <(code "${files[@]}" | grep -E '^(controlplane|policy)/' |
            grep -vE '^controlplane/(raft/core_clock|keyring/keyring|server/skip|backup/anew|backup/quorum_main)\.c:|PLANTED' |
            grep -E "${call}(loop_wall_ms|time|gettimeofday|clock_gettime)[[:space:]]*\\(")
    # The leader resolves an order (controlplane/leader/drive/order.c): no driver knows the kind.
    report "a Workload in a driver, where struct run_order says what it needs" \
        < <(code "${files[@]}" | grep -E '^connectors/' |
            grep -E 'KIND_WORKLOAD|object_as\([^;]*, *workload\)|struct (workload|workload_[a-z]+|(run|checkpoint|array|partition)_spec|resources)([^A-Za-z0-9_]|$)')
    report "include that is not written from the top" \
        < <(grep -nE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "${files[@]}" /dev/null |
            grep -vE '"(api|policy|connectors|controlplane|tests|deploy)/[^."][^"]*"')
fi
report "path of one machine" \
    < <(everything | tr '\n' '\0' | xargs -0 grep -nIE \
        '(^|[^A-Za-z0-9_.}-])/(home|Users)/[a-z]+/' /dev/null)
exit "$found"
