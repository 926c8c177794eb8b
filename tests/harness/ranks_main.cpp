// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// main of the rank tests. --transport=threads (the default); =threads:sizes, whose messages keep
// NCCL's rules of sizes and order; =tcp, threads that talk over the TCP transport, or =tcp:inet,
// the same without shared memory; =simulated; under mpirun =mpi, or =mpi:BYTES, whose longer
// messages travel in pieces of BYTES; under processes.sh =tcp:processes.
// --mixed makes nodes of two ranks with their own transport.
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

#include "tests/harness/mpi_job.hpp"
#include "tests/harness/ranks_job.hpp"
#include "tests/harness/tcp_ranks.hpp"

namespace {

/// Prints only failures, on ranks that leave the rest to rank 0.
class FailurePrinter : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const char* file = result.file_name() != nullptr ? result.file_name() : "";
    std::cerr << "rank " + std::to_string(rank_) + ": " + file + ":" +
                     std::to_string(result.line_number()) + ": " + result.message() + "\n";
  }

 private:
  int rank_;
};

void leave_the_rest_to_rank_0(int rank) {
  if (rank == 0) return;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new FailurePrinter(rank));
}

using winnow::tests::MpiThreads;

int run_over_mpi(int argc, char** argv, std::size_t chunk_bytes,
                 MpiThreads threads = MpiThreads::serialized) {
  const auto job = winnow::tests::MpiJob::start(argc, argv, chunk_bytes, threads);
  winnow::tests::use_job({.ranks = job.ranks, .connect = [job] { return job.transport(); }});
  leave_the_rest_to_rank_0(job.rank);
  return job.finish(RUN_ALL_TESTS());
}

int run_over_tcp() {
  const winnow::tests::TcpJob job;
  winnow::tests::use_job({.ranks = job.ranks(), .connect = [&job] { return job.connect(); }});
  leave_the_rest_to_rank_0(job.rank());
  return RUN_ALL_TESTS();
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kFlag = "--transport=";
  std::string_view transport = "threads";
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with(kFlag)) transport = word.substr(kFlag.size());
    if (word == "--mixed") winnow::tests::use_mixed();
  }
  if (transport == "threads") return RUN_ALL_TESTS();
  if (transport == "threads:sizes") {
    winnow::tests::use_strict_threads();
    return RUN_ALL_TESTS();
  }
  using winnow::tests::TcpWay;
  for (const auto& [name, way] :
       {std::pair("tcp", TcpWay::shared), std::pair("tcp:sockets", TcpWay::sockets),
        std::pair("tcp:inet", TcpWay::inet), std::pair("tcp:tls", TcpWay::tls)}) {
    if (transport != name) continue;
    winnow::tests::use_tcp(way);
    return RUN_ALL_TESTS();
  }
  if (transport == "tcp:processes") return run_over_tcp();
  if (transport == "simulated") {
    winnow::tests::use_simulation();
    return RUN_ALL_TESTS();
  }
  if (transport == "mpi") return run_over_mpi(argc, argv, 0);
  if (transport == "mpi:threads") return run_over_mpi(argc, argv, 0, MpiThreads::multiple);
  if (transport.starts_with("mpi:")) {
    const std::string_view number = transport.substr(4);
    std::size_t bytes = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bytes);
    if (error == std::errc() && end == number.data() + number.size() && bytes > 0)
      return run_over_mpi(argc, argv, bytes);
  }
  std::cerr << "--transport=" << transport
            << ": must be threads, threads:sizes, tcp, tcp:sockets, tcp:inet, tcp:tls, "
               "tcp:processes, simulated, mpi, mpi:BYTES or mpi:threads\n";
  return 2;
}
