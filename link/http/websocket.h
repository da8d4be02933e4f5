// Reads a WebSocket (RFC 6455) as a client: the messages' bytes as one stream, whatever their
// frames. Sends nothing but pings, pongs and the close. Frames of any length are read in pieces.
// Errors as byte_stream.h, and corrupted for a server that breaks the protocol.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "link/http/http_client.h"

namespace moorage::link {

class WebSocket {
 public:
  // `refusal` is set and nothing returned for another status than 101.
  static std::unique_ptr<WebSocket> open(HttpClient& client, HttpRequest request, Deadline deadline,
                                         HttpResponse& refusal);

  // Replaces `bytes` by what came next. False: the server closed it in order; see close_code().
  bool receive(std::string& bytes);
  uint16_t close_code() const { return close_code_; }  // 1005: none was given

 private:
  WebSocket(std::unique_ptr<ByteStream> stream, std::string early);
  void fill();
  bool parse_header();
  void take_payload(std::string& bytes);
  void finish_control();
  void send_control(uint8_t opcode, std::string_view payload);

  const std::unique_ptr<ByteStream> stream_;
  std::string held_;           // arrived, not parsed
  uint64_t payload_left_ = 0;  // of the frame whose header was parsed
  uint8_t opcode_ = 0;         // of that frame
  bool in_frame_ = false;
  bool in_message_ = false;  // a fragment that is not the last came
  bool last_fragment_ = false;
  std::string control_;  // payload of a control frame
  std::optional<Deadline> pong_until_;
  bool closed_ = false;
  uint16_t close_code_ = 1005;
};

}  // namespace moorage::link
