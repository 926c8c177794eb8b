// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/laws/bits_case.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>

#include "tests/harness/ranks.hpp"
#include "tests/harness/reducer.hpp"
#include "tests/laws/bits_digest.hpp"
#include "tests/laws/sent_messages.hpp"

namespace winnow::tests {
namespace {

constexpr int kSteps = 3;
constexpr int kStepOfEvent = 1;

constexpr std::uint16_t infinity_of(ElementType type) {
  return type == ElementType::bf16 ? 0x7f80 : 0x7c00;
}

/// The random word of a parameter's element; equal on all ranks if `rank` is kAllRanks.
constexpr std::uint64_t kAllRanks = 1000;
std::uint64_t word_of(int step, std::uint64_t rank, std::uint64_t id, std::uint64_t element) {
  const std::uint64_t where = (static_cast<std::uint64_t>(step) * 1024 + rank) * 1024 + id;
  return scatter(scatter(where + 0x9e3779b97f4a7c15U) + element);
}

/// The sum of four numbers of 16 bits, less its mean, in units of 2^-16: exact in float32.
float bell(std::uint64_t word) {
  int sum = -2 * 65535;
  for (int shift = 0; shift < 64; shift += 16) sum += static_cast<int>((word >> shift) & 0xffff);
  return static_cast<float>(sum) * 0x1p-16F;
}

/// Each magnitude is half as frequent as half of it.
float heavy(std::uint64_t word) {
  const auto exponent = 117U + static_cast<std::uint32_t>(std::countl_zero(word | 0x10000));
  const auto low = static_cast<std::uint32_t>(word);
  return std::bit_cast<float>((low & 0x80000000U) | (exponent << 23) | (low & 0x7fffffU));
}

float tied(std::uint64_t word) {
  const float magnitude = static_cast<float>(word % 4) * 0.25F;  // -0 is among them
  return (word & 4) != 0 ? -magnitude : magnitude;
}

float tiny(std::uint64_t word) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(word) & 0x807fffffU);
}

float value_of(Values values, int step, int rank, std::uint64_t id, std::uint64_t element) {
  const std::uint64_t word = word_of(step, static_cast<std::uint64_t>(rank), id, element);
  switch (values) {
    case Values::bell:
      return bell(word);
    case Values::heavy:
      return heavy(word);
    case Values::tied:
      return tied(word);
    case Values::sparse: {
      const std::uint64_t common = word_of(step, kAllRanks, id, element);
      if (common % 64 != 0 && word % 64 != 1) return (word & 64) != 0 ? -0.0F : 0.0F;
      return heavy(scatter(word));
    }
    case Values::tiny:
      return tiny(word);
    default:
      return 0;
  }
}

/// A float32's upper bits as a 16-bit element; for fp16 they are another number, which is as good,
/// with an exponent that leaves headroom for sums.
std::uint16_t half_of(float value, ElementType type) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (type == ElementType::bf16) return static_cast<std::uint16_t>(bits >> 16);
  const std::uint32_t exponent = (bits >> 23) & 0xff;
  const std::uint32_t mantissa = (bits >> 13) & 0x3ff, sign = (bits >> 16) & 0x8000;
  if ((bits & 0x7fffffffU) == 0) return static_cast<std::uint16_t>(sign);
  const std::uint32_t narrow = exponent < 112 ? 0 : std::min(exponent - 112, 26U);
  return static_cast<std::uint16_t>(sign | (narrow << 10) | mantissa);
}

/// The value that an event puts into an element: as float32, or as the bits of a 16-bit element.
struct Shock {
  float value;
  std::uint16_t half;
};
Shock shock_of(Event event, ElementType type) {
  const std::uint16_t infinity = infinity_of(type);
  switch (event) {
    case Event::nan:
      return {std::numeric_limits<float>::quiet_NaN(),
              static_cast<std::uint16_t>(infinity | (infinity >> 1 & ~infinity))};
    case Event::infinity:
      return {-std::numeric_limits<float>::infinity(),
              static_cast<std::uint16_t>(infinity | 0x8000U)};
    default:
      return {std::numeric_limits<float>::max(), static_cast<std::uint16_t>(infinity - 1)};
  }
}

