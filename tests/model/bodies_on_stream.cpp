// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
// A device whose kernels are the host's bodies: each operation runs when its stream reaches it,
// under the model of CUDA's rules for streams, memory, captures and conditions. It tests the host's
// side of device code without the slow SIMT machine, which tests the kernels themselves. This table
// replaces the library's.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/arithmetic/element.hpp"
#include "kernels/cuda/device_exec.hpp"
#include "kernels/cuda/try.hpp"
#include "kernels/dispatch/bodies.hpp"
#include "kernels/exec/together.hpp"
#include "tests/model/cuda_model.hpp"

namespace winnow::kernels {
namespace {

cudaStream_t stream_of(const Exec& exec) {
  cuda::expect_device(exec);
  return static_cast<cudaStream_t>(exec.stream);
}

bool is_collected(const Exec& exec) {
  return exec.launches != nullptr && exec.launches->takes(exec);
}

/// Runs `body` with a host Exec when the stream reaches it, if the condition then holds.
template <class Body>
void launch(const Exec& exec, Body body) {
  const auto run = [condition = exec.condition, body = std::move(body)] {
    if (!holds(condition)) return;
    thread_local Workspace workspace;
    const Workspace::Scope scope(workspace);
    const FloatMode mode;
    try {
      body(Exec{.workspace = &workspace});
    } catch (const std::exception& error) {
      throw tests::KernelError(error.what());
    }
  };
  WINNOW_CUDA_TRY(tests::launch_kernel(stream_of(exec), run));
}

// A kernel takes its arguments by value. So does each launch here, and it copies lists in host
// memory, which the host may change behind it. What they name is in device memory.

template <class Arg>
class Held {
 public:
  explicit Held(const Arg& arg) : arg_(arg) {}
  const Arg& get() const { return arg_; }

 private:
  Arg arg_;
};

template <class T>
class HeldList {
 public:
  explicit HeldList(std::span<const T> list) : list_(list.begin(), list.end()) {}
  std::span<const T> get() const { return list_; }

 private:
  std::vector<T> list_;
};
template <>
class Held<std::span<const std::span<const std::byte>>>
    : public HeldList<std::span<const std::byte>> {
  using HeldList::HeldList;
};
template <>
class Held<std::span<const CheckValuesJob>> : public HeldList<CheckValuesJob> {
  using HeldList::HeldList;
};
template <>
class Held<std::span<const DecodeJob>> : public HeldList<DecodeJob> {
  using HeldList::HeldList;
};

/// A job with a list that `list_of(job)` names.
template <class Job, auto list_of>
class HeldJob {
 public:
  explicit HeldJob(const Job& job) : job_(job), list_(list_of(job_)) {}
  Job get() const {
    Job job = job_;
    list_of(job) = list_.get();
    return job;
  }

 private:
  using List = std::remove_reference_t<decltype(list_of(std::declval<Job&>()))>;
  Job job_;
  HeldList<std::remove_const_t<typename List::element_type>> list_;
};
constexpr auto kMessages = [](auto& job) -> auto& { return job.messages; };
constexpr auto kTerms = [](auto& job) -> auto& { return job.terms.host; };
constexpr auto kPieces = [](auto& job) -> auto& { return job.pieces.host; };

template <>
class Held<CheckHeadersJob> : public HeldJob<CheckHeadersJob, kMessages> {
  using HeldJob::HeldJob;
};
template <>
class Held<ClaimedKJob> : public HeldJob<ClaimedKJob, kMessages> {
  using HeldJob::HeldJob;
};
template <>
class Held<CheckMessagesJob> : public HeldJob<CheckMessagesJob, kMessages> {
  using HeldJob::HeldJob;
};
template <>
class Held<OrderedSumJob> : public HeldJob<OrderedSumJob, kTerms> {
 public:
  explicit Held(const OrderedSumJob& job)
      : HeldJob(job), sums_(job.sums.host), residuals_(job.rests.residuals.host) {}
  OrderedSumJob get() const {
    OrderedSumJob job = HeldJob::get();
    job.sums.host = sums_.get();
    job.rests.residuals.host = residuals_.get();
    return job;
  }

