// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <winnow/transport.hpp>

namespace winnow::comm {

/// A transport of host memory over `inner`, which takes that memory and outlives this. It checks
/// every byte: behind each message it sends its seal, and an all_reduce is Winnow's ring and ends
/// with a comparison of the results' checksums. A seal is a checksum of 8 bytes; between ranks that
/// have a secret (MessageKeys), a proof of 32 bytes of the message, its number and both ranks,
/// which nobody else can make. A message that arrives damaged, or in another one's place, is a
/// CommError. All ranks must use one.
std::unique_ptr<Transport> checked(Transport& inner);

}  // namespace winnow::comm
