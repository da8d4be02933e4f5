// The other end of a stream (base/wire/mux.h), in the same process: one end of a socket pair, and
// the codec of its side. Its owner says when it writes and reads.
#pragma once

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "base/wire/mux.h"

namespace moorage::test {

inline std::pair<base::Fd, base::Fd> socket_pair(int type = SOCK_STREAM) {
  std::array<int, 2> ends{};
  base::check(socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()),
              "make a pair of sockets");
  return {base::Fd(ends[0]), base::Fd(ends[1])};
}

// 0 ms: handles what is ready now.
inline void run_for(base::Loop& loop, std::chrono::milliseconds time) {
  base::Timer stop(loop);
  stop.start(time, [&loop] { loop.stop(); });
  loop.run();
}

class StreamPeer {
 public:
  using Take = std::function<void(const base::MuxFrame& frame)>;

  StreamPeer(base::Mux::Side side, base::Fd end) : mux(side), socket(std::move(end)) {}

  // As much as the socket takes.
  void write() {
    unsent += std::exchange(mux.output(), {});
    const ssize_t sent =
        ::send(socket.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) unsent.erase(0, static_cast<size_t>(sent));
  }
  // What has come. Data counts as consumed.
  void read(const Take& take) {
    std::array<char, 16 << 10> piece;
    for (ssize_t count = 0;
         (count = ::recv(socket.get(), piece.data(), piece.size(), MSG_DONTWAIT)) > 0;) {
      std::string_view bytes(piece.data(), static_cast<size_t>(count));
      while (const auto frame = mux.next(bytes)) {
        take(*frame);
        if (frame->kind == base::MuxKind::data) mux.consumed(frame->channel, frame->payload.size());
      }
    }
  }

  base::Mux mux;
  base::Fd socket;
  std::string unsent;  // also bytes that the codec does not know
};

}  // namespace moorage::test
