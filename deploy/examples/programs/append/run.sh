#!/bin/sh
# Joins collect.py to the program contract of Hanse.
[ -z "$HANSE_RESUME_DIR" ] || cp "$HANSE_RESUME_DIR/records.log" "$HANSE_CHECKPOINT_DIR/"
exec python3 "$(dirname "$0")/collect.py" --log "$HANSE_CHECKPOINT_DIR/records.log" "$@" \
    --on-flush 'hanse checkpoint commit --step "$STEP" "records.log:$BYTES"'
