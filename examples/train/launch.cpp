// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "train/launch.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <thread>
#include <utility>
#include <winnow/error.hpp>

#include "train/exit.hpp"

namespace train {

int run_rank(int rank, const std::function<void()>& body) {
  try {
    body();
    return 0;
  } catch (const Exit& exit) {
    if (rank == 0) {
      if (exit.status() == 0) std::printf("%s\n", exit.what());
      if (exit.status() != 0) std::fprintf(stderr, "train: %s\n", exit.what());
    }
    return exit.status();
  } catch (const winnow::UsageError& error) {
    if (rank == 0) report(rank, error);
    return kUsageStatus;
  }
}

void report(int rank, const std::exception& error) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {"an unnamed host"};
  std::fprintf(stderr, "train: rank %d on %s: %s\n", rank, host.data(), error.what());
}

int launch_threads(int ranks, std::size_t reducers, const RankMain& body) {
  std::vector<Links> links(static_cast<std::size_t>(ranks));
  const auto connect = [&](auto&& take) {
    auto transports = winnow::local_transports(ranks);
    for (std::size_t r = 0; r < links.size(); ++r) take(links[r], std::move(transports[r]));
  };
  connect([](Links& rank, auto transport) { rank.group = std::move(transport); });
  for (std::size_t r = 0; r < links.size(); ++r) links[r].place = static_cast<int>(r);
  for (std::size_t i = 0; i < reducers; ++i) {
    connect([](Links& rank, auto transport) { rank.reducers.push_back(std::move(transport)); });
  }

  std::vector<int> status(links.size(), 0);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < links.size(); ++r) {
    threads.emplace_back([&, r] {
      try {
        status[r] = run_rank(static_cast<int>(r), [&] { body(std::move(links[r])); });
      } catch (const std::exception& error) {
        // Other ranks may wait for this one for ever, so unwinding would not end the program.
        report(static_cast<int>(r), error);
        std::_Exit(kFailureStatus);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(status.begin(), status.end());
}

}  // namespace train
