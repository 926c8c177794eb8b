// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/connection.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace winnow::comm {

::ssize_t Connection::write(std::span<const iovec> pieces) const {
  if (tls_ != nullptr) {
    if (tls_->is_ready() && socket_.is_open()) return tls_->write(pieces);
    errno = ENOTCONN;
    return -1;
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  return ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

::ssize_t Connection::read(std::span<const iovec> pieces) const {
  if (tls_ != nullptr) {
    if (tls_->is_ready() && socket_.is_open()) return tls_->read(pieces);
    errno = ENOTCONN;
    return -1;
  }
  return ::readv(socket_.get(), pieces.data(), static_cast<int>(pieces.size()));
}

std::string Connection::problem_of(int code) const {
  return code == EPROTO && tls_ != nullptr ? tls_->problem() : errno_text(code);
}

}  // namespace winnow::comm