/// One rank's bucket: gradients, and the segments over them.
class BitsBucket {
 public:
  explicit BitsBucket(const BitsCase& the_case) : case_(the_case) {
    for (const BitsParameter& p : case_.parameters) {
      memory_.emplace_back(p.count * bytes_of(case_.type));
      inputs_.emplace_back(case_.out_of_place ? memory_.back().size() : 0);
      const Elements input{inputs_.back().data(), case_.out_of_place ? p.count : 0, case_.type};
      segments_.push_back({.elements = {memory_.back().data(), p.count, case_.type},
                           .id = p.id,
                           .dimensions = p.dimensions,
                           .input = input});
    }
  }

  std::span<const Segment> segments() const { return segments_; }

  void fill(int step, int rank) {
    for (std::size_t i = 0; i < case_.parameters.size(); ++i) {
      const BitsParameter& p = case_.parameters[i];
      for (std::uint64_t element = 0; element < p.count; ++element) {
        set(i, element, value_of(p.values, step, rank, p.id, element));
      }
    }
    const bool is_mine = case_.event == Event::overflow || rank == case_.topology.ranks() - 1;
    if (case_.event != Event::none && step == kStepOfEvent && is_mine) shock();
  }

  void add_to(BitsDigest& digest) const {
    for (const Segment& segment : segments_) {
      if (case_.type == ElementType::float32) {
        digest.add(std::span<const float>(segment.elements.floats()));
      } else {
        digest.add_halves(segment.elements.halves(), infinity_of(case_.type));
      }
    }
  }

 private:
  Elements gradient(std::size_t parameter) {
    if (!case_.out_of_place) return segments_[parameter].elements;
    return {inputs_[parameter].data(), case_.parameters[parameter].count, case_.type};
  }
  void set(std::size_t parameter, std::uint64_t element, float value) {
    if (case_.type == ElementType::float32) {
      gradient(parameter).floats()[element] = value;
    } else {
      gradient(parameter).halves()[element] = half_of(value, case_.type);
    }
  }
  void shock() {
    const Shock shock = shock_of(case_.event, case_.type);
    constexpr std::size_t kWhere = 70;  // in the first parameter, behind its first unit
    if (case_.type == ElementType::float32) {
      gradient(0).floats()[kWhere] = shock.value;
    } else {
      gradient(0).halves()[kWhere] = shock.half;
    }
  }

  const BitsCase& case_;
  std::vector<std::vector<std::byte>> memory_, inputs_;  // by parameter
  std::vector<Segment> segments_;
};

/// A parameter's residual. One that travels dense has none on the host, and zeros on a device: both
/// add nothing.
std::vector<float> waiting(const Reducer& reducer, const BitsParameter& parameter) {
  std::vector<float> residual = reducer.residual(parameter.id);
  const auto is_zero = [](float left) { return left == 0; };
  if (parameter.dimensions == 1 && std::ranges::all_of(residual, is_zero)) residual.clear();
  return residual;
}

}  // namespace

Bits bits_of(const BitsCase& the_case, int threads) {
  Options options = the_case.options;
  options.threads = threads;
  std::vector<Bits> of_rank(static_cast<std::size_t>(the_case.topology.ranks()));
  run_ranks(the_case.topology.ranks(), [&](const std::shared_ptr<Transport>& transport) {
    const int rank = transport->rank();
    const auto sent = std::make_shared<SentMessages>(transport, the_case.topology.node_of(rank));
    Reducer reducer(sent, options);
    sent->watch();
    BitsBucket bucket(the_case);
    BitsDigest state;
    for (int step = 0; step < kSteps; ++step) {
      bucket.fill(step, rank);
      reducer.all_reduce(bucket.segments());
      bucket.add_to(state);
      for (const BitsParameter& p : the_case.parameters) {
        state.add(std::span<const float>(waiting(reducer, p)));
      }
    }
    of_rank[static_cast<std::size_t>(rank)] = {state.value(), sent->messages(), sent->order()};
  });
  BitsDigest state, messages, order;
  for (const Bits& bits : of_rank) {
    state.add(bits.state);
    messages.add(bits.messages);
    order.add(bits.order);
  }
  return {state.value(), messages.value(), order.value()};
}

}  // namespace winnow::tests
