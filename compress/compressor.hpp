// Copyright The Winnow Authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <winnow/exec.hpp>

#include "compress/message.hpp"
#include "compress/part.hpp"
#include "compress/selection.hpp"
#include "kernels/call_status.hpp"
#include "kernels/terms.hpp"

namespace winnow::compress {

/// One part on its way into messages.
struct EncodeJob {
  const Part& part;
  float decay = 1;
  Header header;                     ///< of every message, but for count, k, codings and poison
  kernels::RandomKey random;         ///< the message to owner o takes stage random.stage + o
  double* encode_seconds = nullptr;  ///< grows by what follows the selection, or the fused pass if
                                     ///< everything is kept; null: not counted
  double* add_seconds = nullptr;     ///< grows by adding what other ranks sent
  /// The status of the call, if not null: messages carry its number, whatever `header` and `random`
  /// say, and it collects their poison.
  kernels::CallStatus* status = nullptr;

  /// The key of the message to an owner.
  kernels::RandomKey key_of(std::uint32_t owner) const {
    kernels::RandomKey key = random;
    key.stage += owner;
    return key;
  }
};

/// encode leaves the bytes of messages, and no other scratch.
struct BytesAlone {
  void keep(std::uint32_t, const MessageView&) const {}
};
/// encode also leaves messages by owner as if they had been decoded, views of its scratch.
struct BytesAndViews {
  std::span<MessageView> views;
  void keep(std::uint32_t owner, const MessageView& message) const { views[owner] = message; }
};

/// The result of encode. messages[o], for owner o, is a buffer of as many bytes as
/// PartShapes::gradients says before and the message after; messages[Part::self] stays as it is.
struct EncodeResult {
  std::span<std::span<std::byte>> messages = {};
  Owned owned = {};
  std::uint64_t kept = 0;  ///< elements chosen for messages
  std::variant<BytesAlone, BytesAndViews> left = {};

  bool leaves_views() const { return std::holds_alternative<BytesAndViews>(left); }
};

/// The values taken at one support, on their way into a message.
struct TakenMessage {
  Taken taken;
  std::span<float> missed;       ///< room for as many values
  std::span<std::byte> message;  ///< of as many bytes as PartShapes::values says
};

/// The union of two lists, whose length only the device may know: scratch.
struct Union {
  Header header;                   ///< of the sum; its k is the most that it may carry
  std::span<std::uint32_t> index;  ///< room for the list
  std::span<float> value;          ///< likewise
  std::span<float> all;            ///< room for every position, where that may be shorter
  std::uint64_t* size;             ///< in the memory of exec.place: elements of the list

  std::span<const std::byte> size_word() const { return std::as_bytes(std::span(size, 1)); }
};
/// The sum of two messages.
using Merged = std::variant<MessageView, Union>;

/// The output of Compressor::add. `message`, if not empty, has as many bytes as PartShapes::values
/// says.
struct Addition {
  std::span<float> sum;
  std::span<std::byte> message;
};

/// The result of a schedule: the sums of owners if it is partitioned, else messages for all, in
/// their order.
struct Outcome {
  std::span<const MessageView> messages;
  bool partitioned = false;
  float factor = 1;
  bool after_encode = false;  ///< the elements are as encode left them; else they may hold anything
  /// Where the part's elements are: Owned::elements of encode. Empty: to be placed.
  kernels::Placed<kernels::PlacedSpan> elements = {};
  /// If not null: nothing is written if it says that a message may not be read, and it learns
  /// whether the sums are finite and whether elements of 16 bits hold them.
  kernels::CallStatus* status = nullptr;
};

/// The result of write_outcome's look at the sums, unless it goes into a status.
struct Written {
  bool finite = true;
  bool fits = true;  ///< no finite sum was too large for its element of 16 bits
};

/// How a rank's gradient becomes messages: a selection, the coding of what it selects, and error
/// feedback with what is not sent. Stateless: what is carried from step to step lies in the Part's
/// ParameterStates.
///
/// Parts and messages lie in the memory of exec.place. On a device, work is enqueued on
/// exec.stream; the host waits for it only to read an answer: once in decode_all and write_outcome
/// (not if they are given a CallStatus), once more in decode_all if a k is unknown, in encode to
/// several owners and, if variable_k, in encode and encode_sums. Scratch is of the workspaces of
/// `exec`, and lives until the caller's Scopes end.
class Compressor {
 public:
  Compressor(Choice choice, const Codings& codings)
      : choice_(std::move(choice)), codings_(codings) {}

