#!/usr/bin/env bash
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: train_slow_test.sh BUILD
#
# examples/train_slow at its smallest: what it refuses and writes, and that it leaves no host and no
# process even if it is ended. Exits with 77 if there can be no hosts, or if somebody else's hosts
# are up.
set -uo pipefail

build=$1
root=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
netlab=$root/bench/hosts/netlab
command -v mpirun >/dev/null || { echo 'no mpirun'; exit 77; }
folder=$(mktemp -d)
failures=0
trap 'rm -rf "$folder"' EXIT
fail() {
  echo "FAILED: $*"
  sed 's/^/    /' "$folder/log"
  failures=$((failures + 1))
}
slow() { "$root/examples/train_slow" "$@" >"$folder/log" 2>&1; }
# expect_end STATUS PATTERN ARGUMENT...
expect_end() {
  local expected=$1 pattern=$2 status
  shift 2
  slow "$@"
  status=$?
  [[ $status == "$expected" ]] || fail "'$*' ends with status $status, not $expected"
  grep -q "$pattern" "$folder/log" || fail "'$*' does not say '$pattern'"
}

expect_end 2 'needs a folder' --build
expect_end 2 'ninja -C .* makes it' --build "$folder"
mkdir "$folder/bin"
printf '#!/bin/sh\necho 1000\n' >"$folder/bin/id"
chmod +x "$folder/bin/id"
PATH=$folder/bin:$PATH expect_end 77 'needs root' --build "$build"

before=$("$netlab" status) || exit $((failures > 0 ? 1 : 77))
[[ -z $before ]] || { echo 'hosts are up already'; exit $((failures > 0 ? 1 : 77)); }
trap '"$netlab" down; rm -rf "$folder"' EXIT

expect_end 2 'should be a number of bit' --build "$build" fast
expect_end 2 'steps' --build "$build" --out "$folder/wrong" 500mbit --steps 0
[[ -z $("$netlab" status) ]] || fail 'a wrong call left a host'
"$netlab" up 1
expect_end 77 'up already' --build "$build"
[[ $("$netlab" status | wc -l) == 1 ]] || fail 'hosts of somebody else are gone'
"$netlab" down

head -c 5000 "$build/examples/train" >"$folder/text"
slow --build "$build" --out "$folder/out" 500mbit --text "$folder/text" --steps 2 \
  --compressed-steps 3 || fail "training ends with status $?"
[[ -z $("$netlab" status) ]] || fail 'training left a host'
grep -q ' was first measured after$' "$folder/log" || fail 'no table of who was first'
python3 - "$folder/out/train.json" <<'PYTHON' || fail 'the JSON file is wrong'
import json, sys
report = json.load(open(sys.argv[1]))
assert (report["ranks"], report["topology"], report["transport"]) == (4, "4x1", "mpi"), report
rows = [(run["compressor"], run["schedule"], run["steps"]) for run in report["runs"]]
assert rows == [("none", "dense", 2), ("none", "dense_ring", 2), ("topk:0.01", "balanced+dense", 3),
                ("topk:0.01,int8", "balanced+dense", 3)], rows
assert report["runs"][0]["seconds_to_target"] > 0, report
PYTHON
if command -v gnuplot >/dev/null; then
  [[ $(head -c 4 "$folder/out/plot.png" | tail -c 3) == PNG ]] || fail 'no plot'
fi

# Ended in the middle, once the first point is there.
"$root/examples/train_slow" --build "$build" --out "$folder/ended" 500mbit --text "$folder/text" \
  --steps 100000 --compressor none >"$folder/log" 2>&1 &
job=$!
for _ in {1..300}; do
  grep -q 'held-out' "$folder/log" && break
  sleep 0.1
done
kill -TERM $job
wait $job
status=$?
[[ $status == 143 ]] || fail "ended by a signal, it ends with status $status, not 143"
[[ -z $("$netlab" status) ]] || fail 'ended by a signal, it left a host'
for process in /proc/[0-9]*/cmdline; do
  if tr '\0' ' ' <"$process" 2>/dev/null | grep -q "train .*$folder/ended"; then
    fail "ended by a signal, it left $process"
  fi
done
exit $((failures > 0))
