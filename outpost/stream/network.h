// The network of a sandbox here: holds the other end of the line to its warden
// (base/wire/network_line.h), which makes the sockets inside, and carries what programs do with
// them to moorage-link (base/wire/network_relay.h). Nothing is judged here, and no name or
// credential of the outside is known.
//
// A connection inside waits in its socket until link has opened a channel `accept` for it, so the
// number of those is the limit.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "base/wire/channel_socket.h"
#include "base/wire/network_line.h"
#include "base/wire/network_relay.h"
#include "outpost/stream/session.h"

namespace moorage::outpost {

class Network {
 public:
  Network(base::Loop& loop, std::string warden_socket);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // The channels of these names. Throw unavailable, resource_exhausted.
  std::unique_ptr<Channel> network(Wire wire);
  std::unique_ptr<Channel> accept(Wire wire);

 private:
  class Control;
  class Accepted;
  using Sockets = std::list<std::shared_ptr<base::ChannelSocket>>;

  void give_line();
  void on_line(uint32_t events);
  bool hear_warden();  // false: nothing more
  void take(std::string_view text, std::vector<Fd> fds);
  void take_answer(const base::LineMessage& message, std::vector<Fd> fds);
  void ask_warden();
  void end_line(const Error& reason);
  void from_link(const base::RelayFrame& frame);
  void listen(const base::LineMessage& request);
  void tell(const base::LineMessage& answer);
  void close_listener(const base::RelayPlace& place);
  void keep_listener(const base::RelayPlace& place, Fd socket);
  void read_questions();
  void answer_question(const std::string& payload) const;
  void watch_connections();
  void accept_some();
  bool accept_at(int listener);  // false: no descriptor is left

  base::Loop& loop_;
  const std::string warden_socket_;
  Fd line_;
  Fd request_;  // to the warden, which gave it the line, until it has begun
  std::deque<std::string> to_warden_;
  Fd udp_;
  std::map<base::RelayPlace, Fd> listeners_;
  std::map<int, base::RelayPlace> places_;  // by descriptor
  Fd waiting_;                              // an epoll set of listeners: readable if one is
  Control* control_ = nullptr;
  std::deque<Accepted*> free_;  // channels without a connection
  size_t accepts_ = 0;          // all channels `accept`
  Sockets sockets_;
  std::unique_ptr<base::Watch> line_watch_;
  std::unique_ptr<base::Watch> udp_watch_;
  std::unique_ptr<base::Watch> waiting_watch_;
  base::Timer again_;
};

}  // namespace moorage::outpost
