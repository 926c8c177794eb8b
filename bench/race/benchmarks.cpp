// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/race/benchmarks.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <thread>

namespace winnow::bench {
namespace {

constexpr std::uint64_t kEnd = ~std::uint64_t{0};  // not the place of a work

/// Sends the other ranks what to do: only rank 0 runs Google Benchmark, so only rank 0 decides.
void send_work(Rank& rank, std::uint64_t work) {
  for (int peer = 1; peer < rank.control->size(); ++peer) {
    rank.control->send(std::as_bytes(std::span(&work, 1)), peer);
  }
  rank.control->wait(rank.control->start({}), Deadline::never());
}

std::uint64_t receive_work(Rank& rank) {
  std::uint64_t work = kEnd;
  rank.control->recv(std::as_writable_bytes(std::span(&work, 1)), 0, nullptr);
  rank.control->wait(rank.control->start({}), Deadline::never());
  return work;
}

/// A batch is all rounds of one measurement; the benchmark's time is their median.
void run(benchmark::State& state, Rank& rank, std::span<const Work> works, std::size_t place,
         bool& failed) {
  const int rounds = works[place].rounds;
  while (state.KeepRunningBatch(rounds)) {
    send_work(rank, place);
    const Measured measured = works[place].measure();
    if (!measured.problem.empty()) {
      failed |= measured.failed;
      state.SkipWithError(measured.problem.c_str());
      return;
    }
    for (int round = 0; round < rounds; ++round) state.SetIterationTime(measured.seconds);
    for (const auto& counter : measured.counters) state.counters[counter.first] = counter.second;
    state.SetLabel(measured.label);
  }
}

int lead(Rank& rank, std::string_view program, std::span<const Work> works,
         std::span<const std::string> flags) {
  bool failed = false;
  for (std::size_t place = 0; place < works.size(); ++place) {
    const auto body = [&, place](benchmark::State& state) {
      run(state, rank, works, place, failed);
    };
    benchmark::RegisterBenchmark(works[place].name.c_str(), body)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  // One measurement each, unless the caller asks for more; mpirun's pipe looks like a terminal.
  std::vector<std::string> words = {std::string(program), "--benchmark_min_time=0"};
  if (under_mpirun()) words.emplace_back("--benchmark_color=false");
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  int argc = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&argc, arguments.data());
  failed = benchmark::ReportUnrecognizedArguments(argc, arguments.data());
  if (!failed) {
    benchmark::AddCustomContext("ranks", std::to_string(rank.control->size()));
    benchmark::AddCustomContext("transport", under_mpirun() ? "mpi" : "local");
    benchmark::AddCustomContext("cores", std::to_string(std::thread::hardware_concurrency()));
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
  }
  send_work(rank, kEnd);
  return failed ? 1 : 0;
}

}  // namespace

int run_benchmarks(Rank& rank, std::string_view program, std::span<const Work> works,
                   std::span<const std::string> flags) {
  if (rank.control->rank() == 0) return lead(rank, program, works, flags);
  for (std::uint64_t work = receive_work(rank); work != kEnd; work = receive_work(rank))
    works[work].measure();
  return 0;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace winnow::bench
