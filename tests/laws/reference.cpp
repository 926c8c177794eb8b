// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/laws/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

#include "lab/reference/place.hpp"

namespace winnow::tests {

namespace {

/// Random numbers of mean 0 and deviation 1, bell-shaped within 3.5 of it: sums of four uniform
/// ones. Half of a law test's time went into std::normal_distribution.
class Bell {
 public:
  explicit Bell(std::uint64_t seed) : state_(seed) {}

  /// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
  std::uint64_t word() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
  }

  float next() {
    constexpr double kRoot3 = 1.7320508075688772;
    std::uint64_t sum = 0;
    for (int pair = 0; pair < 2; ++pair) {
      const std::uint64_t two = word();
      sum += (two >> 32) + (two & 0xffffffff);
    }
    return static_cast<float>((static_cast<double>(sum) * 0x1p-32 - 2) * kRoot3);
  }

 private:
  std::uint64_t state_;
};

}  // namespace

std::vector<float> make_gradient(Kind kind, std::uint64_t count, int rank, int step,
                                 std::uint64_t id) {
  std::uint64_t seed = count;
  for (const std::uint64_t part :
       {static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(step), id}) {
    seed = Bell(seed ^ part).word();
  }
  Bell bell(seed);
  std::vector<float> gradient(count);
  for (float& g : gradient) {
    switch (kind) {
      case Kind::normal:
        g = bell.next();
        break;
      case Kind::heavy_tailed: {
        const float tail = bell.next();
        g = std::exp(3 * bell.next()) * (tail < 0 ? -1.0F : 1.0F);
        break;
      }
      case Kind::all_equal:
        g = 0.75F;
        break;
      case Kind::all_zero:
        g = 0;
        break;
      case Kind::mostly_zero:
        g = bell.word() % 200 == 0 ? bell.next() : 0.0F;
        break;
      case Kind::denormal:
        g = bell.next() * 1e-39F;
        break;
    }
  }
  return gradient;
}

/// Stands for positions between parameters.
constexpr std::size_t kGap = ~std::size_t{0};

Reference::Reference(int ranks, std::vector<Parameter> parameters, const Recipe& recipe)
    : ranks_(ranks), parameters_(std::move(parameters)), recipe_(recipe) {
  residuals_.resize(static_cast<std::size_t>(ranks));
  for (auto& rank : residuals_) {
    for (const Parameter& parameter : parameters_) rank.emplace_back(parameter.count, 0.0F);
  }
  if (recipe_.two_level) rails_ = make_rails(*recipe_.two_level);
}

std::uint64_t Reference::kept(double density, std::uint64_t count) {
  if (count == 0) return 0;
  const double exact = std::ceil(density * static_cast<double>(count) - 1e-9);
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(exact));
}

/// Positions of the parameters' first elements: multiples of 64.
std::vector<std::uint64_t> Reference::bases() const {
  std::vector<std::uint64_t> bases;
  std::uint64_t end = 0;
  for (const Parameter& parameter : parameters_) {
    bases.push_back((end + 63) / 64 * 64);
    if (parameter.count > 0) end = bases.back() + parameter.count;
  }
  bases.push_back(end);
  return bases;
}

/// The kept entries of one parameter, in order: those with the largest |value|, ties to the first,
/// or those above the threshold. If values are to have one sign, it is + in the first call, then -,
/// and so on; the first entries of the other sign stand in for those that lack.
std::vector<Reference::Entry> Reference::largest(const std::vector<Entry>& competing,
                                                 double density) const {
  std::vector<Entry> chosen;
  if (recipe_.threshold) {
    std::ranges::copy_if(competing, std::back_inserter(chosen), [&](const Entry& entry) {
      return std::fabs(entry.value) > *recipe_.threshold;
    });
    return chosen;
  }
  const float sign = calls_ % 2 == 0 ? 1.0F : -1.0F;
  const auto size_of = [&](float value) {
    return recipe_.value.coding->one_sign && sign * value < 0 ? -1 : std::fabs(value);
  };
  std::vector<std::size_t> order(competing.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const std::size_t k = kept(density, competing.size());
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(),
                   [&](std::size_t a, std::size_t b) {
                     const float of_a = size_of(competing[a].value);
                     const float of_b = size_of(competing[b].value);
                     return of_a != of_b ? of_a > of_b : a < b;
                   });
  order.resize(k);
  std::sort(order.begin(), order.end());
  for (const std::size_t i : order) {
    Entry& entry = chosen.emplace_back(competing[i]);
    entry.stays = size_of(entry.value) < 0;
    if (entry.stays) entry.value = 0;
  }
  return chosen;
}

