// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0

// Whole calls of the AllReducer beside dense allreduces: over threads when started alone, over MPI
// under mpirun. docs/performance.md says what the counters mean.
#include <benchmark/benchmark.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <string>
#include <thread>
#include <vector>
#include <winnow/error.hpp>

#include "bench/allreduce_race.hpp"

namespace {

using winnow::bench::Entrant;
using winnow::bench::Outcome;
using winnow::bench::Race;
using winnow::bench::Rank;

struct Settings {
  int ranks = 2;
  winnow::bench::Length length;
  std::vector<std::size_t> sizes = {1'048'576, 4'194'304, 25'600'000};
  std::vector<std::string> compressors = {"none", "topk:0.01", "topk:0.001"};
  std::vector<std::uint64_t> max_parts = {winnow::Options::kAutomatic};
  std::vector<std::string> dense;  // empty: all
  std::vector<std::string> rest;   // Google Benchmark's
};

/// What rank 0, which alone runs Google Benchmark and so alone decides, tells the others to do.
struct Command {
  std::uint64_t entrant, count;  // count 0: the end
};

void tell(Rank& rank, Command command) {
  for (int peer = 1; peer < rank.control->size(); ++peer) {
    rank.control->send(std::as_bytes(std::span(&command, 1)), peer);
  }
  rank.control->wait(rank.control->start({}), winnow::Deadline::never());
}

Command hear(Rank& rank) {
  Command command{};
  rank.control->recv(std::as_writable_bytes(std::span(&command, 1)), 0, nullptr);
  rank.control->wait(rank.control->start({}), winnow::Deadline::never());
  return command;
}

void report(benchmark::State& state, const Outcome& outcome) {
  state.counters["ratio"] = outcome.best_dense / outcome.seconds;
  state.counters["best_dense_ms"] = 1e3 * outcome.best_dense;
  state.counters["wire_bytes"] = static_cast<double>(outcome.wire_bytes);
  state.counters["dense_wire_bytes"] = static_cast<double>(outcome.dense_wire_bytes);
  state.counters["kept"] = static_cast<double>(outcome.kept);
  if (outcome.select + outcome.exchange + outcome.add == 0) return;
  state.counters["select_ms"] = 1e3 * outcome.select;
  state.counters["exchange_ms"] = 1e3 * outcome.exchange;
  state.counters["add_ms"] = 1e3 * outcome.add;
}

void register_races(Rank& rank, Race& race, const Settings& settings,
                    const std::vector<Entrant>& entrants, bool& failed) {
  for (const std::size_t count : settings.sizes) {
    for (std::size_t i = 0; i < entrants.size(); ++i) {
      const auto run = [&, i, count](benchmark::State& state) {
        // A batch is all rounds of one race; a benchmark's time is their median.
        const int rounds = settings.length.rounds;
        while (state.KeepRunningBatch(rounds)) {
          tell(rank, {i, count});
          const Outcome outcome = race.run(entrants[i], count, settings.length);
          if (!outcome.problem.empty()) {
            failed |= outcome.failed;
            state.SkipWithError(outcome.problem.c_str());
            return;
          }
          for (int round = 0; round < rounds; ++round) state.SetIterationTime(outcome.seconds);
          report(state, outcome);
        }
      };
      const std::string name = entrants[i].name + "/" + std::to_string(count);
      benchmark::RegisterBenchmark(name.c_str(), run)
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
}

int lead(Rank& rank, const Settings& settings, const std::vector<Entrant>& entrants) {
  Race race(rank);
  bool failed = false;
  register_races(rank, race, settings, entrants, failed);

  // One race each, unless the caller asks for more; mpirun's pipe looks like a terminal.
  std::vector<std::string> words = {"bench_allreduce", "--benchmark_min_time=0"};
  if (winnow::bench::under_mpirun()) words.emplace_back("--benchmark_color=false");
  words.insert(words.end(), settings.rest.begin(), settings.rest.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  int argc = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&argc, arguments.data());
  failed = benchmark::ReportUnrecognizedArguments(argc, arguments.data());
  if (!failed) {
    benchmark::AddCustomContext("ranks", std::to_string(rank.control->size()));
    benchmark::AddCustomContext("transport", winnow::bench::under_mpirun() ? "mpi" : "local");
    benchmark::AddCustomContext("cores", std::to_string(std::thread::hardware_concurrency()));
    benchmark::AddCustomContext("rounds", std::to_string(settings.length.rounds));
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
  }
  tell(rank, {0, 0});
  return failed ? 1 : 0;
}

int follow(Rank& rank, const Settings& settings, const std::vector<Entrant>& entrants) {
  Race race(rank);
  for (Command command = hear(rank); command.count > 0; command = hear(rank)) {
    race.run(entrants[command.entrant], command.count, settings.length);
  }
  return 0;
}

/// Leaves those of rank.dense that were asked for; throws UsageError for one that is not there.
void choose_dense(Rank& rank, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::vector<winnow::bench::Dense> chosen;
  std::string known;
  for (const winnow::bench::Dense& dense : rank.dense) {
    known.append(" ").append(dense.name);
    if (std::ranges::find(names, dense.name) != names.end()) chosen.push_back(dense);
  }
  WINNOW_EXPECTS(chosen.size() == names.size(), "of --dense, here there are:" + known);
  rank.dense = chosen;
}

/// -1: go on; else the exit status.
int parse(int argc, char** argv, Settings& settings, std::string& words) {
  CLI::App app("Whole allreduces, compressed and dense, over threads or, under mpirun, over MPI");
  app.allow_extras();
  app.footer("Google Benchmark's flags serve too, e.g. --benchmark_filter=topk:0.01/.*/25600000");
  app.add_option("--ranks", settings.ranks, "threads; mpirun -n says it under mpirun")
      ->check(CLI::Range(1, 1024));
  app.add_option("--rounds", settings.length.rounds, "of each race")->check(CLI::Range(1, 10'000));
  app.add_option("--settling", settings.length.settling, "calls before the first round")
      ->check(CLI::Range(1, 10'000));
  app.add_option("--size", settings.sizes, "elements; may be given several times")
      ->check(CLI::Range(1, 2'147'483'647));
  app.add_option("--compressor", settings.compressors, "as in WINNOW_COMPRESSOR; likewise");
  app.add_option("--max-part", settings.max_parts,
                 "elements, as in WINNOW_MAX_PART; likewise: parts are pipelined")
      ->check(CLI::Range(std::uint64_t{0}, winnow::Options::kMaxPart));
  app.add_option("--dense", settings.dense,
                 "dense allreduces to compare with, of those named dense/...; likewise");
  try {
    app.parse(argc, argv);
    settings.rest = app.remaining();
    return -1;
  } catch (const CLI::CallForHelp&) {
    words = app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    words = std::string("bench_allreduce: ") + error.what() + "\n";
    return 2;
  }
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  std::string words;
  const int status = parse(argc, argv, settings, words);
  const auto body = [&](Rank& rank) {
    const bool leads = rank.control->rank() == 0;
    if (status >= 0) {
      if (leads) (status == 0 ? std::cout : std::cerr) << words;
      return status;
    }
    try {
      choose_dense(rank, settings.dense);
    } catch (const winnow::UsageError& error) {  // on all ranks
      if (leads) std::cerr << "bench_allreduce: " << error.what() << '\n';
      return 2;
    }
    const auto entrants = winnow::bench::entrants(rank, settings.compressors, settings.max_parts);
    return leads ? lead(rank, settings, entrants) : follow(rank, settings, entrants);
  };
  return winnow::bench::under_mpirun() ? winnow::bench::run_mpi(body)
                                       : winnow::bench::run_threads(settings.ranks, body);
}
