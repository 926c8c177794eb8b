// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <vector>
#include <winnow/transport.hpp>

#include "comm/transport/tcp/greeting.hpp"
#include "comm/transport/tcp/note_channel.hpp"

namespace winnow::comm {

/// A connection that anyone may have made to this rank.
struct AcceptedConnection {
  using Clock = Deadline::Clock;
  static constexpr std::chrono::seconds kPatience{5};  ///< with a stranger

  NoteChannel channel;
  Clock::time_point since = Clock::now();
  bool greeted = false;  ///< the peer has: it is `rank`
  int rank = -1;
  Greeting::Purpose purpose = Greeting::Purpose::control;

  bool is_late() const { return since + kPatience <= Clock::now(); }
};

/// Accepts connections. Keeps at most 256 besides those that ranks may make: it then drops the
/// stranger that has waited longest, which comes again if it is a rank.
class Acceptor {
 public:
  /// `what` begins errors. `most_of_ranks`: connections that ranks alone make at a time.
  Acceptor(const char* what, const std::vector<Socket>& listening, const Credentials& credentials,
           std::size_t most_of_ranks, std::size_t most_text)
      : what_(what),
        listening_(listening),
        credentials_(credentials),
        most_of_ranks_(most_of_ranks),
        most_text_(most_text) {}
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// Accepts what waits. Throws CommError if this process can open no more files and has no more
  /// connections than ranks may have made.
  void accept_all();
  /// Accepted connections; the caller removes them.
  std::list<AcceptedConnection>& connections() { return connections_; }

 private:
  bool drop_stranger();

  const char* what_;
  const std::vector<Socket>& listening_;
  Credentials credentials_;
  std::size_t most_of_ranks_, most_text_;
  std::list<AcceptedConnection> connections_;
};

}  // namespace winnow::comm
