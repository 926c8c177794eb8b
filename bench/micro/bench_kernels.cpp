// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0

// Host kernels in one thread. NAME/... runs the Highway target that Winnow picks on this machine,
// NAME:TARGET/... another one. docs/benchmarks.md explains the counters.
#include "bench/micro/bench_kernels.hpp"

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/micro/kernel_timer.hpp"
#include "bench/micro/targets.hpp"

namespace {

/// KiB in a field of /proc/self/smaps_rollup, or 0 if the system has none.
std::uint64_t mapped_kib(const std::string& field) {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    if (line.starts_with(field + ":")) return std::stoull(line.substr(field.size() + 1));
  }
  return 0;
}

/// Prints what ratios depend on besides the code: without huge pages they differ.
void describe_machine() {
  winnow::bench::KernelTimer::get();  // these touch their memory, so that its pages exist
  winnow::bench::touch_select_memory();
  const auto mib = [](std::uint64_t kib) { return std::to_string(kib >> 10) + " MiB"; };
  benchmark::AddCustomContext("highway_target", winnow::bench::chosen_target());
  benchmark::AddCustomContext("cores",
                              "1 of " + std::to_string(std::thread::hardware_concurrency()));
  benchmark::AddCustomContext("page_size", std::to_string(sysconf(_SC_PAGESIZE)));
  benchmark::AddCustomContext("huge_pages", "asked for; the kernel granted " +
                                                mib(mapped_kib("AnonHugePages")) + " of " +
                                                mib(mapped_kib("Anonymous")));
}

}  // namespace

int main(int argc, char** argv) {
  // One batch of rounds each, unless the caller asks for more.
  std::string once = "--benchmark_min_time=0";
  std::vector<char*> arguments(argv, argv + argc);
  arguments.insert(arguments.begin() + (argc > 0), once.data());
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);

  winnow::bench::register_select();
  winnow::bench::register_add();
  winnow::bench::register_codec();
  winnow::bench::register_values();
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;
  describe_machine();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
