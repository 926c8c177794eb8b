// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/ranks.hpp"

#include <array>
#include <exception>
#include <span>
#include <thread>
#include <vector>

#include "tests/ranks_job.hpp"

namespace winnow::tests {

namespace {

const MpiJob* the_job = nullptr;

using Transports = std::vector<std::shared_ptr<Transport>>;

// Runs the body of one rank; one that throws must not leave the others waiting.
std::exception_ptr run_body(const RankBodyOfMany& body, Transports& transports) {
  const Transports all = transports;
  const auto abort_all = [&](const char* why) {
    for (const auto& transport : all) transport->abort(why);
    return std::current_exception();
  };
  try {
    body(transports);
  } catch (const std::exception& error) {
    return abort_all(error.what());
  } catch (...) {
    return abort_all("an exception of unknown type");
  }
  return nullptr;
}

}  // namespace

void use_job(const MpiJob& job) {
  the_job = &job;
}

void run_ranks(int ranks, const RankBody& body) {
  run_ranks(ranks, 1, [&](std::span<std::shared_ptr<Transport>> transports) {
    const std::shared_ptr<Transport> transport = std::move(transports[0]);
    body(transport);
  });
}

void run_ranks(int ranks, std::size_t count, const RankBodyOfMany& body) {
  if (the_job != nullptr) {
    Transports transports;
    for (std::size_t i = 0; i < count; ++i) transports.push_back(the_job->transport());
    if (const std::exception_ptr error = run_body(body, transports)) std::rethrow_exception(error);
    return;
  }
  std::vector<Transports> of_rank(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < count; ++i) {
    auto transports = local_transports(ranks);
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank)
      of_rank[rank].push_back(std::move(transports[rank]));
  }
  std::vector<std::exception_ptr> errors(of_rank.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank)
    threads.emplace_back([&, rank] { errors[rank] = run_body(body, of_rank[rank]); });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

std::span<const int> rank_counts() {
  static constexpr std::array kOverThreads{1, 2, 3, 4, 7};
  if (the_job != nullptr) return {&the_job->ranks, 1};
  return kOverThreads;
}

}  // namespace winnow::tests
