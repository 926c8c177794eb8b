// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/seal.hpp"
#include "tests/harness/device.hpp"
#include "tests/kernels/cases/seal_cases.hpp"

namespace winnow::tests {

/// A function of kernels/seal.hpp on a message of the host.
inline SealIndicesBody seal_on_device(decltype(&kernels::seal_raw32) seal, std::uint64_t count,
                                      std::span<const std::uint32_t> index, const Stream& stream) {
  return [=, &stream](std::span<std::byte> message, const HeaderBytes& header) {
    const DeviceArray<std::byte> there(message.size());
    const DeviceArray<std::uint32_t> list(index.size());
    there.upload(message, stream);
    list.upload(index, stream);
    seal(stream.exec(), {.message = there.span(),
                         .header = header,
                         .layout = kHeaderLayout,
                         .count = count,
                         .index = list.span()});
    std::ranges::copy(there.download(stream), message.begin());
  };
}

}  // namespace winnow::tests
