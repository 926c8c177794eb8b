// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
//
// Winnow does not link OpenSSL: it would not load where there is none, and most jobs need none. The
// first job that has a secret finds libcrypto in the process, or loads it. The few functions that
// are used have been the same since OpenSSL 1.1, so its headers are not needed to build.
#include "comm/transport/crypto.hpp"

#include <sys/random.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <winnow/error.hpp>

#include "comm/transport/library.hpp"

namespace winnow::comm {
namespace {

// As openssl/evp.h and openssl/hmac.h declare them.
struct EvpMd;
using Sha256 = const EvpMd*();
using EvpDigest = int(const void* data, std::size_t count, unsigned char* digest, unsigned* bytes,
                      const EvpMd* type, void* engine);
using Hmac = unsigned char*(const EvpMd* type, const void* key, int key_bytes,
                            const unsigned char* data, std::size_t count, unsigned char* digest,
                            unsigned* bytes);

struct Crypto {
  Library library{"libcrypto.so.3", "libcrypto.so.1.1"};
  Sha256* sha256 = nullptr;
  EvpDigest* digest = nullptr;
  Hmac* hmac = nullptr;

  Crypto() {
    library.find("EVP_sha256", sha256);
    library.find("EVP_Digest", digest);
    library.find("HMAC", hmac);
  }
};

const Crypto& crypto() {
  static const Crypto found;
  return found;
}

}  // namespace

void random_bytes(std::span<std::byte> bytes) {
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<::ssize_t>(bytes.size()))
    throw CommError("getrandom: " + std::generic_category().message(errno), errno);
}

bool has_crypto() noexcept {
  try {
    return crypto().library.problem().empty();
  } catch (...) {
    return false;
  }
}

void expect_crypto() {
  WINNOW_EXPECTS(
      crypto().library.problem().empty(),
      "a secret needs OpenSSL's libcrypto, which cannot be loaded: " + crypto().library.problem());
}

Digest sha256(std::span<const std::byte> bytes) {
  expect_crypto();
  Digest digest;
  unsigned written = 0;
  if (crypto().digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(digest.data()),
                      &written, crypto().sha256(), nullptr) != 1 ||
      written != digest.size())
    throw CommError("OpenSSL computes no SHA-256");
  return digest;
}

Digest hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> bytes) {
  expect_crypto();
  Digest digest;
  unsigned written = 0;
  const auto* const done =
      crypto().hmac(crypto().sha256(), key.data(), static_cast<int>(key.size()),
                    reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                    reinterpret_cast<unsigned char*>(digest.data()), &written);
  if (done == nullptr || written != digest.size()) throw CommError("OpenSSL computes no HMAC");
  return digest;
}

}  // namespace winnow::comm
