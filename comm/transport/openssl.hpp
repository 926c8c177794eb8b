// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "comm/transport/library.hpp"

namespace winnow::comm {

// The functions of OpenSSL that Winnow calls. Winnow does not link OpenSSL: it would not load where
// there is none, and most jobs need none. These declarations have been the same since OpenSSL
// 1.1.1, so its headers are not needed to build.

// As openssl/evp.h, openssl/ssl.h and openssl/err.h declare them.
struct EvpMd;
struct Ssl;
struct SslContext;
struct SslSession;
struct SslMethod;
struct SslCipher;
struct X509;
struct X509Store;
struct X509StoreContext;
struct X509Stack;
using UseSession = int(Ssl*, const EvpMd*, const unsigned char** identity, std::size_t* bytes,
                       SslSession**);
using FindSession = int(Ssl*, const unsigned char* identity, std::size_t bytes, SslSession**);

/// Functions of libcrypto: digests, and the error queue that both libraries share.
struct LibCrypto {
  Library library{"libcrypto.so.3", "libcrypto.so.1.1"};

  const EvpMd* (*sha256)() = library["EVP_sha256"];
  int (*digest)(const void* data, std::size_t count, unsigned char* digest, unsigned* bytes,
                const EvpMd* type, void* engine) = library["EVP_Digest"];
  unsigned char* (*hmac)(const EvpMd* type, const void* key, int key_bytes,
                         const unsigned char* data, std::size_t count, unsigned char* digest,
                         unsigned* bytes) = library["HMAC"];

  unsigned long (*next_error)() = library["ERR_get_error"];
  void (*clear_errors)() = library["ERR_clear_error"];
  const char* (*reason)(unsigned long) = library["ERR_reason_error_string"];
  const char* (*verify_text)(long) = library["X509_verify_cert_error_string"];
  X509StoreContext* (*new_check)() = library["X509_STORE_CTX_new"];
  void (*free_check)(X509StoreContext*) = library["X509_STORE_CTX_free"];
  int (*begin_check)(X509StoreContext*, X509Store*, X509*,
                     X509Stack* chain) = library["X509_STORE_CTX_init"];
  int (*check)(X509StoreContext*) = library["X509_verify_cert"];
  int (*check_error)(const X509StoreContext*) = library["X509_STORE_CTX_get_error"];
  int (*check_depth)(const X509StoreContext*) = library["X509_STORE_CTX_get_error_depth"];
};

/// Functions of libssl, which implements TLS.
struct LibSsl {
  Library library{"libssl.so.3", "libssl.so.1.1"};

  const SslMethod* (*method)() = library["TLS_method"];
  SslContext* (*new_context)(const SslMethod*) = library["SSL_CTX_new"];
  void (*free_context)(SslContext*) = library["SSL_CTX_free"];
  long (*control)(SslContext*, int, long, void*) = library["SSL_CTX_ctrl"];
  unsigned long (*set_options)(SslContext*, unsigned long) = library["SSL_CTX_set_options"];
  int (*set_tickets)(SslContext*, std::size_t) = library["SSL_CTX_set_num_tickets"];
  int (*set_suites)(SslContext*, const char*) = library["SSL_CTX_set_ciphersuites"];
  void (*set_read_buffer)(SslContext*,
                          std::size_t) = library["SSL_CTX_set_default_read_buffer_len"];
  void (*set_verify)(SslContext*, int, void*) = library["SSL_CTX_set_verify"];
  void (*set_passphrase)(SslContext*, int (*)(char*, int, int,
                                              void*)) = library["SSL_CTX_set_default_passwd_cb"];
  void (*set_passphrase_data)(SslContext*,
                              void*) = library["SSL_CTX_set_default_passwd_cb_userdata"];
  int (*use_certificate)(SslContext*, const char*) = library["SSL_CTX_use_certificate_chain_file"];
  int (*use_key)(SslContext*, const char*, int) = library["SSL_CTX_use_PrivateKey_file"];
  int (*check_key)(const SslContext*) = library["SSL_CTX_check_private_key"];
  int (*load_authority)(SslContext*, const char*,
                        const char*) = library["SSL_CTX_load_verify_locations"];
  X509* (*certificate)(const SslContext*) = library["SSL_CTX_get0_certificate"];
  X509Store* (*authority)(const SslContext*) = library["SSL_CTX_get_cert_store"];
  void (*set_use_session)(SslContext*,
                          UseSession*) = library["SSL_CTX_set_psk_use_session_callback"];
  void (*set_find_session)(SslContext*,
                           FindSession*) = library["SSL_CTX_set_psk_find_session_callback"];

  Ssl* (*new_ssl)(SslContext*) = library["SSL_new"];
  void (*free_ssl)(Ssl*) = library["SSL_free"];
  int (*set_socket)(Ssl*, int) = library["SSL_set_fd"];
  int (*set_data)(Ssl*, int, void*) = library["SSL_set_ex_data"];
  void* (*get_data)(const Ssl*, int) = library["SSL_get_ex_data"];
  void (*connect)(Ssl*) = library["SSL_set_connect_state"];
  void (*accept)(Ssl*) = library["SSL_set_accept_state"];
  int (*shake)(Ssl*) = library["SSL_do_handshake"];
  int (*read)(Ssl*, void*, std::size_t, std::size_t*) = library["SSL_read_ex"];
  int (*write)(Ssl*, const void*, std::size_t, std::size_t*) = library["SSL_write_ex"];
  int (*error)(const Ssl*, int) = library["SSL_get_error"];
  long (*verified)(const Ssl*) = library["SSL_get_verify_result"];
  const SslCipher* (*find_cipher)(Ssl*, const unsigned char*) = library["SSL_CIPHER_find"];
  SslSession* (*new_session)() = library["SSL_SESSION_new"];
  void (*free_session)(SslSession*) = library["SSL_SESSION_free"];
  int (*set_master_key)(SslSession*, const unsigned char*,
                        std::size_t) = library["SSL_SESSION_set1_master_key"];
  int (*set_cipher)(SslSession*, const SslCipher*) = library["SSL_SESSION_set_cipher"];
  int (*set_version)(SslSession*, int) = library["SSL_SESSION_set_protocol_version"];
};

/// Takes the library from the process, or loads it, at the first call. Its library.problem() says
/// why its functions must not be called. Any thread may call it.
const LibCrypto& libcrypto();
const LibSsl& libssl();

}  // namespace winnow::comm
