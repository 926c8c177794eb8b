#!/usr/bin/env bash
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: train_test.sh TRAIN [COMMAND...]
#
# Runs the program TRAIN, started by COMMAND (mpirun and its arguments, or nothing), with right and
# wrong command lines. Checks the exit status, one line from one rank, and the files it writes.
# COMMAND takes half a second to start, so it gets one of each kind.
set -uo pipefail

train=$1
shift
launcher=("$@")
over=(--transport local --ranks 3)
if ((${#launcher[@]} > 0)); then over=(); fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

fail() {
  echo "FAILED: $*"
  sed 's/^/    /' "$folder/out" "$folder/err"
  failures=$((failures + 1))
}

run() { "${launcher[@]}" "$train" "${over[@]}" "$@" >"$folder/out" 2>"$folder/err" </dev/null; }

# expect_refusal PATTERN ARGUMENT...: status 2, nothing on stdout, and one line of the program's own
# on stderr (mpirun may add a notice).
expect_refusal() {
  local pattern=$1
  shift
  run "$@"
  local status=$?
  ((status == 2)) || fail "'$*' ends with status $status, not 2"
  [[ $(grep -c '^train: ' "$folder/err") == 1 ]] || fail "'$*' does not print one line"
  grep -q "^train: .*$pattern" "$folder/err" || fail "'$*' does not say '$pattern'"
  [[ -s $folder/out ]] && fail "'$*' prints to stdout"
}

printf '' >"$folder/empty"
printf 'short' >"$folder/short"
head -c 5000 "$train" >"$folder/binary"
for ((i = 0; i < 700; ++i)); do printf 'line %d\n' $((i * i % 1009)); done |
  head -c 5000 >"$folder/lines"

# Refused by the parser, by the rank that reads or writes, and by every rank.
expect_refusal 'unknown' --unknown
expect_refusal 'No such file' --text "$folder/missing"
expect_refusal 'cannot write' --json "$folder/missing/file"
expect_refusal "rank 0 on $HOSTNAME: .*nosuch" --text "$folder/binary" --steps 3 --schedule nosuch
if ((${#launcher[@]} > 0)); then
  expect_refusal 'mpirun -n' --ranks 3
  # One rank more, which alone is set up wrongly: it says so, and the others do not wait for it.
  alone=(: -n 1 env WINNOW_COMPRESOR=topk:0.01 "$train")
  run --text "$folder/binary" --steps 3 "${alone[@]}" && fail 'ends with status 0 though a rank fails'
  grep -q "^train: rank [0-9] on $HOSTNAME: .*WINNOW_COMPRESSOR" "$folder/err" ||
    fail 'the rank whose environment is wrong does not say so'
else
  expect_refusal 'is a directory' --text "$folder"
  expect_refusal 'is empty' --text "$folder/empty"
  expect_refusal 'too short: 5 bytes' --text "$folder/short"
  expect_refusal 'steps' --steps 0
  expect_refusal 'balanced' --text "$folder/binary" --steps 3 --compressor topk:0.01@balance
  expect_refusal 'topj' --text "$folder/binary" --steps 3 --compressor none --compressor topj:0.01
  expect_refusal 'loss above 0' --target -1
  expect_refusal 'loss above 0' --target denser
  expect_refusal 'without compression' --target dense --compressor topk:0.01
  expect_refusal '--device' --device gpu
  expect_refusal 'needs --device cuda' --nccl
  expect_refusal 'auto, off, or a share' --look-ahead ahead
  expect_refusal 'auto, off, or a share' --look-ahead -1
  expect_refusal '0.999' --momentum 1
  expect_refusal 'leave --seeds out' --target dense --seeds 2
fi

run --help || fail "--help ends with status $?"
[[ $(grep -c 'Usage' "$folder/out") == 1 ]] || fail '--help is not printed once'

run --text "$folder/binary" --steps 3 --progress always --compressor none --compressor topk:0.01 \
  --json "$folder/json" --csv "$folder/csv" || fail "training ends with status $?"
[[ $(grep -c '^compressor ' "$folder/out") == 1 ]] || fail 'not one table'
[[ $(grep -cE '^(none|topk:0.01) ' "$folder/out") == 2 ]] || fail 'not two rows'
[[ $(grep -c 'left$' "$folder/err") == 6 ]] || fail 'not a progress line for each point'
[[ $(wc -l <"$folder/csv") == 7 ]] || fail 'the CSV file has not 7 lines'
python3 - "$folder/json" <<'PYTHON' || fail 'the JSON file is wrong'
import json, sys
report = json.load(open(sys.argv[1]))
assert report["ranks"] == 3 and report["text_bytes"] == 5000, report
assert report["target_held_out_loss"] is None, report
none, topk = report["runs"]
assert none["steps"] == topk["steps"] == 3, report
assert none["compressor"] == "none" and none["held_out_difference_to_dense"] == 0, none
assert topk["compressor"] == "topk:0.01" and topk["dense_to_wire_bytes"] > 10, topk
assert none["look_ahead"] == 0 and abs(topk["look_ahead"] - 2.5) < 1e-5, report
PYTHON

# The table and the JSON file report the same loss as the curves.
run --text "$folder/lines" --steps 12 --compressed-steps 40 --batch 8 --target dense \
  --compressor none --compressor none@dense_ring --compressor topk:0.1@balanced \
  --json "$folder/json" --csv "$folder/csv" || fail "training to a target ends with status $?"
grep -q ' 12 to 40 steps of 8 windows' "$folder/out" || fail 'the head does not say how many steps'
python3 - "$folder/json" "$folder/csv" "$folder/out" <<'PYTHON' || fail 'the target is told wrongly'
import csv, json, sys
report = json.load(open(sys.argv[1]))
points = list(csv.DictReader(open(sys.argv[2])))
table = open(sys.argv[3]).read().split("was first measured after")[1].splitlines()
keys = [("none", "dense"), ("none", "dense_ring"), ("topk:0.1", "balanced+dense")]
assert [(run["compressor"], run["schedule"]) for run in report["runs"]] == keys, report
curves = [[p for p in points if (p["compressor"], p["schedule"]) == key] for key in keys]
loss = report["target_held_out_loss"]
assert loss == max(float(curve[-1]["held_out_loss"]) for curve in curves[:2]), report
for run, curve, steps in zip(report["runs"], curves, (12, 12, 40)):
    assert run["steps"] == steps == int(curve[-1]["step"]), run
    seconds = [float(point["seconds"]) for point in curve]
    assert 0 < seconds[0] and seconds == sorted(seconds) and run["seconds"] == seconds[-1], run
    first = next((point for point in curve if float(point["held_out_loss"]) <= loss), None)
    assert first is not None, f"{run['compressor']} never has the loss {loss}: {curve}"
    assert run["steps_to_target"] == int(first["step"]), (run, first)
    assert run["seconds_to_target"] == float(first["seconds"]), (run, first)
    words = next(line for line in table if line.split()[:2] == [run["compressor"], run["schedule"]])
    assert words.split()[2:4] == [first["step"], f"{float(first['seconds']):.2f}"], words
PYTHON

((${#launcher[@]} > 0)) && exit $((failures > 0))

# The options of the recipe: each row with each seed, differences to the dense run of that seed.
run --text "$folder/lines" --steps 10 --batch 4 --seed 5 --seeds 2 --rate 0.2 --warm-up 3 \
  --momentum 0.5 --look-ahead 0.25 --compressor none --compressor topk:0.1@gather \
  --json "$folder/json" --csv "$folder/csv" || fail "training with two seeds ends with status $?"
grep -q 'seeds 5 to 6$' "$folder/out" || fail 'the head does not name the seeds'
grep -q 'rate 0.2 after 3 steps, momentum 0.5, look-ahead 0.25$' "$folder/out" || fail 'no recipe'
[[ $(grep -cE '^(none|topk:0.1) ' "$folder/out") == 2 ]] || fail 'not one row for both seeds'
python3 - "$folder/json" "$folder/csv" <<'PYTHON' || fail 'two seeds are told wrongly'
import csv, json, statistics, sys
report = json.load(open(sys.argv[1]))
keys = [(seed, row) for seed in (5, 6) for row in ("none", "topk:0.1")]
assert [(run["seed"], run["compressor"]) for run in report["runs"]] == keys, report
none, topk = report["runs"][0::2], report["runs"][1::2]
assert none[0]["held_out_loss"] != none[1]["held_out_loss"], report
gaps = [t["held_out_loss"] / n["held_out_loss"] - 1 for t, n in zip(topk, none)]
assert [run["held_out_difference_to_dense"] for run in topk] == gaps, report
row = report["rows"][1]
assert abs(row["held_out_difference_to_dense"] - statistics.mean(gaps)) < 1e-12, row
assert abs(row["held_out_difference_deviation"] - statistics.stdev(gaps)) < 1e-12, row
last = [p for p in csv.DictReader(open(sys.argv[2])) if int(p["step"]) == 10]
assert [(int(p["seed"]), p["compressor"]) for p in last] == keys, last
assert [float(p["held_out_loss"]) for p in last] == [r["held_out_loss"] for r in report["runs"]], last
PYTHON

run --text "$folder/binary" --steps 3 --target 0.0001 || fail "an unmet target ends with status $?"
[[ $(grep -c 'not in 3' "$folder/out") == 4 ]] || fail 'a run is said to have had the target'

run --text "$folder/binary" --steps 2 || fail "training ends with status $?"
grep -q 'left$' "$folder/err" && fail 'a progress line where stderr is no terminal'

if command -v gnuplot >/dev/null; then
  run --text "$folder/binary" --steps 3 --plot "$folder/it's.png" || fail 'no plot'
  [[ $(head -c 4 "$folder/it's.png" | tail -c 3) == PNG ]] || fail 'the plot is no PNG file'
fi
exit $((failures > 0))
