// `best-of` and `compare`: requests, output and exit codes.
#include <catch2/catch.hpp>
#include <filesystem>

#include "base/os/files.h"
#include "cli/client/json.h"
#include "program.h"
#include "scripted_server.h"

using namespace moorage;
using cli::Json;
using test::Call;
using test::Ran;
using test::run_moorage;
using test::ScriptedServer;

namespace {

std::string best_of_json(const std::string& state, const std::string& rest) {
  return R"({"id":"bo_1","workspace":"ws_1","name":"auth","state":")" + state +
         R"(","count":2,"parallel":2,"test":["make"],"reason":"1 of 2 passed",
         "attempts":[{"number":1,"of":2,"state":"failed","name":"auth-1","kept":true,"took_ms":90,
         "reason":"the test exited with 3","tail":"before\nbad \u001b[2Jthing\u202e\n\n"},
         {"number":2,"of":2,"state":"passed","name":"auth-2","kept":true,"took_ms":1200,
         "diff":{"files":3,"added":10,"removed":2,"bytes":4096},"tail":"good\n"}])" +
         rest + "}";
}

const std::string kSnapshots = R"({"snapshots":[
    {"id":"sn_3","cause":"promote","created_at":"2026-11-21T09:00:00.000Z"},
    {"id":"sn_4","cause":"fork","created_at":"2026-11-21T10:00:00.100Z"},
    {"id":"sn_6","cause":"promote","created_at":"2026-11-21T10:00:05.000Z"},
    {"id":"sn_8","cause":"promote","created_at":"2026-11-21T11:00:00.000Z"}]})";

Ran show(const std::string& rest) {
  ScriptedServer server([&](Call& call) {
    const bool snapshots = call.is("GET /v1/workspaces/ws_1/snapshots");
    call.reply(200, snapshots ? kSnapshots : best_of_json("done", rest), test::json_header());
  });
  return run_moorage({"best-of", "bo_1"}, {server.socket_path(), "", {}});
}

}  // namespace

TEST_CASE("the table of attempts says how each ended, harmless on a terminal") {
  const Ran ran = show(R"(,"chosen":2,"promotion":"done")");
  CHECK(ran.code == 0);
  CHECK(ran.out.find("failed: the test exited with 3") != std::string::npos);
  CHECK(ran.out.find("2/2 *") != std::string::npos);
  CHECK(ran.out.find("3 files +10 -2, 4K") != std::string::npos);
  CHECK(ran.out.find("thing") != std::string::npos);
  CHECK(ran.out.find("before") == std::string::npos);  // only the last line
  CHECK(ran.out.find('\x1b') == std::string::npos);
  CHECK(ran.out.find("\u202e") == std::string::npos);
  CHECK(ran.out.find("auth now has the contents of auth-2") != std::string::npos);
  CHECK(ran.out.find("kept     auth-1, auth-2; delete one: moorage rm FORK\n") !=
        std::string::npos);
}

TEST_CASE("a best-of names the forks that are there and those that were deleted") {
  ScriptedServer server([&](Call& call) {
    std::string json = best_of_json("done", R"(,"chosen":2,"promotion":"done")");
    json.replace(json.find(R"("kept":true)"), 11, R"("kept":false)");
    call.reply(200, json, test::json_header());
  });
  const Ran ran = run_moorage({"best-of", "bo_1"}, {server.socket_path(), "", {}});
  CHECK(ran.out.find("kept     auth-2; delete one: moorage rm FORK\n") != std::string::npos);
  CHECK(ran.out.find("deleted  auth-1; restore one: moorage undelete FORK\n") != std::string::npos);
}

TEST_CASE("the end of a best-of names the snapshot of the previous state") {
  const std::string done = R"(,"chosen":2,"promotion":"done")";
  const Ran ran = show(done + R"(,"created_at":"2026-11-21T10:00:00.000Z",)" +
                       R"("ended_at":"2026-11-21T10:00:06.000Z")");
  CHECK(ran.out.find("its previous state is snapshot sn_6\n") != std::string::npos);
  const Ran older = show(done + R"(,"created_at":"2026-11-20T10:00:00.000Z",)" +
                         R"("ended_at":"2026-11-20T10:00:06.000Z")");
  CHECK(older.out.find("its previous state is a snapshot: moorage snapshots auth\n") !=
        std::string::npos);
}

TEST_CASE("a refused promotion is a failure with the command to do it by hand") {
  const Ran ran =
      show(R"x(,"chosen":2,"promotion":"refused","promotion_note":"auth is busy: sleep (7)")x");
  CHECK(ran.code == 1);
  CHECK(ran.out.find("auth is busy: sleep (7)") != std::string::npos);
  CHECK(ran.out.find("moorage promote auth-2 --kill") != std::string::npos);
}

