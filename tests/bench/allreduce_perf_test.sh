#!/usr/bin/env bash
# Copyright The Winnow Authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: allreduce_perf_test.sh MEMORY PROGRAM [COMMAND...]
#
# Runs allreduce_perf, started by COMMAND (mpirun and its arguments, for 3 ranks) or over 3 threads,
# with buckets in MEMORY (host, device, or nccl: device memory with messages over NCCL), with right
# and wrong command lines. Checks the exit status, the table's shape, and the JSON file. COMMAND
# takes half a second to start, so it gets one wrong line of each kind.
set -uo pipefail

memory=$1 program=$2
shift 2
launcher=("$@")
over=(-t 3)
if ((${#launcher[@]} > 0)); then over=(); fi
transport=local
if ((${#launcher[@]} > 0)); then transport=mpi; fi
if [[ $memory == nccl ]]; then
  memory=device transport=nccl
  over+=(--transport nccl)
fi
if [[ $memory == device ]]; then over+=(--memory device); fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0

fail() {
  echo "FAILED: $*"
  sed 's/^/    /' "$folder/out" "$folder/err"
  failures=$((failures + 1))
}

run() { "${launcher[@]}" "$program" "${over[@]}" "$@" >"$folder/out" 2>"$folder/err" </dev/null; }

# expect_refusal PATTERN ARGUMENT...: status 2, no table, and one line of the program's own.
expect_refusal() {
  local pattern=$1
  shift
  run "$@"
  local status=$?
  ((status == 2)) || fail "'$*' ends with status $status, not 2"
  [[ $(grep -c '^allreduce_perf: ' "$folder/err") == 1 ]] || fail "'$*' does not print one line"
  grep -q "^allreduce_perf: .*$pattern" "$folder/err" || fail "'$*' does not say '$pattern'"
  [[ -s $folder/out ]] && fail "'$*' prints to stdout"
}

# Refused by the parser, by the rank that writes, and by every rank.
expect_refusal 'unknown argument' -q
expect_refusal 'cannot write' -J "$folder/missing/file"
expect_refusal "mean 'topk'" --compressor topj:0.01
if ((${#launcher[@]} > 0)); then
  expect_refusal 'mpirun -n' -t 3
  # One rank more, which alone is set up wrongly: it says so, and the others do not wait for it.
  alone=(: -n 1 env WINNOW_COMPRESOR=topk:0.01 "$program" -b 1K -e 1K)
  run -b 1K -e 1K "${alone[@]}" && fail 'ends with status 0 though a rank fails'
  grep -q "^allreduce_perf[a-z_]*: rank [0-9] on $HOSTNAME: .*environment" "$folder/err" ||
    fail 'the rank whose environment is wrong does not say so'
  expect_refusal 'ranks are processes of MPI' --transport local
elif [[ $memory == device ]]; then
  all=("${over[@]}")
  if [[ $transport == local ]]; then over=(-t 1 --memory device); fi  # over NCCL all are captured
  run -b 64K -e 256K -f 4 -n 2 -w 2 -c 0 -G 3 --compressor topk:0.01 --schedule gather ||
    fail "calls in a graph end with status $?"
  [[ $(grep -c ' float ' "$folder/out") == 2 ]] || fail 'calls in a graph have no rows'
  grep -q 'graph: 3' "$folder/out" || fail 'the head does not tell of the graph'
  run -b 256K -e 256K -n 1 -w 2 -c 0 -G 3 --compressor topk:0.01 --schedule balanced &&
    fail 'a call that no graph holds ends with status 0'
  grep -q 'cannot be captured' "$folder/err" || fail 'it does not say why no graph holds it'
  over=("${all[@]}")
else
  expect_refusal 'smaller as -b' -b 8M -e 1M
  expect_refusal 'give -f 2' -b 1K -e 1M -i 0
  expect_refusal 'memory device' -g 2
  expect_refusal 'memory device' -G 2
  expect_refusal 'allreduces alone' -G 2 --reduce-scatter
  expect_refusal '{host,device}' --memory disk
  expect_refusal 'give --memory device' --transport nccl
  expect_refusal 'ranks are threads' --transport mpi
  expect_refusal '{local,mpi,nccl,tcp}' --transport udp
  CUDA_VISIBLE_DEVICES='' expect_refusal 'for every rank: there is no GPU here' --memory device
  expect_refusal 'bfloat16' -d flot
  expect_refusal 'sum,prod' -o add
  expect_refusal 'give -d half' -d fp16
  expect_refusal 'give -d half' -d float16
  expect_refusal 'give -d bfloat16' -d bf16
  expect_refusal 'give --memory device' -d cuda
  expect_refusal 'give -o avg' -o mean
  expect_refusal 'OSU benchmarks, is -d' -T mpi_float
  expect_refusal 'give -c 1' -n 1 -c
  # What nccl-tests and the OSU benchmarks have and this program has not.
  expect_refusal 'never on the null stream' -y 1
  expect_refusal 'not registered' -R 2
  expect_refusal 'kernels of its own' -D 1
  expect_refusal 'kernels of its own' -V8
  expect_refusal 'memory is not measured' --memory_report=1
  expect_refusal 'calls always block' -z 0
  expect_refusal 'warm-up calls: give -w' -x 10
  expect_refusal 'is -w' --warmup 10
  expect_refusal 'is -n' --iterations 10
  expect_refusal '-J FILE' -n 1 -f
  expect_refusal '-J FILE' --full
  expect_refusal 'written -m MIN:MAX' -m 8
  expect_refusal 'such as 4:1M' -m 4:many
  expect_refusal 'smaller as -b' -m 64:4
  expect_refusal 'one or the other' -m 4:64 -b 4
  expect_refusal 'OSU benchmarks, is -n' -m 4:64 -i 10
  expect_refusal 'preset=dgc' --compressor dgc
  # What asks for what is done anyway, and what means the same.
  run -y 0 -g 1 -R0 -D 0 --memory_report=0 -z 1 -a 3 -C 0 -m 1 -b 8 -e 8 -n 1 ||
    fail "values that change nothing end with status $?"
  run -m 4:64 -n 1 -w 0 -N 2 -T 60 -S 1 --compressor none || fail "-m 4:64 ends with status $?"
  sizes=$(awk '!/^#/ { print $1 }' "$folder/out" | xargs)
  [[ $sizes == '4 8 16 32 64 4 8 16 32 64' ]] || fail "-m 4:64 -N 2 has the sizes $sizes"
  day='[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}$'
  [[ $(grep -cE "dense  $day" "$folder/out") == 10 ]] || fail '-S 1 adds no time of day'
  grep -q ' deadline=60 ' "$folder/out" || fail '-T is no deadline'
  run -i 10 -b 8 -e 8 -n 1 || fail "one size with -i ends with status $?"
  grep -q '^# -i is the step .* is -n$' "$folder/out" || fail 'a step that does nothing is not noted'
  run -n 1 -b 256K -e 256K --compressor ' TopK : 1%' --schedule Gather || fail 'blanks are refused'
  grep -q 'compressor=topk:0.01 schedule=gather' "$folder/out" || fail 'options are not as they are kept'
  # Timed calls are checked themselves: one for the error, 2 to warm up, 3 and 3.
  WINNOW_DEBUG=2 run -n 3 -w 2 -c 2 -b 1K -e 1K --compressor none || fail "-c 2 ends with status $?"
  [[ $(grep -c ': call ' "$folder/err") == 9 ]] || fail 'other calls are checked than are timed'
fi

run --help || fail "--help ends with status $?"
[[ $(grep -c '^Usage' "$folder/out") == 1 ]] || fail '--help is not printed once'

# check_report SIZES TYPES OPERATIONS COMPRESSED [WEIGHT]: the table and the JSON file agree and are
# complete. COMPRESSED: sizes whose sums of floats travel compressed. WEIGHT: of busbw, in thirds.
check_report() {
  local given=("$folder/out" "$folder/json" "$memory" "$transport" "${@:1:4}" "${5:-4}")
  python3 - "${given[@]}" <<'PYTHON' || fail 'the report is wrong'
import json, re, sys
out, path, memory, transport, sizes, types, ops, compressed, weight = sys.argv[1:]
sizes, compressed = ([int(n) for n in words.split()] for words in (sizes, compressed))
lines = open(out).read().splitlines()
report = json.load(open(path))
rows = [line.split() for line in lines if not line.startswith("#")]
expected = [(t, o, s) for t in types.split() for o in ops.split() for s in sizes]
assert [(r[2], r[3], int(r[0])) for r in rows] == expected, rows
assert [(r["type"], r["redop"], r["size"]) for r in report["results"]] == expected, report
head = next(line for line in lines if "algbw" in line).split()[1:]
assert head == ["size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time",
                "algbw", "busbw", "#wrong", "wire", "ratio", "error", "lost",
                "schedule"], head
assert all(len(row) == len(head) for row in rows), rows
ranks = rf"#  Rank +\d+ Group +0 Pid +\d+ on +\S+ device +0 \[{memory} memory\]$"
assert sum(bool(re.match(ranks, line)) for line in lines) == 3, lines
assert report["config"]["ranks"] == 3 and len(report["config"]["devices"]) == 3, report["config"]
assert report["config"]["memory"] == memory, report["config"]
assert report["config"]["transport"] == transport, report["config"]
assert report["config"]["collective"] == ("all_reduce" if weight == "4" else "reduce_scatter")
assert any(line.endswith(f" transport: {transport}") for line in lines), lines
gpus = 1 if memory == "device" else 0
assert any(re.match(rf"# nThread \d+ nGpus {gpus} minBytes \d+ maxBytes \d+ step: 4\(factor\)", line)
           for line in lines), lines
assert "# Out of bounds values : 0 OK" in lines and report["out_of_bounds"]["okay"] is True, lines
average = next(line for line in lines if line.startswith("# Avg bus bandwidth    : "))
assert abs(float(average.split()[-1]) / report["average_bus_bandwidth"]["bandwidth"] - 1) < 1e-3
for row, line in zip(report["results"], rows):
    assert line[17] == row["schedule"], line
    for half in row["out_of_place"], row["in_place"]:
        assert half["time"] > 0, half
        assert abs(half["alg_bw"] - row["size"] / half["time"] * 1e-3) < 1e-6 * half["alg_bw"], half
        assert abs(half["bus_bw"] - half["alg_bw"] * int(weight) / 3) < 1e-6 * half["bus_bw"], half
    if row["size"] in compressed and row["type"] == "float" and row["redop"] in ("sum", "avg"):
        assert line[8] == line[12] == "N/A" and row["in_place"]["nwrong"] is None, line
        assert line[17] not in ("dense", "-"), line
        assert row["ratio"] > 30 and 0.5 < row["error"] < 1 and row["lost"] < 1e-6, row
    else:
        assert line[8] == line[12] == "0" and row["out_of_place"]["nwrong"] == 0, line
        assert line[15] == line[16] == "N/A" and row["error"] is None, line
        assert line[17] == "dense", line
        assert row["ratio"] < 1.01, row
PYTHON
}

run -b 1K -e 256K -f 4 -n 2 -w 1 -d float -o all --compressor topk:0.01 --schedule least_bytes -J "$folder/json" ||
  fail "it ends with status $?"
check_report '1024 4096 16384 65536 262144' float 'sum prod max min avg' '65536 262144'

run -b 80 -e 100 -f 4 -n 1 -w 0 -c 2 -d all -o all --compressor none -J "$folder/json" ||
  fail "all types end with status $?"
check_report 80 'int8 uint8 int32 uint32 int64 uint64 half float double bfloat16' \
  'sum prod max min avg' ''

run -b 12K -e 192K -f 4 -n 2 -w 1 --compressor topk:0.01 --reduce-scatter -J "$folder/json" ||
  fail "reduce-scatters end with status $?"
check_report '12288 49152 196608' float sum '196608' 2

if [[ $memory == host ]]; then
  transport=tcp
  run -b 256K -e 256K -f 4 -n 2 -w 1 --transport tcp --compressor topk:0.01 --schedule balanced \
    -J "$folder/json" || fail "over TCP it ends with status $?"
  check_report 262144 float sum 262144
fi

# The error is of a schedule that the row shows, also where the first call was tried out alone.
for words in '-n 2 -c 5' '-n 3 -N 2 -S 1' '-n 3 -w 0'; do
  # shellcheck disable=SC2086 # several arguments
  run -b 64K -e 256K -f 2 $words --compressor topk:0.01 || fail "$words ends with status $?"
  awk '!/^#/ { if ($18 == "dense" && $16 $17 != "N/AN/A" || $18 !~ /dense/ && $16 == "N/A") exit 1 }' \
    "$folder/out" || fail "with $words a row has the error of another schedule"
done

run -b 0 -e 0 -n 1 -c 0 || fail "no elements end with status $?"
exit $((failures > 0))
