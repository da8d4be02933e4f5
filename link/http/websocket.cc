#include "link/http/websocket.h"

#include <algorithm>
#include <array>

#include "base/digest.h"
#include "base/error.h"
#include "base/wire/text_stream.h"

namespace moorage::link {
namespace {

constexpr size_t kPiece = 64 << 10;
constexpr size_t kMaxControl = 125;  // RFC 6455, 5.5
constexpr uint8_t kContinuation = 0, kBinary = 2, kClose = 8, kPing = 9, kPong = 10;
// A ping after this silence; an answer must come within the same time again.
constexpr std::chrono::seconds kSilence{20};
constexpr std::chrono::seconds kControlDeadline{10};

std::string raw_of(const std::string& hex) {
  std::string raw;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    raw += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return raw;
}

std::string accept_of(const std::string& key) {
  return base::base64_text(raw_of(base::sha1_hex(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")));
}

[[noreturn]] void refuse(const char* why) {
  throw Error(Code::corrupted, std::string("its WebSocket breaks the protocol: ") + why);
}

}  // namespace

std::unique_ptr<WebSocket> WebSocket::open(HttpClient& client, HttpRequest request,
                                           Deadline deadline, HttpResponse& refusal) {
  const std::string key = base::base64_text(raw_of(base::random_hex(16)));
  request.headers.insert(request.headers.end(), {{"Connection", "Upgrade"},
                                                 {"Upgrade", "websocket"},
                                                 {"Sec-WebSocket-Version", "13"},
                                                 {"Sec-WebSocket-Key", key}});
  Upgraded upgraded = client.upgrade(request, deadline);
  if (!upgraded.stream) {
    refusal = std::move(upgraded.response);
    return nullptr;
  }
  if (upgraded.response.headers.get("Sec-WebSocket-Accept") != accept_of(key))
    refuse("its key does not fit");
  return std::unique_ptr<WebSocket>(
      new WebSocket(std::move(upgraded.stream), std::move(upgraded.early)));
}

WebSocket::WebSocket(std::unique_ptr<ByteStream> stream, std::string early)
    : stream_(std::move(stream)), held_(std::move(early)) {}

void WebSocket::fill() {
  const size_t before = held_.size();
  for (;;) {
    held_.resize(before + kPiece);
    try {
      const size_t size = stream_->read(std::span(held_).subspan(before), after(kSilence));
      held_.resize(before + size);
      if (size == 0) throw Error(Code::io, "the stream was cut");
      pong_until_.reset();
      return;
    } catch (const Error& error) {
      held_.resize(before);
      if (error.code() != Code::deadline_exceeded || pong_until_) throw;
    }
    pong_until_ = after(kSilence);
    send_control(kPing, "");
  }
}

void WebSocket::send_control(uint8_t opcode, std::string_view payload) {
  const std::string mask = raw_of(base::random_hex(4));
  std::string frame{static_cast<char>(0x80 | opcode), static_cast<char>(0x80 | payload.size())};
  frame += mask;
  for (size_t i = 0; i < payload.size(); ++i)
    frame += static_cast<char>(payload[i] ^ mask[i % mask.size()]);
  stream_->write(frame, after(kControlDeadline));
}

// False: more bytes are needed.
bool WebSocket::parse_header() {
  if (held_.size() < 2) return false;
  const auto first = static_cast<uint8_t>(held_[0]);
  const auto second = static_cast<uint8_t>(held_[1]);
  const size_t extended = (second & 0x7f) == 126 ? 2 : (second & 0x7f) == 127 ? 8 : 0;
  if (held_.size() < 2 + extended) return false;
  payload_left_ = extended == 0 ? second & 0x7f : 0;
  for (size_t i = 0; i < extended; ++i)
    payload_left_ = payload_left_ << 8 | static_cast<uint8_t>(held_[2 + i]);
  held_.erase(0, 2 + extended);
  opcode_ = first & 0x0f;
  last_fragment_ = (first & 0x80) != 0;
  if ((first & 0x70) != 0) refuse("an extension that nobody asked for");
  if ((second & 0x80) != 0) refuse("a masked frame from a server");
  if (payload_left_ >> 63 != 0) refuse("an invalid length");
  if (opcode_ >= kClose) {
    if (opcode_ > kPong || !last_fragment_ || payload_left_ > kMaxControl)
      refuse("an invalid control frame");
  } else if (opcode_ > kBinary || (opcode_ == kContinuation) != in_message_) {
    refuse("a fragment out of order");
  } else {
    in_message_ = !last_fragment_;
  }
  in_frame_ = true;
  return true;
}

void WebSocket::take_payload(std::string& bytes) {
  const size_t size = std::min<uint64_t>(payload_left_, held_.size());
  std::string& target = opcode_ >= kClose ? control_ : bytes;
  target.append(held_, 0, size);
  held_.erase(0, size);
  payload_left_ -= size;
  if (payload_left_ > 0) return;
  in_frame_ = false;
  if (opcode_ >= kClose) finish_control();
}

void WebSocket::finish_control() {
  const std::string payload = std::move(control_);
  control_.clear();
  if (opcode_ == kPing) send_control(kPong, payload);
  if (opcode_ != kClose) return;
  closed_ = true;
  if (payload.size() >= 2) {
    close_code_ = static_cast<uint16_t>(static_cast<uint8_t>(payload[0]) << 8 |
                                        static_cast<uint8_t>(payload[1]));
  }
  try {
    send_control(kClose, std::string_view(payload).substr(0, 2));
  } catch (const Error&) {
    // The other side may be gone already: the close has been received either way.
  }
}

bool WebSocket::receive(std::string& bytes) {
  bytes.clear();
  while (bytes.empty() && !closed_) {
    if (in_frame_ || parse_header()) {
      if (held_.empty() && payload_left_ > 0) fill();
      take_payload(bytes);
    } else {
      fill();
    }
  }
  return !bytes.empty();
}

}  // namespace moorage::link