/// The places of a message of `count` positions, of which number i lies at position(i), that all
/// ranks draw.
std::vector<Reference::Entry> Reference::drawn(
    std::uint64_t count, const std::function<std::uint64_t(std::uint64_t)>& position) const {
  const std::uint64_t k = kept(recipe_.density, count);
  const auto base = bases();
  std::vector<Entry> entries;
  for (std::uint64_t i = 0; i < k; ++i) {
    std::uint64_t number = i;
    if (k < count) {
      const std::uint64_t begin = i * count / k, size = (i + 1) * count / k - begin;
      const std::uint64_t random = kernels::random_word(
          {.seed = 0x6b6d6f646e6172 + recipe_.seed, .call = calls_, .stage = recipe_.part}, i);
      number = begin + (random * size >> 32);
    }
    const std::uint64_t at = position(number);
    Entry& entry = entries.emplace_back(Entry{kGap, 0, 0});
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      if (at >= base[p] && at < base[p] + parameters_[p].count) entry = {p, at - base[p], 0};
    }
  }
  return entries;
}

/// Codes the entries of one message: returns what arrives, and leaves what the coding misses.
std::vector<Reference::Entry> Reference::code(std::vector<Entry>& entries, std::uint64_t rank,
                                              std::uint64_t stage) {
  Workspace workspace;
  const Exec exec{.place = lab::kReference, .workspace = &workspace};
  std::vector<float> values;
  for (const Entry& entry : entries) values.push_back(entry.value);
  std::vector<std::uint64_t> words(kernels::value_bytes(recipe_.value, values.size()) / 8);
  const auto coded = std::as_writable_bytes(std::span(words));
  kernels::quantize(
      exec, recipe_.value,
      {.seed = recipe_.seed,
       .call = calls_,
       .rank = recipe_.numbers.empty() ? static_cast<std::uint32_t>(rank)
                                       : static_cast<std::uint32_t>(recipe_.numbers[rank]),
       .stage = static_cast<std::uint32_t>(recipe_.stage + stage)},
      values, coded);
  std::vector<Entry> arrives = entries;
  for (std::size_t i = 0; i < entries.size(); ++i) entries[i].value = values[i];
  kernels::dequantize(exec, recipe_.value, values.size(), coded, 0, values);
  for (std::size_t i = 0; i < arrives.size(); ++i) arrives[i].value = values[i];
  return arrives;
}

std::vector<std::vector<float>> Reference::step(
    const std::vector<std::vector<std::vector<float>>>& gradients) {
  if (recipe_.two_level) return step_in_two_levels(*recipe_.two_level, gradients);
  for (std::size_t rank = 0; rank < residuals_.size(); ++rank) {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      for (std::size_t i = 0; i < parameters_[p].count; ++i) {
        const float carried = recipe_.decay * residuals_[rank][p][i];
        residuals_[rank][p][i] = gradients[rank][p][i] + carried;
      }
    }
  }
  auto sums = recipe_.shared || (recipe_.balanced && recipe_.randomk) ? share()
              : recipe_.balanced                                      ? balance()
                                                                      : gather();
  ++calls_;
  if (recipe_.op == ReduceOp::average) {
    for (auto& sum : sums) {
      for (float& value : sum) value *= 1.0F / static_cast<float>(ranks_);
    }
  }
  return sums;
}

std::vector<std::vector<float>> Reference::zeros() const {
  std::vector<std::vector<float>> zeros;
  for (const Parameter& parameter : parameters_) zeros.emplace_back(parameter.count, 0.0F);
  return zeros;
}

using Sums = std::vector<std::vector<float>>;

void add_to(Sums& sums, const Sums& terms) {
  for (std::size_t p = 0; p < sums.size(); ++p)
    for (std::size_t i = 0; i < sums[p].size(); ++i) sums[p][i] += terms[p][i];
}

