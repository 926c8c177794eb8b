// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/lists.hpp"

#include <algorithm>
#include <tuple>

#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/together.hpp"
#include "kernels/index_coding.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/take.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::compress {

List take_list(const Exec& exec, std::uint64_t most, bool variable_k, std::span<float> place) {
  Workspace& scratch = kernels::scratch_of(exec);
  std::uint64_t* const size =
      variable_k ? kernels::take_zeros<std::uint64_t>(exec, 1).data() : nullptr;
  if (!place.empty()) return {scratch.take<std::uint32_t>(most), place, size};
  const auto [index, value] = scratch.take<std::uint32_t, float>(most);
  return {index, value, size};
}

void shorten(const Exec& exec, List& list) {
  if (!list.is_variable()) return;
  const std::uint64_t size = kernels::read(exec, list.size);
  list.index = list.index.first(size);
  list.value = list.value.first(size);
}

std::size_t list_room(std::size_t count, std::size_t k) {
  const std::size_t spare = std::clamp<std::size_t>(count / 8, 64, 4096);
  return std::min(2 * k + spare, count);
}

kernels::OwnedSums take_own_list(const Exec& exec, const Part& part, const Piece& piece,
                                 std::size_t listed, std::uint64_t most) {
  kernels::OwnUnits own{.partition = &part.partition, .self = part.self, .base = piece.base};
  std::tie(own.index, own.value) = kernels::scratch_of(exec).take<std::uint32_t, float>(listed);
  return {.own = own,
          .residual = piece.residual(),
          .begin = piece.own_begin,
          .count = piece.own_count,
          .most = std::min(most, piece.own_count)};
}

kernels::DecodeJob drawing(const Codings& codings, const Header& header,
                           const kernels::CallStatus* status, std::span<std::uint32_t> room) {
  return {
      .count = header.count, .in = {}, .index = room, .key = codings.drawing_key(header, status)};
}

std::span<const std::uint32_t> draw(const Exec& exec, const Codings& codings, const Header& header,
                                    const kernels::CallStatus* status,
                                    std::span<std::uint32_t> room) {
  if (header.k == header.count) return {};
  const kernels::DecodeJob job = drawing(codings, header, status, room.first(header.k));
  codings.index->decode(exec, {&job, 1});
  return job.index;
}

void clear_poisoned(const Exec& exec, const Header& header, std::span<const std::uint32_t> words,
                    std::span<float> values) {
  const bool known = (header.flags & Header::kPoison) != 0;
  if (!known && words.empty()) return;
  Exec conditional = exec;
  if (!known) {
    conditional.condition = {
        .words = words.data(), .count = static_cast<std::uint32_t>(words.size()), .any = true};
  }
  kernels::fill(conditional, values, 0);
}

void code_values(const Exec& exec, const Codings& codings, const EncodeList& list,
                 std::span<std::byte> out) {
  const auto value_part = lay_out(list.shape, out.first(list.shape.bytes())).value_part;
  const bool in_place = std::as_bytes(list.value).data() == value_part.data();
  if (!in_place) kernels::quantize(exec, codings.value, list.random, list.value, value_part);
}

MessageView finish_coded(const Exec& exec, const Codings& codings, const EncodeList& list,
                         std::span<std::byte> out) {
  return finish_message(exec, list.header, list.shape, list.index, out.first(list.shape.bytes()),
                        codings, list.poison, list.status);
}

MessageView encode_values(const Exec& exec, const Codings& codings, const EncodeList& list,
                          std::span<std::byte> out) {
  code_values(exec, codings, list, out);
  return finish_coded(exec, codings, list, out);
}

void keep_missed(const Exec& exec, const Part& part, const Owned& owned, const EncodeList& list) {
  kernels::add_owned(exec, taken_job(part, owned, {list.header.owner, list.index, list.value}));
}

void encode_together(const Exec& exec, const Codings& codings, const EncodeJob& job,
                     std::span<const EncodeList> lists, EncodeResult& out) {
  const auto for_each_owner = [&](const auto& each) {
    for (std::uint32_t owner = 0; owner < lists.size(); ++owner) {
      if (owner != job.part.self) each(owner);
    }
  };
  kernels::together(exec, [&] {
    for_each_owner([&](std::uint32_t owner) {
      const EncodeList& list = lists[owner];
      if (!codings.exact()) {
        code_values(exec, codings, list, out.messages[owner]);
        return;
      }
      const auto message = out.messages[owner].first(list.shape.bytes());
      const auto place = lay_out(list.shape, message).floats(list.header.k);
      if (place.data() != list.value.data()) kernels::copy(exec, place, list.value);
    });
  });
  kernels::together(exec, [&] {
    for_each_owner([&](std::uint32_t owner) {
      store_message(out, owner, finish_coded(exec, codings, lists[owner], out.messages[owner]));
      if (!codings.exact()) keep_missed(exec, job.part, out.owned, lists[owner]);
    });
  });
}

MessageView encode_variable(const Exec& exec, const Codings& codings, EncodeList list,
                            std::span<std::byte> out) {
  const auto& [header, shape, random, index, value, poison, status] = list;
  const std::uint64_t k = index.size();
  list.header.k = shortest_k(header.count, k, codings);
  list.shape = shape_of(header.count, header.k, codings);
  if (header.k == k) return encode_values(exec, codings, list, out);
  // Every position travels.
  const auto message = out.first(shape.bytes());
  const MessageLayout layout = lay_out(shape, message);
  Workspace& scratch = kernels::scratch_of(exec);
  const Workspace::Scope scope(scratch);
  if (codings.exact()) {
    kernels::zero(exec, layout.value_part);
    kernels::put(exec, layout.floats(header.k), 0, {index, value});
    kernels::fill(exec, value, 0);
  } else {
    const auto all = kernels::take_zeros<float>(exec, header.count);
    kernels::put(exec, all, 0, {index, value});
    kernels::quantize(exec, codings.value, random, all, layout.value_part);
    kernels::take(exec, all, 0, index, value);
  }
  return finish_message(exec, header, shape, {}, message, codings, poison, status);
}

}  // namespace winnow::compress
