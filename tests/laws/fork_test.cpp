// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// A child of a fork has copies of a rank's objects, but none of what is behind them: it may neither
// use nor end them, and the rank goes on as if there were no child.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>
#include <winnow/winnow.hpp>

#include "comm/transport/local/local.hpp"
#include "tests/harness/ranks.hpp"

namespace winnow::tests {
namespace {

/// The status of a child that runs `body`; that of a signal if it does not end.
int status_of_child(const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    ::_exit(body() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(Fork, AChildCannotCallAndEndsNothing) {
  run_worlds("gather", [](const std::shared_ptr<Transport>& transport) {
    std::optional<AllReducer> reducer(
        std::in_place, transport,
        Options{.compressor = "topk:0.1", .schedule = "gather", .min_bytes = 0});
    std::vector<float> first(5000, 1), second = first;
    reducer->all_reduce_async(first, 1).wait();  // its thread waits at a condition now
    Work work = reducer->all_reduce_async(second, 2);
    if (transport->rank() == 0) {
      const auto refuses = [](const auto& call) {
        try {
          call();
        } catch (const UsageError& error) {
          return std::string_view(error.what()).find("fork") != std::string_view::npos;
        }
        return false;
      };
      const int status = status_of_child([&] {
        const bool refused = refuses([&] { reducer->all_reduce(first, 1); }) &&
                             refuses([&] { (void)reducer->all_reduce_async(first, 1); }) &&
                             refuses([&] { reducer->synchronize(); }) &&
                             refuses([&] { (void)work.test(); });
        { const Work ended = std::move(work); }
        reducer.reset();
        return refused;
      });
      EXPECT_EQ(status, 0);
    }
    work.wait();
    reducer->all_reduce(first, 1);
    EXPECT_EQ(reducer->totals().calls, 3U);
  });
}

TEST(Fork, AChildMayDestroyTransportsOnWhichAThreadWaits) {
  auto transports = comm::local_transports(2, comm::LocalRules::loose);
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  std::vector<std::byte> sent(8, std::byte{7}), received(8);
  std::thread receiver([&] {
    transports[1]->recv(received, 0, nullptr);
    transports[1]->wait(transports[1]->start({}), deadline);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // most likely it waits by then
  EXPECT_EQ(status_of_child([&] {
              transports.clear();
              return true;
            }),
            0);
  transports[0]->send(sent, 1);
  transports[0]->wait(transports[0]->start({}), deadline);
  receiver.join();
  EXPECT_EQ(received, sent);
}

}  // namespace
}  // namespace winnow::tests
