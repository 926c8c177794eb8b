// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include <winnow/tcp.hpp>

#include "comm/transport/credentials.hpp"
#include "comm/transport/tcp/acceptor.hpp"
#include "comm/transport/tcp/endpoint.hpp"
#include "comm/transport/tcp/note_channel.hpp"
#include "comm/transport/tcp/rank_failure.hpp"

namespace winnow::comm {

// How ranks meet without a store. Rank 0 listens at one of the meeting's ports. Another rank
// connects to it, and when both ends know each other's random number (NoteChannel), it sends a
// `join` with its rank and its address, a line each. Rank 0 answers at once with a `welcome`, and
// when all have come with the `list` of addresses, a line each; or with a `refusal`. A rank that
// cannot listen for others joins with its failure in the place of the address, or hosts the meeting
// all the same if it is rank 0; rank 0 then answers each join with a `failure`, until all ranks
// have one or its deadline passes. All of these are proved by the credentials of the meeting, which
// the secret, the job and the size make: a visitor of another job or size cannot prove its join,
// and is dismissed.

/// The credentials of a meeting.
Credentials credentials_of(const TcpMeeting& meeting, const TcpOptions& options);
/// The ports at which rank 0 may listen, in the order in which all ranks try them; those at which
/// others may look for it, if this rank has a problem.
std::vector<int> ports_of(const TcpMeeting& meeting, const Credentials& credentials);

/// Whether another thread has stopped the meeting.
bool is_stopped(const TcpMeeting& meeting);
/// Throws CommError if it has.
void expect_wanted(const TcpMeeting& meeting);

/// Rank 0's end.
class MeetingHost {
 public:
  /// `line`: rank 0's address, or why it has none (RankFailure). Throws UsageError if there is no
  /// such interface; with a failure it listens at all of them instead.
  MeetingHost(const TcpMeeting& meeting, const TcpOptions& options, const std::string& line);

  /// All ranks' addresses, by rank, which the others then know, too. Throws a rank's failure, if
  /// one has no address; CommError at the deadline, naming the ranks that did not come. The others
  /// learn of both.
  std::vector<std::string> collect(Deadline deadline);

 private:
  struct Guest {
    NoteChannel channel;
    std::string line;  // its address or failure; empty: has not come
  };
  void listen(Deadline deadline);
  bool try_to_listen();
  bool try_to_listen_at(int port);  // besides where it listens already
  void admit_all();
  NoteReader::Outcome read(AcceptedConnection& visitor);
  bool admit(AcceptedConnection& visitor);
  int rank_of(std::string_view word) const;
  std::string refusal_of(std::string_view join, int& rank, std::string& line);
  bool all_here();
  std::string missing() const;
  std::string strangers() const;
  void end(NoteKind kind, std::string_view text, Deadline patience) noexcept;

  const TcpMeeting& meeting_;
  Credentials credentials_;
  std::optional<RankFailure> failure_;  // the first that is known
  std::vector<int> ports_;
  std::vector<Endpoint> endpoints_;  // at which it listens, but for the port
  std::vector<Socket> listening_;
  int port_ = 0;               // at which it listens
  int error_ = 0;              // why it does not
  std::vector<Guest> guests_;  // by rank
  Acceptor visitors_;
  int sent_away_ = 0;  // visitors without a good proof
};

}  // namespace winnow::comm
