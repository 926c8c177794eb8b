// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/tcp/acceptor.hpp"
#include "comm/transport/tcp/mesh.hpp"

namespace winnow::comm {

/// Notifies the other ranks why this one cannot connect with all of them: over the control
/// connection of those that have one, else over a connection for this alone. A rank also passes on
/// what it was notified of: who began may have another list and not know everyone. Then it answers
/// those that connect to it. If it can open no more files, it gives up those that it has.
class FailureNotifier {
 public:
  /// `peers` and `links`: by rank. `greeting`: this rank's, for control.
  FailureNotifier(TcpPorts& ports, const Greeting& greeting, std::span<const TcpAddress> peers,
                  std::span<TcpLink> links, Acceptor& acceptor);

  /// `note`: a note_of the failure. Returns after half a second at most.
  void send(std::string_view note);

 private:
  /// An endpoint of a peer that has no connection.
  struct Way {
    int peer;
    Endpoint endpoint;
  };
  struct Attempt {
    NoteChannel channel;
    Way way;
  };

  bool advance();
  bool answer(Incoming& incoming);
  bool refuse(Attempt& attempt);
  void begin_attempts();

  TcpPorts& ports_;
  Greeting greeting_;
  std::span<const TcpAddress> peers_;
  std::span<TcpLink> links_;
  Acceptor& acceptor_;
  std::list<Way> ways_;  // to try
  std::list<Attempt> attempts_;
  std::vector<bool> notified_;  // by rank
  std::string text_;            // of a refusal
};

}  // namespace winnow::comm
