#include "link/network.h"

#include <netinet/in.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <set>
#include <thread>

#include "base/wire/command_mark.h"
#include "other_side.h"

using namespace moorage;
using base::RelayKind;

namespace {

constexpr const char* kAsker = "ABCDEF";

std::string question(std::string_view id) { return std::string(id) + std::string(20, 'q'); }

// Egress's end of a line, a worker's network, and the machine there.
struct World {
  explicit World(link::StandIn& stand_in) : network_in(stand_in) {
    std::array<int, 2> ends{};
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
    egress.reset(ends[0]);
    line.reset(ends[1]);
    start_worker();
    reach();
  }
  void start_worker() {
    network.reset();
    sockets = std::make_unique<link::InsideSockets>(network_in.name_space.duplicate(), [] {});
    network = std::make_unique<link::Network>(loop, sockets.get(), [this] { return mark; });
    network->set_line(line.duplicate());
  }
  void reach() {
    there = std::make_unique<test::OtherSide>(loop);
    network->attach(*there->stream);
    control = there->await("network");
  }
  void cut() {
    there->cut();
    there->until([&] { return !there->broken.empty(); });
    network->detach();
    there.reset();
  }

  void ask(const std::string& text) const {
    REQUIRE(send(egress.get(), text.data(), text.size(), 0) > 0);
  }
  base::Received answer() {
    there->until([&] { return base::wait_readable(egress.get(), 0); });
    return base::receive_with_fds(egress.get(), base::kMaxLineMessage, 3);
  }
  // The next frame of the channel `network` there.
  base::RelayFrame frame() {
    std::optional<base::RelayFrame> found;
    there->until([&] {
      reader.add(std::exchange(there->received[control], {}));
      return (found = reader.next()).has_value();
    });
    return *found;
  }
  void say(RelayKind kind, const std::string& payload) {
    there->send(control, base::relay_frame(kind, payload));
  }
  base::Fd listener(const std::string& place) {
    ask("listen " + place);
    CHECK(frame().payload == "listen " + place);
    say(RelayKind::line, "listening " + place);
    base::Received got = answer();
    CHECK(got.bytes == "listening " + place);
    REQUIRE(got.fds.size() == 1);
    return std::move(got.fds[0]);
  }
  std::vector<uint32_t> accepts() const {
    std::vector<uint32_t> channels;
    for (const auto& [channel, request] : there->request) {
      if (request.at("what") == "accept" && there->mux.is_open(channel) && !used.contains(channel))
        channels.push_back(channel);
    }
    return channels;
  }
  uint32_t connect(const std::string& place) {
    there->until([&] { return !accepts().empty(); });
    const uint32_t channel = accepts().front();
    used.insert(channel);
    there->send(channel, base::relay_frame(RelayKind::place, place));
    return channel;
  }
  base::Fd accepted(const base::Fd& from) {
    base::Fd socket;
    socklen_t size = sizeof peer;
    there->until([&] {
      if (base::wait_readable(from.get(), 0))
        socket.reset(accept4(from.get(), reinterpret_cast<sockaddr*>(&peer), &size, SOCK_CLOEXEC));
      return static_cast<bool>(socket);
    });
    return socket;
  }

  std::string received(const base::Fd& socket) {
    there->until([&] { return base::wait_readable(socket.get(), 0); });
    std::array<char, 512> bytes;
    const ssize_t count = recv(socket.get(), bytes.data(), bytes.size(), 0);
    return std::string(bytes.data(), static_cast<size_t>(std::max<ssize_t>(count, 0)));
  }

  link::StandIn& network_in;
  base::Loop loop;
  base::Fd egress;
  base::Fd line;
  uint32_t mark = 0;
  sockaddr_storage peer{};  // of the connection that was accepted last
  std::unique_ptr<link::InsideSockets> sockets;
  std::unique_ptr<test::OtherSide> there;
  std::unique_ptr<link::Network> network;
  base::RelayReader reader;
  std::set<uint32_t> used;
  uint32_t control = 0;
};

}  // namespace

TEST_CASE("Egress gets a listening socket once the warden there listens, and its connections") {
  link::StandIn stand_in = link::make_stand_in();
  World world(stand_in);
  const base::Fd listener = world.listener("198.18.0.1 443");
  const uint32_t channel = world.connect("198.18.0.1 443");
  const base::Fd socket = world.accepted(listener);
  world.there->send(channel, "hello");
  CHECK(world.received(socket) == "hello");
  world.there->end(channel);
  CHECK(world.received(socket).empty());
  base::write_all(socket.get(), "answer");
  world.there->until([&] { return world.there->received[channel] == "answer"; });
  CHECK_FALSE(world.there->ended[channel]);
  shutdown(socket.get(), SHUT_WR);
  world.there->until([&] { return world.there->ended[channel]; });
  CHECK(world.network->connections() == 0);
}

