// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/harness/ranks.hpp"

#include <array>
#include <barrier>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>
#include <winnow/mixed.hpp>

#include "comm/transport/local/local.hpp"
#include "comm/transport/one_of_many.hpp"
#include "lab/simulated/simulated.hpp"
#include "tests/harness/forwarding_transport.hpp"
#include "tests/harness/ranks_job.hpp"
#include "tests/harness/sanitized.hpp"
#include "tests/harness/tcp_ranks.hpp"

namespace winnow::tests {

namespace {

/// Claims that a rank is on another node.
class NodeTransport final : public ForwardingTransport {
 public:
  NodeTransport(std::shared_ptr<Transport> inner, int node)
      : ForwardingTransport(std::move(inner)), node_(node) {}
  int node() const override { return node_; }
  std::unique_ptr<Transport> duplicate(Deadline deadline) override {
    return std::make_unique<NodeTransport>(inner()->duplicate(deadline), node_);
  }

 private:
  int node_;
};

/// The transport of one rank that is to do what each of many does.
class MarkedTransport final : public ForwardingTransport, public comm::OneOfMany {
 public:
  using ForwardingTransport::ForwardingTransport;
  bool captures() const override { return inner()->captures(); }
  std::unique_ptr<Transport> duplicate(Deadline deadline) override {
    return std::make_unique<MarkedTransport>(inner()->duplicate(deadline));
  }
};

std::optional<Job> the_job;
bool simulated = false;
bool mixed = false;
std::optional<TcpWay> tcp;
comm::LocalRules rules = comm::LocalRules::loose;

using Transports = std::vector<std::shared_ptr<Transport>>;

/// A subset together with its parent.
class OwningSubset final : public ForwardingTransport {
 public:
  OwningSubset(std::shared_ptr<Transport> parent, std::span<const int> ranks)
      : ForwardingTransport(parent->subset(ranks)),
        parent_(std::move(parent)),
        ranks_(ranks.begin(), ranks.end()) {}
  std::unique_ptr<Transport> duplicate(Deadline deadline) override {
    return std::make_unique<OwningSubset>(parent_->duplicate(deadline), ranks_);
  }

 private:
  std::shared_ptr<Transport> parent_;
  std::vector<int> ranks_;
};

/// Nodes of up to two ranks: `world` between nodes, `other` (over the same ranks) within.
std::shared_ptr<Transport> mix(const std::shared_ptr<Transport>& world,
                               const std::shared_ptr<Transport>& other) {
  const int node = world->rank() / 2;
  std::vector<int> members{2 * node};
  if (2 * node + 1 < world->size()) members.push_back(2 * node + 1);
  return mixed_transport(std::make_shared<NodeTransport>(world, node),
                         std::make_shared<OwningSubset>(other, members),
                         Deadline::after(std::chrono::seconds(60)));
}

Transports mix_all(const Transports& transports) {
  Transports all;
  for (std::size_t i = 0; i < transports.size(); i += 2) {
    all.push_back(mix(transports[i], transports[i + 1]));
  }
  return all;
}

// Runs one rank's body; one that throws must not leave the others waiting.
std::exception_ptr run_body(const RankBodyOfMany& body, Transports& transports) {
  const Transports all = transports;
  const auto abort_all = [&](const char* why) {
    for (const auto& transport : all) transport->abort(why);
    return std::current_exception();
  };
  try {
    body(transports);
  } catch (const std::exception& error) {
    return abort_all(error.what());
  } catch (...) {
    return abort_all("an exception of unknown type");
  }
  return nullptr;
}

void run_simulated(int ranks, std::size_t count, const RankBodyOfMany& body) {
  if (count != 1) throw std::runtime_error("simulated ranks have one transport each");
  const comm::SimulatedWorld world{.topology = Topology::uniform(1, ranks)};
  (void)world.run([&](const std::shared_ptr<Transport>& transport) {
    Transports transports{transport};
    if (const std::exception_ptr error = run_body(body, transports)) std::rethrow_exception(error);
  });
}

}  // namespace

void use_job(const Job& job) {
  the_job = job;
}

void use_tcp(TcpWay way) {
  tcp = way;
}

void use_simulation() {
  simulated = true;
}

void use_strict_threads() {
  rules = comm::LocalRules::strict;
}

void use_mixed() {
  mixed = true;
}

namespace {

RankBodyOfMany of_one(const RankBody& body) {
  return [&body](std::span<std::shared_ptr<Transport>> transports) {
    const std::shared_ptr<Transport> transport = std::move(transports[0]);
    body(transport);
  };
}

void run_bare(int ranks, std::size_t count, const RankBodyOfMany& body) {
  const std::size_t made = mixed ? 2 * count : count;
  if (the_job.has_value()) {
    Transports transports;
    for (std::size_t i = 0; i < made; ++i) transports.push_back(the_job->connect());
    if (mixed) {
      transports = mix_all(transports);
      (void)the_job->connect();  // made once all have mixed theirs: a body may abort at once
    }
    if (const std::exception_ptr error = run_body(body, transports)) std::rethrow_exception(error);
    return;
  }
  if (simulated) {
    run_simulated(ranks, count, body);
    return;
  }
  std::vector<Transports> of_rank(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < made; ++i) {
    auto transports = tcp ? tcp_transports(ranks, *tcp) : comm::local_transports(ranks, rules);
    for (std::size_t rank = 0; rank < of_rank.size(); ++rank)
      of_rank[rank].push_back(std::move(transports[rank]));
  }
  std::vector<std::exception_ptr> errors(of_rank.size());
  std::barrier all_mixed(ranks);  // a body may abort at once
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank) {
    threads.emplace_back([&, rank] {
      if (mixed) of_rank[rank] = mix_all(of_rank[rank]);
      all_mixed.arrive_and_wait();
      errors[rank] = run_body(body, of_rank[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace

void run_bare_ranks(int ranks, const RankBody& body) {
  run_bare(ranks, 1, of_one(body));
}

void run_ranks(int ranks, const RankBody& body) {
  run_ranks(ranks, 1, of_one(body));
}

void run_ranks(int ranks, std::size_t count, const RankBodyOfMany& body) {
  run_bare(ranks, count, [&](std::span<std::shared_ptr<Transport>> transports) {
    for (std::shared_ptr<Transport>& transport : transports) {
      if (transport->size() == 1) transport = std::make_shared<MarkedTransport>(transport);
    }
    body(transports);
  });
}

void run_worlds(std::string_view schedule, const RankBody& body) {
  for (const int ranks : rank_counts()) run_ranks(ranks, body);
  if (!schedule.starts_with("two_level")) return;
  static constexpr std::array kShapes{"2,1", "2x2", "3,1,2", "2x1", "3,1", "1x4", "3,1,3", "4x2"};
  for (const char* text : std::span(kShapes).first(kSanitized ? 3 : kShapes.size())) {
    const Topology topology = Topology::parse(text);
    if (the_job.has_value() && the_job->ranks != topology.ranks()) continue;
    run_ranks(topology.ranks(), [&](const std::shared_ptr<Transport>& transport) {
      const std::shared_ptr<Transport> on_node =
          std::make_shared<NodeTransport>(transport, topology.node_of(transport->rank()));
      body(on_node);
    });
  }
}

std::span<const int> rank_counts() {
  static constexpr std::array kRanks{1, 2, 3, 4, 7};
  static constexpr std::array kFew{1, 3, 4};
  if (the_job.has_value()) return {&the_job->ranks, 1};
  if (kThreadSanitized) return std::span(kFew).last(1);
  return kSanitized ? std::span<const int>(kFew) : kRanks;
}

}  // namespace winnow::tests
