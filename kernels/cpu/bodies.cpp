// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

namespace cpu {
decltype(kernels::add_owned) add_owned;
decltype(kernels::all_finite) all_finite;
decltype(kernels::average) average;
void copy(const Exec&, std::span<std::byte>, std::span<const std::byte>);
decltype(kernels::dequantize) dequantize;
decltype(kernels::feedback_add) feedback_add;
decltype(kernels::feedback_keep) feedback_keep;
decltype(kernels::feedback_select) feedback_select;
decltype(kernels::feedback_select_scratch) feedback_select_scratch;
decltype(kernels::feedback_threshold) feedback_threshold;
decltype(kernels::feedback_threshold_scratch) feedback_threshold_scratch;
decltype(kernels::fill) fill;
decltype(kernels::fits) fits;
decltype(kernels::from_ordered) from_ordered;
decltype(kernels::keep_sums) keep_sums;
decltype(kernels::merge) merge;
decltype(kernels::narrow) narrow;
decltype(kernels::positions_of) positions_of;
decltype(kernels::ordered_sum) ordered_sum;
decltype(kernels::put) put;
decltype(kernels::put_back) put_back;
decltype(kernels::quantize) quantize;
decltype(kernels::reduce) reduce;
decltype(kernels::residual_add) residual_add;
decltype(kernels::scale) scale;
decltype(kernels::split_by_owner) split_by_owner;
decltype(kernels::split_scratch) split_scratch;
decltype(kernels::select_sums) select_sums;
decltype(kernels::select_sums_scratch) select_sums_scratch;
decltype(kernels::store) store;
decltype(kernels::store_owned) store_owned;
decltype(kernels::take) take;
decltype(kernels::take_owned) take_owned;
decltype(kernels::to_ordered) to_ordered;
decltype(kernels::widen) widen;
decltype(kernels::write_owned) write_owned;
decltype(kernels::zero) zero;
}  // namespace cpu

constinit const Bodies kCpu{
    .add_owned = cpu::add_owned,
    .all_finite = cpu::all_finite,
    .average = cpu::average,
    .copy = cpu::copy,
    .dequantize = cpu::dequantize,
    .feedback_add = cpu::feedback_add,
    .feedback_keep = cpu::feedback_keep,
    .feedback_select = cpu::feedback_select,
    .feedback_select_scratch = cpu::feedback_select_scratch,
    .feedback_threshold = cpu::feedback_threshold,
    .feedback_threshold_scratch = cpu::feedback_threshold_scratch,
    .fill = cpu::fill,
    .fits = cpu::fits,
    .from_ordered = cpu::from_ordered,
    .keep_sums = cpu::keep_sums,
    .merge = cpu::merge,
    .narrow = cpu::narrow,
    .positions_of = cpu::positions_of,
    .ordered_sum = cpu::ordered_sum,
    .place_terms = nullptr,
    .put = cpu::put,
    .put_back = cpu::put_back,
    .quantize = cpu::quantize,
    .reduce = cpu::reduce,
    .residual_add = cpu::residual_add,
    .scale = cpu::scale,
    .split_by_owner = cpu::split_by_owner,
    .split_scratch = cpu::split_scratch,
    .select_sums = cpu::select_sums,
    .select_sums_scratch = cpu::select_sums_scratch,
    .store = cpu::store,
    .store_owned = cpu::store_owned,
    .take = cpu::take,
    .take_owned = cpu::take_owned,
    .to_ordered = cpu::to_ordered,
    .widen = cpu::widen,
    .write_owned = cpu::write_owned,
    .zero = cpu::zero,
};

}  // namespace winnow::kernels
