#!/usr/bin/env bash
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: readme_test.sh README SOURCE [PROGRAM WORD MPIRUN ARGUMENT...]
#
# The first C++ of README is SOURCE but for its licence. Where PROGRAM, built from it, is given:
# MPIRUN runs it on two ranks, with WORD where that is not empty, and it prints the one line that
# README promises; or, if an option is wrong, which it does not catch, one for each rank that says so.
set -uo pipefail

readme=$1 source=$2
shift 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

awk '/^```/ { if (inside) exit; inside = ($0 == "```cpp"); next } inside' "$readme" >"$folder/code"
# The licence is two lines; a formatter may put a blank one behind it.
sed -e '1,2{/^\/\/ /d}' "$source" | sed -e '1{/^$/d}' >"$folder/source"
[[ -s $folder/code ]] || fail "$readme has no \`\`\`cpp block"
diff -u --label "$readme" --label "$source" "$folder/code" "$folder/source" ||
  fail 'the README shows another program'

# expect SCHEDULE: two ranks print one line, of that schedule, with the bytes sent and the dense ones.
expect() {
  local line pattern="^$1: ([0-9]+) bytes sent instead of ([0-9]+)$"
  line=$("${launch[@]}" 2>"$folder/err" </dev/null)
  local status=$?
  ((status == 0)) || { fail "ends with status $status"; cat "$folder/err"; }
  [[ $line =~ $pattern ]] || { fail "prints '$line', not '$1: ...'"; return; }
  sent=${BASH_REMATCH[1]} dense=${BASH_REMATCH[2]}
}

if (($# > 0)); then
  # mpirun refuses root unless told twice.
  if ((EUID == 0)); then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
  launch=("${@:3}" -n 2 "$1")
  [[ -n $2 ]] && launch+=("$2")
  unset "${!WINNOW_@}"
  sent=0 dense=0
  export WINNOW_SCHEDULE=least_bytes  # what auto measures differs from run to run
  expect gather
  ((dense > 35 * sent)) || fail "sends $sent bytes where dense sends $dense"
  export WINNOW_ENABLE=0
  expect dense
  ((sent == dense)) || fail "sends $sent bytes, and says that dense sends $dense"

  # The launcher may end a rank before it says anything, and one rank's line may follow the beginning
  # of another one's backtrace.
  export WINNOW_COMPRESSOR=topj:0.01
  (ulimit -c 0 && "${launch[@]}" >"$folder/out" 2>"$folder/err" </dev/null) &&
    fail 'ends with status 0 though the compressor is wrong'
  lines=$(grep -c -E "(^|\\] )winnow: rank [01] on $HOSTNAME: usage error: .*topk" "$folder/err")
  [[ $lines =~ ^[12]$ ]] && [[ $lines == $(grep -c 'topj:0.01' "$folder/err") ]] &&
    ! grep -q 'terminate called' "$folder/err" && [[ ! -s $folder/out ]] ||
    { cat "$folder/err"; fail "$lines lines name the rank, the host and the error"; }
fi
exit $((failures > 0))