/// The tree of doubling: adds neighbours, from the first rank on, until a power of two is left;
/// then neighbours of these, and so on.
Sums add_in_pairs(std::vector<Sums> terms) {
  std::size_t power = 1;
  while (2 * power <= terms.size()) power *= 2;
  for (std::size_t pairs = terms.size() - power; !terms.empty();) {
    std::vector<Sums> next;
    for (std::size_t at = 0; at < terms.size(); ++at) {
      next.push_back(terms[at]);
      if (pairs == 0) continue;
      add_to(next.back(), terms[++at]);
      --pairs;
    }
    if (next.size() == 1) return next.front();
    terms = std::move(next);
    pairs = terms.size() / 2;
  }
  return {};
}

std::vector<std::vector<float>> Reference::gather() {
  std::vector<Sums> terms;
  const auto base = bases();
  for (std::size_t rank = 0; rank < residuals_.size(); ++rank) {
    std::vector<Entry> message;
    std::uint64_t position = 0;
    if (recipe_.randomk) {
      message = drawn(base.back(), std::identity());
      for (Entry& entry : message) {
        if (entry.parameter != kGap) entry.value = residuals_[rank][entry.parameter][entry.element];
      }
    }
    for (std::size_t p = 0; p < parameters_.size() && !recipe_.randomk; ++p) {
      std::vector<Entry> all;
      for (std::size_t i = 0; i < parameters_[p].count; ++i) {
        all.push_back({p, i, residuals_[rank][p][i]});
      }
      if (all.empty()) continue;
      for (; recipe_.density == 1 && position < base[p]; ++position)
        message.push_back({kGap, 0, 0});
      position = base[p] + all.size();
      for (const Entry& entry : largest(all, recipe_.density)) message.push_back(entry);
    }
    Sums& term = terms.emplace_back(zeros());
    for (const Entry& entry : code(message, rank, 0)) {
      if (entry.parameter != kGap) term[entry.parameter][entry.element] += entry.value;
    }
    for (const Entry& entry : message) {
      if (entry.parameter == kGap) continue;
      float& residual = residuals_[rank][entry.parameter][entry.element];
      residual = entry.stays ? residual + entry.value : entry.value;
    }
  }
  if (recipe_.doubling) return add_in_pairs(std::move(terms));
  Sums sums = zeros();
  for (const Sums& term : terms) add_to(sums, term);
  return sums;
}

std::vector<std::vector<float>> Reference::balance() {
  const auto ranks = static_cast<std::uint32_t>(ranks_);
  const auto base = bases();
  const kernels::Partition partition(ranks, base.back());
  const auto owner_of = [&](std::size_t p, std::size_t i) {
    return partition.owner_of_unit((base[p] + i) / 64);
  };
  // Round 1: what[sender][owner] arrives at the owner; the owner's own entry is acc.
  std::vector<std::vector<std::vector<Entry>>> what(ranks, std::vector<std::vector<Entry>>(ranks));
  const auto add_gaps = [&](std::vector<Entry>& message, std::uint32_t owner, std::uint64_t until) {
    while (recipe_.density == 1 && message.size() < until) message.push_back({kGap, owner, 0});
  };
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      std::vector<Entry> foreign;
      for (std::size_t i = 0; i < parameters_[p].count; ++i) {
        const Entry entry{p, i, residuals_[rank][p][i]};
        if (owner_of(p, i) == rank) {
          what[rank][rank].push_back(entry);
        } else {
          foreign.push_back(entry);
        }
      }
      for (const Entry& entry : largest(foreign, recipe_.density)) {
        const std::uint32_t owner = owner_of(p, entry.element);
        add_gaps(what[rank][owner], owner, partition.local(base[p] + entry.element));
        what[rank][owner].push_back(entry);
      }
    }
    for (std::uint32_t owner = 0; owner < ranks; ++owner) {
      if (owner == rank) continue;
      std::vector<Entry>& message = what[rank][owner];
      add_gaps(message, owner, partition.local_count(owner));
      const std::vector<Entry> arrives = code(message, rank, owner);
      for (const Entry& entry : message) {
        if (entry.parameter != kGap) residuals_[rank][entry.parameter][entry.element] = entry.value;
      }
      message = arrives;
    }
  }

  // Round 2: owners add in rank order, keep their share of each parameter, and send it.
  std::vector<std::vector<float>> results, sums;
  for (const Parameter& parameter : parameters_) {
    results.emplace_back(parameter.count, 0.0F);
    sums.emplace_back(parameter.count, 0.0F);
  }
  for (std::uint32_t owner = 0; owner < ranks; ++owner) {
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      for (const Entry& entry : what[rank][owner]) {
        if (entry.parameter != kGap) sums[entry.parameter][entry.element] += entry.value;
      }
    }
    // If no other rank sent anything, the sum is acc itself, even if -0.
    for (const Entry& entry : what[owner][owner]) {
      float& sum = sums[entry.parameter][entry.element];
      if (sum == 0 && entry.value == 0 && recipe_.density < 1) sum = entry.value;
    }
    std::vector<Entry> message;
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
      std::vector<Entry> mine;
      for (std::size_t i = 0; i < parameters_[p].count; ++i) {
        if (owner_of(p, i) == owner) mine.push_back({p, i, sums[p][i]});
      }
      for (const Entry& entry : largest(mine, recipe_.sums > 0 ? recipe_.sums : recipe_.density)) {
        add_gaps(message, owner, partition.local(base[p] + entry.element));
        message.push_back(entry);
      }
      for (const Entry& entry : mine) residuals_[owner][p][entry.element] = entry.value;
    }
    add_gaps(message, owner, partition.local_count(owner));
    for (const Entry& entry : code(message, owner, ranks)) {
      if (entry.parameter != kGap) results[entry.parameter][entry.element] = entry.value;
    }
    for (const Entry& entry : message) {
      if (entry.parameter != kGap) residuals_[owner][entry.parameter][entry.element] = entry.value;
    }
  }
  return results;
}

