// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "comm/transport/crypto.hpp"

namespace winnow::comm {

/// The means by which ranks of a job know each other: a key that never travels. Proofs of texts do.
///
/// With a secret, a proof is the text's HMAC-SHA-256, and keys are derived by it, too: only who
/// knows the secret can make one. Without, both are open digests, which tell jobs apart and keep
/// nobody out who means to join.
class Credentials {
 public:
  /// An empty text means open. Otherwise secret; throws UsageError where OpenSSL cannot be loaded.
  explicit Credentials(std::string_view secret = {});

  bool are_secret() const { return secret_; }
  /// For another purpose: their proofs say nothing about proofs of these.
  Credentials derive(std::string_view purpose) const;
  Digest prove(std::span<const std::byte> text) const;
  /// For a proof of a long text: prove this. SHA-256, or an open digest.
  Digest digest(std::span<const std::byte> text) const;

 private:
  Digest key_{};
  bool secret_;
};

/// Whether a proof is the right one. Takes as long for a wrong one.
bool equal(const Digest& right, std::span<const std::byte> given);

}  // namespace winnow::comm
