#!/usr/bin/env bash
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: train_device_test.sh TRAIN OPTIONS [COMMAND...]
#
# Runs the program TRAIN with OPTIONS (one word, split at spaces), started by COMMAND (mpirun and
# its arguments, or nothing), on both devices: the tables are equal except for rounding in the
# losses.
set -uo pipefail

train=$1
read -ra options <<<"$2"
shift 2
launcher=("$@")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for ((i = 0; i < 700; ++i)); do printf 'line %d\n' $((i * i % 1009)); done |
  head -c 1500 >"$folder/lines"

run() {
  "${launcher[@]}" "$train" "$@" --text "$folder/lines" --steps 2 --batch 4 --compressor none \
    --compressor topk:0.01@gather --json "$folder/json" </dev/null >"$folder/out" 2>&1
  local status=$?
  ((status == 0)) && return
  echo "FAILED: '$*' ends with status $status"
  cat "$folder/out"
  exit 1
}

over=()
if ((${#launcher[@]} == 0)); then over=(--transport local --ranks 2); fi
run "${over[@]}"
mv "$folder/json" "$folder/host"
run "${over[@]}" --device cuda "${options[@]}"
python3 - "$folder/host" "$folder/json" "${options[*]}" <<'PYTHON'
import json, sys
host, device = (json.load(open(path)) for path in sys.argv[1:3])
assert (host["device"], device["device"]) == ("cpu", "cuda"), device
assert ("nccl" in sys.argv[3]) == (device["transport"] == "nccl"), device
for there, here in zip(host["runs"], device["runs"], strict=True):
    for key in ("compressor", "schedule", "wire_bytes_per_step"):
        assert there[key] == here[key], (there, here)
    for key in ("training_loss", "held_out_loss"):
        assert abs(there[key] - here[key]) < 1e-4 * there[key], (there, here)
PYTHON
