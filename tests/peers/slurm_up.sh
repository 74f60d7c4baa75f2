#!/usr/bin/env bash
# That lib/slurm gives a real Slurm: nodes and GPUs are seen, a job runs on the GPUs it was given, one that exits with 75
# comes back and goes on, REST with a token submits and reads, accounting keeps what ended; and that nothing of it is left
# afterwards. Hanse has no part in this: tests of a Slurm connector stand on it.
set -euo pipefail
lib=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib/slurm
dir=$(mktemp -d "${TMPDIR:-/tmp}/hanse-slurm-XXXXXX")
failed=0
trap '[ ! -e "$dir/pids" ] || "$lib/down" "$dir"; [ "$failed" != 0 ] || rm -rf "$dir"' EXIT

HANSE_SLURM_NODES=4 HANSE_SLURM_ACCOUNTING=1 "$lib/up" "$dir" || exit $?
cut -d' ' -f1,2 "$dir/pids" >"$dir/started"
. "$lib/env" "$dir"

. "$(dirname "$lib")/checks"
state() { scontrol -o show job "$1" 2>/dev/null | grep -o ' JobState=[A-Z_]*' | cut -d= -f2; }
in_state() { [ "$(state "$1")" = "$2" ]; }
rest() { # method path [body]
    curl -sS -X "$1" -H "X-SLURM-USER-NAME: $SLURM_JOB_ACCOUNT" -H "X-SLURM-USER-TOKEN: $SLURM_USER_TOKEN" \
        -H 'Content-Type: application/json' ${3:+--data-binary "$3"} "$SLURM_REST$2"
}
listed() { grep -qx "$1" <<<"$(squeue -h -o %i)"; }
accounted() { grep -q '"current":"COMPLETED"' <<<"$(rest GET "/slurmdb/v0.0.38/job/$1" | tr -d ' \n')"; }

jobs=$dir/jobs
check "sinfo sees four idle nodes" slurm_ready
check "each with four GPUs" [ "$(sinfo -h -N -p gpu -o %G | sort -u)" = gpu:h100:4 ]

id=$(sbatch --parsable --gres=gpu:h100:2 -o "$jobs/%j.out" --wrap 'echo "gpus=$CUDA_VISIBLE_DEVICES"')
check "a job runs to its end" within 30 in_state "$id" COMPLETED
check "and saw its two GPUs" within 5 grep -qE '^gpus=[0-9],[0-9]$' "$jobs/$id.out"

cat >"$jobs/again.sh" <<'SCRIPT'
#!/bin/bash
# Asked by USR1, it notes how far it came and exits with 75; its next life goes on from there.
here=$1 step=0 child=
[ ! -e "$here/step" ] || read -r step <"$here/step"
trap 'kill "$child"; echo $((step + 1)) >"$here/step"; exit 75' USR1
[ "$step" = 0 ] || { echo "from $step" >"$here/resumed"; exit 0; }
echo >"$here/began"
sleep 60 & child=$!
wait "$child"
SCRIPT
id=$(sbatch --parsable -o "$jobs/%j.out" "$jobs/again.sh" "$jobs")
check "squeue lists a job that runs" within 30 listed "$id"
check "it begins" within 30 test -e "$jobs/began"
scancel --signal=USR1 --batch "$id"
check "a job that exits with 75 is queued again and ends well" within 60 in_state "$id" COMPLETED
check "and went on from where it was" [ "$(cat "$jobs/resumed" 2>/dev/null)" = "from 1" ]

answer=$(rest POST /slurm/v0.0.38/job/submit "{\"script\": \"#!/bin/sh\nexit 0\n\", \"job\": {\"name\": \"rest\",
    \"partition\": \"gpu\", \"current_working_directory\": \"$jobs\", \"standard_output\": \"/dev/null\", \"tasks\": 1,
    \"environment\": {\"PATH\": \"/bin:/usr/bin\"}}}" | tr -d ' \n')
id=$(grep -oE '"job_id":[0-9]+' <<<"$answer" | head -n 1 | cut -d: -f2) || id=
check "REST takes a job" [ -n "$id" ]
check "and it ends well" within 30 in_state "${id:-0}" COMPLETED
check "accounting knows of it" within 30 accounted "${id:-0}"
check "REST refuses a token that is none" bash -c "! curl -sf -H 'X-SLURM-USER-NAME: slurm' \
    -H 'X-SLURM-USER-TOKEN: none' '$SLURM_REST/slurm/v0.0.38/nodes' | grep -q gpu:h100"

id=$(sbatch --parsable -o /dev/null --wrap 'sleep 600')
check "a job is running at the end" within 30 in_state "$id" RUNNING
"$lib/down" "$dir"
gone() { # its daemons, and what jobs have left (told by their environment)
    local pid start
    while read -r pid start; do
        [ "$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | awk '$1 != "Z" { print $20 }')" != "$start" ] || return 1
    done <"$dir/started"
    for pid in /proc/[0-9]*; do
        if grep -qzsx "SLURM_CONF=$SLURM_CONF" "$pid/environ" && grep -qzs '^SLURM_JOB_ID=' "$pid/environ"; then return 1; fi
    done 2>/dev/null
}
check "nothing is left of it" within 10 gone
[ "$failed" = 0 ] || printf 'logs are kept in %s\n' "$dir"
exit "$failed"
