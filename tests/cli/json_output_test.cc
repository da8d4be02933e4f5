// --json prints one object for each answer on standard output, for an error on standard error.
#include <catch2/catch.hpp>

#include "cli/client/json.h"
#include "cli/views/exec_result.h"
#include "exec_scene.h"

using namespace moorage;
using base::RecordKind;
using cli::Json;
using test::Call;
using test::ExecScene;
using test::kExitedZero;
using test::Ran;
using test::run_moorage;
using test::ScriptedServer;

TEST_CASE("an error under --json is one object") {
  ScriptedServer server([](Call& call) {
    call.reply(404, R"({"code":"not_found","message":"no \"x\"","hint":"look"})");
  });
  const Ran ran = run_moorage({"--json", "show", "x"}, {server.socket_path(), "", {}});
  CHECK(ran.code == 1);
  CHECK(ran.out == "");
  CHECK(ran.err == R"({"code":"not_found","message":"no \"x\"","hint":"look"})"
                   "\n");
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"ls", "--json", "--frob"},
                                                {"--json", "bla"},
                                                {"exec", "--json", "a", "--user", "", "--", "x"}}) {
    const Ran refused = run_moorage(wrong, {server.socket_path(), "", {}});
    CHECK(refused.code != 0);
    const Json json = Json::parse(refused.err);
    CHECK(json.text("code") == "invalid_argument");
    CHECK(json.text("message") != "");
  }
}

TEST_CASE("the output of a command is in its JSON") {
  ExecScene scene;
  scene.exec.write(RecordKind::standard_output, "out\n");
  scene.exec.write(RecordKind::standard_error, "err\xff");
  scene.exec.finish(R"("state":"cancelled")");
  const Ran ran = run_moorage({"--json", "exec", "auth", "-n", "--", "x"}, scene.options());
  CHECK(ran.code == 130);
  CHECK(ran.err == "");
  const Json json = Json::parse(ran.out);
  CHECK(json.text("id") == "ex_7");
  CHECK(json.text("stdout") == "out\n");
  CHECK(json.text("stderr_b64") == "ZXJy/w==");
  CHECK_FALSE(json.has("output_truncated"));
  CHECK(run_moorage({"--json", "logs", "ex_7", "-f"}, scene.options()).out == ran.out);
  CHECK(Json::parse(run_moorage({"--json", "logs", "ex_7", "--stderr"}, scene.options()).out)
            .text("stdout") == "");
}

TEST_CASE("logs of a running command are its record and its output so far") {
  ExecScene scene;
  scene.exec.write(RecordKind::standard_output, "so far");
  const Json json = Json::parse(run_moorage({"--json", "logs", "ex_7"}, scene.options()).out);
  CHECK(json.text("state") == "running");
  CHECK(json.text("stdout") == "so far");
}

TEST_CASE("captured output stops at its limit and is marked as truncated") {
  cli::CapturedOutput output;
  const std::string piece(50 << 20, 'x');
  output.add(false, piece);
  output.add(true, piece);
  CHECK(output.standard_output.size() == piece.size());
  CHECK(output.standard_error.size() == (14 << 20));
  CHECK(output.truncated);
}

TEST_CASE("run --rm has the command's output in its JSON") {
  ScriptedServer server([&](Call& call) {
    call.body();
    if (call.is("POST /v1/workspaces"))
      return call.reply(201, R"({"id":"ws_5","name":"run-5"})", test::json_header());
    if (call.method == "DELETE") return call.reply(204, "");
    call.begin(200, "Moorage-Exec: ex_7\r\n");
    call.chunk(base::encode_record(RecordKind::standard_output, "hello\n") +
               base::encode_record(RecordKind::end, R"({"state":"exited","exit_code":4})"));
    call.end();
  });
  const Ran ran = run_moorage({"--json", "run", "--rm", "--repo", "u", "-n", "--", "true"},
                              {server.socket_path(), "", {}});
  CHECK(ran.code == 4);
  CHECK(Json::parse(ran.out).text("stdout") == "hello\n");
  const Ran kept = run_moorage({"--json", "run", "--repo", "u", "-n", "--", "true"},
                               {server.socket_path(), "", {}});
  CHECK(kept.err == "");
}

TEST_CASE("commands without an answer still print an object") {
  ScriptedServer server([](Call& call) {
    call.body();
    call.reply(204, "");
  });
  const auto out = [&](std::vector<std::string> words) {
    words.emplace_back("--json");
    return run_moorage(words, {server.socket_path(), "", {}}).out;
  };
  CHECK(out({"kill", "ex_3", "sigterm"}) == "{\"exec\":\"ex_3\",\"signal\":\"TERM\"}\n");
  CHECK(out({"kill", "ex_3"}) == "{\"exec\":\"ex_3\",\"cancelling\":true}\n");
  CHECK(out({"rm", "--purge", "a"}) == "{\"workspace\":\"a\",\"purged\":true}\n");
  CHECK(out({"repo", "rm", "repo_1"}) == "{\"repo\":\"repo_1\",\"removed\":true}\n");
}
