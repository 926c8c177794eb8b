// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "bench/ranks.hpp"

#include <algorithm>
#include <array>
#include <cerrno>  // program_invocation_short_name
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>
#include <winnow/tcp.hpp>

#include "comm/transport/one_of_many.hpp"
#include "kernels/exec/uncaught.hpp"

namespace winnow::bench {

namespace {

/// For reducers, of which one alone is to do what it would beside others.
std::vector<std::unique_ptr<Transport>> transports_of(int ranks) {
  if (ranks > 1) return local_transports(ranks);
  std::vector<std::unique_ptr<Transport>> one;
  one.push_back(std::make_unique<comm::OneOfManyTransport>());
  return one;
}

}  // namespace

int run_threads(int ranks, const RankMain& body) {
  auto controls = local_transports(ranks);
  std::vector<std::unique_ptr<Transport>> fresh;  // made by rank 0, taken by each
  int status = 0;
  const auto run = [&](std::size_t r) {
    kernels::note_rank(static_cast<int>(r));
    Workspace workspace;
    Rank rank;
    rank.control = std::move(controls[r]);
    rank.connect = [&] {
      if (r == 0) fresh = transports_of(ranks);
      barrier(*rank.control);
      auto mine = std::move(fresh[r]);
      barrier(*rank.control);
      return mine;
    };
    rank.dense.push_back({"ring", [&](std::span<float> elements) {
                            rank.control->all_reduce({.workspace = &workspace}, elements,
                                                     ReduceOp::sum, Deadline::never());
                          }});
    try {
      const int mine = body(rank);
      if (r == 0) status = mine;
    } catch (const std::exception& error) {
      // Other ranks may wait for this one for ever, so unwinding would not end the program.
      std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name,
                   kernels::this_rank().c_str(), error.what());
      std::_Exit(1);
    }
  };
  std::vector<std::thread> threads;
  for (std::size_t r = 1; r < controls.size(); ++r) threads.emplace_back(run, r);
  run(0);
  for (std::thread& thread : threads) thread.join();
  return status;
}

std::unique_ptr<Transport> connect_over_tcp(Transport& control) {
  TcpListener listener;
  const std::string& mine = listener.address();
  const std::array bytes{static_cast<double>(mine.size())};
  const auto most = static_cast<std::size_t>(max_over_ranks(control, bytes).front());
  std::string line = mine, lines(most * static_cast<std::size_t>(control.size()), ' ');
  line.resize(most, ' ');
  Workspace workspace;
  control.all_gather({.workspace = &workspace}, std::as_bytes(std::span(line)),
                     std::as_writable_bytes(std::span(lines)), Deadline::never());
  std::vector<std::string> addresses;
  for (std::size_t begin = 0; begin < lines.size(); begin += most) {
    addresses.push_back(lines.substr(begin, most));
    addresses.back().resize(addresses.back().find_last_not_of(' ') + 1);
  }
  return listener.connect(control.rank(), addresses, Deadline::after(std::chrono::minutes(2)));
}

bool under_mpirun() {
  return std::ranges::any_of(std::vector{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_SIZE"},
                             [](const char* name) { return std::getenv(name) != nullptr; });
}

void barrier(Transport& control) {
  max_over_ranks(control, std::vector{0.0});
}

std::vector<double> max_over_ranks(Transport& control, std::span<const double> mine) {
  Workspace workspace;
  std::vector<double> all(mine.size() * static_cast<std::size_t>(control.size()));
  control.all_gather({.workspace = &workspace}, std::as_bytes(mine),
                     std::as_writable_bytes(std::span(all)), Deadline::never());
  std::vector<double> most(mine.begin(), mine.end());
  for (std::size_t i = 0; i < all.size(); ++i) {
    double& greatest = most[i % most.size()];
    greatest = std::max(greatest, all[i]);
  }
  return most;
}

}  // namespace winnow::bench
