// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/credentials.hpp"

#include <cstdint>
#include <cstring>
#include <string>

namespace winnow::comm {
namespace {

constexpr std::string_view kLabel = "winnow tcp 2";  // of keys, so that no other protocol has them

/// FNV-1a, once for each word of the result.
Digest open_digest(std::span<const std::byte> key, std::span<const std::byte> text) {
  constexpr std::uint64_t kBasis = 0xcbf29ce484222325, kPrime = 0x100000001b3;
  Digest digest;
  for (std::size_t word = 0; word < digest.size() / 8; ++word) {
    std::uint64_t value = kBasis + word;
    for (const auto& part : {key, text})
      for (const std::byte byte : part)
        value = (value ^ std::to_integer<std::uint64_t>(byte)) * kPrime;
    std::memcpy(&digest[8 * word], &value, 8);
  }
  return digest;
}

}  // namespace

Credentials::Credentials(std::string_view secret) : secret_(!secret.empty()) {
  const auto label = std::as_bytes(std::span(kLabel));
  key_ = secret_ ? hmac_sha256(std::as_bytes(std::span(secret)), label) : open_digest({}, label);
}

Credentials Credentials::derive(std::string_view purpose) const {
  Credentials derived = *this;
  const std::string text = "key for " + std::string(purpose);  // what is proved begins otherwise
  derived.key_ = prove(std::as_bytes(std::span(text)));
  return derived;
}

Digest Credentials::prove(std::span<const std::byte> text) const {
  return secret_ ? hmac_sha256(key_, text) : open_digest(key_, text);
}

Digest Credentials::digest(std::span<const std::byte> text) const {
  return secret_ ? sha256(text) : open_digest({}, text);
}

bool equal(const Digest& right, std::span<const std::byte> given) {
  if (given.size() != right.size()) return false;
  std::byte differs{};
  for (std::size_t i = 0; i < right.size(); ++i) differs |= given[i] ^ right[i];
  return differs == std::byte{};
}

}  // namespace winnow::comm
