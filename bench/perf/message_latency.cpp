// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0

// usage: message_latency [--tcp]
//
// Half the time that a message takes from rank 0 to rank 1 and back, as osu_latency takes it: over
// threads when started alone, over MPI under mpirun, and with --tcp over the TCP transport. Other
// ranks only look on.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <vector>
#include <winnow/winnow.hpp>

#include "bench/ranks.hpp"

namespace {

using namespace winnow;
using namespace winnow::bench;

constexpr int kSettling = 1000, kTrips = 5000;

void send(Transport& transport, std::span<const std::byte> message, int peer) {
  transport.send(message, peer);
  transport.wait(transport.start({}), Deadline::never());
}

void receive(Transport& transport, std::span<std::byte> message, int peer) {
  transport.recv(message, peer, nullptr);
  transport.wait(transport.start({}), Deadline::never());
}

/// The median of the round trips in microseconds, halved.
double latency(Transport& transport, std::size_t bytes) {
  std::vector<std::byte> message(bytes);
  std::vector<double> trips;
  for (int i = 0; i < kSettling + kTrips; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    if (transport.rank() == 0) {
      send(transport, message, 1);
      receive(transport, message, 1);
    } else {
      receive(transport, message, 0);
      send(transport, message, 0);
    }
    const std::chrono::duration<double, std::micro> trip = std::chrono::steady_clock::now() - begin;
    if (i >= kSettling) trips.push_back(trip.count());
  }
  const auto median = trips.begin() + kTrips / 2;
  std::ranges::nth_element(trips, median);
  return *median / 2;
}

int run(Rank& rank, bool over_tcp) {
  const std::shared_ptr<Transport> transport =
      over_tcp ? connect_over_tcp(*rank.control) : rank.connect();
  const int number = transport->rank();
  if (transport->size() < 2) {
    std::fputs("message_latency: one rank alone sends no messages; give it two\n", stderr);
    return 2;
  }
  if (number == 0) std::printf("%10s  %12s\n", "bytes", "one way (us)");
  for (const std::size_t bytes : {8U, 512U, 4096U, 65536U}) {
    const double us = number < 2 ? latency(*transport, bytes) : 0;
    if (number == 0) std::printf("%10zu  %12.2f\n", bytes, us);
    barrier(*rank.control);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool over_tcp = argc == 2 && std::string_view(argv[1]) == "--tcp";
  if (argc > 1 && !over_tcp) {
    std::fputs("message_latency: takes --tcp or nothing\n", stderr);
    return 2;
  }
  const auto body = [&](Rank& rank) { return run(rank, over_tcp); };
  return under_mpirun() ? run_mpi(body) : run_threads(2, body);
}
