// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/message_header.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

void check_headers(const Exec&, std::span<const ReceivedMessage>, const HeaderLayout&,
                   std::span<std::uint32_t>) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void judge_messages(const Exec&, std::span<const ReceivedMessage>, const HeaderLayout&, Verdict*) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
