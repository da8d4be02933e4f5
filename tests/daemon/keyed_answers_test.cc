#include "daemon/keyed_answers.h"

#include <atomic>
#include <catch2/catch.hpp>

#include "served.h"

using namespace moorage;
using namespace moorage::daemon;

namespace {

struct Counted {
  std::atomic<int> runs{0};
  std::atomic<bool> fail{false};
};

void add_counted(Served& served, Counted& counted) {
  const Handler verb = [&counted](const Request&) {
    counted.runs += 1;
    if (counted.fail) throw base::Error(base::Code::unavailable, "not now");
    return Reply::json("{\"run\":" + std::to_string(counted.runs) + "}", 201);
  };
  served.router().add({.method = "POST",
                       .pattern = "/verb",
                       .access = Right::none,
                       .handler = verb,
                       .query = {"q"}});
}

class CountingSink : public BodySink {
 public:
  explicit CountingSink(Counted& counted) : counted_(counted) {}
  Taken write(std::string_view) override { return Taken::all; }
  Reply finish() override { return Reply::json(std::to_string(++counted_.runs)); }

 private:
  Counted& counted_;
};

}  // namespace

TEST_CASE("a repeat with the same key gets the first answer and nothing runs again") {
  Served served;
  Counted counted;
  add_counted(served, counted);
  served.start();
  const std::string key = "Idempotency-Key: one\r\n";
  const Answer first = served.post("/verb", "{}", key);
  const Answer second = served.post("/verb", "{}", key);
  CHECK(first.status == 201);
  CHECK(second.status == 201);
  CHECK(second.body == first.body);
  CHECK(counted.runs == 1);
  served.post("/verb", "{}", "Idempotency-Key: two\r\n");
  served.post("/verb", "{}");
  served.post("/verb", "{}");
  CHECK(counted.runs == 4);
}

TEST_CASE("the same key for another body, query or path is refused") {
  Served served;
  Counted counted;
  add_counted(served, counted);
  served.start();
  const std::string key = "Idempotency-Key: one\r\n";
  served.post("/verb", "{}", key);
  for (const Answer& other :
       {served.post("/verb", "{ }", key), served.post("/verb?q=1", "{}", key)}) {
    CHECK(other.status == 409);
    CHECK(other.body.find("already_exists") != std::string::npos);
  }
  CHECK(counted.runs == 1);
}

TEST_CASE("a repeat while the first still runs is told to come back") {
  Served served;
  std::atomic<bool> entered{false};
  std::atomic<bool> leave{false};
  const Handler slow = [&](const Request&) {
    entered = true;
    soon([&] { return leave.load(); });
    return Reply::json("{\"run\":1}");
  };
  served.router().add(
      {.method = "POST", .pattern = "/slow", .access = Right::none, .handler = slow});
  served.start();
  Wire wire = served.connect();
  wire.send("POST /slow HTTP/1.1\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n");
  REQUIRE(soon([&] { return entered.load(); }));
  const Answer early = served.post("/slow", "", "Idempotency-Key: k\r\n");
  CHECK(early.status == 409);
  CHECK(early.body.find("\"conflict\"") != std::string::npos);
  leave = true;
  CHECK(wire.read_answer().status == 200);
  CHECK(served.post("/slow", "", "Idempotency-Key: k\r\n").body == "{\"run\":1}");
}

TEST_CASE("a refusal is not kept: the repeat tries again") {
  Served served;
  Counted counted;
  add_counted(served, counted);
  served.start();
  counted.fail = true;
  CHECK(served.post("/verb", "{}", "Idempotency-Key: k\r\n").status == 503);
  counted.fail = false;
  CHECK(served.post("/verb", "{}", "Idempotency-Key: k\r\n").status == 201);
  CHECK(counted.runs == 2);
}

TEST_CASE("a key is 1 to 128 printable ASCII characters") {
  Served served;
  Counted counted;
  add_counted(served, counted);
  served.start();
  CHECK(served.post("/verb", "{}", "Idempotency-Key: " + std::string(128, 'k') + "\r\n").status ==
        201);
  for (const std::string& bad :
       {std::string(129, 'k'), std::string(), std::string("caf\xc3\xa9")}) {
    CHECK(served.post("/verb", "{}", "Idempotency-Key: " + bad + "\r\n").status == 400);
  }
  CHECK(counted.runs == 1);
}

TEST_CASE("an upload's key covers its bytes, however they are cut") {
  Served served;
  Counted counted;
  const UploadHandler upload = [&](const Request&) {
    return std::make_unique<CountingSink>(counted);
  };
  served.router().add(
      {.method = "POST", .pattern = "/upload", .access = Right::none, .handler = upload});
  served.start();
  const std::string key = "Idempotency-Key: u\r\n";
  CHECK(served.post("/upload", "abcdef", key).body == "1");
  const std::string chunked =
      "POST /upload HTTP/1.1\r\n" + key + "Transfer-Encoding: chunked\r\n\r\n";
  CHECK(served.ask(chunked + "2\r\nab\r\n4\r\ncdef\r\n0\r\n\r\n").body == "1");
  CHECK(served.ask(chunked + "2\r\nab\r\n4\r\ncdeX\r\n0\r\n\r\n").status == 409);
  CHECK(counted.runs == 1);
}

TEST_CASE(
    "a long verb's answer is kept although its client left, and given to the repeat as a line") {
  Served served;
  std::atomic<bool> leave{false};
  std::atomic<int> runs{0};
  const LongHandler verb = [&](const Request&, const workspace::Progress&) {
    runs += 1;
    soon([&] { return leave.load(); });
    return Reply::json("{\"id\":\"ws_1\"}", 201);
  };
  served.router().add({.method = "POST",
                       .pattern = "/long",
                       .access = Right::none,
                       .handler = verb,
                       .lane = Lane::slow});
  served.start();
  const std::string headers = "Accept: application/x-ndjson\r\nIdempotency-Key: k\r\n";
  {
    Wire wire = served.connect();
    wire.send("POST /long HTTP/1.1\r\n" + headers + "Content-Length: 0\r\n\r\n");
    REQUIRE(soon([&] { return runs == 1; }));
  }
  leave = true;
  CHECK(soon([&] { return served.lanes().busy() == 0; }));
  CHECK(served.post("/long", "", headers).body == "{\"result\":{\"id\":\"ws_1\"}}\n");
  CHECK(runs == 1);
}

TEST_CASE("the hash of a body does not depend on how it was cut") {
  const std::string bytes(200'000, 'b');
  BodyHash whole;
  whole.add(bytes);
  BodyHash cut;
  for (size_t at = 0; at < bytes.size(); at += 777)
    cut.add(std::string_view(bytes).substr(at, 777));
  BodyHash shorter;
  shorter.add(std::string_view(bytes).substr(1));
  const std::string sum = whole.finish();
  CHECK(cut.finish() == sum);
  CHECK(shorter.finish() != sum);
}
