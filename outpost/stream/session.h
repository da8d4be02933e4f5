// One connection of moorage-link: the multiplexed stream (base/wire/mux.h) and its channels. The
// first channel must be a hello of the sandbox's generation; until then nothing else is answered.
// A frame that breaks the rules ends the connection, and with it all that only it wanted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "base/wire/mux.h"

namespace moorage::outpost {

class Session;

// Where a channel's answer goes. After the end of the channel or its session, nothing happens.
class Wire {
 public:
  Wire(Session& session, uint32_t number) : session_(&session), number_(number) {}
  size_t room() const;  // bytes that may be sent now
  void send(std::string_view bytes) const;
  void end() const;
  void reset(const Error& reason) const;
  void consumed(size_t bytes) const;
  void grant(uint32_t bytes) const;

 private:
  Session* session_;
  uint32_t number_;
};

class Channel {
 public:
  virtual ~Channel() = default;
  // Calls consumed() once the bytes have left.
  virtual void data(std::string_view bytes) = 0;
  virtual void ended() {}     // link sends no more
  virtual void writable() {}  // there may be room again
};

// Makes the channel of a request; throws what the reset shall say.
using OpenChannel = std::function<std::unique_ptr<Channel>(std::string_view request, Wire wire)>;

class Session {
 public:
  Session(base::Loop& loop, Fd socket, OpenChannel open, std::function<void()> over);
  ~Session();
  Session(Session&&) = delete;

  // Ends after what is in its output was sent, or 2 s later.
  void close_soon();

 private:
  friend class Wire;
  void on_socket(uint32_t events);
  void read_some();
  void handle(const base::MuxFrame& frame);
  void open(const base::MuxFrame& frame);
  void write_some();
  void wake_channels();
  void schedule();  // writes and sweeps in a round of its own
  void sweep();
  void fail();

  base::Loop& loop_;
  Fd socket_;
  // Not the common buffer, which channels use. Room for some frames: one that comes in two parts is
  // copied.
  std::vector<char> received_ = std::vector<char>(256 << 10);
  base::Mux mux_{base::Mux::Side::answerer};
  OpenChannel open_;
  std::function<void()> over_;
  std::map<uint32_t, std::unique_ptr<Channel>> channels_;
  uint32_t wake_from_ = 0;
  bool closing_ = false;
  bool failed_ = false;
  base::Timer later_;
  base::Timer deadline_;
  std::unique_ptr<base::Watch> watch_;
};

}  // namespace moorage::outpost
