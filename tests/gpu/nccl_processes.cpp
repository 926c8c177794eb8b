// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// NCCL ranks as processes that share one GPU: each claims to be another host, and all talk over the
// loopback. For correctness, never for speed.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <utility>
#include <vector>

#include "tests/gpu/nccl_ranks.hpp"
#include "tests/harness/device.hpp"

namespace winnow::tests {
namespace {

constexpr unsigned kProcessSeconds = 60;  // then the kernel ends a process
constexpr int kNoDevice = 2;

/// Runs `body` in its own process and returns its id. A failed expectation or an exception there
/// ends it with a status other than 0. CUDA does not survive a fork, so the caller must not have
/// used it.
::pid_t fork_process(const std::function<void()>& body) {
  std::fflush(nullptr);
  const ::pid_t process = ::fork();
  if (process != 0) return process;
  ::alarm(kProcessSeconds);
  try {
    body();
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  std::fflush(nullptr);
  ::_exit(testing::Test::HasFailure() ? 1 : 0);
}

/// A process's exit status, or minus the signal that ended it.
int status_of(::pid_t process) {
  int status = 0;
  if (process < 0 || ::waitpid(process, &status, 0) != process) return -1;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

std::string why_no_nccl_ranks() {
  const int status =
      status_of(fork_process([] { ::_exit(why_no_device().empty() ? 0 : kNoDevice); }));
  EXPECT_TRUE(status == 0 || status == kNoDevice) << status;
  return status == kNoDevice ? "no CUDA device" : "";
}

void run_nccl_ranks(int ranks, const std::function<void(int rank)>& body) {
  std::vector<::pid_t> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.push_back(fork_process([&] {
      const std::string host = "winnow-" + std::to_string(rank);
      const std::pair<const char*, const char*> settings[] = {
          {"NCCL_HOSTID", host.c_str()}, {"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_NET", "Socket"},
          {"NCCL_IB_DISABLE", "1"},      {"NCCL_P2P_DISABLE", "1"},    {"NCCL_SHM_DISABLE", "1"},
          {"NCCL_MNNVL_ENABLE", "0"},    {"NCCL_NVLS_ENABLE", "0"},    {"NCCL_CUMEM_ENABLE", "0"},
          {"NCCL_ALGO", "Ring"},         {"NCCL_PROTO", "Simple"},     {"NCCL_MAX_CTAS", "2"}};
      for (const auto& [name, value] : settings) ::setenv(name, value, 1);
      body(rank);
    }));
  }
  for (std::size_t rank = 0; rank < processes.size(); ++rank) {
    EXPECT_EQ(status_of(processes[rank]), 0) << "rank " << rank << " of " << ranks;
  }
}

}  // namespace winnow::tests
