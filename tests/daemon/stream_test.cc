#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>

#include "served.h"

using namespace moorage;
using namespace moorage::daemon;
using std::chrono::milliseconds;

namespace {

const std::string kGet = "GET /stream HTTP/1.1\r\n\r\n";

// A source that the test feeds from outside, as the exec watcher does.
struct Feed {
  std::mutex mutex;
  std::string bytes;
  bool ended = false;
  bool broken = false;
  std::function<void()> wake;
  std::atomic<int> alive{0};
  std::atomic<int> reads{0};

  void add(const std::string& more, bool end = false) {
    const std::lock_guard lock(mutex);
    bytes += more;
    ended = end;
    if (wake) wake();
  }
};

class FedSource : public BodySource {
 public:
  FedSource(Feed& feed, bool is_endless, std::string alive = {})
      : feed_(feed), endless_(is_endless), alive_(std::move(alive)) {
    feed_.alive += 1;
  }
  ~FedSource() override { feed_.alive -= 1; }
  void start(std::function<void()> wake) override {
    const std::lock_guard lock(feed_.mutex);
    feed_.wake = std::move(wake);
  }
  Step read() override {
    feed_.reads += 1;
    const std::lock_guard lock(feed_.mutex);
    if (feed_.broken) throw base::Error(base::Code::corrupted, "broken");
    return {std::exchange(feed_.bytes, {}), feed_.ended ? Next::end : Next::wait, {}};
  }
  std::string keep_alive() override { return alive_; }
  bool endless() const override { return endless_; }

 private:
  Feed& feed_;
  bool endless_;
  std::string alive_;
};

void add_feed(Served& served, Feed& feed, bool endless, const std::string& alive = {}) {
  const Handler stream = [&feed, endless, alive](const Request&) {
    Reply reply;
    reply.content_type = kBytesType;
    reply.source = std::make_unique<FedSource>(feed, endless, alive);
    return reply;
  };
  served.router().add(
      {.method = "GET", .pattern = "/stream", .access = Right::none, .handler = stream});
}

// More bytes than any socket buffer can hold.
class BigSource : public BodySource {
 public:
  explicit BigSource(std::atomic<uint64_t>& made) : made_(made) {}
  Step read() override {
    made_ += kPieceBytes;
    return {std::string(kPieceBytes, 'x'), Next::more, {}};
  }

 private:
  std::atomic<uint64_t>& made_;
};

}  // namespace

TEST_CASE("a source's pieces are sent as they come, and its end ends the chunks") {
  Served served;
  Feed feed;
  add_feed(served, feed, true);
  served.start();
  Wire wire = served.connect();
  wire.send(kGet);
  feed.add("one ");
  std::string seen = wire.read_some();
  while (seen.find("one ") == std::string::npos) seen += wire.read_some();
  CHECK(seen.find("Transfer-Encoding: chunked") != std::string::npos);
  feed.add("two");
  feed.add(" three", true);
  while (seen.find("\r\n0\r\n\r\n") == std::string::npos) seen += wire.read_some();
  wire.send("GET /stream HTTP/1.1\r\n\r\n");
  CHECK(wire.read_answer().status == 200);
}

TEST_CASE("a source with everything at once is sent with a length in one write") {
  Served served;
  Feed feed;
  add_feed(served, feed, true);
  feed.add("all", true);
  served.start();
  const Answer answer = served.ask(kGet);
  CHECK(answer.header("content-length") == "3");
  CHECK(answer.body == "all");
}

TEST_CASE("an old client without chunks gets the body until the end of the connection") {
  Served served;
  Feed feed;
  add_feed(served, feed, true);
  served.start();
  Wire wire = served.connect();
  wire.send("GET /stream HTTP/1.0\r\n\r\n");
  feed.add("one ");
  std::string seen;
  while (seen.find("one ") == std::string::npos) seen += wire.read_some();
  feed.add("two", true);
  for (std::string more = wire.read_some(); !more.empty(); more = wire.read_some()) seen += more;
  CHECK(seen.find("chunked") == std::string::npos);
  CHECK(seen.ends_with("\r\n\r\none two"));
}

TEST_CASE("a source that fails before its first byte is an error answer, a later failure cuts") {
  Served served;
  Feed feed;
  add_feed(served, feed, true);
  feed.broken = true;
  served.start();
  CHECK(served.ask(kGet).status == 500);
  feed.broken = false;
  Wire wire = served.connect();
  wire.send(kGet);
  feed.add("some");
  REQUIRE(soon([&] {
    const std::lock_guard lock(feed.mutex);
    return feed.bytes.empty();
  }));
  {
    const std::lock_guard lock(feed.mutex);
    feed.broken = true;
    feed.wake();
  }
  const Answer cut = wire.read_answer();
  CHECK(cut.body == "some");
  CHECK_FALSE(cut.whole);
}

TEST_CASE("a file that shrinks during the read does not look complete") {
  Served served;
  Feed feed;
  feed.add("short", true);
  const Handler stream = [&feed](const Request&) {
    Reply reply;
    reply.source = std::make_unique<FedSource>(feed, false);
    reply.source_bytes = 10;
    return reply;
  };
  served.router().add(
      {.method = "GET", .pattern = "/stream", .access = Right::none, .handler = stream});
  served.start();
  CHECK_FALSE(served.ask(kGet).whole);
}

