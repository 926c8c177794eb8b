#!/usr/bin/env bash
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: subproject_test.sh SOURCE mpi|without
#
# A project whose wrap is the tree SOURCE configures, and finds the dependencies winnow and, `mpi`,
# winnow_mpi by their names alone. It gets the library, and none of the programs and tests.
set -uo pipefail

source=$1 mpi=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; cat "$folder/log"; exit 1; }

mkdir "$folder/subprojects"
ln -s "$source" "$folder/subprojects/winnow-0.1"
cat >"$folder/subprojects/winnow.wrap" <<'WRAP'
[wrap-file]
directory = winnow-0.1

[provide]
dependency_names = winnow, winnow_mpi
WRAP
cat >"$folder/meson.build" <<'MESON'
project('parent', 'c', version: '7')
names = ['winnow']
if get_option('mpi')
  names += 'winnow_mpi'
endif
foreach name : names
  found = dependency(name, version: ['>= 0.1', '< 7'])
  assert(found.type_name() == 'internal', name + ' comes from elsewhere')
  assert(import('fs').is_file(found.get_variable('fortran')), name + ' names no Fortran module')
  executable('with_' + name, 'main.c', dependencies: found)
endforeach
MESON
echo "option('mpi', type: 'boolean')" >"$folder/meson_options.txt"
echo '#include <winnow/winnow.h>
int main(void) { return winnow_version()[0] == 0; }' >"$folder/main.c"

[[ $mpi == mpi ]] && with=true feature=enabled || with=false feature=disabled
env -u PKG_CONFIG_PATH meson setup "$folder/build" "$folder" -Dmpi=$with -Dwinnow:mpi=$feature \
  -Dwinnow:cuda=disabled --force-fallback-for=winnow,winnow_mpi >"$folder/log" 2>&1 ||
  fail 'the parent does not configure'
programs=$(cd "$folder/build" && meson introspect --targets | python3 -c '
import json, sys
print(*(t["name"] for t in json.load(sys.stdin) if t["type"] == "executable"))')
[[ $programs == "with_winnow$([[ $mpi == mpi ]] && echo ' with_winnow_mpi')" ]] ||
  fail "the parent builds '$programs'"
