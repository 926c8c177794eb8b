// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <string>
#include <vector>
#include <winnow/tcp.hpp>

#include "comm/transport/credentials.hpp"
#include "comm/transport/tcp/endpoint.hpp"
#include "comm/transport/tcp/note_channel.hpp"

namespace winnow::comm {

/// The end of a rank other than 0 of a meeting (meeting_host.hpp). It tries the ports and addresses
/// of rank 0's host, one after the other, and waits for answers of all of them at once: some may
/// drop packets, and at some another job or a stranger may listen.
class MeetingGuest {
 public:
  /// `line`: this rank's address, or why it has none (RankFailure).
  MeetingGuest(const TcpMeeting& meeting, const TcpOptions& options, const std::string& line);

  /// All ranks' addresses, by rank. Throws a rank's failure, if one has no address; CommError if
  /// rank 0 refuses, and at the deadline.
  std::vector<std::string> collect(Deadline deadline);

 private:
  struct Attempt {
    NoteChannel channel;
    Endpoint endpoint;
    Deadline patience;
    bool is_greeted = false, is_joining = false, is_welcome = false;
  };
  void begin_attempts();
  bool advance(Attempt& attempt);
  bool advance_connection(Attempt& attempt);
  bool take_note(Attempt& attempt);

  const TcpMeeting& meeting_;
  Credentials credentials_;
  std::vector<int> ports_;
  std::string join_;
  std::vector<Endpoint> round_;  // endpoints still to try before the host is looked up again
  Deadline next_at_ = Deadline::after({});
  std::list<Attempt> attempts_;
  std::chrono::seconds patience_;  // for answers: grows where hosts are slow
  std::string problem_ = "nobody listens there";
  std::string sent_away_;  // who did not take this rank for one of its job, last
  std::string list_;
};

}  // namespace winnow::comm
