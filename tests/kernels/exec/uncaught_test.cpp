// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <winnow/transport.hpp>
#include <winnow/winnow.hpp>

namespace winnow {
namespace {

using testing::Eq;
using testing::KilledBySignal;

std::string host() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

/// In a thread with nothing around it, in a process that no launcher has numbered and that leaves
/// no core.
void run_uncaught(const std::function<void()>& body) {
  const rlimit none{};
  setrlimit(RLIMIT_CORE, &none);
  for (const char* const name :
       {"RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    unsetenv(name);
  }
  std::thread(body).join();
}

void expect_output(const std::function<void()>& body, const std::string& output) {
  EXPECT_EXIT(run_uncaught(body), KilledBySignal(SIGABRT), Eq(output));
}

TEST(Uncaught, IsOneLineWithTheKind) {
  expect_output([] { throw UsageError("no such word"); },
                "winnow: " + host() + ": usage error: no such word\n");
  expect_output([] { throw CommError("rank 1 is gone", 5); },
                "winnow: " + host() + ": communication error: rank 1 is gone\n");
  expect_output([] { throw CudaError("no device"); },
                "winnow: " + host() + ": CUDA error: no device\n");
  expect_output([] { throw Error("two\nlines"); }, "winnow: " + host() + ": error: two lines\n");
}

TEST(Uncaught, NamesTheRankThatTheLauncherGave) {
  using Variables = std::vector<std::pair<const char*, const char*>>;
  const auto with = [](const Variables& variables, const char* rank) {
    expect_output(
        [&] {
          for (const auto& [name, value] : variables) setenv(name, value, 1);
          throw UsageError("no such word");
        },
        "winnow: " + std::string(rank) + host() + ": usage error: no such word\n");
  };
  with({{"RANK", "3"}, {"WORLD_SIZE", "4"}}, "rank 3 on ");  // torchrun
  with({{"RANK", "3"}}, "");                                 // anybody's variable
  with({{"RANK", "many"}, {"WORLD_SIZE", "4"}}, "");
  with({{"OMPI_COMM_WORLD_RANK", "12"}}, "rank 12 on ");
  with({{"PMIX_RANK", "5"}, {"SLURM_PROCID", "6"}}, "rank 5 on ");
  with({{"PMI_RANK", "7"}}, "rank 7 on ");
  with({{"SLURM_PROCID", "8"}}, "rank 8 on ");
}

TEST(Uncaught, NamesTheRankThatTheThreadHasInItsReducer) {
  expect_output(
      [] {
        std::vector<std::thread> ranks;
        for (auto& transport : local_transports(2)) {
          ranks.emplace_back([mine = std::shared_ptr(std::move(transport))] {
            AllReducer reducer(mine);
            if (mine->rank() == 1) throw UsageError("no such word");
          });
        }
        for (std::thread& rank : ranks) rank.join();
      },
      "winnow: rank 1 on " + host() + ": usage error: no such word\n");
}

TEST(Uncaught, OtherExceptionsEndAsBefore) {
  EXPECT_EXIT(run_uncaught([] {
                try {
                  throw UsageError("caught");
                } catch (const Error&) {
                }
                throw std::runtime_error("not Winnow's");
              }),
              KilledBySignal(SIGABRT),
              testing::AllOf(testing::HasSubstr("not Winnow's"),
                             testing::Not(testing::HasSubstr("winnow:"))));
}

TEST(Uncaught, TheProgramsOwnHandlerStillRuns) {
  EXPECT_EXIT(
      {
        std::set_terminate([] { _exit(42); });
        run_uncaught([] { throw UsageError("no such word"); });
      },
      testing::ExitedWithCode(42), Eq("winnow: " + host() + ": usage error: no such word\n"));
}

}  // namespace
}  // namespace winnow
