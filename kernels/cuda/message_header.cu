// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/message_header.cuh"
#include "kernels/message_header.hpp"

namespace winnow::kernels::cuda {

namespace {

void enqueue(const Exec& exec, const CheckHeadersTask& task) {
  launch<CheckHeaders>(exec, blocks_of(std::uint64_t{task.count} * simt::kLanes), {task});
}

}  // namespace

void claimed_k(const Exec& exec, const ClaimedKJob& job) {
  ClaimedKTask task = {};
  for (std::size_t begin = 0; begin < job.messages.size(); begin += task.count) {
    const auto messages = job.messages.subspan(begin);
    task.count = static_cast<unsigned>(std::min<std::size_t>(messages.size(), task.kMost));
    for (unsigned m = 0; m < task.count; ++m) {
      task.words[m] = messages[m].bytes.data() + job.layout.k_at;
    }
    task.k = job.k.data() + begin;
    launch<ClaimedK>(exec, blocks_of(task.count), {task});
  }
}

void check_headers(const Exec& exec, const CheckHeadersJob& job) {
  for_each_check_task(job.messages, job.layout, job.status.data(), nullptr,
                      [&](const CheckHeadersTask& task) { enqueue(exec, task); });
}

void check_messages(const Exec& exec, const CheckMessagesJob& job) {
  for_each_check_task(job.messages, job.layout, nullptr, job.status,
                      [&](const CheckHeadersTask& task) { enqueue(exec, task); });
}

}  // namespace winnow::kernels::cuda