TEST_CASE("A place that is refused there is refused here, with its reason, in order") {
  link::StandIn stand_in = link::make_stand_in();
  World world(stand_in);
  world.ask("listen 198.18.0.1 80");
  world.ask("listen 198.18.0.1 443");
  CHECK(world.frame().payload == "listen 198.18.0.1 80");
  CHECK(world.frame().payload == "listen 198.18.0.1 443");
  world.say(RelayKind::line, "listening 198.18.0.1 443");
  world.there->pass(20);
  CHECK_FALSE(base::wait_readable(world.egress.get(), 0));
  world.say(RelayKind::line, "refused 198.18.0.1 80 98");
  CHECK(world.answer().bytes == "refused 198.18.0.1 80 98");
  CHECK(world.answer().bytes == "listening 198.18.0.1 443");
}

TEST_CASE("A request that a killed worker left unanswered is answered by the next") {
  link::StandIn stand_in = link::make_stand_in();
  World world(stand_in);
  world.ask("listen 198.18.0.1 80");
  world.ask("listen 198.18.0.2 80");
  CHECK(world.frame().payload == "listen 198.18.0.1 80");
  CHECK(world.frame().payload == "listen 198.18.0.2 80");
  world.say(RelayKind::line, "listening 198.18.0.1 80");
  const base::Received first = world.answer();
  CHECK(first.fds.size() == 1);
  world.start_worker();
  world.reach();
  // The one that egress has must be there, too: outpost may be another.
  CHECK(world.frame().payload == "listen 198.18.0.1 80");
  CHECK(world.frame().payload == "listen 198.18.0.2 80");
  world.say(RelayKind::line, "listening 198.18.0.1 80");
  world.say(RelayKind::line, "listening 198.18.0.2 80");
  CHECK(world.answer().bytes == "listening 198.18.0.2 80");
}

TEST_CASE("A cut resets connections here; afterwards the places are listened at again") {
  link::StandIn stand_in = link::make_stand_in();
  World world(stand_in);
  const base::Fd listener = world.listener("198.18.0.1 443");
  world.connect("198.18.0.1 443");
  const base::Fd socket = world.accepted(listener);
  world.cut();
  char byte = 0;
  CHECK(recv(socket.get(), &byte, 1, 0) < 0);
  CHECK(errno == ECONNRESET);
  world.used.clear();
  world.reach();
  CHECK(world.frame().payload == "listen 198.18.0.1 443");
  world.connect("198.18.0.1 443");
  CHECK(world.accepted(listener));
}

TEST_CASE("A question for the resolver gets its own answer, whatever ids the others have") {
  link::StandIn stand_in = link::make_stand_in();
  World world(stand_in);
  world.say(RelayKind::datagram, kAsker + question("id"));
  world.say(RelayKind::datagram, "FEDCBA" + question("id"));
  std::vector<std::pair<std::string, sockaddr_storage>> asked;
  for (int i = 0; i < 2; ++i) {
    world.there->until([&] { return base::wait_readable(stand_in.udp.get(), 0); });
    std::array<char, 512> bytes;
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    const ssize_t count = recvfrom(stand_in.udp.get(), bytes.data(), bytes.size(), 0,
                                   reinterpret_cast<sockaddr*>(&peer), &size);
    REQUIRE(count == 22);
    asked.emplace_back(std::string(bytes.data(), 22), peer);
  }
  std::reverse(asked.begin(), asked.end());
  for (auto& [text, peer] : asked) {
    const std::string reply = text + "answer";
    CHECK(sendto(stand_in.udp.get(), reply.data(), reply.size(), 0,
                 reinterpret_cast<const sockaddr*>(&peer), sizeof(sockaddr_in)) == 28);
  }
  CHECK(world.frame().payload == "FEDCBA" + question("id") + "answer");
  CHECK(world.frame().payload == kAsker + question("id") + "answer");
}

TEST_CASE("A connection and a question come from the address of their command") {
  link::StandIn stand_in = link::make_stand_in();
  World world(stand_in);
  const base::Fd listener = world.listener("198.18.0.1 443");
  const auto mark_seen = [](const sockaddr_storage& peer) {
    return base::mark_of(*base::address_of(reinterpret_cast<const sockaddr&>(peer)));
  };
  for (const uint32_t mark : {0U, 1U, base::command_mark("ex_77"), 0x3fffffU}) {
    world.mark = mark;
    world.connect("198.18.0.1 443");
    world.accepted(listener);
    CHECK(mark_seen(world.peer) == mark);
    world.say(RelayKind::datagram, kAsker + question("id"));
    world.there->until([&] { return base::wait_readable(stand_in.udp.get(), 0); });
    std::array<char, 512> bytes;
    sockaddr_storage asker{};
    socklen_t size = sizeof asker;
    REQUIRE(recvfrom(stand_in.udp.get(), bytes.data(), bytes.size(), 0,
                     reinterpret_cast<sockaddr*>(&asker), &size) == 22);
    CHECK(mark_seen(asker) == mark);
    REQUIRE(sendto(stand_in.udp.get(), bytes.data(), 22, 0,
                   reinterpret_cast<const sockaddr*>(&asker), sizeof(sockaddr_in)) == 22);
    CHECK(world.frame().payload == kAsker + question("id"));
  }
}

