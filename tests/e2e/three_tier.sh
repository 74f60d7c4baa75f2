#!/usr/bin/env bash
# The main job with real processes, every promise checked: deploy/examples/three-tier/run --check.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${HANSE_BUILD_DIR:?set it to the build folder}
exec deploy/examples/three-tier/run --check --hanse "$build/hanse" --trainer "$build/three-tier-trainer"
