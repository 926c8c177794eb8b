// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/bridge/size_words.hpp"

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

std::span<std::byte> bytes_of(const SizeWord& word) {
  return std::as_writable_bytes(std::span(word.size, 1));
}

}  // namespace

SizeWord take_size_word(const Exec& exec) {
  kernels::cuda::expect_device(exec);
  WINNOW_EXPECTS(exec.device_workspace != nullptr && exec.pinned_workspace != nullptr,
                 "sizes of messages in device memory need exec.device_workspace and "
                 "exec.pinned_workspace");
  return {.size = exec.pinned_workspace->take<std::uint64_t>(1).data(),
          .travels = std::as_writable_bytes(exec.device_workspace->take<std::uint64_t>(1))};
}

void copy_to_device(const Exec& exec, const SizeWord& word) {
  kernels::cuda::enqueue_copy(word.travels, bytes_of(word), stream_of(exec));
}

void copy_to_host(const Exec& exec, const SizeWord& word) {
  kernels::cuda::enqueue_copy(bytes_of(word), word.travels, stream_of(exec));
}

std::span<const std::byte> copy_to_host(const Exec& exec, std::span<const std::byte> bytes) {
  const auto host = exec.pinned_workspace->take<std::byte>(bytes.size());
  if (!bytes.empty()) kernels::cuda::enqueue_copy(host, bytes, stream_of(exec));
  return host;
}

void await_size_words(const Exec& exec, Transport& transport, Deadline deadline) {
  const kernels::cuda::Event copied;
  copied.record(stream_of(exec));
  const auto done = [&] {
    if (copied.passed()) return true;
    transport.progress();
    return false;
  };
  if (!spin_until(done, deadline)) {
    fail_at_deadline("while the host waited for the sizes of messages");
  }
}

}  // namespace winnow::comm