/// In step t rank (o + t) mod P chooses the support at owner o's positions, and sums there. Where
/// all draw it, balanced is the same with the owner instead.
std::vector<std::vector<float>> Reference::share() {
  const auto ranks = static_cast<std::uint32_t>(ranks_);
  const auto base = bases();
  const kernels::Partition partition(ranks, base.back());
  std::vector<std::vector<float>> results;
  for (const Parameter& parameter : parameters_) results.emplace_back(parameter.count, 0.0F);
  const auto leave = [&](std::uint32_t rank, const std::vector<Entry>& entries) {
    for (const Entry& entry : entries) {
      if (entry.parameter != kGap) residuals_[rank][entry.parameter][entry.element] = entry.value;
    }
  };
  for (std::uint32_t owner = 0; owner < ranks; ++owner) {
    const auto chooser =
        recipe_.shared ? static_cast<std::uint32_t>((owner + calls_) % ranks) : owner;
    std::vector<Entry> sums;
    const auto add_gaps = [&](std::uint64_t until) {
      while (recipe_.density == 1 && sums.size() < until) sums.push_back({kGap, 0, 0});
    };
    if (recipe_.randomk) {
      sums = drawn(partition.local_count(owner), [&](std::uint64_t local) {
        return partition.unit_of(owner, local / 64) * 64 + local % 64;
      });
    }
    for (std::size_t p = 0; p < parameters_.size() && !recipe_.randomk; ++p) {
      std::vector<Entry> mine;
      for (std::size_t i = 0; i < parameters_[p].count; ++i) {
        if (partition.owner_of_unit((base[p] + i) / 64) == owner) {
          mine.push_back({p, i, residuals_[chooser][p][i]});
        }
      }
      for (const Entry& entry : largest(mine, recipe_.density)) {
        add_gaps(partition.local(base[p] + entry.element));
        sums.push_back({p, entry.element, 0});
      }
    }
    if (!recipe_.randomk) add_gaps(partition.local_count(owner));
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      std::vector<Entry> values = sums;
      for (Entry& entry : values) {
        entry.value =
            entry.parameter == kGap ? 0 : residuals_[rank][entry.parameter][entry.element];
      }
      std::vector<Entry> arrives = values;
      if (rank != chooser) {
        arrives = code(values, rank, owner);
        leave(rank, values);
      }
      for (std::size_t i = 0; i < sums.size(); ++i) {
        if (sums[i].parameter != kGap) sums[i].value += arrives[i].value;
      }
    }
    for (const Entry& entry : code(sums, chooser, ranks)) {
      if (entry.parameter != kGap) results[entry.parameter][entry.element] = entry.value;
    }
    leave(chooser, sums);
  }
  return results;
}

