// The stream to moorage-outpost there, in the worker's event loop: reads and writes the run's
// socket, and gives each channel's frames to its user. When the stream ends or breaks a rule, it
// tells every user once, then calls `on_broken`; after that open() throws unavailable, and other
// calls do nothing. In any of its calls a user may open, close or reset channels, but must not
// destroy the stream.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/os/event_loop.h"
#include "base/wire/mux.h"
#include "link/driver.h"

namespace moorage::link {

class ChannelUser {
 public:
  virtual ~ChannelUser() = default;
  virtual void on_data(std::string_view bytes) = 0;  // call Stream::consumed once it is used
  virtual void on_end() = 0;                         // no more data
  virtual void on_room() {}                          // room() may have grown
  // Reset by the other side, or the stream ended. Its last call.
  virtual void on_over(const Error& reason) = 0;
};

class Stream {
 public:
  using Broken = std::function<void(const Error& reason)>;
  Stream(base::Loop& loop, std::unique_ptr<Run> run, Broken on_broken);
  Stream(Stream&&) = delete;

  // The user stays known until the channel is over or forgotten. Throws resource_exhausted.
  uint32_t open(const std::string& request, std::weak_ptr<ChannelUser> user);
  size_t room(uint32_t channel) const;
  void send(uint32_t channel, std::string_view bytes);  // at most room()
  void end(uint32_t channel);
  void reset(uint32_t channel, const Error& reason);  // its user gets no further call
  void consumed(uint32_t channel, size_t bytes);
  void grant_pack(uint32_t channel);  // the window of a channel that receives a pack
  void give_up(const Error& reason) { break_off(reason); }
  bool broken() const { return broken_; }
  int64_t received_ms() const { return received_ms_; }  // when bytes came last

 private:
  void on_events(uint32_t events);
  void read();
  void handle(const base::MuxFrame& frame);
  void require_reader() const;
  void flush_soon();
  void flush();
  void tell_room();
  void break_off(const Error& reason);
  std::shared_ptr<ChannelUser> user(uint32_t channel);

  std::unique_ptr<Run> run_;
  Broken on_broken_;
  base::Mux mux_{base::Mux::Side::opener};
  std::map<uint32_t, std::weak_ptr<ChannelUser>> users_;
  bool broken_ = false;
  bool full_ = false;  // room() was 0 because of what waits to be written
  bool greeted_ = false;
  int64_t received_ms_ = 0;
  base::Watch watch_;
  base::Timer soon_;
  base::Timer later_;
};

}  // namespace moorage::link