  const Codings& codings() const { return codings_; }
  /// The specification in its canonical form, e.g. "topk:0.01,int8".
  std::string name() const;
  /// Stages of a warm-up, in which a parameter keeps 1/4, 1/16, ... of its elements for equally
  /// many calls before it keeps what this compressor does. (Lin et al., Deep Gradient Compression,
  /// 2018.)
  unsigned stages() const;
  /// The stage of a parameter that was in so many calls; stages() from the end of the warm-up on.
  unsigned stage_of(std::uint64_t calls) const;
  /// The compressor of a stage.
  Compressor at_stage(unsigned stage) const;
  /// Whether every element travels.
  bool keeps_all() const { return std::holds_alternative<KeepsAll>(selection().support); }
  /// Whether every element travels exactly, so that a dense schedule does the same for less.
  bool lossless() const { return keeps_all() && codings_.exact(); }
  /// Choice::argument.
  double argument() const { return choice_.argument; }
  /// k: elements kept of `count` elements of a parameter; if variable_k, the most.
  std::uint64_t kept(std::uint64_t count) const {
    return selection().kept(choice_.argument, count);
  }
  /// Elements that an owner keeps of `count` of its sums of a parameter; if variable_k, the most.
  std::uint64_t kept_sums(std::uint64_t count) const {
    return selection().kept(choice_.sums > 0 ? choice_.sums : choice_.argument, count);
  }
  /// Whether owners keep another share of their sums than ranks of their gradients.
  bool has_sums_share() const { return choice_.sums > 0; }
  /// If not 0, the most elements that compete with each other: longer parameters are cut.
  std::uint64_t block() const { return choice_.block; }
  /// How the gradient decides which elements travel; null if it does not.
  const Chooses* chooses() const { return std::get_if<Chooses>(&selection().support); }
  /// Whether the gradient decides how many elements are kept, and messages say so.
  bool variable_k() const { return chooses() != nullptr && chooses()->variable_k; }
  /// Whether the values of a message have one sign, the same on all ranks in a call.
  bool one_sign() const { return codings_.value.coding->one_sign; }
  /// Whether all ranks know which positions travel before there is a gradient.
  bool knows_support() const { return chooses() == nullptr; }
  /// Values that place_terms needs room for to decode lists of up to k: none unless messages have
  /// lists of coded values.
  std::uint64_t decoded_room(std::uint64_t k) const {
    return keeps_all() || codings_.exact() ? 0 : k;
  }
  /// The expectation of a message of this shape with this header, whose k is the most if it varies.
  Expected expect(const Header& header, const Shape& shape) const {
    return variable_k() ? Expected::at_most(header) : Expected(header, shape);
  }

  /// Error feedback, selection and coding of one part in one pass: writes one message per owner,
  /// and leaves the rest in the residuals. The elements are then as GradientAfter::accumulated
  /// says; if everything is kept they stay as they were. Takes all memory before the first pass, so
  /// that it fails before it changes anything.
  void encode(const Exec& exec, const EncodeJob& job, EncodeResult& out) const;
  /// encode in two halves, for ranks that exchange how much their messages carry before they
  /// make them, where the gradient decides that: choose does all but the messages, and leaves
  /// Chosen::begin to its caller, who fills it from Chosen::device_begin before encode_chosen. No
  /// host waits in either, unless variable_k.
  Chosen choose(const Exec& exec, const EncodeJob& job, EncodeResult& out) const;
  void encode_chosen(const Exec& exec, const EncodeJob& job, const Chosen& chosen,
                     EncodeResult& out) const;
  /// Adds what other ranks sent, in rank order, to what this rank owns (contributions[r] is of rank
  /// r; this rank's is empty), then selects and codes the sums: writes one message to `out`, as
  /// many bytes as PartShapes::sums says, and to `owned` the remainder for store_remainder. Returns
  /// the message. The residuals stay. The message carries Header::kPoison if job.header does or if
  /// an acc of this rank or a sum is not finite.
  std::span<std::byte> encode_sums(const Exec& exec, const EncodeJob& job,
                                   std::span<const MessageView> contributions, Owned& owned,
                                   std::span<std::byte> out) const;

  // For schedules that agree on a support before values travel.

  /// Error feedback in one pass over memory, after which residuals hold acc, and the support that
  /// Part::self chooses from this rank's acc: its owner_k[self] largest. Writes a message of
  /// as many bytes as PartShapes::supports says, with
  /// Header::kPoison if job.header has it or an acc is not finite. Takes the same scratch in each
  /// turn. Throws UsageError if variable_k: ranks could not know how many values follow.
  void select(const Exec& exec, const EncodeJob& job, std::span<std::byte> out) const;
  /// Moves acc at each `index` out of the residuals into its `value`; if job.status says that no
  /// message may be read, so that no index may either, moves nothing, and the values are NaN, which
  /// put() ignores. No position is taken twice. Takes no memory.
  void take(const Exec& exec, const EncodeJob& job, const Owned& owned,
            std::span<const Taken> taken) const;
  /// Makes messages of what take() has taken; what the coding misses goes back into the residuals.
  void code_taken(const Exec& exec, const EncodeJob& job, const Owned& owned,
                  std::span<const TakenMessage> messages) const;
  /// Sums terms of equally many values in their order: out.sum[i] = ((0 + terms[0][i]) +
  /// terms[1][i]) + ...; codes the sums if there is a message to write, with Header::kPoison if one
  /// is not finite, and leaves in out.sum what the coding misses.
  void add(const Exec& exec, const EncodeJob& job, std::span<const MessageView> terms,
           const Addition& out) const;