 private:
  HeldList<PlacedSpan> sums_, residuals_;
};
template <>
class Held<OwnedWrite> {
 public:
  explicit Held(const OwnedWrite& sums) : sums_(sums), residuals_(sums.rests.residuals.host) {}
  OwnedWrite get() const {
    OwnedWrite sums = sums_;
    sums.rests.residuals.host = residuals_.get();
    return sums;
  }

 private:
  OwnedWrite sums_;
  HeldList<PlacedSpan> residuals_;
};
template <>
class Held<Placed<PlacedSpan>> {
 public:
  explicit Held(const Placed<PlacedSpan>& spans) : spans_(spans.host) {}
  Placed<PlacedSpan> get() const { return {spans_.get(), nullptr}; }

 private:
  HeldList<PlacedSpan> spans_;
};
template <>
class Held<std::span<const SelectSumsJob>> {
 public:
  explicit Held(std::span<const SelectSumsJob> jobs) : jobs_(jobs.begin(), jobs.end()) {
    for (const SelectSumsJob& job : jobs) terms_.emplace_back(job.terms.host);
  }
  std::vector<SelectSumsJob> get() const {
    std::vector<SelectSumsJob> jobs = jobs_;
    for (std::size_t i = 0; i < jobs.size(); ++i) jobs[i].terms.host = terms_[i].get();
    return jobs;
  }

 private:
  std::vector<SelectSumsJob> jobs_;
  std::vector<HeldList<Term>> terms_;
};
template <>
class Held<KeepSumsJob> : public HeldJob<KeepSumsJob, kTerms> {
  using HeldJob::HeldJob;
};
template <>
class Held<OwnedJob> : public HeldJob<OwnedJob, kPieces> {
 public:
  explicit Held(const OwnedJob& job) : HeldJob(job), runs_(job.runs.host) {}
  OwnedJob get() const {
    OwnedJob job = HeldJob::get();
    job.runs.host = runs_.get();
    return job;
  }

 private:
  HeldList<ListRun> runs_;
};
template <>
class Held<FeedbackQuantizeJob> {
 public:
  explicit Held(const FeedbackQuantizeJob& job) : job_(job), out_(job.out) {}
  FeedbackQuantizeJob get() const {
    FeedbackQuantizeJob job = job_.get();
    job.out = out_.get();
    return job;
  }

 private:
  HeldJob<FeedbackQuantizeJob, kPieces> job_;
  HeldList<std::span<std::byte>> out_;
};

/// An operation as a kernel.
template <auto operation>
struct OnStream;
template <class... Args, void (*Bodies::*operation)(const Exec&, Args...)>
struct OnStream<operation> {
  using All = std::tuple<Held<std::decay_t<Args>>...>;

