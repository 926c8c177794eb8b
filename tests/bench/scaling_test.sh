#!/usr/bin/env bash
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: scaling_test.sh BUILD
#
# bench/hosts/netlab brings two hosts up and takes them down, and bench/hosts/scaling measures on
# them: checks that all of it runs and counts, not how fast. Exits with 77 if there can be no hosts,
# or if somebody else's hosts are up.
set -uo pipefail

build=$1
bench=$(dirname "$(readlink -f "$0")")/../../bench
command -v mpirun >/dev/null || { echo 'no mpirun'; exit 77; }
before=$("$bench/hosts/netlab" status) || exit 77
[ -z "$before" ] || { echo 'hosts are up already'; exit 77; }

folder=$(mktemp -d)
trap '"$bench/hosts/netlab" down; rm -rf "$folder"' EXIT
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

for wrong in '' 'up' 'up 0' 'up 65' 'up 2 fast' 'run 1 true' 'jump'; do
  # shellcheck disable=SC2086  # words
  "$bench/hosts/netlab" $wrong 2>/dev/null
  [ $? = 2 ] || fail "netlab $wrong is no error of the caller's"
done
[ -z "$("$bench/hosts/netlab" status)" ] || fail 'a wrong call left a host'

for repetition in 1 2; do "$bench/hosts/netlab" up 2 200mbit || fail "up, time $repetition"; done
[ "$("$bench/hosts/netlab" status | cut -d ' ' -f 1,3 | xargs)" = 'winnow0 200Mbit winnow1 200Mbit' ] ||
  fail 'status does not show two hosts'
# shellcheck disable=SC2016  # for the shell there
[ "$("$bench/hosts/netlab" run 2 sh -c 'echo "$(hostname) $((6 * 7))"' | sort | xargs)" = \
  'winnow0 42 winnow0 42 winnow1 42 winnow1 42' ] || fail 'run does not start two ranks a host'
"$bench/hosts/netlab" run 1 false >/dev/null 2>&1 && fail 'run hides a failure'
[ "$("$bench/hosts/netlab" bytes | awk '$2 > 1000 && $3 > 1000' | wc -l)" = 2 ] || fail 'nothing counted'
for repetition in 1 2; do "$bench/hosts/netlab" down || fail "down, time $repetition"; done
[ -z "$("$bench/hosts/netlab" status)" ] || fail 'down left a host'

"$bench/hosts/scaling" --build "$build" --out "$folder" --hosts 2 --ranks-per-host 1 --links 500mbit \
  --sizes 20000 --compressors 'topk:0.01;topk:0.01,int8' --schedules gather --rounds 2 \
  --settling 2 --counted-calls 2 --timeout 100 || fail "scaling ends with status $?"
[ -z "$("$bench/hosts/netlab" status)" ] || fail 'scaling left a host'
python3 - "$folder" <<'PYTHON' || fail 'the report is wrong'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
report = json.loads((folder / "scaling.json").read_text())
assert report["failures"] == [] and report["context"]["cores"] > 0, report
rows = {row["entrant"]: row for row in report["rows"]}
compressed = {"topk:0.01/gather", "topk:0.01,int8/gather"}
assert compressed | {"dense/mpi_default", "dense/ring", "none/dense_ring"} <= set(rows), rows
for name, row in rows.items():
    assert (row["link"], row["hosts"], row["ranks"], row["count"]) == ("500mbit", 2, 2, 20000), row
    assert row["milliseconds"] > 0 and row["speedup"] > 0, row
    assert row["dense_wire_bytes"] == 80000, row
    if name in compressed:
        assert row["wire_bytes"] < 4000, row
    # Headers, and barriers of 8 bytes; the cost of connecting cancels out.
    if "host_bytes" in row:
        assert 0.98 * row["wire_bytes"] < row["host_bytes"] < 1.3 * row["wire_bytes"] + 3000, row
assert all("host_bytes" in rows[name] for name in compressed | {"dense/mpi_default"}), rows
native = json.loads((folder / "google_benchmark" / "500mbit-2x1-20000.json").read_text())
place = {"link": "500mbit", "hosts": "2", "ranks_per_host": "1", "ranks": "2"}
assert place.items() <= native["context"].items(), native
for line in native["benchmarks"]:
    name = line["name"].removesuffix("/20000/manual_time")
    assert line["real_time"] == rows[name]["milliseconds"], line
assert len(native["benchmarks"]) == len(rows), native
table = (folder / "scaling.md").read_text()
assert all(f"| `{name}` |" in table for name in rows), table
PYTHON
if command -v gnuplot >/dev/null; then
  for plot in time speedup bytes; do
    [[ $(head -c 4 "$folder/$plot.png" | tail -c 3) == PNG ]] || fail "$plot.png is no PNG file"
  done
fi
exit $((failures > 0))
