// Plain HTTP on its way out (port 80): every request of a connection must name the host that the
// connection was made for, or nothing of it leaves. Beast parses; what has passed is forwarded as
// it came. Refused: what the judge refuses, another or a second Host, CONNECT, an absolute
// target with another host, HTTP/2, ambiguous lengths (what one server may read as two requests).
//
// A WebSocket is taken over by its first request only: clients open a connection for each.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace moorage::egress {

class HttpGate {
 public:
  // Returns why a request is refused, or nothing.
  using Judge = std::function<std::string(std::string_view method, std::string_view target)>;
  HttpGate(std::string host, uint16_t port, Judge judge);
  ~HttpGate();
  HttpGate(const HttpGate&) = delete;
  HttpGate& operator=(const HttpGate&) = delete;

  // What came from the client. Returns what may be forwarded now.
  std::string from_client(std::string_view bytes);
  // What came from the server, which the caller forwards: ends the wait of an upgrade. May release
  // bytes of the client.
  std::string from_server(std::string_view bytes);
  // Whether it must get what comes next from the client, and from the server.
  bool reads_requests() const { return state_ != State::tunnel; }
  bool reads_answers() const { return state_ == State::awaiting_upgrade; }
  // The response to send to the client before the connection is closed; empty: all is well.
  const std::string& refusal() const { return refusal_; }
  const std::string& why() const { return why_; }  // it was refused

  static constexpr size_t kMaxHeader = 64 << 10;

 private:
  class Parser;
  enum class State { requests, awaiting_upgrade, tunnel };
  void refuse(std::string_view why);
  size_t parse(std::string_view bytes);
  void end_request();

  const std::string host_;
  const uint16_t port_;
  const Judge judge_;
  State state_ = State::requests;
  bool first_ = true;
  std::unique_ptr<Parser> parser_;
  std::string pending_;      // of the client, not parsed yet
  std::string header_;       // parsed line by line, but not judged before it is whole
  std::string status_line_;  // the first bytes of the server's answer to an upgrade
  std::string refusal_;
  std::string why_;
};

}  // namespace moorage::egress
