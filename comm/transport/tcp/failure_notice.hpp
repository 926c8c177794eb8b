// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "comm/transport/tcp/acceptor.hpp"
#include "comm/transport/tcp/mesh.hpp"

namespace winnow::comm {

/// Notifies the other ranks why this one cannot connect with all of them: over the control
/// connection of those that have one, else over a connection for this alone. A rank also passes on
/// what it was notified of: who began may have another list and not know everyone. Then it answers
/// those that connect to it. If it can open no more files, it gives up those that it has.
struct FailureNotice {
  TcpPorts& ports;
  Greeting greeting;                  ///< this rank's, for control
  std::span<const TcpAddress> peers;  ///< by rank
  std::span<TcpLink> links;           ///< by rank
  Acceptor& acceptor;

  /// `note`: a note_of the failure. Returns after half a second at most.
  void send(std::string_view note) const;
};

}  // namespace winnow::comm
