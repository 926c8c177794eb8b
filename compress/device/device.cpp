// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#include "compress/device/device.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <winnow/error.hpp>

#include "compress/device/message.hpp"
#include "compress/device/owned.hpp"
#include "compress/device/partial.hpp"
#include "compress/device/selection.hpp"
#include "compress/device/sums.hpp"
#include "compress/device/support.hpp"
#include "compress/support.hpp"
#include "kernels/exec/place_memory.hpp"
#include "kernels/exec/stopwatch.hpp"
#include "kernels/memory_ops.hpp"
#include "kernels/ordered_sum.hpp"
#include "kernels/put_back.hpp"
#include "kernels/residual_add.hpp"
#include "kernels/value_coding.hpp"

namespace winnow::compress {
namespace {

using kernels::SparseView;

class OnDevice final : public Compressor {
 public:
  explicit OnDevice(std::unique_ptr<Compressor> real)
      : Compressor(real->codings()), real_(std::move(real)) {}

  std::string name() const override { return real_->name(); }
  bool everything() const override { return real_->everything(); }
  std::uint64_t kept(std::uint64_t count) const override { return real_->kept(count); }
  bool any_k() const override { return real_->any_k(); }
  float bound() const override { return real_->bound(); }

  void encode(const Exec& exec, const EncodeJob& job, Outbox& out) const override {
    for (const Piece& piece : job.part.pieces) piece.state->soil();
    out.kept = job.part.k;
    if (job.part.self != Part::kNobody) {
      const auto encode = everything() ? encode_everything_by_owner : encode_selected_by_owner;
      encode(exec, codings(), job, out);
      return;
    }
    if (everything()) {
      encode_everything(exec, job, out);
    } else {
      encode_selected(exec, job, out);
    }
  }

  std::span<std::byte> room(const Exec& exec, std::size_t bytes) const override {
    return exec.device_workspace->take<std::byte>(bytes);
  }

  MessageView open(const Exec& exec, std::span<const std::byte> message, const Expected& expected,
                   int sender) const override {
    const Incoming incoming{message, expected, sender};
    MessageView view;
    view.header.flags = open_all(exec, {&incoming, 1}, {&view, 1});
    return view;
  }

  std::uint16_t open_all(const Exec& exec, std::span<const Incoming> incoming,
                         std::span<MessageView> views) const override {
    if (incoming.empty()) return 0;
    const Codings of_kind = codings_of(incoming.front().expected.header.kind);
    return open_on_device(exec, incoming, of_kind, views);
  }

  void open_unseen(const Exec& exec, std::span<const Incoming> incoming,
                   std::span<MessageView> views, kernels::CallStatus& verdict) const override {
    judge_on_device(exec, incoming, codings(), views, verdict);
  }

  bool write_outcome(const Exec& exec, const Part& part, const Outcome& outcome) const override {
    if (outcome.shared_out) return write_sums_on_device(exec, part, outcome);
    if (outcome.messages.empty() || part.count == 0) return true;  // dense writes its own
    const Workspace::Scope host_scope(*exec.workspace), scope(*exec.device_workspace);
    const auto terms = exec.workspace->take<kernels::Term>(outcome.messages.size());
    std::ranges::transform(outcome.messages, terms.begin(), term);
    Exec sums = exec;
    if (outcome.verdict != nullptr) sums.condition = kernels::sound(*outcome.verdict);
    const auto placed = kernels::place_terms_to_sum(exec, terms);
    const bool unseen = outcome.verdict != nullptr;
    const auto not_finite = unseen ? std::span(&outcome.verdict->not_finite, 1)
                                   : kernels::take_zeros<std::uint32_t>(exec, 1);
    for (const Piece& piece : part.pieces) {
      kernels::ordered_sum(sums, {.terms = placed,
                                  .begin = piece.base,
                                  .sum = piece.elements,
                                  .factor = outcome.factor,
                                  .not_finite = not_finite.data()});
    }
    if (unseen) return true;
    std::uint32_t answer = 0;
    kernels::read(exec, std::as_writable_bytes(std::span(&answer, 1)), std::as_bytes(not_finite));
    return answer == 0;
  }

  void put_back(const Exec& exec, const Part& part, std::uint32_t owner,
                const MessageView& message) const override {
    if (part.self != Part::kNobody || (part.any_k && !message.carries_all())) {
      compress::put_back(exec, part, owner, message);
      return;
    }
    const Workspace::Scope scope(*exec.device_workspace);
    if (!message.carries_all()) {
      put_back_list(exec, part, {message.index, values_of(exec, message, 0, message.header.k)});
      return;
    }
    for (const Piece& piece : part.pieces) {
      const Workspace::Scope of_piece(*exec.device_workspace);
      kernels::residual_add(exec, piece.residual(),
                            values_of(exec, message, piece.base, piece.elements.size()));
    }
  }

  std::span<std::byte> encode_sums(const Exec& exec, const EncodeJob& job,
                                   std::span<const MessageView> contributions, Owned& owned,
                                   std::span<std::byte> out) const override {
    const auto encode = everything() ? encode_all_sums : encode_selected_sums;
    return encode(exec, codings(), job, contributions, owned, out);
  }

  void select(const Exec& exec, const EncodeJob& job, std::span<std::byte> out) const override {
    if (any_k()) real_->select(exec, job, out);  // refuses
    select_on_device(exec, *this, job, out);
  }

