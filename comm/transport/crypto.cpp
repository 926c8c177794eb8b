// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/crypto.hpp"

#include <sys/random.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <winnow/error.hpp>

#include "comm/transport/openssl.hpp"

namespace winnow::comm {
void random_bytes(std::span<std::byte> bytes) {
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<::ssize_t>(bytes.size()))
    throw CommError("getrandom: " + std::generic_category().message(errno), errno);
}

bool has_crypto() noexcept {
  try {
    return libcrypto().library.problem().empty();
  } catch (...) {
    return false;
  }
}

void expect_crypto() {
  WINNOW_EXPECTS(libcrypto().library.problem().empty(),
                 "a secret needs OpenSSL's libcrypto, which cannot be loaded: " +
                     libcrypto().library.problem());
}

Digest sha256(std::span<const std::byte> bytes) {
  expect_crypto();
  Digest digest;
  unsigned written = 0;
  if (libcrypto().digest(bytes.data(), bytes.size(),
                         reinterpret_cast<unsigned char*>(digest.data()), &written,
                         libcrypto().sha256(), nullptr) != 1 ||
      written != digest.size())
    throw CommError("OpenSSL computes no SHA-256");
  return digest;
}

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> bytes) {
  expect_crypto();
  Digest digest;
  unsigned written = 0;
  const auto* const done =
      libcrypto().hmac(libcrypto().sha256(), key.data(), static_cast<int>(key.size()),
                       reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                       reinterpret_cast<unsigned char*>(digest.data()), &written);
  if (done == nullptr || written != digest.size()) throw CommError("OpenSSL computes no HMAC");
  return digest;
}

}  // namespace winnow::comm
