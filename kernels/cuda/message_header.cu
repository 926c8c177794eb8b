// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/message_header.cuh"
#include "kernels/cuda/message_header.hpp"

namespace winnow::kernels::cuda {

namespace {

void enqueue(const Exec& exec, std::span<const ReceivedMessage> messages,
             const HeaderLayout& layout, std::span<std::uint32_t> status, Verdict* verdict) {
  for_each_check_task(messages, layout, status, verdict, [&](const CheckHeadersTask& task) {
    launch<CheckHeaders>(exec, blocks_of(std::uint64_t{task.count} * simt::kLanes), task);
  });
}

}  // namespace

void check_headers(const Exec& exec, std::span<const ReceivedMessage> messages,
                   const HeaderLayout& layout, std::span<std::uint32_t> status) {
  enqueue(exec, messages, layout, status, nullptr);
}

void judge_messages(const Exec& exec, std::span<const ReceivedMessage> messages,
                    const HeaderLayout& layout, Verdict* verdict) {
  WINNOW_EXPECTS(verdict != nullptr, "messages are judged by a verdict");
  enqueue(exec, messages, layout, {}, verdict);
}

}  // namespace winnow::kernels::cuda
