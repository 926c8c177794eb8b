// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// What travels between nodes: MPI is made to say that ranks 2 n and 2 n + 1 share a node, and its
// sends are watched. Messages arrive whole, to another node in pieces that are short, else in one.
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

std::vector<std::size_t> longest_to;  // bytes of a send, by rank

std::vector<std::byte> message_of(int from, int to, std::size_t bytes) {
  std::vector<std::byte> message(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    message[i] = static_cast<std::byte>(7 * static_cast<std::size_t>(10 * from + to) + i + i / 251);
  }
  return message;
}

/// Whether every message of `bytes` bytes came to every rank as it was sent.
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

bool run(int rank, int size) {
  const auto transport = winnow::mpi_transport(MPI_COMM_WORLD);
  if (transport->node() != rank / 2 * 2) return false;
  for (const std::size_t bytes : kSizes) {
    longest_to.assign(static_cast<std::size_t>(size), 0);
    if (!arrives(*transport, bytes)) {
      (void)std::fprintf(stderr, "rank %d: messages of %zu bytes went wrong\n", rank, bytes);
      return false;
    }
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      const std::size_t longest = longest_to[static_cast<std::size_t>(peer)];
      const std::size_t expected = peer / 2 == rank / 2 ? bytes : std::min(bytes, kShort);
      if (longest == expected) continue;
      (void)std::fprintf(stderr, "rank %d sent rank %d %zu bytes at once, not %zu\n", rank, peer,
                         longest, expected);
      return false;
    }
  }
  return true;
}

}  // namespace

// These stand before those of MPI, which has them as PMPI_ too.
extern "C" int MPI_Comm_split_type(MPI_Comm communicator, int, int key, MPI_Info, MPI_Comm* node) {
  int rank = 0;
  PMPI_Comm_rank(communicator, &rank);
  return PMPI_Comm_split(communicator, rank / 2, key, node);
}

extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int peer, int tag,
                         MPI_Comm communicator, MPI_Request* request) {
  std::size_t& longest = longest_to[static_cast<std::size_t>(peer)];
  longest = std::max(longest, static_cast<std::size_t>(count));
  return PMPI_Isend(data, count, type, peer, tag, communicator, request);
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
