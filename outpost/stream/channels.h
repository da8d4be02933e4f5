// The channels of a session (session.h), one class for each way to use one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "outpost/stream/session.h"

namespace moorage::outpost {

// Sends one text, or one file from its beginning, and ends.
class Answer : public Channel {
 public:
  Answer(Wire wire, std::string text);
  Answer(Wire wire, Fd file);
  void data(std::string_view bytes) override { wire_.consumed(bytes.size()); }
  void writable() override;

 private:
  Wire wire_;
  std::string text_;
  Fd file_;
  uint64_t sent_ = 0;
  bool over_ = false;
};

// A request whose answer comes later, from an operation: then it is an Answer.
class Later : public Channel {
 public:
  explicit Later(Wire wire) : wire_(wire) {}
  void answer(std::unique_ptr<Channel> answer) { answer_ = std::move(answer); }
  void fail(const Error& error) { wire_.reset(error); }
  Wire wire() const { return wire_; }
  std::weak_ptr<Later> self() const { return self_; }  // expires with the channel
  void data(std::string_view bytes) override;
  void writable() override;

 protected:
  Wire wire_;

 private:
  std::unique_ptr<Channel> answer_;
  std::shared_ptr<Later> self_{this, [](Later*) {}};
};

// A request that waits until something happens here, or link sends a byte.
class Standing : public Later {
 public:
  Standing(Wire wire, std::function<void()> hurry) : Later(wire), hurry_(std::move(hurry)) {}
  void data(std::string_view bytes) override {
    Later::data(bytes);
    hurry_();
  }

 private:
  std::function<void()> hurry_;
};

// Receives a pack into a descriptor, a file or a pipe, and then calls `complete`. A pipe makes link
// wait while it is full.
class Upload : public Later {
 public:
  Upload(base::Loop& loop, Wire wire, Fd target, bool pipe);
  void on_complete(std::function<void(Fd target)> task) { complete_ = std::move(task); }
  // Nobody reads any more: what still comes is dropped.
  void discard();
  void data(std::string_view bytes) override;
  void ended() override;

 private:
  void write_some();
  void finish();
  base::Loop& loop_;
  Fd target_;
  bool pipe_;
  bool ended_ = false;
  std::string waiting_;  // at most the window
  std::function<void(Fd)> complete_;
  std::unique_ptr<base::Watch> watch_;
};

// Raw bytes to and from a unix socket.
class Relay : public Channel {
 public:
  Relay(base::Loop& loop, Wire wire, const std::string& socket_path);
  void data(std::string_view bytes) override;
  void ended() override;
  void writable() override { set_events(); }

 private:
  void on_socket(uint32_t events);
  void write_some();
  void set_events();
  void fail(const std::string& what);

  Wire wire_;
  Fd socket_;
  std::string waiting_;
  bool link_ended_ = false;
  bool peer_ended_ = false;
  bool over_ = false;
  std::unique_ptr<base::Watch> watch_;
};

}  // namespace moorage::outpost
