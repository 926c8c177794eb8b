// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "comm/transport/library.hpp"

namespace winnow::comm {

// The functions of OpenSSL that Winnow calls. Winnow does not link OpenSSL: it would not load where
// there is none, and most jobs need none. What is declared here has been the same since OpenSSL
// 1.1.1, so its headers are not needed to build.

// As openssl/evp.h, openssl/ssl.h and openssl/err.h declare them.
struct EvpMd;
struct Ssl;
struct SslContext;
struct SslSession;
struct SslMethod;
struct SslCipher;
using UseSession = int(Ssl*, const EvpMd*, const unsigned char** identity, std::size_t* bytes,
                       SslSession**);
using FindSession = int(Ssl*, const unsigned char* identity, std::size_t bytes, SslSession**);

/// Functions of libcrypto: digests, and the error queue that both libraries share.
struct LibCrypto {
  LibCrypto();
  Library library{"libcrypto.so.3", "libcrypto.so.1.1"};

  const EvpMd* (*sha256)() = nullptr;
  int (*digest)(const void* data, std::size_t count, unsigned char* digest, unsigned* bytes,
                const EvpMd* type, void* engine) = nullptr;
  unsigned char* (*hmac)(const EvpMd* type, const void* key, int key_bytes,
                         const unsigned char* data, std::size_t count, unsigned char* digest,
                         unsigned* bytes) = nullptr;

  unsigned long (*next_error)() = nullptr;
  void (*clear_errors)() = nullptr;
  const char* (*reason)(unsigned long) = nullptr;
  const char* (*verify_text)(long) = nullptr;
};

/// Functions of libssl, which implements TLS.
struct LibSsl {
  LibSsl();
  Library library{"libssl.so.3", "libssl.so.1.1"};

  const SslMethod* (*method)() = nullptr;
  SslContext* (*new_context)(const SslMethod*) = nullptr;
  void (*free_context)(SslContext*) = nullptr;
  long (*control)(SslContext*, int, long, void*) = nullptr;
  unsigned long (*set_options)(SslContext*, unsigned long) = nullptr;
  int (*set_tickets)(SslContext*, std::size_t) = nullptr;
  int (*set_suites)(SslContext*, const char*) = nullptr;
  void (*set_read_buffer)(SslContext*, std::size_t) = nullptr;
  void (*set_verify)(SslContext*, int, void*) = nullptr;
  void (*set_passphrase)(SslContext*, int (*)(char*, int, int, void*)) = nullptr;
  void (*set_passphrase_data)(SslContext*, void*) = nullptr;
  int (*use_certificate)(SslContext*, const char*) = nullptr;
  int (*use_key)(SslContext*, const char*, int) = nullptr;
  int (*check_key)(const SslContext*) = nullptr;
  int (*load_authority)(SslContext*, const char*, const char*) = nullptr;
  void (*set_use_session)(SslContext*, UseSession*) = nullptr;
  void (*set_find_session)(SslContext*, FindSession*) = nullptr;

  Ssl* (*new_ssl)(SslContext*) = nullptr;
  void (*free_ssl)(Ssl*) = nullptr;
  int (*set_socket)(Ssl*, int) = nullptr;
  int (*set_data)(Ssl*, int, void*) = nullptr;
  void* (*get_data)(const Ssl*, int) = nullptr;
  void (*connect)(Ssl*) = nullptr;
  void (*accept)(Ssl*) = nullptr;
  int (*shake)(Ssl*) = nullptr;
  int (*read)(Ssl*, void*, std::size_t, std::size_t*) = nullptr;
  int (*write)(Ssl*, const void*, std::size_t, std::size_t*) = nullptr;
  int (*error)(const Ssl*, int) = nullptr;
  long (*verified)(const Ssl*) = nullptr;
  const SslCipher* (*find_cipher)(Ssl*, const unsigned char*) = nullptr;
  SslSession* (*new_session)() = nullptr;
  void (*free_session)(SslSession*) = nullptr;
  int (*set_master_key)(SslSession*, const unsigned char*, std::size_t) = nullptr;
  int (*set_cipher)(SslSession*, const SslCipher*) = nullptr;
  int (*set_version)(SslSession*, int) = nullptr;
};

/// Takes the library from the process, or loads it, at the first call. Its library.problem() says
/// why its functions must not be called. Any thread may call it.
const LibCrypto& libcrypto();
const LibSsl& libssl();

}  // namespace winnow::comm
