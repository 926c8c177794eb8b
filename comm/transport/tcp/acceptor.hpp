// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <list>
#include <winnow/transport.hpp>

#include "comm/transport/tcp/greeting.hpp"
#include "comm/transport/tcp/note_channel.hpp"
#include "comm/transport/tcp/ports.hpp"

namespace winnow::comm {

/// A connection that anyone may have made to this rank's listener.
struct Incoming {
  NoteChannel channel;
  Deadline::Clock::time_point since = Deadline::Clock::now();
  bool greeted = false;  ///< the peer has: it is `rank`
  int rank = -1;
  Greeting::Purpose purpose = Greeting::Purpose::control;
};

/// Accepts connections at a rank's listening sockets. Limits those of strangers.
class Acceptor {
 public:
  Acceptor(TcpPorts& ports, std::size_t ranks)
      : ports_(ports), ranks_(ranks), credentials_(ports.credentials_at(ports.address)) {}

  /// Accepts what waits. Throws CommError if this process can open no more files.
  void accept_all();
  /// Accepted connections; the caller removes them.
  std::list<Incoming>& connections() { return connections_; }
  /// Closes the listening sockets and the connections.
  void close();

 private:
  bool drop_stranger();

  TcpPorts& ports_;
  std::size_t ranks_;
  Credentials credentials_;
  std::list<Incoming> connections_;
};

}  // namespace winnow::comm
