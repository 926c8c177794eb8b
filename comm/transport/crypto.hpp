// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace winnow::comm {

/// 32 bytes, as SHA-256 makes them.
using Digest = std::array<std::byte, 32>;

/// Fills `bytes` with random numbers of the system, 256 at most; throws CommError if it has none.
void random_bytes(std::span<std::byte> bytes);

/// Whether the process has OpenSSL's libcrypto, or can load it.
bool has_crypto() noexcept;
/// Throws UsageError, with the loader's text, unless has_crypto().
void expect_crypto();

// OpenSSL computes these. They throw CommError if it refuses. Any thread may call them.

/// SHA-256 (FIPS 180-4).
Digest sha256(std::span<const std::byte> bytes);
/// HMAC with SHA-256 (RFC 2104).
Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> bytes);

}  // namespace winnow::comm
