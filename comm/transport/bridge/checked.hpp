// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// A transport of host memory over `inner`, which takes that memory and outlives this. It checks
/// every byte: behind each message it sends its checksum, 8 bytes, and an all_reduce is Winnow's
/// ring and ends with a comparison of the results' checksums. What arrived damaged, or in another
/// message's place, is a CommError. All ranks must use one.
std::unique_ptr<Transport> checked(Transport& inner);

}  // namespace winnow::comm
