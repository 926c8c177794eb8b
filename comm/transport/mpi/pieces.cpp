// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/transport/mpi/pieces.hpp"

#include <algorithm>

#include "comm/transport/mpi/calls.hpp"

namespace winnow::comm {

namespace {
constexpr int kDataTag = 1;
}  // namespace

int MpiPieces::probe(MPI_Comm communicator, int peer, int& bytes) {
  int waiting = 0;
  MPI_Status status;
  bytes = -1;
  const int code = MPI_Iprobe(peer, kDataTag, communicator, &waiting, &status);
  if (code != MPI_SUCCESS || waiting == 0) return code;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  return MPI_SUCCESS;
}

void MpiPieces::reserve(std::size_t pieces) {
  if (pieces <= requests_.size()) return;
  const std::size_t room = std::max(pieces, 2 * requests_.size());
  requests_.resize(room, MPI_REQUEST_NULL);
  pieces_.resize(room);
  done_.resize(room);
  statuses_.resize(room);
  finished_.reserve(room);
}

int MpiPieces::post(MPI_Comm communicator, const Piece& piece) {
  MPI_Request& request = requests_[active_];
  int code = MPI_SUCCESS;
  if (piece.is_send) {
    const auto send = piece.synchronous ? &MPI_Issend : &MPI_Isend;
    code = send(piece.data, piece.bytes, MPI_BYTE, piece.peer, kDataTag, communicator, &request);
  } else {
    code =
        MPI_Irecv(piece.data, piece.bytes, MPI_BYTE, piece.peer, kDataTag, communicator, &request);
  }
  if (code != MPI_SUCCESS) {
    request = MPI_REQUEST_NULL;
    return code;
  }
  pieces_[active_++] = piece;
  return MPI_SUCCESS;
}

int MpiPieces::test(std::span<const Finished>& finished) {
  finished = {};
  if (active_ == 0) return MPI_SUCCESS;
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(active_), requests_.data(), &count, done_.data(),
                                statuses_.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return code;
  if (count == MPI_UNDEFINED || count == 0) return MPI_SUCCESS;

  finished_.clear();
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const auto place = static_cast<std::size_t>(done_[i]);
    const int error = code == MPI_ERR_IN_STATUS ? statuses_[i].MPI_ERROR : MPI_SUCCESS;
    if (error != MPI_SUCCESS && requests_[place] != MPI_REQUEST_NULL)
      MPI_Request_free(&requests_[place]);
    finished_.push_back({.message = pieces_[place].message,
                         .synchronous = pieces_[place].synchronous,
                         .error = error});
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < active_; ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    pieces_[kept++] = pieces_[i];
  }
  std::fill(requests_.begin() + static_cast<std::ptrdiff_t>(kept),
            requests_.begin() + static_cast<std::ptrdiff_t>(active_), MPI_REQUEST_NULL);
  active_ = kept;
  finished = finished_;
  return MPI_SUCCESS;
}

std::uint64_t MpiPieces::first_open(std::uint64_t message, std::uint64_t none) const {
  for (std::size_t i = 0; i < active_; ++i) {
    if (pieces_[i].message == message) none = std::min(none, pieces_[i].offset);
  }
  return none;
}

bool MpiPieces::any_open(bool sends_too) noexcept {
  bool open = false;
  for (std::size_t i = 0; i < active_; ++i)
    if (sends_too || !pieces_[i].is_send) open |= mpi_is_open(requests_[i]);
  return open;
}

void MpiPieces::let_go() noexcept {
  for (std::size_t i = 0; i < active_; ++i)
    if (requests_[i] != MPI_REQUEST_NULL) MPI_Request_free(&requests_[i]);
}

}  // namespace winnow::comm
