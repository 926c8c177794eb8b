// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/memory.hpp"
#include "kernels/cuda/memory_ops.cuh"
#include "kernels/memory_ops.hpp"

namespace winnow::kernels::cuda {

namespace {

bool are_floats(std::span<const std::byte> bytes) {
  return bytes.size() % sizeof(float) == 0 &&
         reinterpret_cast<std::uintptr_t>(bytes.data()) % sizeof(float) == 0;
}

}  // namespace

void fill(const Exec& exec, std::span<float> elements, float value) {
  if (elements.empty()) return;
  if (std::bit_cast<std::uint32_t>(value) == 0 && exec.condition.words == nullptr) {  // not -0
    clear(exec, elements.data(), elements.size());
    return;
  }
  launch<Fill>(exec, blocks_of((elements.size() + 3) / 4),
               {elements.data(), elements.size(), value});
}

void copy(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  if (exec.condition.words == nullptr) {
    enqueue_copy(to, from, StreamRef(stream_of(exec)));
    return;
  }
  WINNOW_EXPECTS(are_floats(to) && are_floats(from), "a copy of bytes takes no condition");
  const std::uint64_t count = to.size() / sizeof(float);
  if (count == 0) return;
  launch<Copy>(
      exec, blocks_of((count + 3) / 4),
      {reinterpret_cast<float*>(to.data()), reinterpret_cast<const float*>(from.data()), count});
}

void store(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  constexpr std::size_t kWord = sizeof(std::uint32_t);
  StoreTask task = {};
  for (std::size_t at = 0; at < to.size(); at += sizeof task.words) {
    const auto bytes = from.subspan(at, std::min(sizeof task.words, from.size() - at));
    std::memcpy(task.words, bytes.data(), bytes.size());
    task.to = to.data() + at;
    task.count = static_cast<std::uint32_t>(bytes.size() / kWord);
    launch<Store>(exec, 1, {task});
  }
}

void zero(const Exec& exec, std::span<std::byte> bytes) {
  if (!bytes.empty()) clear(exec, bytes.data(), bytes.size());
}

}  // namespace winnow::kernels::cuda