TEST_CASE("the socket provides back-pressure, and a reader that takes nothing is dropped") {
  Limits limits;
  limits.progress = milliseconds(300);
  Served served(limits);
  std::atomic<uint64_t> made{0};
  std::atomic<int> alive{0};
  const Handler stream = [&](const Request&) {
    Reply reply;
    reply.source = std::make_unique<BigSource>(made);
    return reply;
  };
  served.router().add(
      {.method = "GET", .pattern = "/stream", .access = Right::none, .handler = stream});
  served.start();
  Wire wire = served.connect();
  wire.send(kGet);
  REQUIRE(soon([&] { return made.load() > 0; }));
  std::string last;
  CHECK(soon([&] { return !wire.try_send(kGet); }));
  CHECK(made.load() < 8 * kPieceBytes);
}

TEST_CASE("a source's keep-alive breaks the silence") {
  Limits limits;
  limits.keep_alive = milliseconds(20);
  Served served(limits);
  Feed feed;
  add_feed(served, feed, true, "~");
  served.start();
  Wire wire = served.connect();
  wire.send(kGet);
  std::string seen;
  while (seen.find("1\r\n~\r\n1\r\n~") == std::string::npos) seen += wire.read_some();
  const int reads = feed.reads;
  CHECK(reads == 1);
}

TEST_CASE("a silent stream ends when its client has left") {
  Limits limits;
  limits.keep_alive = milliseconds(20);
  Served served(limits);
  Feed feed;
  add_feed(served, feed, true);
  served.start();
  {
    Wire wire = served.connect();
    wire.send(kGet);
    REQUIRE(soon([&] { return feed.alive == 1; }));
  }
  CHECK(soon([&] { return feed.alive == 0; }));
  feed.add("a wake after the end is harmless");
}

TEST_CASE("a stopping server cuts endless streams and finishes the others") {
  Served served;
  Feed endless;
  add_feed(served, endless, true);
  Feed finite;
  const Handler stream = [&finite](const Request&) {
    Reply reply;
    reply.source = std::make_unique<FedSource>(finite, false);
    return reply;
  };
  served.router().add(
      {.method = "GET", .pattern = "/finite", .access = Right::none, .handler = stream});
  served.start();
  Wire follower = served.connect();
  follower.send(kGet);
  endless.add("a");
  Wire waiting = served.connect();
  waiting.send("GET /finite HTTP/1.1\r\n\r\n");
  REQUIRE(soon([&] { return finite.alive == 1 && endless.reads >= 1; }));
  served.begin_stop();
  CHECK_FALSE(follower.read_answer().whole);
  finite.add("done", true);
  CHECK(waiting.read_answer().whole);
  CHECK(served.stop());
}

TEST_CASE("a long verb reports progress, at most ten lines a second, and its result last") {
  Served served;
  const LongHandler verb = [](const Request&, const workspace::Progress& progress) {
    const auto until = std::chrono::steady_clock::now() + milliseconds(450);
    for (int i = 0; std::chrono::steady_clock::now() < until; ++i)
      progress("checkout", i % 100, "files");
    return Reply::json("{\"id\":\"ws_1\"}", 201);
  };
  served.router().add({.method = "POST",
                       .pattern = "/long",
                       .access = Right::none,
                       .handler = verb,
                       .lane = Lane::slow});
  served.start();
  const Answer lines = served.post("/long", "", "Accept: application/x-ndjson\r\n");
  CHECK(lines.status == 200);
  CHECK(lines.header("content-type") == "application/x-ndjson");
  const auto count = std::count(lines.body.begin(), lines.body.end(), '\n');
  CHECK(count >= 3);
  CHECK(count <= 8);
  CHECK(lines.body.starts_with("{\"progress\":{\"phase\":\"checkout\""));
  CHECK(lines.body.ends_with("\n{\"result\":{\"id\":\"ws_1\"}}\n"));
  CHECK(served.post("/long", "").status == 201);
}

TEST_CASE("a long verb's failure is its last line") {
  Served served;
  const LongHandler verb = [](const Request&, const workspace::Progress&) -> Reply {
    throw base::Error(base::Code::unavailable, "upstream is away");
  };
  served.router().add({.method = "POST",
                       .pattern = "/long",
                       .access = Right::none,
                       .handler = verb,
                       .lane = Lane::slow});
  served.start();
  const Answer lines = served.post("/long", "", "Accept: application/x-ndjson\r\n");
  CHECK(lines.body ==
        "{\"error\":{\"code\":\"unavailable\",\"message\":\"upstream is away\",\"hint\":\"\"}}\n");
  CHECK(served.post("/long", "").status == 503);
}

TEST_CASE("a full lane refuses at once and recovers") {
  WorkerPools worker_pools(1, 1);
  std::atomic<bool> leave{false};
  std::atomic<bool> entered{false};
  worker_pools.submit(Lane::quick, {}, [&] {
    entered = true;
    soon([&] { return leave.load(); });
  });
  REQUIRE(soon([&] { return entered.load(); }));
  worker_pools.submit(Lane::quick, {}, [] {});
  CHECK_THROWS_AS(worker_pools.submit(Lane::quick, {}, [] {}), base::Error);
  CHECK(worker_pools.busy() == 2);
  bool other_lane = false;
  worker_pools.submit(Lane::slow, {}, [&] { other_lane = true; });
  leave = true;
  CHECK(soon([&] { return worker_pools.busy() == 0; }));
  CHECK(other_lane);
}
