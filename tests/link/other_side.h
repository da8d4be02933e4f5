// The other machine of a stream, as a script: a socket pair, the codec of its side, and what it has
// received so far. The test runs the event loop until something holds.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "base/wire/mux.h"
#include "link/stream.h"
#include "patience.h"

namespace moorage::test {

class SocketRun : public link::Run {
 public:
  explicit SocketRun(base::Fd socket) : socket_(std::move(socket)) {}
  int stream() const override { return socket_.get(); }
  std::optional<Error> reason() override { return std::nullopt; }

 private:
  base::Fd socket_;
};

class OtherSide {
 public:
  explicit OtherSide(base::Loop& loop) : loop_(loop) {
    std::array<int, 2> ends{};
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
    socket_.reset(ends[0]);
    stream =
        std::make_unique<link::Stream>(loop, std::make_unique<SocketRun>(base::Fd(ends[1])),
                                       [this](const Error& error) { broken = error.message(); });
  }

  // Runs the loop in short steps until `holds`.
  void until(const std::function<bool()>& holds) {
    const int64_t end = base::monotonic_ms() + 10'000 * tests::patience();
    while (!holds()) {
      REQUIRE(base::monotonic_ms() < end);
      step();
    }
  }
  void step() {
    run_loop();
    exchange();
  }
  void pass(int64_t ms) {
    for (const int64_t end = base::monotonic_ms() + ms; base::monotonic_ms() < end;) step();
  }
  // The channel of the newest request of this kind.
  uint32_t await(const std::string& what) {
    until([&] { return newest.contains(what); });
    const uint32_t channel = newest.at(what);
    newest.erase(what);
    return channel;
  }
  void send(uint32_t channel, std::string_view bytes) {
    while (!bytes.empty()) {
      until([&] { return mux.room(channel) > 0; });
      const size_t size = std::min({bytes.size(), mux.room(channel), size_t{7000}});
      mux.send(channel, bytes.substr(0, size));
      bytes.remove_prefix(size);
      exchange();
    }
  }
  void end(uint32_t channel) {
    mux.end(channel);
    exchange();
  }
  // Bytes past the codec, without reading anything.
  void send_unread(std::string_view bytes) {
    while (!bytes.empty() && broken.empty()) {
      const ssize_t sent =
          ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
      run_loop();
    }
  }
  void cut() { socket_.reset(); }

  base::Mux mux{base::Mux::Side::answerer};
  std::map<std::string, uint32_t> newest;           // by `what`
  std::map<uint32_t, boost::json::object> request;  // by channel
  std::map<uint32_t, std::string> received;
  std::map<uint32_t, bool> ended;
  std::string broken;
  std::unique_ptr<link::Stream> stream;

 private:
  void run_loop() {
    base::Timer stop(loop_);
    stop.start(std::chrono::milliseconds(1), [this] { loop_.stop(); });
    loop_.run();
  }
  void exchange() {
    if (!socket_) return;
    std::string& output = mux.output();
    const ssize_t sent = ::send(socket_.get(), output.data(), output.size(), MSG_NOSIGNAL);
    if (sent > 0) output.erase(0, static_cast<size_t>(sent));
    std::array<char, 4096> piece;
    for (ssize_t count; (count = ::read(socket_.get(), piece.data(), piece.size())) > 0;)
      take({piece.data(), static_cast<size_t>(count)});
  }
  void take(std::string_view bytes) {
    while (auto frame = mux.next(bytes)) {
      if (frame->kind == base::MuxKind::open) {
        request[frame->channel] = boost::json::parse(frame->payload).as_object();
        newest[std::string(request[frame->channel].at("what").as_string())] = frame->channel;
      } else if (frame->kind == base::MuxKind::data) {
        received[frame->channel] += frame->payload;
        mux.consumed(frame->channel, frame->payload.size());
      } else if (frame->kind != base::MuxKind::credit) {
        ended[frame->channel] = true;
      }
    }
  }

  base::Loop& loop_;
  base::Fd socket_;
};

}  // namespace moorage::test
