#!/usr/bin/env bash
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: winnow_test.sh WINNOW [MPIRUN...]
#
# Runs the program WINNOW with command lines that are right and wrong.
set -uo pipefail

winnow=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

fail() {
  echo "FAILED: $*"
  sed 's/^/    /' "$folder/out" "$folder/err"
  failures=$((failures + 1))
}

# expect STATUS PATTERN ARGUMENT...: exit status, and a line of stdout, or of stderr where it is not 0.
expect() {
  local status=$1 pattern=$2
  shift 2
  "$winnow" "$@" >"$folder/out" 2>"$folder/err" </dev/null
  local got=$?
  ((got == status)) || fail "'$*' ends with status $got, not $status"
  local where=$folder/out
  ((status == 0)) || where=$folder/err
  grep -qE -- "$pattern" "$where" || fail "'$*' does not say '$pattern'"
}

expect 0 'explain' --help
expect 0 '^winnow [0-9]+\.[0-9]+\.[0-9]+$' --version
expect 0 '--topology' explain --help
expect 2 'subcommand' # none
expect 2 "mean 'explain'" explan
expect 2 'balanced' explain --schedule balancd
expect 2 '3,1,2' explain --topology 2by4
expect 2 '25\.6M' explain --count many
expect 2 '25\.6M' explain --count=-5
expect 2 'whole number' explain --count 1.5
expect 2 'must not be empty' topo --topology ''
expect 2 'must not be empty' simulate --topology 2x1 --plot ''
expect 2 'transfers' explain --transfers=-1
expect 2 'topk' explain --compressor topj:0.01
expect 2 'preset=dgc' explain --compressor dgc
expect 2 "'topk:0.01,int8'" simulate --topology 2x1 --compressor topk:0.01:int8
expect 2 "'dense'" explain --schedule ring
expect 2 'inter' explain --links outer=1us,1GB/s
expect 2 'cannot write' simulate --topology 2x1 --csv "$folder/missing/file"

expect 0 '^balanced +[0-9.]+ ms +[0-9,]+ +[0-9,]+$' explain --topology 2x2 --count 1M
expect 0 '^compressor +topk:0.01: ' explain --topology 2x2 --count 1M --compressor ' TopK : 1%'
expect 0 'topk:0.01@gather' simulate --topology 2x1 --count 1M --compressor TOPK:1% --schedule Gather
expect 0 '^2 +[0-9,]+ ' explain --topology 2x2 --count 1M
expect 0 '^optimizer +Adam, AdamW of torch take topk:0.05,sign over balanced:$' explain --optimizer AdamW \
  --topology 4x1 --count 1M
expect 0 '^compressor +topk:0.03,int4: ' explain --optimizer sgd --topology 4x1 --count 1M
expect 2 "mean 'adam'" explain --optimizer adan
expect 2 'excludes' explain --optimizer sgd --compressor topk:0.01
expect 0 '^speed-up +[0-9.]+x$' explain --topology 3,1,2 --count 64k --schedule gather
expect 0 '^schedule +gather: ' explain --topology 4x1 --count 64k --schedule two_level:gather
expect 0 '^ +\(schedule=two_level:gather, one rank on every node\)$' explain --topology 4x1 \
  --count 64k --schedule two_level:gather
expect 0 '^schedule +two_level:(gather|balanced|doubling): ' explain --topology 4x8 --count 25.6M \
  --compressor topk:0.01 --schedule two_level
expect 0 '^ +\(schedule=two_level, predicted to take ' explain --topology 4x8 --count 25.6M \
  --compressor topk:0.01 --schedule two_level
expect 0 'topk:0.01@two_level:shared' simulate --topology 4x2 --count 1M
expect 0 '^16x1 +16 +topk:0.01@gather ' simulate --topology 2x1 16x1 --count 1M
expect 0 '^4096x1 +4096 +topk:0.01@balanced +~ [0-9.]+ ms ' simulate --topology 4096x1 --count 1M
grep -q '^~ above 512 ranks: by the planner' "$folder/out" || fail 'simulate does not say what ~ is'
if [[ -c /dev/full ]]; then
  expect 1 'cannot write all rows' simulate --topology 2x1 --count 1M --csv /dev/full
  "$winnow" explain --topology 2x1 >/dev/full 2>"$folder/err"
  [[ $? == 1 ]] && grep -q 'cannot write' "$folder/err" || fail 'a full standard output is no error'
fi
expect 0 'int8@balanced' simulate --topology 4x2 --compressor topk:0.01 topk:0.01,int8 \
  --schedule balanced --count 1M --csv "$folder/csv"
[[ $(wc -l <"$folder/csv") == 3 ]] || fail 'the CSV has not a head and two rows'
grep -q '^"4x2",8,"topk:0.01,int8@balanced",' "$folder/csv" || fail 'the CSV lacks a row'
# On a terminal it says what it is at; elsewhere stderr stays empty.
[[ -s $folder/err ]] && fail 'simulate writes to a stderr that is no terminal'
if command -v script >/dev/null; then
  script -qec "'$winnow' simulate --topology 2x1 --count 1M" /dev/null </dev/null >"$folder/out"
  grep -q '2x1: topk:0.01@balanced' "$folder/out" || fail 'simulate does not say what it is at'
fi
if command -v gnuplot >/dev/null; then
  expect 0 dense simulate --topology 2x1 4x1 --count 1M --plot "$folder/it's.png"
  [[ $(head -c 4 "$folder/it's.png" | tail -c 3) == PNG ]] || fail 'the plot is no PNG'
fi

expect 0 '^1 +1 3 5$' topo --topology 3,1,2
if (($# > 0)); then
  "$@" "$winnow" topo >"$folder/out" 2>"$folder/err" </dev/null || fail 'topo under mpirun fails'
  grep -q '3 ranks on 1 node$' "$folder/out" || fail 'topo does not see three ranks'
fi

if ((failures > 0)); then exit 1; fi
echo 'winnow does what it says'
