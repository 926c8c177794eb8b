// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch/bodies.hpp"

namespace winnow::kernels {

namespace reference {  // loops that lanes and threads do not help
decltype(kernels::bitmap_decode) bitmap_decode;
decltype(kernels::check_headers) check_headers;
decltype(kernels::claimed_k) claimed_k;
decltype(kernels::end_call) end_call;
decltype(kernels::judge_messages) judge_messages;
decltype(kernels::raw32_decode) raw32_decode;
decltype(kernels::seal) seal;
decltype(kernels::seal_bitmap) seal_bitmap;
decltype(kernels::seal_raw32) seal_raw32;
decltype(kernels::seeded_decode) seeded_decode;
void place_terms(const Exec&, PlacedTerms&, std::uint64_t);
}  // namespace reference

namespace cpu {
decltype(kernels::add_owned) add_owned;
decltype(kernels::all_finite) all_finite;
decltype(kernels::average) average;
decltype(kernels::check_values) check_values;
decltype(kernels::checksums) checksums;
void copy(const Exec&, std::span<std::byte>, std::span<const std::byte>);
decltype(kernels::dequantize) dequantize;
decltype(kernels::eliasfano_decode) eliasfano_decode;
decltype(kernels::feedback_add) feedback_add;
decltype(kernels::feedback_keep) feedback_keep;
decltype(kernels::feedback_quantize) feedback_quantize;
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
decltype(kernels::ordered_sum) ordered_sum;
decltype(kernels::positions_of) positions_of;
decltype(kernels::put) put;
decltype(kernels::quantize) quantize;
decltype(kernels::reduce) reduce;
decltype(kernels::residual_add) residual_add;
decltype(kernels::scale) scale;
decltype(kernels::seal_eliasfano) seal_eliasfano;
decltype(kernels::select_sums) select_sums;
decltype(kernels::select_sums_scratch) select_sums_scratch;
decltype(kernels::split_by_owner) split_by_owner;
decltype(kernels::split_scratch) split_scratch;
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
    .bitmap_decode = reference::bitmap_decode,
    .check_headers = reference::check_headers,
    .check_values = cpu::check_values,
    .checksums = cpu::checksums,
    .claimed_k = reference::claimed_k,
    .copy = cpu::copy,
    .dequantize = cpu::dequantize,
    .eliasfano_decode = cpu::eliasfano_decode,
    .end_call = reference::end_call,
    .feedback_add = cpu::feedback_add,
    .feedback_keep = cpu::feedback_keep,
    .feedback_quantize = cpu::feedback_quantize,
    .feedback_select = cpu::feedback_select,
    .feedback_select_scratch = cpu::feedback_select_scratch,
    .feedback_threshold = cpu::feedback_threshold,
    .feedback_threshold_scratch = cpu::feedback_threshold_scratch,
    .fill = cpu::fill,
    .fits = cpu::fits,
    .from_ordered = cpu::from_ordered,
    .judge_messages = reference::judge_messages,
    .keep_sums = cpu::keep_sums,
    .merge = cpu::merge,
    .narrow = cpu::narrow,
    .ordered_sum = cpu::ordered_sum,
    .place_terms = reference::place_terms,
    .positions_of = cpu::positions_of,
    .put = cpu::put,
    .quantize = cpu::quantize,
    .raw32_decode = reference::raw32_decode,
    .reduce = cpu::reduce,
    .residual_add = cpu::residual_add,
    .scale = cpu::scale,
    .seal = reference::seal,
    .seal_bitmap = reference::seal_bitmap,
    .seal_eliasfano = cpu::seal_eliasfano,
    .seal_raw32 = reference::seal_raw32,
    .seeded_decode = reference::seeded_decode,
    .select_sums = cpu::select_sums,
    .select_sums_scratch = cpu::select_sums_scratch,
    .split_by_owner = cpu::split_by_owner,
    .split_scratch = cpu::split_scratch,
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