/// Equal ranges of the elements of all parameters, concatenated.
std::vector<Reference::Rail> Reference::make_rails(const Topology& topology) const {
  std::uint64_t count = 0;
  for (const Parameter& parameter : parameters_) count += parameter.count;
  std::vector<Rail> rails;
  for (int r = 0; r < topology.rails(); ++r) {
    Rail& rail = rails.emplace_back();
    rail.servers = topology.rail(r);
    const Chunk range = ring_chunk(count, r, topology.rails());
    std::vector<Parameter> stretches;
    std::uint64_t at = 0;
    for (std::size_t p = 0; p < parameters_.size(); at += parameters_[p++].count) {
      const std::uint64_t begin = std::max(range.begin, at);
      const std::uint64_t end = std::min(range.end, at + parameters_[p].count);
      if (begin >= end) continue;
      rail.stretches.push_back({p, begin - at, end - begin});
      stretches.push_back({p, end - begin});
    }
    Recipe recipe = recipe_;
    recipe.two_level.reset();
    recipe.op = ReduceOp::sum;
    recipe.numbers = rail.servers;
    recipe.part = static_cast<std::uint32_t>(r);
    const int owners = recipe.balanced || recipe.shared ? topology.nodes() : 1;
    recipe.stage = static_cast<std::uint64_t>(r) * static_cast<std::uint64_t>(owners + 1);
    rail.inner = std::make_unique<Reference>(topology.nodes(), stretches, recipe);
  }
  return rails;
}

/// Sums nodes in rank order, then between the nodes.
std::vector<std::vector<float>> Reference::step_in_two_levels(
    const Topology& topology, const std::vector<std::vector<std::vector<float>>>& gradients) {
  std::vector<std::vector<float>> sums;
  for (const Parameter& parameter : parameters_) sums.emplace_back(parameter.count);
  const float factor = recipe_.op == ReduceOp::average ? 1.0F / static_cast<float>(ranks_) : 1.0F;
  for (Rail& rail : rails_) {
    std::vector<std::vector<std::vector<float>>> of_nodes;
    for (int node = 0; node < topology.nodes(); ++node) {
      auto& of_node = of_nodes.emplace_back();
      for (const Rail::Stretch& stretch : rail.stretches) {
        auto& sum = of_node.emplace_back(stretch.count, 0.0F);
        for (const int rank : topology.members(node)) {
          const auto& gradient = gradients[static_cast<std::size_t>(rank)][stretch.parameter];
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[stretch.begin + i];
        }
      }
    }
    const auto result = rail.inner->step(of_nodes);
    for (std::size_t s = 0; s < rail.stretches.size(); ++s) {
      const Rail::Stretch& stretch = rail.stretches[s];
      for (std::size_t i = 0; i < stretch.count; ++i) {
        sums[stretch.parameter][stretch.begin + i] = result[s][i] * factor;
      }
      for (int node = 0; node < topology.nodes(); ++node) {
        const auto server = static_cast<std::size_t>(rail.servers[static_cast<std::size_t>(node)]);
        const auto begin = static_cast<std::ptrdiff_t>(stretch.begin);
        std::ranges::copy(rail.inner->residual(node, s),
                          residuals_[server][stretch.parameter].begin() + begin);
      }
    }
  }
  return sums;
}

TestBucket::TestBucket(const std::vector<Parameter>& parameters) : parameters_(parameters) {
  for (const Parameter& parameter : parameters) values_.emplace_back(parameter.count);
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    segments_.push_back(Segment{
        .elements = values_[p], .id = parameters[p].id, .dimensions = parameters[p].dimensions});
  }
}

void TestBucket::fill(Kind kind, int rank, int step) {
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const auto gradient = make_gradient(kind, parameters_[p].count, rank, step, parameters_[p].id);
    std::ranges::copy(gradient, values_[p].begin());
  }
}

std::vector<std::vector<std::vector<float>>> all_gradients(const std::vector<Parameter>& parameters,
                                                           Kind kind, int ranks, int step) {
  std::vector<std::vector<std::vector<float>>> gradients;
  for (int rank = 0; rank < ranks; ++rank) {
    auto& of_rank = gradients.emplace_back();
    for (const Parameter& parameter : parameters) {
      of_rank.push_back(make_gradient(kind, parameter.count, rank, step, parameter.id));
    }
  }
  return gradients;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

}  // namespace winnow::tests
