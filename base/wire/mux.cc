#include "base/wire/mux.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cassert>
#include <utility>

#include "base/little_endian.h"

namespace moorage::base {
namespace {

namespace json = boost::json;

constexpr size_t kMaxReasonBytes = 2000;
constexpr size_t kMaxReasonDepth = 4;
constexpr size_t kCreditBytes = 4;
// Credit goes back in pieces of this size: one frame for each piece of data would double the
// frames.
constexpr uint64_t kGiveBackBytes = 64 << 10;

[[noreturn]] void broken(const std::string& what) {
  throw Error(Code::corrupted, "the stream broke a rule: " + what);
}

bool is_kind(uint8_t value) {
  return value >= static_cast<uint8_t>(MuxKind::open) &&
         value <= static_cast<uint8_t>(MuxKind::reset);
}

// A payload that its kind does not allow is refused before its bytes are awaited.
void check_size(MuxKind kind, uint32_t bytes) {
  switch (kind) {
    case MuxKind::open:
    case MuxKind::data:
    case MuxKind::reset:
      if (bytes == 0) broken("a frame without a payload");
      break;
    case MuxKind::credit:
      if (bytes != kCreditBytes) broken("a credit of an odd size");
      break;
    case MuxKind::end:
      if (bytes != 0) broken("an end with a payload");
      break;
  }
}

}  // namespace

Mux::Head Mux::parse_head(std::string_view bytes) const {
  const auto kind = static_cast<uint8_t>(bytes[0]);
  if (!is_kind(kind)) broken("unknown type " + std::to_string(kind));
  if (bytes[1] != 0 || bytes[2] != 0 || bytes[3] != 0) broken("a reserved byte is not zero");
  const Head head{static_cast<MuxKind>(kind), number_at<uint32_t>(&bytes[4]),
                  number_at<uint32_t>(&bytes[8])};
  if (head.payload_bytes > kMuxMaxPayload) broken("a payload is too large");
  check_size(head.kind, head.payload_bytes);
  if (head.kind == MuxKind::open) {
    if (side_ == Side::opener) broken("the answerer opened a channel");
    if (head.channel <= newest_) broken("a channel's number does not rise");
    if (channels_.size() >= kMuxMaxChannels) broken("too many channels");
  } else if (head.channel == 0 || head.channel > newest_) {
    broken("a channel that was never opened");
  }
  return head;
}

Mux::Channel* Mux::find(uint32_t number) {
  auto found = channels_.find(number);
  return found == channels_.end() ? nullptr : &found->second;
}

bool Mux::accept_end(Channel& channel, uint32_t number) {
  if (channel.peer_ended) broken("a second end");
  channel.peer_ended = true;
  if (channel.ended) channels_.erase(number);
  return true;
}

// Applies a whole frame to the channels. False: the caller need not see it.
bool Mux::accept(const Head& head, std::string_view payload) {
  if (head.kind == MuxKind::open) {
    newest_ = head.channel;
    channels_.emplace(head.channel, Channel{});
    return true;
  }
  Channel* channel = find(head.channel);
  if (!channel) return false;
  if (head.kind == MuxKind::end) return accept_end(*channel, head.channel);
  if (head.kind == MuxKind::reset) {
    channels_.erase(head.channel);
    return true;
  }
  if (head.kind == MuxKind::credit) {
    const auto bytes = number_at<uint32_t>(payload.data());
    if (bytes == 0 || channel->send_window + bytes > kMuxMaxWindow) broken("an invalid credit");
    channel->send_window += bytes;
    return true;
  }
  if (channel->peer_ended) broken("data after the end");
  if (payload.size() > channel->receive_window) broken("data beyond the window");
  channel->receive_window -= payload.size();
  return true;
}

std::optional<MuxFrame> Mux::next(std::string_view& bytes) {
  if (std::exchange(delivered_, false)) partial_.clear();
  const auto take = [&](size_t size) {
    const size_t count = std::min(bytes.size(), size - partial_.size());
    partial_.append(bytes.substr(0, count));
    bytes.remove_prefix(count);
    return partial_.size() == size;
  };
  while (!bytes.empty()) {
    // A frame that is whole in the caller's buffer is not copied.
    const bool direct = partial_.empty() && bytes.size() >= kMuxHeaderBytes;
    if (!direct && partial_.size() < kMuxHeaderBytes && !take(kMuxHeaderBytes)) break;
    const Head head = parse_head(direct ? bytes : partial_);
    const size_t size = kMuxHeaderBytes + head.payload_bytes;
    std::string_view frame = bytes.substr(0, size);
    if (direct && frame.size() == size) {
      bytes.remove_prefix(size);
    } else {
      if (!take(size)) break;
      frame = partial_;
    }
    const std::string_view payload = frame.substr(kMuxHeaderBytes);
    const bool copied = !partial_.empty();
    if (accept(head, payload)) {
      delivered_ = copied;
      return MuxFrame{head.kind, head.channel, payload};
    }
    partial_.clear();
  }
  return std::nullopt;
}

void Mux::put(MuxKind kind, uint32_t channel, std::string_view payload) {
  append_number(output_, static_cast<uint32_t>(kind));  // and three zero bytes
  append_number(output_, channel);
  append_number(output_, static_cast<uint32_t>(payload.size()));
  output_ += payload;
}

uint32_t Mux::open(std::string_view request) {
  assert(side_ == Side::opener && !request.empty());
  if (request.size() > kMuxMaxPayload)
    throw Error(Code::invalid_argument, "a request to another machine is too large");
  if (channels_.size() >= kMuxMaxChannels || newest_ == UINT32_MAX)
    throw Error(Code::resource_exhausted, "too many requests to another machine at the same time");
  channels_.emplace(++newest_, Channel{});
  put(MuxKind::open, newest_, request);
  return newest_;
}

size_t Mux::room(uint32_t channel) const {
  auto found = channels_.find(channel);
  return found == channels_.end() || found->second.ended ? 0 : found->second.send_window;
}

void Mux::send(uint32_t number, std::string_view bytes) {
  Channel* channel = find(number);
  if (!channel || bytes.empty()) return;
  assert(!channel->ended && bytes.size() <= channel->send_window);
  channel->send_window -= bytes.size();
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kMuxMaxPayload)))
    put(MuxKind::data, number, bytes.substr(0, kMuxMaxPayload));
}

