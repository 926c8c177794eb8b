// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/launch_pieces.cuh"
#include "kernels/cuda/memory.hpp"
#include "kernels/cuda/memory_ops.cuh"
#include "kernels/memory_ops.hpp"

namespace winnow::kernels::cuda {

namespace {

bool are_floats(std::span<const std::byte> bytes) {
  return bytes.size() % sizeof(float) == 0 &&
         reinterpret_cast<std::uintptr_t>(bytes.data()) % sizeof(float) == 0;
}

/// Enqueues a list whose bytes fit into a launch.
template <std::uint32_t kWords>
void launch_store(const Exec& exec, std::byte* to, std::span<const std::byte> from) {
  Store<kWords> kernel = {};
  kernel.to = to;
  kernel.count = static_cast<std::uint32_t>(from.size() / sizeof(std::uint32_t));
  std::memcpy(kernel.words, from.data(), from.size());
  launch(exec, blocks_of(kernel.count / 4), kernel);
}

}  // namespace

void fill(const Exec& exec, const Elements& elements, float value) {
  const bool alone = exec.condition.words == nullptr && !is_collected(exec);
  if (std::bit_cast<std::uint32_t>(value) == 0 && alone && elements.size() > 0) {  // not -0
    clear(exec, elements.bytes().data(), elements.bytes().size());
    return;
  }
  launch_piece(exec, Fill{device_elements(elements), elements.size(), value});
}

void copy(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  const bool floats = are_floats(to) && are_floats(from);
  if (exec.condition.words == nullptr && !(floats && is_collected(exec))) {
    enqueue_copy(to, from, StreamRef(stream_of(exec)));
    return;
  }
  WINNOW_EXPECTS(floats, "a copy of bytes takes no condition");
  const std::uint64_t count = to.size() / sizeof(float);
  launch_piece(exec, Copy{reinterpret_cast<float*>(to.data()),
                          reinterpret_cast<const float*>(from.data()), count});
}

void store(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  constexpr std::uint32_t kMost = CUDART_VERSION >= 12010 ? kManyWords : kFewWords;
  constexpr std::size_t kMostBytes = kMost * sizeof(std::uint32_t);
  constexpr std::size_t kFewBytes = kFewWords * sizeof(std::uint32_t);
  for (std::size_t at = 0; at < to.size(); at += kMostBytes) {
    const auto bytes = from.subspan(at, std::min(kMostBytes, from.size() - at));
    if (bytes.size() <= kFewBytes) {
      launch_store<kFewWords>(exec, to.data() + at, bytes);
    } else {
      launch_store<kMost>(exec, to.data() + at, bytes);
    }
  }
}

void zero(const Exec& exec, std::span<std::byte> bytes) {
  if (!bytes.empty()) clear(exec, bytes.data(), bytes.size());
}

}  // namespace winnow::kernels::cuda
