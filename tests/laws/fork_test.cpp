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

bool refuses(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return std::string_view(error.what()).find("fork") != std::string_view::npos;
  } catch (const Error&) {
    return false;
  }
  return false;
}

TEST(Fork, AChildCannotCallAndEndsNothing) {
  const Options options{.compressor = "topk:0.1", .schedule = "gather", .min_bytes = 0};
  run_worlds("gather", [&](const std::shared_ptr<Transport>& transport) {
    std::optional<AllReducer> reducer(std::in_place, transport, options);
    std::vector<float> first(5000, 1), second = first;
    reducer->all_reduce_async(first, 1).wait();  // its thread waits at a condition now
    Work work = reducer->all_reduce_async(second, 2);
    if (transport->rank() == 0) {
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

// Its messages would go among those of its parent, whose connections it shares.
TEST(Fork, AChildCannotUseATransport) {
  run_worlds("gather", [](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank(), size = transport->size();
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    AllReducer reducer(transport, {.compressor = "none", .op = ReduceOp::sum});
    std::vector<float> values(1000, 1);
    if (rank == 0 && size > 1) {
      const int status = status_of_child([&] {
        std::byte word{};
        const bool refused =
            refuses([&] {
              transport->send({&word, 1}, 1);
            }) &&
            refuses([&] {
              transport->recv({&word, 1}, 1, nullptr);
            }) &&
            refuses([&] { (void)transport->start({}); }) &&
            refuses([&] { transport->wait({}, deadline); }) &&
            refuses([&] { (void)transport->test({}, deadline); }) &&
            refuses([&] { (void)reducer.finished_calls(*transport, deadline); }) &&
            refuses([&] { const AllReducer another(transport, {.compressor = "none"}); });
        transport->progress();
        transport->abort("the child has had enough");
        return refused;
      });
      EXPECT_EQ(status, 0);
    }
    reducer.all_reduce(values, 1);
    EXPECT_EQ(values[999], static_cast<float>(size));
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
