#!/usr/bin/env bash
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: symbols_test.sh LIBRARY
#
# LIBRARY, libwinnow.so, exports only the public interface (names of namespace winnow itself, none of
# what a class keeps behind a pointer; names of C that begin with winnow_) and the few internal names
# that libwinnow_mpi.so uses. Ends with 77 if there is no nm.
set -uo pipefail

command -v nm >/dev/null || { echo 'SKIPPED: no nm here'; exit 77; }
names=$(nm -D --defined-only --demangle "$1" | sed 's/^[0-9a-f]* *. //') || exit 1
failures=0

grep -q '^winnow::AllReducer::all_reduce(' <<<"$names" || { echo 'no AllReducer'; failures=1; }
# Drops what a linker may add, then the interface; inner namespaces have small letters.
foreign=$(grep -vE '^(_init|_fini|_edata|_end|__bss_start)$' <<<"$names" |
  grep -vE '^((typeinfo|typeinfo name|vtable) for )?winnow::([A-Z][A-Za-z]*(::|$)|[a-z_]+\()' |
  grep -vE '^winnow_[a-z_]+$' |
  grep -vE '^winnow::kernels::(reduce|expect_reducible|wait_for_device|StreamMark::[~A-Za-z_]+)\(' |
  grep -vE '^winnow::comm::Node(Group|Memory)::[~A-Za-z_=]+\(' |
  grep -vE '^(typeinfo|typeinfo name|vtable) for winnow::comm::GrowingMessages$')
[[ -z $foreign ]] || { printf 'exported beside the interface:\n%s\n' "$foreign"; failures=1; }
inner=$(grep -E "::(Impl|Internal)" <<<"$names")
[[ -z $inner ]] || { printf 'exported, though private:\n%s\n' "$inner"; failures=1; }
exit $failures