void Mux::end(uint32_t number) {
  Channel* channel = find(number);
  if (!channel || std::exchange(channel->ended, true)) return;
  put(MuxKind::end, number, {});
  if (channel->peer_ended) channels_.erase(number);
}

void Mux::reset(uint32_t number, const Error& reason) {
  if (channels_.erase(number) == 0) return;
  std::string_view message = std::string_view(reason.message()).substr(0, kMaxReasonBytes);
  put(MuxKind::reset, number,
      json::serialize(json::object{{"code", code_name(reason.code())}, {"message", message}}));
}

void Mux::consumed(uint32_t number, size_t bytes) {
  Channel* channel = find(number);
  if (!channel || channel->peer_ended) return;
  channel->consumed += bytes;
  if (channel->consumed < kGiveBackBytes) return;
  grant(number, static_cast<uint32_t>(std::exchange(channel->consumed, 0)));
}

void Mux::grant(uint32_t number, uint32_t bytes) {
  Channel* channel = find(number);
  if (!channel || channel->peer_ended || bytes == 0) return;
  channel->receive_window += bytes;
  assert(channel->receive_window <= kMuxMaxWindow);
  std::string payload;
  append_number(payload, bytes);
  put(MuxKind::credit, number, payload);
}

Error mux_reset_reason(std::string_view payload) {
  json::parse_options options;
  options.max_depth = kMaxReasonDepth;
  options.allow_invalid_utf8 = true;
  boost::system::error_code error;
  const json::value value = json::parse(payload, error, {}, options);
  const json::object* object = error ? nullptr : value.if_object();
  const auto text = [object](std::string_view name) {
    const json::value* field = object ? object->if_contains(name) : nullptr;
    const json::string* found = field ? field->if_string() : nullptr;
    return found ? std::string(*found).substr(0, kMaxReasonBytes) : std::string();
  };
  const std::string message = text("message");
  return Error(code_from_name(text("code")),
               message.empty() ? "the other machine ended a request without a reason" : message);
}

}  // namespace moorage::base