  static void run(const Exec& host, const All& held) {
    std::apply([&](const auto&... each) { (kCpu.*operation)(host, each.get()...); }, held);
  }
  static void enqueue(const Exec& exec, Args... args) {
    launch(exec,
           [held = All(Held<std::decay_t<Args>>(args)...)](const Exec& host) { run(host, held); });
  }
  /// Of one that shares a launch with others of its kind.
  static void collect(const Exec& exec, Args... args) {
    static_assert((std::is_trivially_copyable_v<Held<std::decay_t<Args>>> && ...));
    if (!is_collected(exec)) return enqueue(exec, args...);
    const All held{Held<std::decay_t<Args>>(args)...};
    exec.launches->add(&launch_all, std::as_bytes(std::span(&held, 1)));
  }
  static void launch_all(const Exec& exec, std::span<const std::byte> tasks) {
    launch(exec, [list = std::vector(tasks.begin(), tasks.end())](const Exec& host) {
      const auto* const all = reinterpret_cast<const All*>(list.data());
      for (std::size_t i = 0; i < list.size() / sizeof(All); ++i) run(host, all[i]);
    });
  }
};

/// Device kernels code values that are not finite as something that a decoder takes. The host's do
/// not: their callers clear such values first.
void enqueue_quantize(const Exec& exec, const ValueFormat& format, const RandomKey& key,
                      std::span<float> values, std::span<std::byte> out) {
  launch(exec, [=](const Exec& host) {
    const auto is_finite = [](float value) { return std::isfinite(value); };
    if (!std::ranges::all_of(values, is_finite)) std::ranges::fill(values, 0.0F);
    kCpu.quantize(host, format, key, values, out);
  });
}

/// Bodies take their scratch from the host.
template <class... Args>
std::size_t no_scratch(const Exec&, Args...) {
  return 0;
}

/// Launches copy the terms themselves.
void keep_terms(const Exec&, PlacedTerms&, std::uint64_t) {}

/// If the gradient need not become zero, a device leaves it as it was, but makes it NaN where acc
/// is not finite.
template <class Job, class Body>
void feed_back(const Job& job, const Body& body) {
  const auto& [gradient, residual, decay, own, by] = job.spans;
  const auto bytes = gradient.bytes();
  const std::vector<std::byte> before(bytes.begin(), bytes.end());
  std::vector<float> acc(gradient.size());
  for (std::size_t i = 0; i < acc.size(); ++i) {
    const auto root = [](float x) { return std::sqrt(x); };
    const float given = read_element(gradient, i);
    acc[i] = by.of(given, by.moment_of(i), residual[i], root).update + decay * residual[i];
  }
  body(job);
  if (job.gradient_after == GradientAfter::zero) return;
  std::ranges::copy(before, bytes.begin());
  for (std::size_t i = 0; i < acc.size(); ++i) {
    if (std::isfinite(acc[i])) continue;
    (void)write_element(gradient, i, std::numeric_limits<float>::quiet_NaN());
  }
}

void enqueue_selects(const Exec& exec, std::span<const FeedbackSelectJob> jobs) {
  launch(exec, [list = std::vector(jobs.begin(), jobs.end())](const Exec& host) {
    for (const FeedbackSelectJob& each : list) {
      feed_back(each, [&](const FeedbackSelectJob& job) { kCpu.feedback_select(host, {&job, 1}); });
    }
  });
}

void enqueue_threshold(const Exec& exec, const FeedbackThresholdJob& job) {
  launch(exec, [=](const Exec& host) {
    feed_back(job, [&](const FeedbackThresholdJob& it) { kCpu.feedback_threshold(host, it); });
  });
}

/// A device may leave the gradient as it was, so the sums cannot rely on zeros.
void enqueue_sum(const Exec& exec, const OrderedSumJob& job) {
  OrderedSumJob dense = job;
  dense.after_accumulate = false;
  OnStream<&Bodies::ordered_sum>::enqueue(exec, dense);
}

// The runtime copies and clears memory, unless a condition turns that into kernels.

void enqueue_copy(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  if (to.empty()) return;
  const bool floats = to.size() % sizeof(float) == 0;
  if (exec.condition.words == nullptr && !(floats && is_collected(exec))) {
    WINNOW_CUDA_TRY(
        cudaMemcpyAsync(to.data(), from.data(), to.size(), cudaMemcpyDefault, stream_of(exec)));
    return;
  }
  WINNOW_EXPECTS(floats, "a copy of bytes takes no condition");
  OnStream<&Bodies::copy>::collect(exec, to, from);
}

void enqueue_zeros(const Exec& exec, std::span<std::byte> bytes) {
  if (bytes.empty()) return;
  WINNOW_CUDA_TRY(cudaMemsetAsync(bytes.data(), 0, bytes.size(), stream_of(exec)));
}

void enqueue_list(const Exec& exec, std::span<std::byte> to, std::span<const std::byte> from) {
  launch(exec, [to, list = std::vector<std::byte>(from.begin(), from.end())](const Exec&) {
    if (!list.empty()) std::memcpy(to.data(), list.data(), list.size());
  });
}

}  // namespace

constinit const Bodies kCuda{
    .copy = enqueue_copy,
    .place_terms = keep_terms,
    .add_owned = OnStream<&Bodies::add_owned>::enqueue,
    .all_finite = OnStream<&Bodies::all_finite>::enqueue,
    .average = OnStream<&Bodies::average>::enqueue,
    .bitmap_decode = OnStream<&Bodies::bitmap_decode>::enqueue,
    .check_headers = OnStream<&Bodies::check_headers>::enqueue,
    .check_values = OnStream<&Bodies::check_values>::enqueue,
    .checksums = OnStream<&Bodies::checksums>::enqueue,
    .claimed_k = OnStream<&Bodies::claimed_k>::enqueue,
    .correct_momentum = OnStream<&Bodies::correct_momentum>::collect,
    .dequantize = OnStream<&Bodies::dequantize>::enqueue,
    .divide_by_moment = OnStream<&Bodies::divide_by_moment>::collect,
    .eliasfano_decode = OnStream<&Bodies::eliasfano_decode>::enqueue,
    .end_call = OnStream<&Bodies::end_call>::enqueue,
    .feedback_add = OnStream<&Bodies::feedback_add>::collect,
    .feedback_keep = OnStream<&Bodies::feedback_keep>::collect,
    .feedback_quantize = OnStream<&Bodies::feedback_quantize>::enqueue,
    .feedback_select = enqueue_selects,
    .feedback_select_scratch = no_scratch,
    .feedback_threshold = enqueue_threshold,
    .feedback_threshold_scratch = no_scratch,
    .fill = OnStream<&Bodies::fill>::collect,
    .fill_pieces = OnStream<&Bodies::fill_pieces>::enqueue,
    .from_ordered = OnStream<&Bodies::from_ordered>::enqueue,
    .check_messages = OnStream<&Bodies::check_messages>::enqueue,
    .keep_rest = OnStream<&Bodies::keep_rest>::collect,
    .keep_sums = OnStream<&Bodies::keep_sums>::enqueue,
    .look_ahead = OnStream<&Bodies::look_ahead>::enqueue,
    .merge = OnStream<&Bodies::merge>::enqueue,
    .narrow = OnStream<&Bodies::narrow>::collect,
    .ordered_sum = enqueue_sum,
    .positions_of = OnStream<&Bodies::positions_of>::enqueue,
    .put = OnStream<&Bodies::put>::enqueue,
    .quantize = enqueue_quantize,
    .raw32_decode = OnStream<&Bodies::raw32_decode>::enqueue,
    .reduce = OnStream<&Bodies::reduce>::enqueue,
    .residual_add = OnStream<&Bodies::residual_add>::enqueue,
    .scale = OnStream<&Bodies::scale>::collect,
    .finish_message = OnStream<&Bodies::finish_message>::enqueue,
    .finish_bitmap = OnStream<&Bodies::finish_bitmap>::enqueue,
    .finish_eliasfano = OnStream<&Bodies::finish_eliasfano>::enqueue,
    .finish_raw32 = OnStream<&Bodies::finish_raw32>::enqueue,
    .seeded_decode = OnStream<&Bodies::seeded_decode>::enqueue,
    .select_sums = OnStream<&Bodies::select_sums>::enqueue,
    .select_sums_scratch = no_scratch,
    .split_by_owner = OnStream<&Bodies::split_by_owner>::enqueue,
    .split_scratch = no_scratch,
    .store = enqueue_list,
    .store_owned = OnStream<&Bodies::store_owned>::enqueue,
    .take = OnStream<&Bodies::take>::enqueue,
    .take_owned = OnStream<&Bodies::take_owned>::enqueue,
    .to_ordered = OnStream<&Bodies::to_ordered>::enqueue,
    .widen = OnStream<&Bodies::widen>::collect,
    .write_owned = OnStream<&Bodies::write_owned>::enqueue,
    .zero = enqueue_zeros,
};

}  // namespace winnow::kernels
