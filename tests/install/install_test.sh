#!/usr/bin/env bash
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: install_test.sh WAY BUILD PREFIX HEADERS PROGRAM.cpp [MPIRUN ARGUMENT...]
#
# Installs from the folder BUILD, whose library is built, under a temporary root, and moves what
# came under PREFIX to another place. Then, by WAY,
#   files                      checks what is there: the public headers, those of the folder HEADERS
#                              (mpi.hpp where PROGRAM needs it), and the libraries; nothing else
#   pkg-config, cmake, meson   builds PROGRAM.cpp against the copy, from an environment that knows
#                              nothing of this tree, and runs it on two ranks
#   c                          likewise a program in C, by a CMake project of that language alone
#   fortran                    likewise the example in Fortran, by pkg-config and by CMake
# Ends with 77 where the tool is missing.
set -uo pipefail

way=$1 build=$2 prefix=$3 headers=$4 program=$5
shift 5
launch=("$@")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
stop() { fail "$@"; exit 1; }
need() { command -v "$1" >/dev/null || { echo "SKIPPED: no $1 here"; exit 77; }; }
shown() { "$@" >"$folder/log" 2>&1 || { cat "$folder/log"; stop "$*"; }; }

need meson
case $way in
  cmake | c) need cmake ;;
  pkg-config | meson) need pkg-config ;;
  fortran) need mpifort && need pkg-config && need cmake ;;
esac
tree=$(cd "$headers/../.." && pwd)

shown meson install -C "$build" --no-rebuild --destdir "$folder/root"
copy=$folder/elsewhere
mv "$folder/root/$prefix" "$copy" || stop "nothing came under $prefix"
[[ -z $(find "$folder/root" ! -type d) ]] || fail "installs outside of $prefix"
library=$(find "$copy" -name libwinnow.so)
libdir=$(dirname "$library")
version=$(readlink -f "$library")
version=${version##*.so.}
include=$(dirname "$(dirname "$(find "$copy" -name winnow.hpp)")")
# A build with pkgconfig.relocatable=false names its prefix.
sed -i "s|^prefix=/.*|prefix=$copy|" "$libdir"/pkgconfig/*.pc
# The package that PROGRAM needs, and CMake's component and target of it.
package=winnow component='' target=winnow::winnow
if grep -q 'winnow/mpi.hpp' "$program"; then
  package=winnow_mpi component='COMPONENTS mpi' target=winnow::mpi
fi

# The environment of a user's shell, without anything that this build or its test has set.
clean=(env -i "PATH=$PATH" "HOME=$folder" "CXX=${CXX:-c++}"
  "PKG_CONFIG_PATH=$libdir/pkgconfig" "CMAKE_PREFIX_PATH=$copy")
# mpirun refuses root unless told twice.
if ((EUID == 0)); then
  clean+=(OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
fi

expect_files() {
  local real
  real=$(basename "$(readlink -f "$library")")
  {
    (cd "$headers" && find . -name '*.hpp' -o -name '*.h' -o -name '*.f90') | sed "s|^\.|$include/winnow|"
    printf '%s\n' "$libdir"/{libwinnow.so,"${real%.*.*}","$real",pkgconfig/winnow.pc}
    if [[ $package == winnow_mpi ]]; then
      printf '%s\n' "$libdir"/libwinnow_mpi.so{,".${real#*.so.}",".$(cut -d. -f3 <<<"$real")"}
      printf '%s\n' "$libdir"/pkgconfig/winnow_mpi.pc
    fi
    printf '%s\n' "$libdir"/cmake/winnow/winnowConfig{,Version}.cmake
    find "$copy/bin" -name winnow 2>/dev/null  # the command, where it is built
  } | if [[ $package == winnow_mpi ]]; then cat; else grep -v '/mpi\.hpp$'; fi |
    sort >"$folder/expected"
  find "$copy" ! -type d | sort >"$folder/found"
  diff -u "$folder/expected" "$folder/found" || fail 'not the files that belong to the interface'

  readelf -d "$library" >"$folder/dynamic"
  grep -q "SONAME.*\[${real%.*.*}\]" "$folder/dynamic" || fail "$real has another SONAME"
  grep -E 'NEEDED.*(mpi|nccl|cuda|gomp)' "$folder/dynamic" && fail "$real needs more than it may"
  grep -rF -e "$build" -e "$(dirname "$(dirname "$headers")")" "$folder/dynamic" "$copy" \
    --include='*.pc' --include='*.cmake' --include='*.hpp' --include=dynamic &&
    fail 'the copy names the tree that it was built from'

  # Each header compiles alone, with only the copy beside it; and below C++20 says what is missing,
  # and nothing else but that the compilation ends.
  local header
  for header in "$include"/winnow/*.hpp; do
    [[ $header == */mpi.hpp ]] && continue
    # shellcheck disable=SC2086  # CXX may be two words
    shown ${CXX:-c++} -std=c++20 -fsyntax-only -Wall -Wextra -Werror -I"$include" \
      -include "$header" -x c++ /dev/null
    # shellcheck disable=SC2086
    ${CXX:-c++} -std=c++17 -fsyntax-only -I"$include" -include "$header" -x c++ /dev/null \
      >"$folder/log" 2>&1 && fail "$header compiles as C++17"
    [[ $(grep -c 'error: ' "$folder/log") == 2 ]] &&
      grep -q "error: .*need C++20: compile with -std=c++20" "$folder/log" ||
      { head -n 20 "$folder/log"; fail "as C++17 $header says something else"; }
  done
  shown ${CC:-cc} -std=c99 -fsyntax-only -Wall -Wextra -pedantic -Werror -I"$include" \
    -include "$include/winnow/winnow.h" -x c /dev/null
  grep -n '#include "' -r "$include" && fail 'a header includes what is not installed'
}

