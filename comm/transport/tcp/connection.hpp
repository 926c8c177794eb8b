// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "comm/transport/socket.hpp"
#include "comm/transport/tls.hpp"

namespace winnow::comm {

/// A socket that does not block, bare or with TLS over it.
class Connection {
 public:
  Connection() = default;
  explicit Connection(Socket socket) : socket_(std::move(socket)) {}

  bool is_open() const { return socket_.is_open(); }
  const Socket& socket() const { return socket_; }
  void close() {
    tls_.reset();
    socket_.close();
  }
  /// From here on only TLS reads and writes. Nothing can before its handshake is done.
  TlsSession& begin_tls(const TlsContext& context, TlsSession::End end, const Digest& key) {
    tls_ = std::make_unique<TlsSession>(context, socket_.get(), end, key);
    return *tls_;
  }

  /// As sendmsg without a signal; after EAGAIN, the next call must pass the same bytes first.
  ::ssize_t write(std::span<const iovec> pieces) const;
  /// As readv. Fewer bytes than there is space for only if no more have come.
  ::ssize_t read(std::span<const iovec> pieces) const;
  /// The text of an errno that write or read has set.
  std::string problem_of(int code) const;

 private:
  Socket socket_;
  std::unique_ptr<TlsSession> tls_;
};

}  // namespace winnow::comm
