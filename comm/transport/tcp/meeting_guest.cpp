// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/tcp/meeting_guest.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>
#include <winnow/error.hpp>

#include "comm/transport/failure.hpp"
#include "comm/transport/poll.hpp"
#include "comm/transport/tcp/meeting_host.hpp"
#include "comm/transport/tcp/rank_failure.hpp"
#include "topology/words.hpp"

namespace winnow::comm {
namespace {

constexpr std::size_t kMostList = std::size_t{64} << 20;  // bytes
constexpr std::chrono::seconds kConnectPatience{5};
constexpr std::chrono::seconds kFirstPatience{2};
constexpr std::chrono::seconds kMostPatience{60};
constexpr std::chrono::milliseconds kGuestPause{2};      // between two polls
constexpr std::chrono::milliseconds kGuestStagger{250};  // from one attempt to the next
constexpr std::chrono::milliseconds kRoundPause{50};

}  // namespace

MeetingGuest::MeetingGuest(const TcpMeeting& meeting, const TcpOptions& options,
                           const std::string& line)
    : meeting_(meeting),
      credentials_(credentials_of(meeting, options)),
      ports_(ports_of(meeting, credentials_)),
      join_(std::to_string(meeting.rank) + '\n' + line + '\n'),
      patience_(kFirstPatience) {}

std::vector<std::string> MeetingGuest::collect(Deadline deadline) {
  const auto has_list = [this] {
    expect_wanted(meeting_);
    for (auto attempt = attempts_.begin(); attempt != attempts_.end();) {
      if (advance(*attempt)) {
        ++attempt;
        continue;
      }
      if (!list_.empty()) return true;
      attempt = attempts_.erase(attempt);
      next_at_ = std::ranges::min(next_at_, Deadline::after(kGuestPause), {}, &Deadline::at);
    }
    const auto is_welcome = [](const Attempt& attempt) { return attempt.is_welcome; };
    if (std::ranges::none_of(attempts_, is_welcome)) begin_attempts();
    return false;
  };
  if (!sleep_until(has_list, deadline, kGuestPause))
    fail_at_deadline("while it waited for rank 0 at " + meeting_.host + " port " +
                     std::to_string(ports_.front()) + (ports_.size() == 1 ? "" : " and the next") +
                     ": " + (sent_away_.empty() ? problem_ : sent_away_));
  std::vector<std::string> addresses;
  for (std::string_view text = list_; !text.empty();) addresses.emplace_back(cut(text, '\n'));
  return addresses;
}

// One endpoint at a time, and none at which an attempt waits for its answer. Where nobody listens a
// host says so at once, and the next is tried.
void MeetingGuest::begin_attempts() {
  while (next_at_.passed()) {
    if (round_.empty()) {
      try {
        const std::vector<Endpoint> found = resolve(meeting_.host, ports_.front());
        for (const int port : ports_)
          for (const Endpoint& endpoint : found) round_.push_back(endpoint.at_port(port));
        std::ranges::reverse(round_);
      } catch (const CommError& error) {
        problem_ = error.what();
      }
      next_at_ = Deadline::after(kRoundPause);
      return;
    }
    const Endpoint endpoint = round_.back();
    round_.pop_back();
    const auto is_tried = [&](const Attempt& attempt) { return attempt.endpoint == endpoint; };
    if (std::ranges::any_of(attempts_, is_tried)) continue;
    Socket socket = connect_to(endpoint);
    if (!socket.is_open()) {
      if (has_too_many_files(errno)) fail_for_files("connecting to " + meeting_.host, errno);
      problem_ = endpoint.text() + ": " + errno_text(errno);
      continue;
    }
    attempts_.push_back({.channel = NoteChannel(std::move(socket), NoteChannel::End::connected,
                                                credentials_, kMostList),
                         .endpoint = endpoint,
                         .patience = Deadline::after(kConnectPatience)});
    next_at_ = Deadline::after(kGuestStagger);
  }
}

// False if the attempt has ended: well if the list is here.
bool MeetingGuest::advance(Attempt& attempt) {
  if (!attempt.is_greeted) return advance_connection(attempt);
  const NoteReader::Outcome outcome = attempt.channel.read();
  if (attempt.channel.has_met() && !attempt.is_joining) {
    attempt.is_joining = true;
    if (!attempt.channel.send(NoteKind::join, join_)) return false;
  }
  if (outcome == NoteReader::Outcome::complete) return take_note(attempt);
  if (outcome == NoteReader::Outcome::ended) {
    problem_ = attempt.endpoint.text() + ": " + attempt.channel.problem();
    if (attempt.channel.is_strangers()) sent_away_ = problem_;
    return false;
  }
  if (attempt.is_welcome || !attempt.patience.passed()) return true;
  problem_ = attempt.endpoint.text() + ": what listens there does not answer";
  patience_ = std::min(2 * patience_, kMostPatience);
  return false;
}

bool MeetingGuest::advance_connection(Attempt& attempt) {
  if (is_connecting(attempt.channel.socket(), attempt.endpoint)) {
    if (!attempt.patience.passed()) return true;
    problem_ = attempt.endpoint.text() + ": its host does not answer";
    return false;
  }
  if (errno != 0) {
    problem_ = attempt.endpoint.text() + ": " + errno_text(errno);
    return false;
  }
  attempt.is_greeted = true;
  attempt.patience = Deadline::after(patience_);
  return attempt.channel.greet();
}

// False as advance().
bool MeetingGuest::take_note(Attempt& attempt) {
  switch (attempt.channel.kind()) {
    case NoteKind::welcome:
      problem_ = "it waits for other ranks";
      attempt.is_welcome = true;
      return true;
    case NoteKind::list:
      list_ = attempt.channel.text();
      return false;
    case NoteKind::failure:
      if (const auto failure = RankFailure::parse(attempt.channel.text())) failure->fail();
      return false;
    case NoteKind::refusal:
      fail_by(of_rank(0, failure_in(attempt.channel.text())));
    default:
      return false;
  }
}

}  // namespace winnow::comm