  void take(const Exec& exec, const EncodeJob& job, Taken& taken,
            std::span<std::byte> out) const override {
    take_on_device(exec, codings(), job, taken, out);
  }

  void add(const Exec& exec, const EncodeJob& job, std::span<const MessageView> terms,
           const Addition& out) const override {
    add_on_device(exec, codings(), job, terms, out);
  }

  MessageView place_values(const Exec&, const MessageView& support,
                           const MessageView& values) const override {
    return join_values(support, values);
  }

  MessageView merge(const Exec& exec, const Header& header, const MessageView& first,
                    const MessageView& second) const override {
    return merge_on_device(exec, header, first, second, codings());
  }

  void pack(const Exec& exec, MessageView& sum, std::span<std::byte> out) const override {
    pack_on_device(exec, sum, out, codings_of(sum.header.kind));
  }

  void announce(const Exec& exec, const Header& header, std::span<std::byte> out) const override {
    seal_on_device(exec, header, {}, {}, out, codings());
  }

  void sum_gradients(const Exec& exec, std::span<const kernels::Term> gradients,
                     std::span<float> sum) const override {
    (void)sum_terms(exec, gradients, sum);
  }

 protected:
  std::string selection() const override { return real_->name(); }

 private:
  void encode_everything(const Exec& exec, const EncodeJob& job, Outbox& out) const {
    const Part& part = job.part;
    std::span<std::byte>& message = out.messages.front();
    message = message.first(message_bytes(part.count, part.count, codings()));
    const Workspace::Scope scope(*exec.device_workspace);
    const auto pieces = exec.workspace->take<kernels::FeedbackPiece>(part.pieces.size());
    std::ranges::transform(part.pieces, pieces.begin(), [](const Piece& piece) {
      return kernels::FeedbackPiece{piece.elements, piece.residual(), piece.base};
    });
    const std::span<std::byte> values =
        lay_out(part.count, part.count, message, codings()).value_part;
    const auto poison = kernels::take_zeros<std::uint32_t>(exec, 1);
    const kernels::Placed<kernels::FeedbackPiece> placed =
        pieces.size() > 1 ? kernels::place<kernels::FeedbackPiece>(exec, pieces)
                          : kernels::Placed<kernels::FeedbackPiece>{pieces, nullptr};
    kernels::feedback_quantize(exec, {.pieces = placed,
                                      .decay = job.decay,
                                      .partition = part.partition,
                                      .format = codings().value,
                                      .key = job.random,
                                      .out = {&values, 1},
                                      .not_finite = poison.data()});
    const kernels::Stopwatch watch(job.encode_seconds);
    Header header = job.header;
    header.count = header.k = part.count;
    const MessageView view =
        seal_on_device(exec, header, {}, {.words = poison}, message, codings(), out.verdict);
    if (out.opened != nullptr) *out.opened = view;
  }

  void encode_selected(const Exec& exec, const EncodeJob& job, Outbox& out) const {
    const Part& part = job.part;
    Workspace& scratch = *exec.device_workspace;
    std::span<std::byte>& message = out.messages.front();
    std::span<float> in_place;  // of values that need no coding, and of whose number all is known
    if (codings().exact() && !part.any_k) {
      message = message.first(message_bytes(part.count, part.k, codings()));
      in_place = lay_out(part.count, part.k, message, codings()).floats(part.k);
    }
    DeviceSelection selection = take_selection(exec, part, part.k, in_place);
    const Workspace::Scope scope(scratch);  // Outbox::opened may name the selection
    const auto results = scratch.take<kernels::SelectResult>(part.pieces.size());
    select_pieces(exec, job, {}, results, selection);
    out.kept = selection.index.size();
    const kernels::Stopwatch watch(job.encode_seconds);
    Header header = job.header;
    header.count = part.count;
    const auto& [index, value, count] = selection;
    const MessageView view = seal_selection(
        exec, codings(), part,
        {header, job.random, index, value, {.results = results}, out.verdict}, message);
    message = message.first(view.bytes.size());
    if (out.opened != nullptr) *out.opened = view;
    if (!codings().exact()) put_back_list(exec, part, {index, value});  // what the coding missed
  }

  /// The values that a message has for positions [begin, begin + count), or for entries of its
  /// list.
  std::span<const float> values_of(const Exec& exec, const MessageView& message,
                                   std::uint64_t begin, std::uint64_t count) const {
    if (count == 0) return {};
    if (!message.value.empty()) return message.value.subspan(begin, count);
    const auto value = exec.device_workspace->take<float>(count);
    kernels::dequantize(exec, message.format, message.header.k, message.coded, begin, value);
    return value;
  }

  /// residual += a list of this rank's own.
  static void put_back_list(const Exec& exec, const Part& part, const SparseView& list) {
    if (part.any_k) {
      compress::put_back(exec, part, 0, kernels::Term{.index = list.index, .value = list.value});
      return;
    }
    std::size_t at = 0;  // it has k entries of each piece
    for (const Piece& piece : part.pieces) {
      kernels::put_back(exec, piece.residual(), piece.base,
                        {list.index.subspan(at, piece.k), list.value.subspan(at, piece.k)});
      at += piece.k;
    }
  }

  std::unique_ptr<Compressor> real_;
};

}  // namespace

std::unique_ptr<Compressor> on_device(std::unique_ptr<Compressor> compressor) {
  return std::make_unique<OnDevice>(std::move(compressor));
}

}  // namespace winnow::compress
