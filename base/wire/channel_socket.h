// Joins a connected stream socket to a channel of mux.h, in an event loop: bytes both ways, each
// half ends by itself, a reset of one side resets the other. The bytes that wait for the socket are
// at most the channel's window. The last bytes may still wait when the channel is over already;
// they are written all the same.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/os/event_loop.h"
#include "base/os/fd.h"

namespace moorage::base {

class ChannelSocket {
 public:
  // As in Mux; each program has its own.
  class Channel {
   public:
    virtual ~Channel() = default;
    virtual size_t room() const = 0;
    virtual void send(std::string_view bytes) = 0;
    virtual void end() = 0;
    virtual void reset(const Error& reason) = 0;
    virtual void consumed(size_t bytes) = 0;
  };
  // Called once, when nothing is left to do. May destroy this object.
  using Over = std::function<void()>;

  // The socket does not block; it may not be connected yet. A connection that is refused resets the
  // channel with not_found, one that is reset with unavailable.
  ChannelSocket(Loop& loop, Fd socket, std::unique_ptr<Channel> channel, Over over);
  ~ChannelSocket();  // resets both sides, unless it was over
  ChannelSocket(ChannelSocket&&) = delete;

  // What happens on the channel. Each may call `over`.
  void on_data(std::string_view bytes);
  void on_end();
  void on_room();
  void on_gone();  // reset, or its stream ended. Ignored if the channel was over before

 private:
  void on_events(uint32_t events);
  void read_some();
  void write_some();
  void fail(int error_number);
  void settle();  // last: may destroy this object

  Fd socket_;
  std::unique_ptr<Channel> channel_;  // empty: over
  Over over_;                         // empty: called
  std::string waiting_;               // for the socket
  bool read_ended_ = false;           // the socket's peer sends no more
  bool write_ended_ = false;          // the channel's peer sends no more
  bool shut_ = false;                 // and the socket's peer knows
  bool aborted_ = false;
  std::optional<Watch> watch_;
};

}  // namespace moorage::base