# expect_siblings FOLDER: the libraries in FOLDER load from another folder, without help from the
# environment, and take each other from there.
expect_siblings() {
  local each
  for each in "$1"/libwinnow*.so; do
    (cd / && env -i "PATH=$PATH" python3 -c '
import ctypes, os, sys
path = os.path.realpath(sys.argv[1])
ctypes.CDLL(path)
files = {line.split()[-1] for line in open("/proc/self/maps") if "libwinnow" in line}
strange = [file for file in files if os.path.dirname(file) != os.path.dirname(path)]
sys.exit(f"{path} takes {strange}" if strange else 0)' "$each") || fail "$each does not load"
  done
}

# Whatever of the installed programs and libraries needs another one of them looks for it relative to
# itself, in a RUNPATH, which LD_LIBRARY_PATH overrides.
expect_run_paths() {
  local file needed
  while IFS= read -r file; do
    readelf -d "$file" >"$folder/dynamic" 2>&1 || continue
    grep -q '(RPATH)' "$folder/dynamic" && fail "$file has an RPATH"
    grep -F -e "$build" -e "$tree" "$folder/dynamic" && fail "$file names the tree it comes from"
    needed=$(grep -o 'NEEDED.*libwinnow[a-z_]*\.so' "$folder/dynamic")
    [[ -z $needed ]] || grep -q '(RUNPATH).*\$ORIGIN' "$folder/dynamic" ||
      fail "$file does not say where libwinnow is"
  done < <(find "$copy" -type f \( -name '*.so*' -o -perm -u+x \))
}

# launched PROGRAM: prints what it prints, with the status of its launcher.
launched() { "${clean[@]}" "${launch[@]}" "$1" 2>"$folder/log" </dev/null; }

# run PROGRAM [PATTERN]: prints one line. On a machine that stands still for seconds mpirun can miss that a
# rank has finalized MPI, and says that it exited without; such a run is tried once more.
run() {
  local line status pattern=${2:-'^[a-z+]+: [0-9]+ bytes sent instead of [0-9]+$'}
  line=$(launched "$1")
  status=$?
  if ((status != 0)) && [[ $line =~ $pattern ]] && grep -q 'exiting improperly' "$folder/log"; then
    cat "$folder/log"
    echo 'TRIED AGAIN: mpirun missed the end of a rank that had printed its line'
    line=$(launched "$1")
    status=$?
  fi
  ((status == 0)) || { cat "$folder/log"; fail "the program ends with status $status"; }
  [[ $line =~ $pattern ]] || fail "the program prints '$line'"
  # The copy's libraries, and no other ones of this machine.
  local loaded
  loaded=$("${clean[@]}" ldd "$1" | sed -n 's/.*libwinnow[^ ]* => \(.*\) (.*/\1/p')
  [[ $loaded == *libwinnow.so* ]] || fail 'it loads no libwinnow.so'
  for file in $loaded; do
    [[ $(readlink -f "$file") == "$(readlink -f "$libdir")"/* ]] || fail "it loads '$file'"
  done
}

mkdir "$folder/user"
cp "$program" "$folder/user/program.cpp"
cd "$folder/user" || stop 'no folder'
case $way in
  files)
    expect_files
    expect_run_paths
    expect_siblings "$libdir"
    mkdir "$folder/alone"
    cp -a "$build"/libwinnow*.so* "$folder/alone"  # as they are built
    expect_siblings "$folder/alone"
    ;;
  pkg-config)
    shown "${clean[@]}" PACKAGE=$package bash -c '
      $CXX -std=c++20 program.cpp -o program $(pkg-config --cflags --libs $PACKAGE) \
        -Wl,-rpath,"$(pkg-config --variable=libdir winnow)"'
    run ./program
    ;;
  cmake)
    cat >CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES CXX)
find_package(winnow 0.1 REQUIRED $component)
add_executable(program program.cpp)
target_link_libraries(program PRIVATE $target)
CMAKE
    shown "${clean[@]}" cmake -G Ninja -B b
    shown "${clean[@]}" cmake --build b --verbose
    run b/program
    sed -i 's/winnow 0.1/winnow 0.999/' CMakeLists.txt
    "${clean[@]}" cmake -G Ninja -B b2 >"$folder/log" 2>&1 && fail 'version 0.999 is found too'
    sed -i 's/winnow 0.999 REQUIRED.*/winnow 0.1 REQUIRED COMPONENTS nothing)/' CMakeLists.txt
    "${clean[@]}" cmake -G Ninja -B b3 >"$folder/log" 2>&1 && fail 'a component too many is found'
    ;;
  c)
    program=$tree/tests/comm/c_interface/mpi_test.c
    [[ $package == winnow_mpi ]] || program=$tree/tests/comm/c_interface/c_interface_test.c
    cat >CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES C)
find_package(Threads REQUIRED)
find_package(winnow 0.1 REQUIRED $component)
add_executable(program $program)
target_compile_definitions(program PRIVATE EXPECTED_VERSION="$version")
target_link_libraries(program PRIVATE $target Threads::Threads m)
CMAKE
    shown "${clean[@]}" cmake -G Ninja -B b
    shown "${clean[@]}" cmake --build b --verbose
    run b/program '^(|[0-9]+ checks, 0 failures)$'
    ;;
  fortran)
    cp "$tree/examples/allreduce.f90" .
    # The compiler and the module of MPI may not belong together.
    printf 'use mpi\nend\n' >probe.f90
    "${clean[@]}" mpifort probe.f90 -o probe >"$folder/log" 2>&1 ||
      { echo 'SKIPPED: no MPI for Fortran here'; exit 77; }
    shown "${clean[@]}" bash -c '
      mpifort -std=f2018 -Wall -Werror $(pkg-config --variable=fortran winnow) allreduce.f90 \
        -o program $(pkg-config --libs winnow_mpi) \
        -Wl,-rpath,"$(pkg-config --variable=libdir winnow)"'
    run ./program '^the sums over [0-9]+ ranks are right$'
    cat >CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.16)
project(user LANGUAGES Fortran)
find_package(winnow 0.1 REQUIRED COMPONENTS fortran mpi)
add_executable(program allreduce.f90)
target_link_libraries(program PRIVATE winnow::fortran winnow::mpi)
CMAKE
    shown "${clean[@]}" cmake -G Ninja -B b
    shown "${clean[@]}" cmake --build b --verbose
    run b/program '^the sums over [0-9]+ ranks are right$'
    ;;
  meson)
    cat >meson.build <<MESON
project('user', 'cpp', default_options: 'cpp_std=c++20')
executable('program', 'program.cpp', dependencies: dependency('$package', version: '>= 0.1'))
MESON
    shown "${clean[@]}" meson setup b
    shown "${clean[@]}" meson compile -C b
    run b/program
    ;;
  *) stop "unknown way '$way'" ;;
esac
exit $((failures > 0))
