// The other machine of a stream, as a script, with what it has received so far. The test runs the
// event loop until something holds.
#pragma once

#include <sys/socket.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "base/wire/mux.h"
#include "link/stream.h"
#include "patience.h"
#include "socket_run.h"
#include "stream_peer.h"

namespace moorage::test {

class OtherSide : private StreamPeer {
 public:
  explicit OtherSide(base::Loop& loop) : OtherSide(loop, socket_pair()) {}

  // Runs the loop in short steps until `holds`.
  void until(const std::function<bool()>& holds) {
    const int64_t end = base::monotonic_ms() + 10'000 * tests::patience();
    while (!holds()) {
      REQUIRE(base::monotonic_ms() < end);
      step();
    }
  }
  void step() {
    run_for(loop_, kStep);
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
          ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
      run_for(loop_, kStep);
    }
  }
  void cut() { socket.reset(); }

  using StreamPeer::mux;
  std::map<std::string, uint32_t> newest;           // by `what`
  std::map<uint32_t, boost::json::object> request;  // by channel
  std::map<uint32_t, std::string> received;
  std::map<uint32_t, bool> ended;
  std::string broken;
  std::unique_ptr<link::Stream> stream;

 private:
  static constexpr std::chrono::milliseconds kStep{1};
  using Pair = std::pair<base::Fd, base::Fd>;
  OtherSide(base::Loop& loop, Pair ends)
      : StreamPeer(base::Mux::Side::answerer, std::move(ends.first)), loop_(loop) {
    stream =
        std::make_unique<link::Stream>(loop, std::make_unique<SocketRun>(std::move(ends.second)),
                                       [this](const Error& error) { broken = error.message(); });
  }
  void exchange() {
    if (!socket) return;
    write();
    read([this](const base::MuxFrame& frame) { take(frame); });
  }
  void take(const base::MuxFrame& frame) {
    if (frame.kind == base::MuxKind::open) {
      request[frame.channel] = boost::json::parse(frame.payload).as_object();
      newest[std::string(request[frame.channel].at("what").as_string())] = frame.channel;
    } else if (frame.kind == base::MuxKind::data) {
      received[frame.channel] += frame.payload;
    } else if (frame.kind != base::MuxKind::credit) {
      ended[frame.channel] = true;
    }
  }

  base::Loop& loop_;
};

}  // namespace moorage::test