TEST_CASE("patches follow the request, sorted by name") {
  std::string body;
  std::string json_bytes;
  ScriptedServer server([&](Call& call) {
    if (call.method == "POST") {
      body = call.body();
      json_bytes = call.query("json_bytes");
      return call.reply(201, best_of_json("running", ""), test::json_header());
    }
    call.reply(200, best_of_json("done", ""), test::json_header());
  });
  const std::string directory = server.directory() + "/patches";
  std::filesystem::create_directories(directory + "/no-file");
  base::write_file(directory + "/b.patch", "second");
  base::write_file(directory + "/a.patch", "first");
  base::write_file(directory + "/.hidden", "x");
  base::write_file(directory + "/a.patch~", "x");
  const Ran ran = run_moorage({"best-of", "auth", "--patches", directory, "--test", "make check",
                               "--timeout", "5m", "--promote", "smallest-diff", "--json"},
                              {server.socket_path(), "", {}});
  CHECK(ran.code == 0);
  server.settle();
  const auto length = static_cast<size_t>(std::stoi(json_bytes));
  REQUIRE(body.size() > length);
  CHECK(body.substr(length) == "firstsecond");
  const Json json = Json::parse(body.substr(0, length));
  const auto patches = json.items("patches");
  REQUIRE(patches.size() == 2);
  CHECK(patches[0].bytes("name") == "a.patch");
  CHECK(patches[1].number("bytes") == 6);
  CHECK(json.number("timeout_ms") == 300'000);
  CHECK(json.text("promote") == "smallest-diff");
  CHECK(Json::parse(ran.out).text("id") == "bo_1");
}

TEST_CASE("best-of waits for a daemon that restarts") {
  int asked = 0;
  ScriptedServer server([&](Call& call) {
    if (++asked == 2) return call.drop();
    call.reply(200, best_of_json(asked < 4 ? "running" : "done", ""), test::json_header());
  });
  const Ran ran = run_moorage({"best-of", "bo_1"}, {server.socket_path(), "", {}});
  CHECK(ran.code == 0);
  server.settle();
  CHECK(asked >= 4);
}

TEST_CASE("senseless requests are refused before anything is sent") {
  ScriptedServer server([](Call& call) { call.reply(200, "{}", test::json_header()); });
  const auto refused = [&](const std::vector<std::string>& words) {
    const Ran ran = run_moorage(words, {server.socket_path(), "", {}});
    CHECK(ran.code != 0);
    return ran.err;
  };
  CHECK(refused({"best-of", "auth", "--each", "x", "--patches", "/tmp"}).find("exclude") !=
        std::string::npos);
  CHECK(refused({"best-of", "auth", "--test", "x"}).find("best-of needs --each or --patches") !=
        std::string::npos);
  CHECK(refused({"best-of", "auth", "--patches", "/nonexistent", "--test", "x"}) != "");
  CHECK(refused({"best-of", "auth", "--cancel"}).find("id of a best-of") != std::string::npos);
  CHECK(refused({"best-of", "auth", "--each", "x", "--test", "true"})
            .find("--each needs --count, the number of attempts\n") != std::string::npos);
  CHECK(refused({"best-of", "auth", "--each", "x", "--count", "-1"}).find("--count") !=
        std::string::npos);
  server.settle();
  CHECK(server.seen().empty());
}

TEST_CASE("compare lists file by file") {
  ScriptedServer server([](Call& call) {
    CHECK(call.query("with") == "two");
    call.reply(200, R"({"from":{"name":"one"},"to":{"name":"two","last":{"exec":"ex_1",
      "state":"exited","exit_code":7,"took_ms":20,"argv":["make"]}},
      "total":{"files":1,"added":1,"removed":2},
      "files":[{"path":"a\u001b[2J","change":"modified","added":1,"removed":2,"binary":false,
      "bytes_from":10,"bytes_to":2048}]})",
               test::json_header());
  });
  const Ran ran = run_moorage({"compare", "one", "two"}, {server.socket_path(), "", {}});
  CHECK(ran.code == 0);
  CHECK(ran.out.find("exit 7") != std::string::npos);
  CHECK(ran.out.find("no command yet") != std::string::npos);
  CHECK(ran.out.find("+1 -2") != std::string::npos);
  CHECK(ran.out.find("-> 2K") != std::string::npos);
  CHECK(ran.out.find('\x1b') == std::string::npos);
}
