#!/usr/bin/env bash
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: scaling_render_test.sh
#
# bench/hosts/scaling --render on invented results: every value stands in its table, under its link,
# size and place, and the plots are drawn.
set -uo pipefail

scaling=$(dirname "$(readlink -f "$0")")/../../bench/hosts/scaling
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

mkdir "$folder/slow" "$folder/shared"
python3 - "$folder" <<'PYTHON'
import json, pathlib, sys

def row(link, hosts, per, entrant, count, milliseconds, speedup, **more):
    compressor, schedule = entrant.split("/")
    return {"link": link, "hosts": hosts, "ranks_per_host": per, "ranks": hosts * per,
            "entrant": entrant, "compressor": compressor, "schedule": schedule, "count": count,
            "milliseconds": milliseconds, "best_dense_milliseconds": milliseconds * speedup,
            "speedup": speedup, "dense_wire_bytes": 4 * count, "kept": 1,
            "wire_bytes": 4 * count if compressor == "dense" else 1111} | more

def write(name, rows, failures):
    context = {"cores": 2, "load_before": 0.5, "load_after": 1.25, "mpi": "mpirun 4", "commit": name,
               "started": "2024-02-29", "settings": {"rounds": 7}}
    text = json.dumps({"context": context, "rows": rows, "failures": failures})
    (pathlib.Path(sys.argv[1]) / name / "scaling.json").write_text(text)

write("shared", [row("shared", 1, 4, "dense/ring", 1000, 0.01234, 1),
                 row("shared", 1, 4, "topk:0.01/gather", 1000, 0.5, 0.02468)], [])
slow = []
for link, rate, ideal in (("1gbit", 1, 0.1), ("100mbit", 10, 1)):
    for hosts, per in ((4, 1), (2, 1)):
        for count in (1000, 2000):
            at = (link, hosts, per)
            more = {"ring_at_rate_milliseconds": ideal * count}
            slow += [row(*at, "dense/ring", count, rate * 200, 1, **more),
                     row(*at, "topk:0.01/gather", count, rate * hosts, 50 / hosts, **more),
                     row(*at, "topk:0.01/auto", count, rate * 3, 66.6, **more)]
            if link == "1gbit":
                slow[-2]["host_bytes"] = count + 200 + hosts
write("slow", slow + [slow[0] | {"milliseconds": 1358.4}], ["one job: killed"])
PYTHON
"$scaling" --render "$folder/shared" "$folder/slow" --out "$folder/both" 2>"$folder/log" ||
  fail "--render ends with status $?"
"$scaling" --render "$folder/both" 2>"$folder/log" && fail '--render takes a folder without results'
grep -q 'there is no .*/both/scaling.json' "$folder/log" || fail 'it does not say what is missing'

python3 - "$folder/both/scaling.md" <<'PYTHON' || fail 'the tables are wrong'
import sys
text = open(sys.argv[1]).read()
sections = dict(part.split("\n", 1) for part in text.split("### ")[1:])
# The slowest link first, shared memory and then bytes last.
assert list(sections) == [
    "100mbit, 1,000 elements", "100mbit, 2,000 elements", "1gbit, 1,000 elements",
    "1gbit, 2,000 elements", "shared memory, 1,000 elements", "Bytes, 1,000 elements",
    "Bytes, 2,000 elements"], list(sections)

def expect(section, *lines):
    for line in lines:
        assert line in sections[section].splitlines(), (line, sections[section])

expect("100mbit, 1,000 elements", "| ms | 2 x 1 | 4 x 1 |", "| ring at link rate | 1,000 | 1,000 |",
       "| best dense | 500 to 2,000 | 500 to 2,000 |",
       "| `dense/ring` | 2,000 (1.0x) | 2,000 (1.0x) |",
       "| `topk:0.01/gather` | **20.0 (25x)** | 40.0 (12x) |",
       "| `topk:0.01/auto` | 30.0 (67x) | **30.0 (67x)** |")
# Measured twice: the last one counts.
expect("1gbit, 1,000 elements", "| `dense/ring` | 200 (1.0x) | 1,360 (1.0x) |")
expect("shared memory, 1,000 elements", "| ms | 4 ranks |", "| `dense/ring` | **0.0123 (1.0x)** |",
       "| `topk:0.01/gather` | 0.500 (0.025x) |")
assert "ring at link rate" not in sections["shared memory, 1,000 elements"]
expect("Bytes, 2,000 elements", "| dense ring | 8,000 | 8,000 |",
       "| `topk:0.01/gather` | 1,111 | 1,111 |", "| `topk:0.01/gather` | 2,202 | 2,204 |")
assert "auto" not in sections["Bytes, 2,000 elements"]
assert "Failed: one job: killed" in text and "commit slow" in text and "commit shared" in text
PYTHON
if command -v gnuplot >/dev/null; then
  for plot in time speedup bytes; do
    [[ $(head -c 4 "$folder/both/$plot.png" | tail -c 3) == PNG ]] || fail "$plot.png is no PNG file"
  done
fi
exit $((failures > 0))
