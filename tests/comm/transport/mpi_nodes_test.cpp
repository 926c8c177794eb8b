// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// Traffic between nodes: MPI is made to report that ranks 2 n and 2 n + 1 share a node, and the
// test watches its sends. Messages arrive whole; their pieces are as long as chunk_bytes, or by
// default short to another node and single within a node.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <vector>
#include <winnow/exec.hpp>
#include <winnow/mpi.hpp>

namespace {

constexpr std::size_t kShort = std::size_t{60} << 10;
constexpr std::size_t kSizes[] = {0,          1,          kShort - 1,     kShort,
                                  kShort + 1, 2 * kShort, 20 * kShort + 7};

constexpr std::size_t kWindow = 16;  // the send of every kWindow-th full piece is synchronous

/// One rank's traffic to another.
struct Sent {
  std::size_t longest = 0;  // bytes of a send
  std::size_t sends = 0, synchronous = 0;
};
std::vector<Sent> sent_to;  // by rank

std::vector<std::byte> message_of(int from, int to, std::size_t bytes) {
  std::vector<std::byte> message(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    message[i] = static_cast<std::byte>(7 * static_cast<std::size_t>(10 * from + to) + i + i / 251);
  }
  return message;
}

/// Returns whether every message of `bytes` bytes reaches every rank intact.
bool arrives(winnow::Transport& transport, std::size_t bytes) {
  const int rank = transport.rank(), size = transport.size();
  std::vector<std::vector<std::byte>> out, in;
  std::vector<std::uint64_t> received(static_cast<std::size_t>(size));
  for (int peer = 0; peer < size; ++peer) {
    out.push_back(message_of(rank, peer, bytes));
    in.emplace_back(bytes);
    if (peer == rank) continue;
    transport.send(out.back(), peer);
    transport.recv(in.back(), peer, &received[static_cast<std::size_t>(peer)]);
  }
  winnow::Workspace workspace;
  transport.wait(transport.start({.workspace = &workspace}),
                 winnow::Deadline::after(std::chrono::seconds(60)));
  for (int peer = 0; peer < size; ++peer) {
    const auto place = static_cast<std::size_t>(peer);
    if (peer == rank) continue;
    if (received[place] != bytes || in[place] != message_of(peer, rank, bytes)) return false;
  }
  return true;
}

bool expect(int rank, int peer, const char* what, std::size_t found, std::size_t expected) {
  if (found == expected) return true;
  (void)std::fprintf(stderr, "rank %d to rank %d: %s %zu, not %zu\n", rank, peer, what, found,
                     expected);
  return false;
}

/// Checks the longest piece of each lane; `chunk_bytes` as for mpi_transport().
bool messages_are_cut(int rank, int size, std::size_t chunk_bytes) {
  const auto transport = winnow::mpi_transport(MPI_COMM_WORLD, chunk_bytes);
  if (transport->node() != rank / 2 * 2) return false;
  const auto piece_to = [&](int peer) {
    if (chunk_bytes != 0) return chunk_bytes;
    return peer / 2 == rank / 2 ? std::size_t{1} << 30 : kShort;
  };
  std::vector<std::size_t> full_pieces(static_cast<std::size_t>(size));
  for (const std::size_t bytes : kSizes) {
    sent_to.assign(static_cast<std::size_t>(size), {});
    if (!arrives(*transport, bytes)) {
      (void)std::fprintf(stderr, "rank %d: messages of %zu bytes went wrong\n", rank, bytes);
      return false;
    }
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      const auto place = static_cast<std::size_t>(peer);
      const std::size_t piece = piece_to(peer), before = full_pieces[place] / kWindow;
      full_pieces[place] += bytes / piece;
      const Sent& sent = sent_to[place];
      if (!expect(rank, peer, "longest send", sent.longest, std::min(bytes, piece)) ||
          !expect(rank, peer, "sends", sent.sends, bytes / piece + 1) ||
          !expect(rank, peer, "synchronous sends", sent.synchronous,
                  full_pieces[place] / kWindow - before)) {
        return false;
      }
    }
  }
  return true;
}

/// Pieces that MPI sends at once do not pile up at a receiver that has not asked for them.
bool the_receiver_is_waited_for(int rank, int size) {
  constexpr std::size_t kPiece = 1000;
  const auto transport = winnow::mpi_transport(MPI_COMM_WORLD, kPiece);
  const int to = (rank + 1) % size, from = (rank + size - 1) % size;
  const std::vector<std::byte> out = message_of(rank, to, 100 * kPiece);
  std::vector<std::byte> in(out.size());
  winnow::Workspace workspace;
  sent_to.assign(static_cast<std::size_t>(size), {});
  transport->send(out, to);
  (void)transport->start({.workspace = &workspace});
  const std::size_t& sent = sent_to[static_cast<std::size_t>(to)].sends;
  const auto deadline = winnow::Deadline::after(std::chrono::seconds(60));
  while (sent < 2 * kWindow - 1 && !deadline.passed()) transport->progress();
  for (int i = 0; i < 1000; ++i) transport->progress();  // nor does any more go
  const std::size_t sends = sent;
  MPI_Barrier(MPI_COMM_WORLD);
  transport->recv(in, from, nullptr);
  transport->wait(transport->start({.workspace = &workspace}),
                  winnow::Deadline::after(std::chrono::seconds(60)));
  return expect(rank, to, "sends that nobody asked for", sends, 2 * kWindow - 1) &&
         in == message_of(from, rank, in.size());
}

bool run(int rank, int size) {
  for (const std::size_t chunk_bytes : {std::size_t{0}, std::size_t{1000}, std::size_t{100000}}) {
    if (!messages_are_cut(rank, size, chunk_bytes)) return false;
  }
  return the_receiver_is_waited_for(rank, size);
}

void take_note(int peer, int count, bool synchronous) {
  Sent& sent = sent_to[static_cast<std::size_t>(peer)];
  sent.longest = std::max(sent.longest, static_cast<std::size_t>(count));
  ++sent.sends;
  sent.synchronous += synchronous ? 1 : 0;
}

}  // namespace

// These replace MPI's own functions, which also exist as PMPI_*.
extern "C" int MPI_Get_processor_name(char* name, int* length) {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  *length = std::snprintf(name, MPI_MAX_PROCESSOR_NAME, "node%d", rank / 2);
  return MPI_SUCCESS;
}

extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag,
                         MPI_Comm communicator, MPI_Request* request) {
  take_note(peer, count, false);
  return PMPI_Isend(data, count, type, peer, tag, communicator, request);
}

extern "C" int MPI_Issend(const void* data, int count, MPI_Datatype type, int peer, int tag,
                          MPI_Comm communicator, MPI_Request* request) {
  take_note(peer, count, true);
  return PMPI_Issend(data, count, type, peer, tag, communicator, request);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const bool good = run(rank, size);
  MPI_Finalize();
  return good ? 0 : 1;
}
