#!/bin/sh
# Joins train.py to the program contract of Hanse.
[ -z "$HANSE_RESUME_DIR" ] || set -- "$@" --resume "$HANSE_RESUME_DIR"/step-*
exec python3 "$(dirname "$0")/train.py" --out "$HANSE_CHECKPOINT_DIR" "$@" \
    --on-save 'hanse checkpoint commit --step "$STEP" "step-$STEP"'
