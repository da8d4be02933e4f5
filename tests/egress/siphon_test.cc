#include "egress/siphon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <vector>

#include "base/digest.h"

using namespace moorage;
using egress::Siphon;

namespace {

struct Ends {
  Fd far;
  Fd near;  // does not block
};

Ends sockets() {
  signal(SIGPIPE, SIG_IGN);  // as moorage-egress does
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  REQUIRE(fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

// All that is there now.
std::string taken(const Fd& socket) {
  std::string all;
  char bytes[65536];
  for (;;) {
    const ssize_t size = recv(socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (size <= 0) return all;
    all.append(bytes, static_cast<size_t>(size));
  }
}

}  // namespace

TEST_CASE("a siphon keeps what the other side does not take yet, and loses nothing") {
  const Ends from = sockets();
  const Ends to = sockets();
  const auto siphon = Siphon::make();
  REQUIRE(siphon);
  std::string sent;
  std::string got;
  size_t most_held = 0;
  for (int i = 0; i < 50; ++i) {
    const std::string bytes = base::random_hex(50'000);
    REQUIRE(send(from.far.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) ==
            static_cast<ssize_t>(bytes.size()));
    sent += bytes;
    REQUIRE(siphon->fill(from.near) == static_cast<ssize_t>(bytes.size()));
    // The receiver reads only when its socket is full.
    while (siphon->held() > 0) {
      REQUIRE(siphon->drain(to.near));
      most_held = std::max(most_held, siphon->held());
      if (siphon->held() > 0) got += taken(to.far);
    }
  }
  got += taken(to.far);
  CHECK(most_held > 0);
  CHECK(base::sha256_hex(got) == base::sha256_hex(sent));
}

TEST_CASE("a siphon tells an end from a pause, and a broken socket from a full one") {
  Ends from = sockets();
  Ends to = sockets();
  const auto siphon = Siphon::make();
  REQUIRE(siphon);
  CHECK(siphon->fill(from.near) == -1);
  CHECK(errno == EAGAIN);
  REQUIRE(send(from.far.get(), "last", 4, 0) == 4);
  from.far.reset();
  CHECK(siphon->fill(from.near) == 4);
  to.far.reset();
  CHECK_FALSE(siphon->drain(to.near));
  CHECK(errno == EPIPE);
  CHECK(siphon->fill(from.near) == 0);
}

TEST_CASE("there are only so many siphons at once") {
  std::vector<std::unique_ptr<Siphon>> all;
  for (int i = 0; i < Siphon::kMost; ++i) {
    all.push_back(Siphon::make());
    REQUIRE(all.back());
  }
  CHECK_FALSE(Siphon::make());
  all.pop_back();
  CHECK(Siphon::make());
}
