// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0

// Times the AllReducer as nccl-tests' all_reduce_perf times ncclAllReduce: over threads when
// started alone, over MPI under mpirun, over NCCL between GPUs on request. docs/benchmarks.md
// explains the columns.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <winnow/nccl.hpp>
#include <winnow/winnow.hpp>

#include "bench/perf/perf_data.hpp"
#include "bench/perf/perf_report.hpp"
#include "bench/perf/perf_settings.hpp"
#include "bench/rank_device.hpp"
#include "bench/ranks.hpp"
#include "kernels/exec/host_memory.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/uncaught.hpp"
#include "kernels/memory_ops.hpp"

namespace {

using namespace winnow;
using namespace winnow::bench;

constexpr std::uint64_t kShifts = std::uint64_t{1} << 16;  // gradients in the pool
constexpr std::uint64_t kStride = 509'203;                 // from one gradient to the next; odd
constexpr std::uint64_t kElements = 16;                    // by which a shift moves
constexpr std::chrono::minutes kPatience{2};  // until all ranks have joined a communicator

/// "2025-01-31 23:59:59", UTC.
std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm fields{};
  gmtime_r(&now, &fields);
  std::array<char, 32> text;
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &fields)};
}

/// One rank's work on one element type and operation.
class Perf {
 public:
  Perf(Rank& rank, const Exec& where, const PerfSettings& settings, const NamedType& type,
       const NamedOp& op)
      : rank_(rank),
        where_(where),
        settings_(settings),
        type_(type),
        op_(op),
        ranks_(static_cast<std::uint64_t>(rank.control->size())),
        most_(settings.max_bytes / bytes_of(type.type)),
        pool_(where, (most_ + kShifts * kElements) * bytes_of(type.type)),
        output_(where, most_ * bytes_of(type.type)),
        shard_(where, settings.scatters ? most_ / ranks_ * bytes_of(type.type) : 0) {
    bring(problem(1), view(pool_, most_ + kShifts * kElements));
  }

  /// Collective; equal on all ranks.
  PerfRow row(std::uint64_t count);

 private:
  Problem problem(std::uint64_t seed) const {
    return {type_.type, op_.op, rank_.control->size(), seed};
  }
  template <class Memory>
  Elements view(Memory& memory, std::uint64_t count) const {
    return {memory.span().data(), count, type_.type};
  }
  void bring(const Problem& problem, const Elements& to) const;
  kernels::HostArray<std::byte> fetch(std::span<const std::byte> from) const;
  /// A gradient that no earlier call had at the same places, until the pool is used up.
  Elements fresh(std::uint64_t count) {
    shift_ = (shift_ + kStride) % kShifts;
    return view(pool_, most_ + kShifts * kElements).subspan(shift_ * kElements, count);
  }
  /// The same, not in the pool where the call overwrites it.
  Elements input(std::uint64_t count, bool in_place) {
    const Elements given = fresh(count), place = view(output_, count);
    if (!in_place && !settings_.scatters) return given;
    kernels::copy(where_, place.bytes(), given.bytes());
    kernels::wait(where_);
    return place;
  }
  /// Where the result of a call with `count` elements is, and which part of the whole it is.
  Elements output(std::uint64_t count, bool in_place);
  std::uint64_t first(std::uint64_t count) const {
    return settings_.scatters ? count / ranks_ * static_cast<std::uint64_t>(rank_.control->rank())
                              : 0;
  }
  void enqueue(AllReducer& reducer, const Elements& input, bool in_place);
  void call(AllReducer& reducer, const Elements& input, bool in_place);
  PerfHalf time_calls(AllReducer& reducer, std::uint64_t count, bool in_place);
  void check(const Found& found, PerfHalf& half);
  void measure_error(AllReducer& reducer, std::uint64_t count, PerfRow& row);
  void sum_over_ranks(const Elements& values);

  Rank& rank_;
  Exec where_;  // of buckets
  const PerfSettings& settings_;
  const NamedType& type_;
  const NamedOp& op_;
  std::uint64_t ranks_;
  std::uint64_t most_;  // elements of the largest row
  kernels::PlaceArray<std::byte> pool_, output_, shard_;
  std::uint64_t shift_ = 0, seed_ = 1;
  Workspace workspace_;
};

