#include "link/keeper_line.h"

#include <boost/json.hpp>
#include <utility>

#include "base/error.h"

namespace moorage::link {
namespace {

namespace json = boost::json;

constexpr size_t kMaxMessageBytes = 64 << 10;

}  // namespace

void send_line(int line, const LineMessage& message) {
  const std::string text = json::serialize(json::object{{"kind", static_cast<int>(message.kind)},
                                                        {"text", message.text},
                                                        {"room_bytes", message.room_bytes}});
  const int fd = message.fd.get();
  base::send_with_fds(line, text, {&fd, message.fd ? 1U : 0U});
}

std::optional<LineMessage> receive_line(int line) {
  base::Received received = base::receive_with_fds(line, kMaxMessageBytes, 1);
  if (received.bytes.empty()) return std::nullopt;
  boost::system::error_code error;
  const json::value value = json::parse(received.bytes, error);
  const json::object* object = error ? nullptr : value.if_object();
  const json::value* kind = object ? object->if_contains("kind") : nullptr;
  const json::value* text = object ? object->if_contains("text") : nullptr;
  const json::value* room = object ? object->if_contains("room_bytes") : nullptr;
  const uint64_t room_bytes = room ? room->to_number<uint64_t>(error) : 0;
  if (!kind || !kind->is_int64() || !text || !text->is_string() || !room || error)
    throw Error(Code::corrupted, "an invalid message between keeper and worker");
  LineMessage message;
  message.kind = static_cast<LineMessage::Kind>(kind->get_int64());
  message.text = std::string(text->get_string());
  message.room_bytes = room_bytes;
  if (!received.fds.empty()) message.fd = std::move(received.fds[0]);
  return message;
}

}  // namespace moorage::link
