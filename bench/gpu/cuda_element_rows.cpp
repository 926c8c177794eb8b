// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "bench/gpu/cuda_inputs.hpp"
#include "kernels/checksum.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/half.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/reduce.hpp"
#include "kernels/take.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::bench {

namespace {

using Rows = std::vector<CudaRow>;

void add_floats(const CudaInputs& in, Rows& rows) {
  const auto floats = static_cast<double>(in.count * sizeof(float));
  rows.push_back({"zero", floats, [&in](std::size_t round) {
                    kernels::zero(in.exec(), std::as_writable_bytes(in.set(round).target.span()));
                  }});
  // The factor is 1, so that all rounds have the same numbers.
  rows.push_back({"scale", 2 * floats, [&in](std::size_t round) {
                    kernels::scale(in.exec(), in.set(round).target.span(), 1);
                  }});
  rows.push_back({"look_ahead", 3 * floats, [&in](std::size_t round) {
                    const auto& s = in.set(round);
                    kernels::look_ahead(in.exec(), s.gradient.span().first(in.count),
                                        s.residual.span(), 2.5F, s.target.span());
                  }});
  // This step changes nothing, so that all rounds have the same numbers.
  rows.push_back({"divide_by_moment", 4 * floats, [&in](std::size_t round) {
                    const auto& s = in.set(round);
                    kernels::divide_by_moment(in.exec(), s.target.span(), s.residual.span(),
                                              {.decay = 1, .correction = 0, .floor = 1});
                  }});
  rows.push_back({"reduce to the maximum, float32", 3 * floats, [&in](std::size_t round) {
                    const auto& s = in.set(round);
                    kernels::reduce(in.exec(), ReduceOp::maximum, s.target.span(),
                                    s.gradient.span().first(in.count));
                  }});
  // One kernel undoes the other, so that all rounds have the same numbers.
  rows.push_back({"to_ordered, from_ordered", 4 * floats, [&in](std::size_t round) {
                    const Elements elements = in.set(round).target.span();
                    kernels::to_ordered(in.exec(), elements, ReduceOp::maximum);
                    kernels::from_ordered(in.exec(), elements);
                  }});
  rows.push_back({"all_finite", floats, [&in](std::size_t round) {
                    const auto& s = in.set(round);
                    kernels::all_finite(in.exec(), s.gradient.span().first(in.count),
                                        s.not_finite.data());
                  }});
}

void add_halves(const CudaInputs& in, Rows& rows) {
  const auto bytes = static_cast<double>(in.count * (sizeof(float) + sizeof(std::uint16_t)));
  const auto halves = std::make_shared<DeviceArray<std::uint16_t>>(in.count);
  for (const ElementType type : {ElementType::bf16, ElementType::fp16}) {
    const std::string name = type == ElementType::bf16 ? "bf16" : "fp16";
    rows.push_back({"narrow to " + name, bytes, [&in, halves, type](std::size_t round) {
                      kernels::narrow(in.exec(), type,
                                      in.set(round).gradient.span().first(in.count),
                                      halves->span());
                    }});
    rows.push_back({"widen from " + name, bytes, [&in, halves, type](std::size_t round) {
                      kernels::widen(in.exec(), type, halves->span(), in.set(round).target.span());
                    }});
  }
  rows.push_back(
      {"keep_rest fp16", static_cast<double>(in.count * sizeof(float)), [&in](std::size_t round) {
         const auto& s = in.set(round);
         kernels::keep_rest(in.exec(), {.type = ElementType::fp16,
                                        .sums = s.gradient.span().first(in.count),
                                        .residual = s.target.span().first(in.count),
                                        .too_large = s.not_finite.data()});
       }});
}

/// Rows of a message as long as the gradient, and of messages in int8 and in int4.
void add_messages(const CudaInputs& in, Rows& rows) {
  const auto sum = std::make_shared<DeviceArray<std::uint64_t>>(1);
  rows.push_back(
      {"checksum", static_cast<double>(in.count * sizeof(float)), [&in, sum](std::size_t round) {
         const auto message = std::as_bytes(in.set(round).gradient.span().first(in.count));
         kernels::checksums(in.exec(), {&message, 1}, sum->data());
       }});
  for (const kernels::ValueCoding& coding : kernels::value_codings()) {
    if (coding.name != "int8" && coding.name != "int4") continue;
    const kernels::ValueFormat format{&coding, coding.default_block};
    const auto message =
        std::make_shared<DeviceArray<std::byte>>(kernels::value_bytes(format, in.count));
    kernels::cuda::enqueue_copy(in.set(0).target.span(), in.set(0).gradient.span().first(in.count),
                                in.stream);
    kernels::quantize(in.exec(), format, {}, in.set(0).target.span(), message->span());
    rows.push_back({"check_values " + std::string(coding.name),
                    static_cast<double>(message->span().size()),
                    [&in, message, format](std::size_t round) {
                      const kernels::CheckValuesJob job{in.count, message->span(),
                                                        in.set(round).not_finite.data()};
                      kernels::check_values(in.exec(), format, {&job, 1});
                    }});
  }
}

/// Entries lie evenly. If they are far from each other, each entry moves a sector of 32 bytes, of
/// which the row counts 4.
void add_supports(const CudaInputs& in, Rows& rows) {
  struct Support {
    DeviceArray<std::uint32_t> index;
    DeviceArray<float> value;
  };
  const auto support = std::make_shared<Support>(
      Support{DeviceArray<std::uint32_t>(in.k), zeros<float>(in.k, in.stream)});
  std::vector<std::uint32_t> host(in.k);
  for (std::size_t j = 0; j < in.k; ++j) {
    host[j] = static_cast<std::uint32_t>(in.count / in.k * j);
  }
  support->index.upload(host, in.stream);
  rows.push_back({"take", static_cast<double>(16 * in.k), [&in, support](std::size_t round) {
                    kernels::take(in.exec(), in.set(round).target.span(), 0, support->index.span(),
                                  support->value.span());
                  }});
  rows.push_back({"put", static_cast<double>(12 * in.k), [&in, support](std::size_t round) {
                    kernels::put(in.exec(), in.set(round).target.span(), 0,
                                 {support->index.span(), support->value.span()});
                  }});
}

}  // namespace

void add_element_rows(const CudaInputs& inputs, std::vector<CudaRow>& rows) {
  add_floats(inputs, rows);
  add_halves(inputs, rows);
  add_messages(inputs, rows);
  add_supports(inputs, rows);
}

}  // namespace winnow::bench