/// Writes this rank's elements of a problem into the buckets' memory.
void Perf::bring(const Problem& problem, const Elements& to) const {
  kernels::HostArray<std::byte> elements(to.bytes().size());
  fill(problem, rank_.control->rank(), view(elements, to.size()));
  kernels::copy(where_, to.bytes(), elements.span());
  kernels::wait(where_);
}

/// Copies elements from the buckets' memory, for the host to read.
kernels::HostArray<std::byte> Perf::fetch(std::span<const std::byte> from) const {
  kernels::HostArray<std::byte> here(from.size());
  kernels::read(where_, here.span(), from);
  return here;
}

void Perf::sum_over_ranks(const Elements& values) {
  rank_.control->all_reduce({.workspace = &workspace_}, values, ReduceOp::sum, Deadline::never());
}

Elements Perf::output(std::uint64_t count, bool in_place) {
  if (!settings_.scatters) return view(output_, count);
  // The input is where the result of an allreduce is. In place a rank's shard of it is its output.
  return in_place ? view(output_, count).subspan(first(count), count / ranks_)
                  : view(shard_, count / ranks_);
}

void Perf::enqueue(AllReducer& reducer, const Elements& input, bool in_place) {
  const Elements output = this->output(input.size(), in_place);
  if (settings_.scatters) {
    reducer.reduce_scatter(input, output, 0, op_.op);
  } else if (in_place) {
    reducer.all_reduce(output, 0, op_.op);
  } else {
    reducer.all_reduce(input, output, 0, op_.op);
  }
}

/// Returns when the result is ready.
void Perf::call(AllReducer& reducer, const Elements& input, bool in_place) {
  enqueue(reducer, input, in_place);
  kernels::wait(where_);
}

bool is_compressed(const Stats& last) {
  return last.schedule.find_first_not_of("dense+") != std::string::npos;
}

/// Counts what is wrong in the result of the last call, whose gradient is in the pool.
void Perf::check(const Found& found, PerfHalf& half) {
  auto result = fetch(found.elements.bytes());
  std::array<std::uint64_t, 1> wrong{winnow::bench::count_wrong(
      problem(1), {view(result, found.elements.size()), shift_ * kElements + found.first})};
  sum_over_ranks(std::span(wrong));
  half.wrong = half.wrong.value_or(0) + wrong[0];
}

/// Times calls, and checks the results of the last ones: where a call went compressed a difference
/// is intended, and the dense call behind it adds what the residuals held.
PerfHalf Perf::time_calls(AllReducer& reducer, std::uint64_t count, bool in_place) {
  const int graphs = settings_.graphs;
  kernels::PlaceArray<std::byte> own(where_,
                                     graphs > 0 && !in_place ? count * bytes_of(type_.type) : 0);
  const Elements fixed = view(in_place ? output_ : own, count);  // as CUDA graphs need it
  std::optional<RankGraph> graph;
  if (graphs > 0) graph.emplace(where_, [&] { enqueue(reducer, fixed, in_place); });
  // In place each replay but the first sums what the one before has left.
  const bool is_known = graphs <= 1 || !in_place;
  bool some_compressed = false;
  PerfHalf half;
  std::chrono::duration<double> sum{};
  for (int i = 0; i < settings_.iters; ++i) {
    const Elements given = input(count, in_place);
    if (graph && !in_place) {
      kernels::copy(where_, fixed.bytes(), given.bytes());
      kernels::wait(where_);
    }
    const bool has_residual = is_compressed(reducer.last());
    barrier(*rank_.control);
    const auto begin = std::chrono::steady_clock::now();
    if (graph) {
      for (int replay = 0; replay < graphs; ++replay) graph->launch();
      kernels::wait(where_);
    } else {
      call(reducer, given, in_place);
    }
    sum += std::chrono::steady_clock::now() - begin;
    const Stats last = reducer.last();
    half.add_schedule(last.schedule);
    some_compressed |= is_compressed(last);
    const bool is_exact = !has_residual && !is_compressed(last);
    if (i >= settings_.iters - settings_.check && is_known && is_exact) {
      check({output(count, in_place), first(count)}, half);
    }
  }
  reducer.synchronize();
  if (some_compressed) half.wrong.reset();  // the time is also that of calls without
  const int calls = settings_.iters * std::max(graphs, 1);
  half.seconds = max_over_ranks(*rank_.control, std::array{sum.count() / calls}).front();
  return half;
}

