// What the judge of requests and a connection see of HTTP, whatever its version. Knows no sockets.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "egress/broker/http_message.h"

namespace moorage::egress {

// What becomes of a request's head on its way.
struct HeadChange {
  std::vector<std::string> without;  // names of fields
  Fields with;
  std::vector<std::string> secrets;  // the answer must not contain them
};

// One request and its answer. While it is judged, pass(), answer() or refuse() go on.
class Exchange {
 public:
  Exchange() = default;
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  virtual const RequestHead& request() const = 0;
  virtual void pass(const HeadChange& change) = 0;
  // Instead of the host's answer.
  virtual void answer(int status, std::string_view message) = 0;
  // Answers 403; `why` is the trouble. `quiet`: programs do without it.
  virtual void refuse(std::string_view why, bool quiet = false) = 0;
  // From on_response(): drops the host's answer and judges the request again, once. False: it is
  // not kept whole, or the connection to the host ends.
  virtual bool repeat() { return false; }

  // While it is judged: keeps the body instead of forwarding it, and calls the listener when more
  // of it came, or all. pass() forwards it.
  virtual void gather(std::function<void()> listener) = 0;
  virtual const std::string& gathered() const = 0;
  virtual bool gathered_all() const = 0;
  // Answers 200 once all of the request has come, as programs expect that send before they read.
  virtual void answer_at_end(std::string_view type, std::string_view body) = 0;

  // Called for the head of the final answer. May call answer() or refuse() to replace it.
  void on_response(std::function<void(const ResponseHead&)> listener) {
    on_response_ = std::move(listener);
  }
  // Drops it when the request is over, or is no longer waited for.
  void keep(std::shared_ptr<void> ticket) { ticket_ = std::move(ticket); }

  static constexpr size_t kMaxGathered = 256 << 10;

 protected:
  std::function<void(const ResponseHead&)> on_response_;
  std::shared_ptr<void> ticket_;
};

// All exchanges of a connection. The owner moves its bytes.
class Conversation {
 public:
  Conversation() = default;
  virtual ~Conversation() = default;
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  virtual bool takes_from_client() const = 0;
  // What came. Call only while it is taken; the server's, always.
  virtual void from_client(std::string_view bytes) = 0;
  virtual void from_server(std::string_view bytes) = 0;
  virtual void server_ended() = 0;
  virtual void server_failed(std::string_view why) = 0;  // it was never reached
  virtual void fill() {}  // writes what waited for room in to_client and to_server

  virtual uint64_t requests() const = 0;  // whose heads have come
  virtual Exchange* next() = 0;           // to be judged; each once
  virtual bool is_over() const = 0;       // the connection ends when all is written
  // Why requests were refused, or the conversation ended early: messages for people. Each once.
  struct Trouble {
    std::string why;
    bool quiet = false;
  };
  std::vector<Trouble> take_troubles() { return std::exchange(troubles_, {}); }

  std::string to_client;  // the owner takes what it has written
  std::string to_server;

 protected:
  std::vector<Trouble> troubles_;
};

}  // namespace moorage::egress
