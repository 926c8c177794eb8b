// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/message_header.hpp"

#include <winnow/error.hpp>

namespace winnow::kernels::cuda {

void put_header(const Exec&, std::span<std::byte>, const HeaderBytes&, const HeaderLayout&,
                const PoisonSources&) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

void check_headers(const Exec&, std::span<const ReceivedMessage>, const HeaderLayout&,
                   std::span<std::uint32_t>) {
  fail_usage("this Winnow was built without CUDA; pass host memory and Place::cpu");
}

}  // namespace winnow::kernels::cuda
