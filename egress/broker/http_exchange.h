// HTTP/1.1 between one client and one server, judged and rewritten request by request. A request
// begins only when the answer to the one before it has ended, and every message is written anew
// from what was parsed, so nothing can hide between two of them. Knows no sockets.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "egress/broker/http_message.h"
#include "egress/broker/secret_filter.h"

namespace moorage::egress {

template <bool is_request>
class HttpParser;

// What becomes of a request's head on its way.
struct HeadChange {
  std::vector<std::string> without;  // names of fields
  Fields with;
  std::vector<std::string> secrets;  // the answer must not contain them
};

class HttpExchange {
 public:
  // `host`: in the spelling of host_name.h; requests for another are refused.
  HttpExchange(std::string host, uint16_t port);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  enum class State {
    head,      // of the next request, from the client
    judging,   // of the request: pass() or answer() go on
    passing,   // the request and its answer
    dropping,  // the rest of a request that is answered here
    tunnel,    // a WebSocket: bytes of both, unread
    over,      // the connection ends when all is written
  };
  State state() const { return state_; }
  bool takes_from_client() const;
  // What came. Call only while it is taken; the server's, always.
  void from_client(std::string_view bytes);
  void from_server(std::string_view bytes);
  void server_ended();

  const RequestHead& request() const;              // while it is judged, and passes
  uint64_t requests() const { return requests_; }  // whose heads have come
  // While it is judged: keeps the body instead of forwarding it, and calls the listener when more
  // of it came, or all. pass() forwards it.
  void gather(std::function<void()> listener);
  const std::string& gathered() const;
  bool gathered_all() const;
  void pass(const HeadChange& change);
  // Instead of the server's answer. The connection ends after it.
  void answer(int status, std::string_view message);
  // Answers 403; `why` is the trouble. `quiet`: programs do without it.
  void refuse(std::string_view why, bool quiet = false);
  // Answers 200 once all of the request has come, as programs expect that send before they read.
  void answer_at_end(std::string_view type, std::string_view body);

  // Called for the head of the final answer to each request. May call answer() to replace it.
  void on_response(std::function<void(const ResponseHead&)> listener) {
    on_response_ = std::move(listener);
  }
  // Why the exchange ended early: a message for people; empty if nothing is wrong.
  const std::string& trouble() const { return trouble_; }
  bool trouble_is_quiet() const { return quiet_; }

  static constexpr size_t kMaxGathered = 256 << 10;

  std::string to_client;  // the owner takes what it has written
  std::string to_server;

 private:
  void parse_client();
  void parse_server();
  bool judge_head();
  void pass_answer_head();
  void end_message();
  void begin_next();
  void break_off(std::string why);

  const std::string host_;
  const uint16_t port_;
  State state_ = State::head;
  std::unique_ptr<HttpParser<true>> request_;
  std::unique_ptr<HttpParser<false>> response_;
  std::string client_pending_;  // not parsed yet
  std::string server_pending_;
  SecretFilter filter_;
  uint64_t requests_ = 0;
  std::function<void()> on_gathered_;
  std::string answer_at_end_;
  bool request_ended_ = false;
  bool answer_passes_ = false;  // its head has been passed on
  bool answer_ended_ = false;
  std::function<void(const ResponseHead&)> on_response_;
  std::string trouble_;
  bool quiet_ = false;
};

}  // namespace moorage::egress
