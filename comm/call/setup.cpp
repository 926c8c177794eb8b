// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/call/setup.hpp"

#include <algorithm>
#include <exception>
#include <span>
#include <utility>
#include <winnow/error.hpp>

#include "comm/plan/bucket.hpp"
#include "comm/plan/checked_options.hpp"
#include "comm/plan/differences.hpp"
#include "comm/plan/hash.hpp"
#include "comm/plan/probe.hpp"
#include "comm/transport/abort_on_error.hpp"
#include "comm/transport/failure.hpp"
#include "comm/transport/gather_values.hpp"
#include "comm/transport/one_of_many.hpp"
#include "topology/processors.hpp"

namespace winnow::comm {
namespace {

using compress::Header;

/// All options that must be equal on all ranks, as text.
std::string common_text(Options options) {
  options.threads = options.stats = options.debug = 0;
  options.residual_memory = ResidualMemory::device;
  return options.to_string();
}

/// A rank's node, processors and place.
struct RankInfo {
  std::int64_t node;
  std::uint64_t cores, quota;  // equal on ranks that share them
  std::int64_t place;
};

std::vector<RankInfo> exchange_rank_infos(Transport& world, Place place, const Processors& mine,
                                          Deadline deadline) {
  const RankInfo own{.node = world.node(),
                     .cores = Hash().add(mine.cores_id).value(),
                     .quota = Hash().add(mine.quota_id).value(),
                     .place = static_cast<std::int64_t>(place)};
  return gather_values(world, own, deadline);
}

Topology topology_of(std::span<const RankInfo> ranks) {
  std::vector<int> nodes;
  for (const RankInfo& rank : ranks) nodes.push_back(static_cast<int>(rank.node));
  return Topology::from_nodes(nodes);
}

int default_threads(const Processors& mine, std::span<const RankInfo> ranks, int rank) {
  const RankInfo& own = ranks[static_cast<std::size_t>(rank)];
  const auto sharing = [&](auto what) {
    return static_cast<int>(std::ranges::count(ranks, own.*what, what));
  };
  return mine.threads(sharing(&RankInfo::cores), sharing(&RankInfo::quota));
}

}  // namespace

Setup::Setup(std::shared_ptr<Transport> transport, const Exec& where)
    : context(std::move(transport), where), topology(Topology::uniform(1, 1)) {}

std::string Setup::agree(Header mine, OwnWords words) const {
  mine.digest = digest;
  words.options = common_options;
  return comm::agree(context.control(), context.host(), mine, words, deadline());
}

void Setup::check(const Options& given, const std::string& refusal) {
  for (const std::string& why : {refusal, context.refusal()}) WINNOW_EXPECTS(why.empty(), why);
  options = checked(given);
  preconditioner = compress::Preconditioner(options.precondition);
  compressor = compress::make_compressor(options.compressor, options.seed);
  for (unsigned stage = 0; stage <= compressor->stages(); ++stage) {
    stages.push_back(compressor->at_stage(stage));
  }
  WINNOW_EXPECTS(options.checksum != Checksum::all || context.transport()->takes(Place::host),
                 "checksum=all needs a transport that takes host memory: NCCL's does not");
  const std::string common = common_text(options);
  digest = Hash().add(common).value();
  common_options = abridged_options(common);
}

void Setup::meet(const Options& given, std::string refusal, const std::function<void()>& make) {
  options = given;
  // A rank with wrong options still meets the others, so that all of them learn of it.
  Header mine;
  try {
    check(given, refusal);
    make();
  } catch (const std::exception& error) {
    refusal = text_of(error);
    mine.flags = Header::kRefused;
    options = {};
  }
  try {
    const std::string refused = agree(mine, {.refusal = refusal});
    if (!refused.empty()) fail_usage(refused);
    if (options.checksum == Checksum::all) context.check_all();
    const Processors processors = Processors::of_this_process();
    const auto ranks = exchange_rank_infos(context.control(), exec().place, processors, deadline());
    topology = topology_of(ranks);
    // Ranks on a device cannot overlap all that ranks on hosts can, and messages must match.
    const auto elsewhere = [&](const RankInfo& rank) { return rank.place != ranks.front().place; };
    places_differ = std::ranges::any_of(ranks, elsewhere);
    // Messages of hosts are staged in memory that is not registered.
    if (!places_differ) context.register_scratch();
    rails = std::make_unique<Rails>(transport(), topology);
    context.set_threads(options.threads > 0
                            ? options.threads
                            : default_threads(processors, ranks, transport().rank()));
    world = {.ranks = transport().size(),
             .rank = transport().rank(),
             .topology = &topology,
             .links = find_links(),
             .trials = options.trial_calls > 0,
             .place = exec().place,
             .one_of_many = dynamic_cast<const OneOfMany*>(context.transport().get()) != nullptr};
    // A native collective ignores deadlines, so the ring serves if a deadline is set.
    if (options.deadline > 0) world.links.ring = 0;
  } catch (const UsageError&) {  // on every rank
    throw;
  } catch (const std::exception& error) {
    abort_by(transport(), error);
    if (kind_of(error) == FailureKind::usage) fail_usage(error.what());
    throw;
  }
}

/// Measures links only if a choice depends on them, or if the options ask for it. The options then
/// hold the result, so that a run's predictions can be repeated.
LinkModel Setup::find_links() {
  const bool asked = options.links == Options::kMeasured;
  if (asked) options.links.clear();
  links_given = !options.links.empty();
  if (links_given) return LinkModel::parse(options.links);
  const bool by_time = options.schedule == "auto" || options.schedule == "two_level" || asked;
  if (!by_time || compressor->lossless() || !options.enable || transport().size() == 1) return {};
  const LinkModel measured =
      probe_links({transport(), exec(), residual_memory(options, exec().place)},
                  {context.control(), context.host()}, topology, deadline());
  options.links = measured.to_string('+');
  return measured;
}

}  // namespace winnow::comm
