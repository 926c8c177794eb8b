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

// Runs the body of one rank; one that throws must not leave the others waiting.
std::exception_ptr run_body(const RankBody& body, std::shared_ptr<Transport> transport) {
  try {
    body(transport);
  } catch (const std::exception& error) {
    transport->abort(error.what());
    return std::current_exception();
  } catch (...) {
    transport->abort("an exception of unknown type");
    return std::current_exception();
  }
  return nullptr;
}

}  // namespace

void use_job(const MpiJob& job) {
  the_job = &job;
}

void run_ranks(int ranks, const RankBody& body) {
  if (the_job != nullptr) {
    if (const std::exception_ptr error = run_body(body, the_job->transport()))
      std::rethrow_exception(error);
    return;
  }
  auto transports = local_transports(ranks);
  std::vector<std::exception_ptr> errors(transports.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < transports.size(); ++rank)
    threads.emplace_back([&, rank] { errors[rank] = run_body(body, std::move(transports[rank])); });
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
