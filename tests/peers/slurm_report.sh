#!/usr/bin/env bash
# What a runner without a way home says in its job's comment, on a real Slurm: by scontrol, read back by REST as a connector does. Its
# program is of the same user and may write that comment, too: then, and after the job, what stands there is no report of the token.
set -euo pipefail
lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib/slurm
[ -x "${HANSE:-}" ] || { printf 'there is no hanse: set HANSE\n' >&2; exit 77; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/hanse-slurm-XXXXXX")
failed=0
trap '[ ! -e "$dir/pids" ] || "$lib/down" "$dir"; [ "$failed" != 0 ] || rm -rf "$dir"' EXIT

HANSE_SLURM_NODES=1 "$lib/up" "$dir" || exit $?
. "$lib/env" "$dir"
jobs=$dir/jobs

. "$(dirname "$lib")/checks"
over() { scontrol -o show job "$1" 2>/dev/null | grep -qE ' JobState=(COMPLETED|FAILED|CANCELLED)'; }
# The job's comment, as REST has it; it is a report of that token, and has what is asked for: KEY=VALUE as JSON.
report() { # job key value
    curl -sS -H "X-SLURM-USER-NAME: $SLURM_JOB_ACCOUNT" -H "X-SLURM-USER-TOKEN: $SLURM_USER_TOKEN" "$SLURM_REST/slurm/v0.0.38/job/$1" |
        python3 -c '
import hashlib, hmac, json, sys
token, key, value = sys.argv[1:]
line = json.load(sys.stdin)["jobs"][0]["comment"] or ""
told, _, rest = line.rpartition(",\"mac\":\"")
wanted = hmac.new(token.encode(), b"hanse-report-1\n" + told.encode(), hashlib.sha256).hexdigest()
sys.exit(rest != wanted + "\"}" or json.loads(line).get(key) != json.loads(value))' "$token" "$2" "$3"
}
run() { # program: a job whose runner reports; its id
    printf '%s\n' "$token" >"$jobs/token"
    chmod 600 "$jobs/token"
    printf '#!/bin/sh\nexec "%s" run --report slurm-comment --token-file "%s" --grace 2000 -- /bin/sh -c '\''%s'\''\n' "$HANSE" "$jobs/token" "$1" >"$jobs/job.sh"
    sbatch --parsable -o "$jobs/%j.out" "$jobs/job.sh"
}
token=hanse-run-1/0123456789abcdef0123456789abcdef/0f3c-1.2.1/0/1/1900000000000/$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')

id=$(run 'exit 7')
check "a job ends" within 60 over "$id"
check "its comment is a report of its token, with its exit status" within 20 report "$id" exitCode 7
check "and it says that this is the end" report "$id" state '"ended"'

id=$(run 'scontrol update JobId=$SLURM_JOB_ID Comment="{\"hanse\":1,\"state\":\"ended\"}" && exit 3')
check "a job whose program writes the comment itself ends" within 60 over "$id"
check "its runner has the last word" within 20 report "$id" exitCode 3
check "Slurm lets nobody change it after that" bash -c "! scontrol update JobId=$id Comment=none 2>/dev/null"

id=$(run 'echo begun >"'"$jobs"'/begun"; sleep 600')
check "a job begins" within 60 test -e "$jobs/begun"
scancel --signal=TERM --batch "$id"
check "and is stopped" within 60 over "$id"
check "which its runner says, too" within 20 report "$id" stopped true

printf '%s\n' "$token" >"$dir/token"
out=$(env -u SLURM_JOB_ID "$HANSE" run --report slurm-comment --token-file "$dir/token" -- touch "$dir/started" 2>&1) && out="it has started"
check "outside of a job nothing starts, with the reason" [ -z "${out##*no Slurm job*}" ]
check "nothing was started" [ ! -e "$dir/started" ]
[ "$failed" = 0 ] || printf 'logs are kept in %s\n' "$dir"
exit "$failed"
