// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/bridge/host_words.hpp"

#include <cstdint>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"
#include "comm/transport/poll.hpp"
#include "kernels/cuda/device_exec.hpp"
#include "kernels/cuda/memory.hpp"

namespace winnow::comm {
namespace {

kernels::cuda::StreamRef stream_of(const Exec& exec) {
  return kernels::cuda::StreamRef(static_cast<cudaStream_t>(exec.stream));
}

}  // namespace

std::span<const std::byte> copy_to_host(const Exec& exec, std::span<const std::byte> bytes) {
  kernels::cuda::expect_device(exec);
  WINNOW_EXPECTS(exec.pinned_workspace != nullptr,
                 "counts of messages in device memory need exec.pinned_workspace");
  const auto host = exec.pinned_workspace->take<std::byte>(bytes.size());
  if (!bytes.empty()) kernels::cuda::enqueue_copy(host, bytes, stream_of(exec));
  return host;
}

void await_words(const Exec& exec, Transport& transport, Deadline deadline) {
  const kernels::cuda::Event copied;
  copied.record(stream_of(exec));
  const auto done = [&] {
    if (copied.passed()) return true;
    transport.progress();
    return false;
  };
  if (!spin_until(done, deadline)) {
    fail_at_deadline("while the host waited for the counts of messages");
  }
}

}  // namespace winnow::comm
