#!/usr/bin/env bash
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: killed_rank_test.sh RANKS PROGRAM MPIRUN [OPTION OF MPIRUN]...
#
# Runs PROGRAM, whose last rank kills itself, on RANKS ranks; all others must finish. mpirun's
# messages and exit status for the killed rank differ between versions.
set -uo pipefail
ranks=$1 program=$2
shift 2
output=$("$@" --enable-recovery -n "$ranks" "$program" 2>&1)
finished=$(grep -c '^rank [0-9]* finished$' <<<"$output")
if [ "$finished" != $((ranks - 1)) ]; then
  printf '%s\n' "$output" "$finished of $((ranks - 1)) survivors finished"
  exit 1
fi
