// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include <winnow/tcp.hpp>

#include "comm/transport/crypto.hpp"

namespace winnow::comm {

/// The mode of that name: off, secret or certificates. UsageError for another word, which `what`
/// names.
TcpTls::Mode tls_mode_of(std::string_view word, std::string_view what);

/// How this rank speaks TLS 1.3 (RFC 8446), by OpenSSL's libssl: a pre-shared key and an ephemeral
/// exchange, or certificates of both ends. Copies share it.
class TlsContext {
 public:
  /// None: is_on() is false.
  TlsContext() = default;
  /// Throws UsageError if there is no libssl; if a file is missing, no PEM file or does not match;
  /// if the certificate is not valid now, or not of the authority; and for files that the mode does
  /// not use.
  explicit TlsContext(const TcpTls& options);

  bool is_on() const { return context_ != nullptr; }
  TcpTls::Mode mode() const { return mode_; }

 private:
  friend class TlsSession;
  TcpTls::Mode mode_ = TcpTls::Mode::off;
  std::shared_ptr<void> context_;
};

/// TLS over one socket that does not block, which outlives it. Any threads may call it. Where the
/// kernel has TLS, it does the records.
class TlsSession {
 public:
  enum class End : std::uint8_t { client, server };
  /// `key`: of this connection and known to both ends alone, if the mode is Mode::secret.
  /// Throws CommError if OpenSSL refuses.
  TlsSession(const TlsContext& context, int socket, End end, const Digest& key);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  enum class Shake : std::uint8_t { done, wants_read, wants_write, failed };
  /// Goes on with the handshake, as far as it goes now.
  Shake shake();
  bool is_ready() const { return ready_; }

  // As sendmsg and readv on that socket: bytes, 0 at the end of what the other end has sent, or -1
  // and errno. EPROTO: problem() says why.

  /// After EAGAIN, the next call must pass the same bytes first.
  ::ssize_t write(std::span<const iovec> pieces);
  /// Fewer bytes than there is space for only if no more have come.
  ::ssize_t read(std::span<const iovec> pieces);
  std::string problem() const;

 private:
  friend class TlsContext;
  struct Callbacks;
  class Quiet;
  int fail(int returned);
  std::span<const std::byte> next_record(std::span<const iovec> pieces, std::size_t skipped);

  TlsContext context_;
  void* session_;
  Digest key_;
  mutable std::mutex mutex_;       // guards all but ready_
  std::vector<std::byte> record_;  // of short pieces
  std::string problem_;
  bool ready_ = false;
};

}  // namespace winnow::comm
