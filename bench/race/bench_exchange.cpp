// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0

// Only the exchange: each rank has a list and ends with the sum of all lists, as a list. Over
// threads when started alone, over MPI under mpirun. docs/benchmarks.md says what is counted.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/race/list_exchange.hpp"

namespace {

using winnow::bench::ListExchange;
using winnow::bench::Rank;
using winnow::bench::Work;

struct Settings {
  int ranks = 4;
  int rounds = 201;
  int threads = 0;  // 0: cores / ranks
  double density = 0.01;
  std::vector<std::uint64_t> sizes = {4'194'304};
  std::vector<std::string> rest;  // Google Benchmark's
};

int run(Rank& rank, const Settings& settings) {
  const int ranks = rank.control->size();
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int threads = settings.threads > 0 ? settings.threads : std::max(1, cores / ranks);
  std::vector<Work> works;
  for (const char* name : {"gather", "doubling"}) {
    for (const std::uint64_t count : settings.sizes) {
      const auto k = static_cast<std::uint64_t>(
          std::max(1.0, std::ceil(settings.density * static_cast<double>(count))));
      const auto& schedule = winnow::comm::find_schedule(name);
      works.push_back({.name = std::string(name) + "/" + std::to_string(count),
                       .rounds = settings.rounds,
                       .measure = [=, &rank, &schedule, &settings] {
                         ListExchange exchange(rank, schedule, {count, k}, threads);
                         return exchange.measure(settings.rounds);
                       }});
    }
  }
  return winnow::bench::run_benchmarks(rank, "bench_exchange", works, settings.rest);
}

/// Returns -1 to go on, else the exit status.
int parse(int argc, char** argv, Settings& settings, std::string& words) {
  CLI::App app("Lists of chosen elements becoming their union on all ranks, over threads or MPI");
  app.allow_extras();
  app.footer("Google Benchmark's flags serve too, e.g. --benchmark_filter=doubling");
  app.add_option("--ranks", settings.ranks, "threads; mpirun -n says it under mpirun")
      ->check(CLI::Range(1, 1024));
  app.add_option("--rounds", settings.rounds, "of each benchmark")->check(CLI::Range(1, 100'000));
  app.add_option("--threads", settings.threads, "of each rank; by default its share of the cores")
      ->check(CLI::Range(0, 1024));
  app.add_option("--density", settings.density, "share of the elements in each list")
      ->check(CLI::Range(1e-9, 1.0));
  app.add_option("--size", settings.sizes, "elements; may be given several times")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 31));
  try {
    app.parse(argc, argv);
    settings.rest = app.remaining();
    return -1;
  } catch (const CLI::CallForHelp&) {
    words = app.help();
    return 0;
  } catch (const CLI::ParseError& error) {
    words = std::string("bench_exchange: ") + error.what() + "\n";
    return 2;
  }
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  std::string words;
  const int status = parse(argc, argv, settings, words);
  const auto body = [&](Rank& rank) {
    if (status < 0) return run(rank, settings);
    if (rank.control->rank() == 0) (status == 0 ? std::cout : std::cerr) << words;
    return status;
  };
  return winnow::bench::under_mpirun() ? winnow::bench::run_mpi(body)
                                       : winnow::bench::run_threads(settings.ranks, body);
}
