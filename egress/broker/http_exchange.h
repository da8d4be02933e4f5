// HTTP/1.1 between one client and one server, judged and rewritten request by request. A request
// begins only when the answer to the one before it has ended, and every message is written anew
// from what was parsed, so nothing can hide between two of them. Knows no sockets.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "egress/broker/exchange.h"
#include "egress/broker/secret_filter.h"

namespace moorage::egress {

template <bool is_request>
class HttpParser;

class HttpExchange : public Exchange, public Conversation {
 public:
  // `host`: in the spelling of host_name.h; requests for another are refused.
  HttpExchange(std::string host, uint16_t port);
  ~HttpExchange() override;

  enum class State {
    head,       // of the next request, from the client
    judging,    // of the request: pass() or answer() go on
    passing,    // the request and its answer
    repeating,  // the host's answer is dropped, then the request is judged again
    dropping,   // the rest of a request that is answered here
    tunnel,     // a WebSocket: bytes of both, unread
    over,       // the connection ends when all is written
  };
  State state() const { return state_; }
  bool takes_from_client() const override;
  void from_client(std::string_view bytes) override;
  void from_server(std::string_view bytes) override;
  void server_ended() override;
  void server_failed(std::string_view why) override;
  uint64_t requests() const override { return requests_; }
  Exchange* next() override;
  bool is_over() const override { return state_ == State::over; }

  const RequestHead& request() const override;  // while it is judged, and passes
  void gather(std::function<void()> listener) override;
  const std::string& gathered() const override;
  bool gathered_all() const override;
  void pass(const HeadChange& change) override;
  // The connection ends after it.
  void answer(int status, std::string_view message) override;
  void refuse(std::string_view why, bool quiet = false) override;
  void answer_at_end(std::string_view type, std::string_view body) override;
  bool repeat() override;

  static constexpr size_t kMaxKept = 64 << 10;  // of a request's body, and of a dropped answer's

 private:
  void parse_client();
  void parse_server();
  bool judge_head();
  void pass_answer_head();
  void keep_body();
  void drop_answer();
  void end_message();
  void begin_next();
  void break_off(std::string_view why);

  const std::string host_;
  const uint16_t port_;
  State state_ = State::head;
  std::unique_ptr<HttpParser<true>> request_;
  std::unique_ptr<HttpParser<false>> response_;
  std::string client_pending_;  // not parsed yet
  std::string server_pending_;
  std::string_view server_coming_;  // while it is parsed: what is left of it
  SecretFilter filter_;
  uint64_t requests_ = 0;
  std::function<void()> on_gathered_;
  std::string answer_at_end_;
  bool request_ended_ = false;
  bool answer_passes_ = false;  // its head has been passed on
  bool answer_ended_ = false;
  bool repeatable_ = true;
  std::string kept_;     // the request's body so far, while it is repeatable
  size_t dropped_ = 0;   // bytes of the answer's body
  uint64_t judged_ = 0;  // the request that next() returned last
};

}  // namespace moorage::egress