/// Measures the first call, before any residual: its error, and the part that the residuals do not
/// hold.
void Perf::measure_error(AllReducer& reducer, std::uint64_t count, PerfRow& row) {
  kernels::PlaceArray<std::byte> gradient(where_, count * bytes_of(type_.type));
  const Problem checked = problem(++seed_);
  bring(checked, view(gradient, count));
  call(reducer, view(gradient, count), false);
  if (!is_compressed(reducer.last())) return;
  const std::span<const float> residual = reducer.residual(0);
  std::vector<float> here(residual.size());
  kernels::read(where_, std::as_writable_bytes(std::span(here)), std::as_bytes(residual));
  std::vector<double> rest(here.begin(), here.end());
  rest.resize(count);
  sum_over_ranks(rest);
  const Elements found = output(count, false);
  auto result = fetch(found.bytes());
  const Found shard{view(result, found.size()), first(count)};
  const auto errors = max_over_ranks(
      *rank_.control,
      std::array{relative_error(checked, shard, {}),
                 relative_error(checked, shard, std::span(rest).subspan(shard.first))});
  row.error = errors[0];
  row.lost = errors[1];
}

PerfRow Perf::row(std::uint64_t count) {
  PerfRow row{.size = count * bytes_of(type_.type),
              .count = count,
              .scatters = settings_.scatters,
              .type = type_.name,
              .op = op_.name};
  AllReducer reducer(rank_.connect(), settings_.options, where_);
  if (settings_.check > 0) measure_error(reducer, count, row);
  const std::string measured = reducer.last().schedule;
  for (int i = 0; i < settings_.warmup_iters; ++i) call(reducer, input(count, false), false);
  const auto is_tried_out = [&] { return reducer.last().reason.ends_with("which is tried out"); };
  while (settings_.warmup_iters > 0 && is_tried_out()) call(reducer, input(count, false), false);

  const Stats before = reducer.totals();
  row.out_of_place = time_calls(reducer, count, false);
  const Stats after = reducer.totals();
  const auto calls = static_cast<double>(after.calls - before.calls);  // for a graph: its capture
  const auto sent = static_cast<double>(after.wire_bytes - before.wire_bytes);
  row.wire_bytes = max_over_ranks(*rank_.control, std::array{sent / calls}).front();
  row.coding = after.coding;
  row.in_place = time_calls(reducer, count, true);
  if (!row.out_of_place.has_schedule(measured) && !row.in_place.has_schedule(measured)) {
    row.error.reset();  // it is that of a plan which its trial did not choose
    row.lost.reset();
  }
  row.timestamp = utc_now();
  return row;
}

/// Collective. A device for this rank, if buckets lie on devices; if one rank has none, all throw.
std::optional<RankDevice> take_device(Transport& control, const PerfSettings& settings) {
  std::optional<RankDevice> device;
  if (settings.memory == "host") return device;
  std::vector<int> nodes(static_cast<std::size_t>(control.size()));
  const int node = control.node();
  Workspace workspace;
  control.all_gather({.workspace = &workspace}, std::as_bytes(std::span(&node, 1)),
                     std::as_writable_bytes(std::span(nodes)), Deadline::never());
  std::string problem;
  try {
    const auto before = std::ranges::count(nodes.begin(), nodes.begin() + control.rank(), node);
    device.emplace(static_cast<int>(before));
  } catch (const Error& error) {
    problem = error.what();
  }
  const std::array failed{problem.empty() ? -1.0 : static_cast<double>(control.rank())};
  const auto last = static_cast<int>(max_over_ranks(control, failed).front());
  if (problem.empty()) problem = "rank " + std::to_string(last) + " found none";
  WINNOW_EXPECTS(last < 0, "--memory device needs a GPU for every rank: " + problem);
  return device;
}