  /// compress::decode_all with the codings of this compressor: partial_codings for a partial, and
  /// no value coding for a support.
  std::uint16_t decode_all(const Exec& exec, std::span<const ReceivedMessage> incoming,
                           std::span<MessageView> views, kernels::CallStatus* call = nullptr) const;
  /// Decodes one message.
  MessageView decode(const Exec& exec, std::span<const std::byte> message, const Expected& expected,
                     int sender) const;
  /// The sum of two messages, each a gradient or a partial sum: first + second where both name a
  /// position. It gets `header`, whose k is the most that it may carry, with the flags of both. It
  /// is a Union unless its length is known. Takes the same scratch whatever the messages carry. A
  /// lossy coding is applied once, by the sender whose residual keeps what it misses. If `status`
  /// says that no message may be read, it is empty.
  Merged merge(const Exec& exec, const Header& header, const MessageView& first,
               const MessageView& second, const kernels::CallStatus* status = nullptr) const;
  /// The sum, whose union has k elements: it carries these, or every position if that travels in no
  /// more bytes. Its `bytes` are empty until it is packed.
  MessageView finalize(const Exec& exec, const Union& both, std::uint64_t k,
                       const kernels::CallStatus* status = nullptr) const;
  /// Writes a sum that is in no message yet, as finalize and join_values return them, to the first
  /// bytes of `out`, as long as most_bytes of the most that it may carry, and points its `bytes`
  /// there. Its indices must be of places below its count (see bound_index). Values that came coded
  /// stay as they came. `status`: as EncodeJob::status.
  void pack(const Exec& exec, MessageView& sum, std::span<std::byte> out,
            kernels::CallStatus* status = nullptr) const;

  /// The elements of a part = the sum of what a schedule ended with, times factor; where elements
  /// of 16 bits cannot hold that, the largest finite one.
  Written write_outcome(const Exec& exec, const Part& part, const Outcome& outcome) const;
  /// The rests of sums that write_outcome found too large go into the residuals; with a status,
  /// unless it says that the bucket must become NaN. Takes the scratch that write_outcome took.
  void keep_rests(const Exec& exec, const Part& part, const Outcome& outcome,
                  const kernels::Rests& rests) const;

 private:
  const Selection& selection() const { return *choice_.selection; }
  // encode, in a file for each way in which a selection decides what travels.
  void encode(const Exec& exec, const KeepsAll&, const EncodeJob& job, EncodeResult& out) const;
  void encode(const Exec& exec, const Draws& draws, const EncodeJob& job, EncodeResult& out) const;
  void encode(const Exec& exec, const Chooses&, const EncodeJob& job, EncodeResult& out) const;
  void write(const Exec& exec, const Part& part, const Outcome& outcome,
             const kernels::OwnedWrite& how) const;
  /// The codings of messages of a kind.
  Codings codings_of(Header::Kind kind) const;

  Choice choice_;
  Codings codings_;
};

std::span<const Selection* const> selections();

/// Parses SELECTION[:ARGUMENT][,VALUE[:block=N][:stochastic]][,INDEX], e.g. "topk:0.01",
/// "topk:0.01,int8:block=128:stochastic,bitmap" or, for every element, "int4". Throws UsageError;
/// for an unknown word it names the nearest known one. `seed`: of positions that all ranks draw.
std::unique_ptr<Compressor> make_compressor(std::string_view specification, std::uint64_t seed = 0);

/// The longest shape of a message that carries k or fewer of count elements.
Shape longest_shape(std::uint64_t count, std::uint64_t k, const Codings& codings);

/// Shares a part out among `owners`, of whom this rank is `self`, and says how many elements are
/// kept where, and how long messages are: in Piece and Part. With one owner and self Part::kNobody
/// a message is for all ranks.
void share_out(Part& part, const Compressor& compressor, std::uint32_t owners, std::uint32_t self);

/// Also fills in PartShapes::supports and values of a part that was shared out.
void plan_supports(Part& part, const Codings& codings);

/// Fills in Part::scratch of a part that was shared out and whose pieces have states. Passes over a
/// part without it allocate as they go, so they may fail in the middle.
void plan_scratch(const Exec& exec, const Compressor& compressor, Part& part);

/// Makes this rank another owner of a part that was shared out: Part::self and what is its own of
/// each piece. Part::k and Piece::k, which are kept for others, stay as they were for the owner
/// before.
void become_owner(Part& part, const Compressor& compressor, std::uint32_t self);

}  // namespace winnow::compress
