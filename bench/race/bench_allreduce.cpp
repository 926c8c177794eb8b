// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0

// Whole calls of the AllReducer beside dense allreduces: over threads when started alone, over MPI
// under mpirun. docs/benchmarks.md explains the counters.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>
#include <winnow/error.hpp>

#include "bench/race/allreduce_race.hpp"
#include "bench/race/benchmarks.hpp"
#include "kernels/exec/uncaught.hpp"

namespace {

using winnow::bench::Entrant;
using winnow::bench::Measured;
using winnow::bench::Outcome;
using winnow::bench::Race;
using winnow::bench::Rank;
using winnow::bench::Work;

struct Settings {
  int ranks = 2;
  winnow::bench::Length length;
  std::vector<std::size_t> sizes = {1'048'576, 4'194'304, 25'600'000};
  std::vector<std::string> compressors = {"none", "topk:0.01", "topk:0.001"};
  std::vector<std::uint64_t> max_parts = {winnow::Options::kAutomatic};
  std::size_t parameters = 1;
  std::vector<std::string> dense;  // empty: all
  std::vector<std::string> rest;   // Google Benchmark's
};

Measured measured(const Outcome& outcome) {
  Measured all{.problem = outcome.problem,
               .failed = outcome.failed,
               .seconds = outcome.seconds,
               .counters = {},
               .label = outcome.chose};
  all.counters = {{"ratio", outcome.best_dense / outcome.seconds},
                  {"best_dense_ms", 1e3 * outcome.best_dense},
                  {"wire_bytes", static_cast<double>(outcome.wire_bytes)},
                  {"dense_wire_bytes", static_cast<double>(outcome.dense_wire_bytes)},
                  {"kept", static_cast<double>(outcome.kept)}};
  if (outcome.select + outcome.exchange + outcome.add == 0) return all;
  all.counters.emplace_back("select_ms", 1e3 * outcome.select);
  all.counters.emplace_back("exchange_ms", 1e3 * outcome.exchange);
  all.counters.emplace_back("add_ms", 1e3 * outcome.add);
  all.counters.emplace_back("making_ms", 1e3 * outcome.making);
  return all;
}

int run(Rank& rank, const Settings& settings) {
  Race race(rank);
  std::vector<Work> works;
  for (const std::size_t count : settings.sizes) {
    for (const Entrant& entrant : winnow::bench::entrants(
             rank, settings.compressors, settings.max_parts, settings.parameters)) {
      works.push_back({.name = entrant.name + "/" + std::to_string(count),
                       .rounds = settings.length.rounds,
                       .measure = [&race, &settings, entrant, count] {
                         return measured(race.run(entrant, count, settings.length));
                       }});
    }
  }
  return winnow::bench::run_benchmarks(rank, "bench_allreduce", works, settings.rest);
}

/// Keeps only the requested entries of rank.dense; throws UsageError for an unknown name.
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

/// Returns -1 to go on, else the exit status.
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
  app.add_option("--parameters", settings.parameters, "that the elements are cut into")
      ->check(CLI::Range(1, 100'000));
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
      if (leads) {
        std::cerr << "bench_allreduce: " + winnow::kernels::this_rank() + ": " + error.what() +
                         "\n";
      }
      return 2;
    }
    return run(rank, settings);
  };
  return winnow::bench::under_mpirun() ? winnow::bench::run_mpi(body)
                                       : winnow::bench::run_threads(settings.ranks, body);
}
