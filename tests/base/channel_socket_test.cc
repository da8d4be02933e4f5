#include "base/wire/channel_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <string>

#include "patience.h"

namespace moorage::base {
namespace {

// What the socket's side did to the channel.
struct Seen {
  size_t room = 1 << 20;
  std::string sent;
  size_t consumed = 0;
  bool ended = false;
  std::optional<Code> reset;
  bool gone = false;
};

class ScriptedChannel : public ChannelSocket::Channel {
 public:
  explicit ScriptedChannel(Seen& seen) : seen_(seen) {}
  ~ScriptedChannel() override { seen_.gone = true; }
  size_t room() const override { return seen_.room; }
  void send(std::string_view bytes) override {
    seen_.sent += bytes;
    seen_.room -= bytes.size();
  }
  void end() override { seen_.ended = true; }
  void reset(const Error& reason) override { seen_.reset = reason.code(); }
  void consumed(size_t bytes) override { seen_.consumed += bytes; }

 private:
  Seen& seen_;
};

class Joined {
 public:
  Joined() {
    Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    REQUIRE(bind(listener.get(), generic, size) == 0);
    REQUIRE(listen(listener.get(), 1) == 0);
    REQUIRE(getsockname(listener.get(), generic, &size) == 0);
    peer = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(connect(peer.get(), generic, size) == 0);
    Fd ours(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    REQUIRE(ours);
    joined = std::make_unique<ChannelSocket>(loop, std::move(ours),
                                             std::make_unique<ScriptedChannel>(seen), [this] {
                                               ++over;
                                               joined.reset();
                                             });
  }

  void until(const std::function<bool()>& holds) {
    const int64_t end = monotonic_ms() + 10'000 * tests::patience();
    while (!holds()) {
      REQUIRE(monotonic_ms() < end);
      run_for(1);
    }
  }
  void run_for(int64_t ms) {
    Timer stop(loop);
    stop.start(std::chrono::milliseconds(ms), [this] { loop.stop(); });
    loop.run();
  }
  // Until its end; empty if it was reset.
  std::optional<std::string> rest_at_peer() const {
    std::string all;
    std::array<char, 65536> piece;
    for (;;) {
      const ssize_t count = read(peer.get(), piece.data(), piece.size());
      if (count < 0) return std::nullopt;
      if (count == 0) return all;
      all.append(piece.data(), static_cast<size_t>(count));
    }
  }

  Loop loop;
  Seen seen;
  Fd peer;
  int over = 0;
  std::unique_ptr<ChannelSocket> joined;
};

TEST_CASE("Each half of a joined connection ends by itself") {
  Joined test;
  write_all(test.peer.get(), "question");
  shutdown(test.peer.get(), SHUT_WR);
  test.until([&] { return test.seen.ended; });
  CHECK(test.seen.sent == "question");
  CHECK(test.over == 0);
  test.joined->on_data("answer");
  test.joined->on_end();
  CHECK(test.over == 1);
  CHECK(test.seen.consumed == 6);
  CHECK(test.rest_at_peer() == "answer");
}

TEST_CASE("The last bytes reach a slow peer after the channel is over") {
  Joined test;
  shutdown(test.peer.get(), SHUT_WR);
  test.until([&] { return test.seen.ended; });
  const std::string answer(32 << 20, 'a');
  test.joined->on_data(answer);
  test.joined->on_end();
  CHECK(test.seen.gone);  // the channel's stream may end now
  CHECK(test.over == 0);
  std::string got;
  std::array<char, 65536> piece;
  test.until([&] {
    const ssize_t count = recv(test.peer.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (count > 0) got.append(piece.data(), static_cast<size_t>(count));
    return count == 0;
  });
  CHECK(got == answer);
  CHECK(test.over == 1);
  CHECK_FALSE(test.seen.reset);
}

TEST_CASE("A channel without room leaves bytes in the socket, and a slow peer holds back credit") {
  Joined test;
  test.seen.room = 3;
  write_all(test.peer.get(), "sixteen bytes...");
  test.until([&] { return test.seen.sent == "six"; });
  test.run_for(20);
  CHECK(test.seen.sent == "six");
  test.seen.room = 100;
  test.joined->on_room();
  test.until([&] { return test.seen.sent == "sixteen bytes..."; });
  test.joined->on_data(std::string(32 << 20, 'a'));
  test.run_for(20);
  CHECK(test.seen.consumed < 32 << 20);
}

TEST_CASE("A peer that resets its connection resets the channel, once") {
  Joined test;
  const linger now{1, 0};
  setsockopt(test.peer.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  test.peer.reset();
  test.until([&] { return test.over > 0; });
  CHECK(test.over == 1);
  CHECK(test.seen.reset == Code::unavailable);
}

TEST_CASE("A peer that has left is noticed by what is still sent to it") {
  Joined test;
  test.peer.reset();
  test.until([&] { return test.seen.ended; });
  test.until([&] {
    if (test.joined) test.joined->on_data(std::string(100'000, 'a'));
    return test.over > 0;
  });
  CHECK(test.seen.reset == Code::unavailable);
}

TEST_CASE("A channel that is reset, or given up, resets the peer's connection") {
  Joined test;
  write_all(test.peer.get(), "x");
  SECTION("reset") {
    test.joined->on_gone();
    CHECK(test.over == 1);
    CHECK_FALSE(test.seen.reset);
  }
  SECTION("given up") {
    test.joined.reset();
    CHECK(test.over == 0);
    CHECK(test.seen.reset == Code::unavailable);
  }
  CHECK_FALSE(test.rest_at_peer());
}

TEST_CASE("A connection that nobody takes resets its channel as not found") {
  Loop loop;
  Seen seen;
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(1);
  connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  bool over = false;
  ChannelSocket joined(loop, std::move(socket), std::make_unique<ScriptedChannel>(seen), [&] {
    over = true;
    loop.stop();
  });
  loop.run();
  CHECK(over);
  CHECK(seen.reset == Code::not_found);
}

}  // namespace
}  // namespace moorage::base
