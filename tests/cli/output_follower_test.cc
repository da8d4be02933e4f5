#include "cli/stream/output_follower.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <random>
#include <thread>

#include "fake_exec.h"

using namespace moorage;
using namespace moorage::cli;
using base::Code;
using base::Error;
using base::RecordKind;
using test::Call;
using test::FakeExec;
using test::ScriptedServer;

namespace {

constexpr const char* kExitedZero = R"("state":"exited","exit_code":0)";

struct Followed {
  std::string out, err, exec;
  Json end;
};

Followed follow(const std::string& socket, FollowPlan plan) {
  Followed followed;
  plan.on_started = [&](const std::string& exec) { followed.exec = exec; };
  plan.on_output = [&](RecordKind kind, std::string_view bytes) {
    (kind == RecordKind::standard_error ? followed.err : followed.out).append(bytes);
  };
  followed.end = OutputFollower(socket, std::move(plan)).run();
  return followed;
}

FollowPlan start_plan() {
  FollowPlan plan;
  plan.post_target = "/v1/workspaces/auth/execs";
  plan.post_body = R"({"argv":["true"]})";
  return plan;
}

std::string random_bytes(std::mt19937& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

}  // namespace

TEST_CASE("output arrives byte for byte through streams that break anywhere") {
  const unsigned seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  FakeExec exec;
  std::string out, err;
  for (int i = 0; i < 60; ++i) {
    const std::string piece = random_bytes(random, 1 + random() % 5000);
    const bool is_error = random() % 3 == 0;
    (is_error ? err : out) += piece;
    exec.write(is_error ? RecordKind::standard_error : RecordKind::standard_output, piece);
  }
  exec.finish(kExitedZero);
  std::vector<size_t> breaks;
  for (int i = 0; i < 20; ++i) breaks.push_back(random() % 20'000);
  exec.break_streams_after(breaks);
  ScriptedServer server([&](Call& call) { exec.handle(call); });
  const Followed followed = follow(server.socket_path(), start_plan());
  CHECK(followed.out == out);
  CHECK(followed.err == err);
  CHECK(followed.exec == "ex_7");
  CHECK(followed.end.number("exit_code", -1) == 0);
  CHECK(exec.starts() == 1);
}

TEST_CASE("an unconfirmed start is repeated with the same key") {
  FakeExec exec;
  exec.lose_first_posts = 2;
  exec.write(RecordKind::standard_output, "once\n");
  exec.finish(kExitedZero);
  ScriptedServer server([&](Call& call) { exec.handle(call); });
  CHECK(follow(server.socket_path(), start_plan()).out == "once\n");
  CHECK(exec.starts() == 1);
  const auto keys = exec.post_keys();
  REQUIRE(keys.size() == 3);
  CHECK(keys[0] == keys[2]);
  CHECK(keys[0].size() > 20);
}

TEST_CASE("following survives a restart of the daemon without losing output") {
  FakeExec exec;
  exec.write(RecordKind::standard_output, "before ");
  ScriptedServer server([&](Call& call) { exec.handle(call); });
  std::thread restarter([&] {
    while (server.count("POST /v1/workspaces/auth/execs") == 0) std::this_thread::yield();
    server.stop();
    exec.write(RecordKind::standard_output, "meanwhile ");
    server.start();
    exec.write(RecordKind::standard_output, "after");
    exec.finish(kExitedZero);
  });
  const Followed followed = follow(server.socket_path(), start_plan());
  restarter.join();
  CHECK(followed.out == "before meanwhile after");
}

TEST_CASE("a refusal is final") {
  ScriptedServer server([](Call& call) {
    call.body();
    call.reply(503, R"({"code":"unavailable","message":"the engine is away"})");
  });
  CHECK_THROWS_WITH(follow(server.socket_path(), start_plan()), "the engine is away");
  CHECK(server.seen().size() == 1);
}

TEST_CASE("an error record ends the stream with its message") {
  ScriptedServer server([](Call& call) {
    call.begin(200, "Moorage-Exec: ex_7\r\n");
    call.chunk(
        base::encode_record(RecordKind::error, R"({"code":"corrupted","message":"bad journal"})"));
    call.end();
  });
  CHECK_THROWS_WITH(follow(server.socket_path(), start_plan()), "bad journal");
}

TEST_CASE("a stream that starts too early repeats no output") {
  ScriptedServer server([](Call& call) {
    call.begin(200, "Moorage-Exec: ex_7\r\n");
    call.chunk(base::encode_record(RecordKind::position, R"({"offset":2})") +
               base::encode_record(RecordKind::standard_output, "cd") +
               base::encode_record(RecordKind::standard_output, "efgh") +
               base::encode_record(RecordKind::end, R"({"state":"exited","exit_code":0})"));
    call.end();
  });
  FollowPlan plan;
  plan.exec = "ex_7";
  plan.offset = 5;
  CHECK(follow(server.socket_path(), plan).out == "fgh");
}

TEST_CASE("without follow reading stops at the current end") {
  FakeExec exec;
  exec.write(RecordKind::standard_output, "so far");
  ScriptedServer server([&](Call& call) { exec.handle(call); });
  FollowPlan plan;
  plan.exec = "ex_7";
  plan.offset = 3;
  plan.follow = false;
  const Followed followed = follow(server.socket_path(), plan);
  CHECK(followed.out == "far");
  CHECK_FALSE(followed.end.has("state"));
}
