#!/usr/bin/env bash
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: processes.sh RANKS PROGRAM [ARGUMENT]...
#
# Runs PROGRAM in RANKS processes with the variables that torchrun sets, and a free port for
# TcpMeeting. Ends with the highest exit status.
set -uo pipefail
ranks=$1
shift
WINNOW_TCP_PORT=$(python3 -c 'import socket
s = socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET)
s.bind(("", 0))
print(s.getsockname()[1])') || exit 1
export WINNOW_TCP_PORT MASTER_ADDR=localhost WORLD_SIZE=$ranks TORCHELASTIC_RUN_ID=job-$$
started=()
for ((rank = 0; rank < ranks; rank++)); do
  RANK=$rank "$@" &
  started+=($!)
done
highest=0
for process in "${started[@]}"; do
  wait "$process"
  status=$?
  ((status > highest)) && highest=$status
done
exit $highest
