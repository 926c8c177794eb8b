// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/mpi/notices.hpp"

#include <cstdint>

#include "comm/transport/mpi/calls.hpp"

namespace winnow::comm {

namespace {
constexpr int kNoticeTag = 2;
}  // namespace

void MpiNotices::send(MPI_Comm communicator, int self, std::string_view reason,
                      FailureKind kind) noexcept {
  if (given_) return;
  given_ = true;
  text_->front() = static_cast<char>(kind);
  const std::size_t length = reason.copy(text_->data() + 1, text_->size() - 2);
  (*text_)[1 + length] = '\0';
  // Small enough to leave at once; MPI_Finalize gets what the peers cannot take.
  for (std::size_t peer = 0; peer < requests_.size(); ++peer) {
    if (static_cast<int>(peer) == self) continue;
    MPI_Request& request = requests_[peer];
    if (MPI_Isend(text_->data(), static_cast<int>(text_->size()), MPI_CHAR, static_cast<int>(peer),
                  kNoticeTag, communicator, &request) != MPI_SUCCESS)
      request = MPI_REQUEST_NULL;
  }
}

int MpiNotices::probe(MPI_Comm communicator, std::optional<Failure>& found) {
  int waiting = 0;
  MPI_Status status;
  const int code = MPI_Iprobe(MPI_ANY_SOURCE, kNoticeTag, communicator, &waiting, &status);
  if (code != MPI_SUCCESS || waiting == 0) return code;
  Text text{};
  MPI_Recv(text.data(), static_cast<int>(text.size()), MPI_CHAR, status.MPI_SOURCE, kNoticeTag,
           communicator, MPI_STATUS_IGNORE);
  text.back() = '\0';
  given_ = true;  // the aborting rank notifies the others
  found = aborted_by(status.MPI_SOURCE, text.data() + 1,
                     kind_of(static_cast<std::uint8_t>(text.front())));
  return MPI_SUCCESS;
}

bool MpiNotices::any_open() noexcept {
  bool open = false;
  for (MPI_Request& request : requests_) open |= mpi_is_open(request);
  return open;
}

void MpiNotices::let_go() noexcept {
  for (MPI_Request& request : requests_) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Request_free(&request);
    (void)text_.release();  // MPI may still read it
  }
}

}  // namespace winnow::comm
