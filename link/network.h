// The network of a sandbox on another machine, in the worker: what outpost reports of its sockets
// becomes sockets in the stand-in here (inside_sockets.h), and what moorage-egress wants of the
// line becomes requests to outpost. Egress, and its rules and credentials, never see the
// difference; the machine there sees the bytes of the sandbox alone.
//
// Everything that a stream did ends with it. The next one begins anew: egress holds the listening
// sockets here, and the stand-in's table says which there are.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "base/wire/network_line.h"
#include "base/wire/network_relay.h"
#include "link/inside_sockets.h"
#include "link/stream.h"

namespace moorage::link {

class Network {
 public:
  using Mark = std::function<uint32_t()>;
  // Without sockets: nothing passes. `mark`: of the command that connects now, as far as it is
  // known (base/wire/command_mark.h).
  Network(base::Loop& loop, InsideSockets* sockets, Mark mark);
  ~Network();
  Network(Network&&) = delete;

  // The line to egress, or to the daemon until there is one. Replaces the former.
  void set_line(base::Fd line);
  // The sandbox there runs. Its network is carried until the stream ends.
  void attach(Stream& stream);
  void detach();  // when it has ended

  size_t connections() const { return incoming_.size() - free_; }
  static constexpr size_t kFree = 32;  // channels that wait for a connection

 private:
  class Control;
  class Incoming;
  using Place = base::RelayPlace;
  struct Request {
    Place place;
    int64_t since_ms = 0;
    std::optional<base::LineMessage> answer;
  };
  struct Question {
    std::string asker;
    std::string id;
  };

  void begin();
  void on_line(uint32_t events);
  void hear_line();
  void end_line();
  void answer_line();
  bool send_answer(const base::LineMessage& answer);
  void check_patience();
  void ask(const Place& place);
  void close_there(const Place& place);
  void from_outpost(const base::RelayFrame& frame);
  void ask_resolver(std::string_view payload);
  void take_answers();
  void top_up();
  void begin_later();
  void forget(const Incoming* one);

  base::Loop& loop_;
  InsideSockets* const sockets_;
  const Mark mark_;
  base::Fd line_;
  std::optional<base::Watch> line_watch_;
  std::deque<Request> requests_;  // of the line, in order
  base::Timer patience_;
  base::Fd resolver_;
  std::optional<base::Watch> resolver_watch_;
  uint16_t newest_question_ = 0;
  std::map<uint16_t, Question> questions_;
  Stream* stream_ = nullptr;
  std::shared_ptr<Control> control_;
  std::list<std::shared_ptr<Incoming>> incoming_;  // channels `accept`
  size_t free_ = 0;                                // of those, without a connection
  base::Timer again_;
};

}  // namespace moorage::link