TEST_CASE("A place where egress no longer listens is closed there") {
  link::StandIn stand_in = link::make_stand_in();
  World world(stand_in);
  world.listener("198.18.0.1 443");  // closed at once
  const uint32_t channel = world.connect("198.18.0.1 443");
  CHECK(world.frame().payload == "refused 198.18.0.1 443 " + std::to_string(ECONNREFUSED));
  world.there->until([&] { return !world.there->mux.is_open(channel); });
}

TEST_CASE("A place that egress asks for again is not closed by a late connection") {
  link::StandIn stand_in = link::make_stand_in();
  World world(stand_in);
  world.listener("198.18.0.1 443");  // closed at once
  world.ask("listen 198.18.0.1 443");
  CHECK(world.frame().payload == "listen 198.18.0.1 443");
  const uint32_t late = world.connect("198.18.0.1 443");
  world.there->until([&] { return !world.there->mux.is_open(late); });
  world.say(RelayKind::line, "listening 198.18.0.1 443");
  CHECK(world.answer().fds.size() == 1);
  world.ask("listen 198.18.0.1 80");
  CHECK(world.frame().payload == "listen 198.18.0.1 80");  // the next frame
}

TEST_CASE("A place stays open there when egress resets its connections as soon as they come") {
  link::StandIn stand_in = link::make_stand_in();
  World world(stand_in);
  const base::Fd listener = world.listener("198.18.0.1 443");
  std::atomic<bool> over{false};
  std::thread egress([&] {
    while (!over) {
      const base::Fd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      const linger at_once{1, 0};
      if (socket) setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
  });
  for (int i = 0; i < 500; ++i) {
    const uint32_t channel = world.connect("198.18.0.1 443");
    world.there->until([&] { return !world.there->mux.is_open(channel); });
  }
  over = true;
  egress.join();
  world.ask("listen 198.18.0.1 80");
  CHECK(world.frame().payload == "listen 198.18.0.1 80");
}

TEST_CASE("A hostile machine reaches no other place, and opens no more than the limit") {
  link::StandIn stand_in = link::make_stand_in();
  World world(stand_in);
  world.there->until([&] { return world.accepts().size() == link::Network::kFree; });
  for (const char* place : {"127.0.0.1 22", "198.20.0.1 80", "garbage", "198.18.0.1 443 "}) {
    const uint32_t channel = world.connect(place);
    world.there->until([&] { return !world.there->mux.is_open(channel); });
  }
  const base::Fd listener = world.listener("198.18.0.1 443");
  std::vector<base::Fd> sockets;
  // Those that were refused come again after a while.
  while (sockets.size() < base::kMaxRelayed) {
    world.connect("198.18.0.1 443");
    sockets.push_back(world.accepted(listener));
  }
  world.there->pass(20);
  CHECK(world.accepts().empty());
  CHECK(world.network->connections() == base::kMaxRelayed);
  for (base::Fd& socket : sockets) {
    const linger now{1, 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
    socket.reset();
  }
  world.there->until([&] { return world.accepts().size() == link::Network::kFree; });
}

TEST_CASE("Nonsense on the channel `network` ends it, and another one is opened") {
  link::StandIn stand_in = link::make_stand_in();
  World world(stand_in);
  for (const std::string& nonsense :
       {std::string("\x7f"), base::relay_frame(RelayKind::line, "listen 198.18.0.1 80"),
        base::relay_frame(RelayKind::line, "dns"), base::relay_frame(RelayKind::place, "x")}) {
    world.there->send(world.control, nonsense);
    world.there->until([&] { return !world.there->mux.is_open(world.control); });
    world.control = world.there->await("network");
  }
}

TEST_CASE("The stand-in has a loopback device alone, with the sandbox's range") {
  link::StandIn stand_in = link::make_stand_in();
  link::InsideSockets inside(stand_in.name_space.duplicate(), [] {});
  CHECK(inside.listen({"198.19.255.254", 22}).socket);
  CHECK(inside.listen({"198.18.0.1", 443}).socket);
  CHECK(inside.listeners().empty());  // nobody holds them
  const auto held = inside.listen({"198.18.0.1", 443});
  CHECK(inside.listen({"198.18.0.1", 443}).error_number == EADDRINUSE);
  CHECK(inside.listeners() == std::vector<base::RelayPlace>{{"198.18.0.1", 443}});
  CHECK(inside.connect({"198.18.0.1", 80}, 0).error_number == ECONNREFUSED);
  CHECK(inside.connect({"192.0.2.1", 80}, 0).error_number == ENETUNREACH);
}
