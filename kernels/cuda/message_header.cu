// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/message_header.cuh"
#include "kernels/cuda/message_header.hpp"

namespace winnow::kernels::cuda {

void put_header(const Exec& exec, std::span<std::byte> message, const HeaderBytes& header,
                const HeaderLayout& layout, const PoisonSources& sources) {
  launch<PutHeader>(exec, 1, make_put_header_task(message, header, layout, sources));
}

void check_headers(const Exec& exec, std::span<const ReceivedMessage> messages,
                   const HeaderLayout& layout, std::span<std::uint32_t> status) {
  for_each_check_task(messages, layout, status, [&](const CheckHeadersTask& task) {
    launch<CheckHeaders>(exec, blocks_of(task.count * simt::kLanes), task);
  });
}

}  // namespace winnow::kernels::cuda
