// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/size_words.hpp"

#include <sched.h>

#include <cstdint>
#include <winnow/error.hpp>

#include "kernels/cuda/device_exec.hpp"
#include "kernels/cuda/memory.hpp"

namespace winnow::comm {
namespace {

constexpr unsigned kSpinsBeforeYield = 200;

kernels::cuda::StreamRef stream_of(const Exec& exec) {
  return kernels::cuda::StreamRef(static_cast<cudaStream_t>(exec.stream));
}

}  // namespace

std::span<std::byte> take_size_word(const Exec& exec) {
  kernels::cuda::expect_device(exec);
  WINNOW_EXPECTS(exec.device_workspace != nullptr,
                 "sizes of messages in device memory need exec.device_workspace");
  return std::as_writable_bytes(exec.device_workspace->take<std::uint64_t>(1));
}

void copy_size_word(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  kernels::cuda::enqueue_copy(to, from, stream_of(exec));
}

void await_size_words(const Exec& exec, Transport& transport, Deadline deadline) {
  const kernels::cuda::Event copied;
  copied.record(stream_of(exec));
  for (unsigned spins = 0; !copied.passed(); ++spins) {
    transport.progress();
    if (deadline.passed()) {
      throw CommError("rank " + std::to_string(transport.rank()) +
                      ": the deadline passed while it waited for the sizes of messages");
    }
    if (spins >= kSpinsBeforeYield) ::sched_yield();
  }
}

}  // namespace winnow::comm
