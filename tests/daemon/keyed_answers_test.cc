#include "daemon/http/keyed_answers.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>

#include "served.h"
#include "workspace/context/waiters.h"

using namespace moorage;
using namespace moorage::daemon;

namespace {

struct Counted {
  std::atomic<int> runs{0};
  std::atomic<bool> fail{false};
  std::atomic<base::Code> code{base::Code::resource_exhausted};
};

void add_counted(Served& served, Counted& counted) {
  const Handler verb = [&counted](const Request&) {
    counted.runs += 1;
    if (counted.fail) throw base::Error(counted.code, "not now", "later");
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

// POST /upload; its repeat answers with the subject that its verb joined to the key.
void add_joined_upload(Served& served, const UploadHandler& upload) {
  served.router().add({.method = "POST",
                       .pattern = "/upload",
                       .access = Right::none,
                       .handler = upload,
                       .keep = Keep::joined,
                       .resume = [](const Request&, const std::string& subject) {
                         return Reply::json("\"" + subject + "\"", 201);
                       }});
}

}  // namespace

TEST_CASE("a repeat with the same key gets the first answer, and nothing runs again") {
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

TEST_CASE("a repeat during the first request is refused as in progress") {
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

TEST_CASE("an immediate repeat gets the same answer, streamed or late too") {
  const bool streamed = GENERATE(true, false);
  std::promise<int> repeated;  // outlives the thread that keeps it
  Served served;
  served.start();
  KeyedAnswers answers(served.store());
  workspace::Waiters waiters([](base::ExecId) { return true; });
  Dispatcher dispatcher(served.worker_pools(), answers, &waiters);
  std::atomic<bool> waits = !streamed;
  std::promise<void> listening;  // signals the late answer
  const LongHandler verb = [&](const Request&, const workspace::Progress&) {
    if (waits.exchange(false)) throw workspace::Waiting({base::ExecId{1}}, "ex_1 runs");
    if (!streamed) listening.get_future().wait();
    return Reply::json("{}", 201);
  };
  const Route route{.method = "POST", .pattern = "/long", .access = Right::none, .handler = verb};
  Request request;
  request.method = "POST";
  request.path = "/long";
  request.idempotency_key = "k";
  if (streamed) request.accept = kLinesType;
  const Reply reply = dispatcher.answer(route, request);
  request.accept.clear();
  reply.source->start([&] { repeated.set_value(dispatcher.answer(route, request).status); });
  listening.set_value();
  CHECK(repeated.get_future().get() == 201);
}

TEST_CASE("a repeat of a failed request gets the first error, word for word") {
  Served served;
  Counted counted;
  add_counted(served, counted);
  served.start();
  counted.fail = true;
  const Answer first = served.post("/verb", "{}", "Idempotency-Key: k\r\n");
  CHECK(first.status == 507);
  counted.fail = false;
  const Answer second = served.post("/verb", "{}", "Idempotency-Key: k\r\n");
  CHECK(second.status == 507);
  CHECK(second.body == first.body);
  CHECK(counted.runs == 1);
  CHECK(served.post("/verb", "{}", "Idempotency-Key: another\r\n").status == 201);
}

TEST_CASE("a request with an unknown outcome runs again on repeat") {
  Served served;
  Counted counted;
  counted.code = base::Code::unknown_outcome;
  add_counted(served, counted);
  served.start();
  counted.fail = true;
  CHECK(served.post("/verb", "{}", "Idempotency-Key: k\r\n").status == 502);
  counted.fail = false;
  CHECK(served.post("/verb", "{}", "Idempotency-Key: k\r\n").status == 201);
  CHECK(counted.runs == 2);
}

TEST_CASE("the refusal of a request in progress is not kept as an answer") {
  Served served;
  std::atomic<int> runs{0};
  const Handler verb = [&](const Request& request) {
    if (++runs == 1) workspace::refuse_unsettled(request.caller, "it is settled soon");
    return Reply::json("{}", 201);
  };
  served.router().add({.method = "POST", .pattern = "/v", .access = Right::none, .handler = verb});
  served.start();
  CHECK(served.post("/v", "{}", "Idempotency-Key: k\r\n").status == 409);
  CHECK(served.post("/v", "{}", "Idempotency-Key: k\r\n").status == 201);
}

namespace {

// Its effect is in the store with the key, and its answer is lost, as if the daemon had died.
Route cut_route(Served& served, std::atomic<int>& runs) {
  return {.method = "DELETE",
          .pattern = "/thing",
          .access = Right::none,
          .handler = Handler([&](const Request& request) -> Reply {
            runs += 1;
            workspace::join_key(served.store(), request.caller, "thing_7");
            throw base::Error(base::Code::unknown_outcome, "died");
          }),
          .keep = Keep::joined};
}

}  // namespace

TEST_CASE("a repeat finds the effect from before the daemon died and does not redo it") {
  Served served;
  std::atomic<int> runs{0};
  Route route = cut_route(served, runs);
  route.resume = [](const Request&, const std::string& subject) {
    return Reply::json("{\"was\":\"" + subject + "\"}");
  };
  served.router().add(std::move(route));
  served.start();
  const std::string request = "DELETE /thing HTTP/1.1\r\nIdempotency-Key: k\r\n\r\n";
  CHECK(served.ask(request).status == 502);
  const Answer repeat = served.ask(request);
  CHECK(repeat.status == 200);
  CHECK(repeat.body == "{\"was\":\"thing_7\"}");
  CHECK(served.ask(request).body == repeat.body);
  CHECK(runs == 1);
}

TEST_CASE("a verb that checks for itself sees that it had begun") {
  Served served;
  std::vector<bool> begun;
  const Handler verb = [&](const Request& request) {
    begun.push_back(workspace::has_begun(request.caller));
    workspace::join_key(served.store(), request.caller, "tree");
    if (begun.size() == 1) throw base::Error(base::Code::unknown_outcome, "died");
    return Reply::json("{}");
  };
  served.router().add({.method = "POST",
                       .pattern = "/verb",
                       .access = Right::none,
                       .handler = verb,
                       .keep = Keep::joined});
  served.start();
  served.post("/verb", "{}", "Idempotency-Key: k\r\n");
  served.post("/verb", "{}", "Idempotency-Key: k\r\n");
  CHECK(begun == std::vector<bool>{false, true});
}

TEST_CASE("a finished upload does not start again, and only the same bytes match it") {
  Served served;
  std::atomic<int> begun{0};
  class Cut : public BodySink {
   public:
    Cut(Served& served, Request request) : served_(served), request_(std::move(request)) {}
    Taken write(std::string_view) override { return Taken::all; }
    Reply finish() override {
      workspace::join_key(served_.store(), request_.caller, "ws_7");
      throw base::Error(base::Code::unknown_outcome, "died");
    }

   private:
    Served& served_;
    const Request request_;
  };
  const UploadHandler upload = [&](const Request& request) -> std::unique_ptr<BodySink> {
    if (++begun > 1) throw base::Error(base::Code::already_exists, "there is one");
    return std::make_unique<Cut>(served, request);
  };
  add_joined_upload(served, upload);
  served.start();
  const std::string key = "Idempotency-Key: u\r\n";
  CHECK(served.post("/upload", "abc", key).status == 502);
  CHECK(served.post("/upload", "abd", key).status == 409);
  const Answer repeat = served.post("/upload", "abc", key);
  CHECK(repeat.status == 201);
  CHECK(repeat.body == "\"ws_7\"");
  CHECK(begun == 1);
}

TEST_CASE("an upload whose verb joins the key during the body gets that verb's answer") {
  Served served;
  class Early : public BodySink {
   public:
    Early(Served& served, Request request) : served_(served), request_(std::move(request)) {}
    Taken write(std::string_view) override {
      workspace::join_key(served_.store(), request_.caller, "ws_7");
      return Taken::all;
    }
    Reply finish() override { return Reply::json("\"whole\"", 201); }

   private:
    Served& served_;
    const Request request_;
  };
  const UploadHandler upload = [&](const Request& request) {
    return std::make_unique<Early>(served, request);
  };
  add_joined_upload(served, upload);
  served.start();
  CHECK(served.post("/upload", "abc", "Idempotency-Key: u\r\n").body == "\"whole\"");
  CHECK(served.post("/upload", "abc", "Idempotency-Key: u\r\n").body == "\"whole\"");
}

TEST_CASE("a deferred answer is returned before and after it is written, with its headers") {
  Served served;
  Request request;
  request.method = "PUT";
  request.path = "/x";
  request.idempotency_key = "k";
  const Route route{.method = "PUT",
                    .pattern = "/x",
                    .access = Right::none,
                    .handler = Handler(),
                    .keep = Keep::joined};
  const auto keyed = KeyedAnswers::begin(route, request);
  keyed->set_body_hash("body");
  Reply reply = Reply::json("{}", 201);
  reply.headers.emplace_back("ETag", "\"one: two\"");
  {
    KeyedAnswers answers(served.store());
    const auto before = served.store().commits();
    answers.keep(Keep::joined, *keyed, reply);
    CHECK(served.store().commits() == before);
    CHECK(answers.find(*keyed)->headers == reply.headers);
    answers.write_later();
    CHECK(served.store().commits() == before + 1);
    answers.write_later();
    CHECK(served.store().commits() == before + 1);
  }
  KeyedAnswers after(served.store());
  CHECK(after.find(*keyed)->headers == reply.headers);
  CHECK(after.find(*keyed)->status == 201);
}

TEST_CASE("different conditions make a different request") {
  Request request;
  request.method = "PUT";
  request.path = "/x";
  request.idempotency_key = "k";
  const Route route{.method = "PUT", .pattern = "/x", .access = Right::none, .handler = Handler()};
  const auto plain = KeyedAnswers::begin(route, request)->identity();
  request.if_match = "\"a\"";
  const auto match = KeyedAnswers::begin(route, request)->identity();
  request.if_match.swap(request.if_none_match);
  const auto none_match = KeyedAnswers::begin(route, request)->identity();
  CHECK(plain.head != match.head);
  CHECK(match.head != none_match.head);
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

TEST_CASE("an upload's key covers its bytes, however they are split") {
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

TEST_CASE("a long verb's answer is kept after its client left, and sent to the repeat as a line") {
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
  CHECK(soon([&] { return served.worker_pools().busy() == 0; }));
  CHECK(served.post("/long", "", headers).body == "{\"result\":{\"id\":\"ws_1\"}}\n");
  CHECK(runs == 1);
}

TEST_CASE("the hash of a body does not depend on how it was split") {
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