std::vector<PerfDevice> devices_of(Transport& control, const std::optional<RankDevice>& device) {
  struct Line {
    int pid, number;
    std::array<char, 64> host;
  };
  Line mine{.pid = getpid(), .number = device ? device->number() : -1, .host = {}};
  gethostname(mine.host.data(), mine.host.size() - 1);
  std::vector<Line> lines(static_cast<std::size_t>(control.size()));
  Workspace workspace;
  control.all_gather({.workspace = &workspace}, std::as_bytes(std::span(&mine, 1)),
                     std::as_writable_bytes(std::span(lines)), Deadline::never());
  std::vector<PerfDevice> devices;
  for (const Line& line : lines) devices.push_back({line.pid, line.host.data(), line.number});
  return devices;
}

/// Now rather than after the run; only rank 0 writes the file.
void check_output_file(Rank& rank, const PerfSettings& settings) {
  const bool is_bad = rank.control->rank() == 0 && !settings.output_file.empty() &&
                      !std::ofstream(settings.output_file, std::ios::app);
  WINNOW_EXPECTS(max_over_ranks(*rank.control, std::array{is_bad ? 1.0 : 0.0}).front() == 0,
                 "cannot write " + settings.output_file + "; its folder must exist");
}

int run(Rank& rank, const PerfSettings& settings) {
  const std::optional<RankDevice> device = take_device(*rank.control, settings);
  const Exec where = device ? device->exec() : Exec();
  if (settings.transport == "nccl") {
    // One for all rows, so that none pays for a communicator's setup in its first calls.
    std::shared_ptr<Transport> communicator =
        nccl_transport(*rank.control, Deadline::after(kPatience));
    rank.connect = [communicator] { return communicator; };
  }
  if (settings.transport == "tcp")
    rank.connect = [&rank] { return connect_over_tcp(*rank.control); };
  const std::vector<PerfDevice> devices = devices_of(*rank.control, device);
  const bool leads = rank.control->rank() == 0;
  // Reports wrong options before the table begins.
  { const AllReducer reducer(rank.connect(), settings.options, where); }
  check_output_file(rank, settings);
  if (leads) print_header(std::cout, settings, under_mpirun(), devices);
  std::vector<PerfRow> rows;
  const std::uint64_t unit = settings.scatters ? devices.size() : 1;  // equal shards
  for (int cycle = 0; settings.cycles == 0 || cycle < settings.cycles; ++cycle) {
    if (settings.cycles == 0) rows.clear();  // it ends with a signal, without a sum of all
    for (const NamedType& type : settings.types) {
      for (const NamedOp& op : settings.ops) {
        Perf perf(rank, where, settings, type, op);
        for (std::uint64_t size = settings.min_bytes; size <= settings.max_bytes;) {
          rows.push_back(perf.row(size / bytes_of(type.type) / unit * unit));
          if (leads) print_row(std::cout, settings, rows.back(), devices.size());
          if (size == settings.max_bytes) break;
          size =
              settings.step_factor > 1 ? size * settings.step_factor : size + settings.step_bytes;
        }
      }
    }
  }
  if (leads) {
    print_footer(std::cout, rows, devices.size());
    if (!settings.output_file.empty()) {
      std::ofstream file(settings.output_file);
      write_json(file, settings, devices, rows);
    }
  }
  return winnow::bench::count_wrong(rows) == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  PerfSettings settings;
  std::string words;
  const int status = parse(argc, argv, under_mpirun(), settings, words);
  const auto body = [&](Rank& rank) {
    const bool leads = rank.control->rank() == 0;
    if (status >= 0) {
      if (leads) (status == 0 ? std::cout : std::cerr) << words;
      return status;
    }
    try {
      return run(rank, settings);
    } catch (const UsageError& error) {  // on all ranks
      if (leads)
        std::cerr << "allreduce_perf: " + kernels::this_rank() + ": " + error.what() + "\n";
      return 2;
    }
  };
  return under_mpirun() ? run_mpi(body) : run_threads(settings.threads, body);
}
