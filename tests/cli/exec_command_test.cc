#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <thread>

#include "cli/client/json.h"
#include "exec_scene.h"

using namespace moorage;
using base::RecordKind;
using cli::Json;
using test::Call;
using test::comes_true;
using test::ExecScene;
using test::kExitedZero;
using test::Ran;
using test::run_moorage;
using test::Running;
using test::RunOptions;
using test::ScriptedServer;

namespace {

std::string every_byte() {
  std::string bytes;
  for (int i = 0; i < 256 * 40; ++i) bytes += static_cast<char>(i);
  return bytes;
}

}  // namespace

TEST_CASE("output and errors come out byte for byte on their own streams") {
  ExecScene scene;
  scene.exec.write(RecordKind::standard_output, every_byte());
  scene.exec.write(RecordKind::standard_error, "err " + every_byte());
  scene.exec.finish(kExitedZero);
  const Ran ran = run_moorage({"exec", "auth", "--", "cat"}, scene.options());
  CHECK(ran.code == 0);
  CHECK(ran.out == every_byte());
  CHECK(ran.err == "err " + every_byte());
}

TEST_CASE("the exit code follows the command, and notices explain it") {
  struct Row {
    const char* end;
    int code;
    const char* said;
  };
  const Row rows[] = {
      {R"("state":"exited","exit_code":42)", 42, ""},
      {R"("state":"signalled","signal":9)", 137, ""},
      {R"("state":"timed_out","timeout_ms":60000)", 124, "ex_7 timed out after 1m00s"},
      {R"("state":"cancelled")", 130, "ex_7 was cancelled"},
      {R"("state":"cancelled","error":"cancelled by bob")", 130, "ex_7: cancelled by bob"},
      {R"x("state":"cancelled","category":"cancelled","workspace":"ws_3",
          "error":"lifetime of 1s (max_lifetime_s)")x",
       130, "ex_7: cancelled (lifetime of 1s); to change it: moorage set ws_3 --max-lifetime TIME"},
      {R"("state":"oom_killed","signal":9)", 137,
       "ex_7 exceeded its memory limit; raise it: moorage set"},
      {R"("state":"interrupted")", 125, "ex_7 was interrupted"},
      {R"("state":"exited","exit_code":127,"error":"nope: not found")", 127,
       "ex_7: nope: not found"},
      {R"("state":"exited","exit_code":2,"category":"network_denied")", 2, "needs a network"},
      {R"("state":"exited","exit_code":2,"category":"not_thought_of_yet")", 2, ""},
      {R"("state":"interrupted","category":"stopped")", 125, "was stopped first"},
      {R"("state":"exited","exit_code":0,"omitted_bytes":"2048")", 0, "2K of output was dropped"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.end);
    ExecScene scene;
    scene.exec.finish(row.end);
    const Ran ran = run_moorage({"exec", "auth", "--", "x"}, scene.options());
    CHECK(ran.code == row.code);
    if (*row.said == '\0') CHECK(ran.err == "");
    CHECK(ran.err.find(row.said) != std::string::npos);
  }
}

TEST_CASE("a command that ran out of memory names its limit and the way to raise it") {
  const std::string exec = R"({"id":"ex_5","workspace":"ws_1","state":"oom_killed"})";
  ScriptedServer server([&](Call& call) {
    call.body();
    const std::string lim = R"({"id":"ws_1","name":"lim","limits":{"memory_bytes":67108864}})";
    call.reply(200, call.path == "/v1/workspaces/ws_1" ? lim : exec, test::json_header());
  });
  const Ran ran = run_moorage({"wait", "ex_5"}, {server.socket_path(), "", {}});
  CHECK(ran.err ==
        "moorage: ex_5 exceeded its 64M of memory; raise it: moorage set lim --memory "
        "128M\n");
  CHECK(ran.code == 137);
}

TEST_CASE("the request has all options, and words after -- belong to the command") {
  ExecScene scene;
  scene.exec.finish(kExitedZero);
  RunOptions options = scene.options();
  options.environment["OURS"] = "value";
  const Ran ran = run_moorage({"exec", "auth",   "--timeout", "5m",    "--env", "A=b=c",  "-e",
                               "OURS", "--user", "root",      "--cwd", "/tmp",  "--sync", "-n",
                               "--",   "sh",     "-c",        "x",     "--",    "--json", ""},
                              options);
  CHECK(ran.err == "");
  const Json body = Json::parse(scene.exec.posted_body());
  CHECK(body.texts("argv") == std::vector<std::string>{"sh", "-c", "x", "--", "--json", ""});
  CHECK(body.number("timeout_ms") == 300'000);
  CHECK(body.text("env.A") == "b=c");
  CHECK(body.text("env.OURS") == "value");
  CHECK(body.text("user") == "root");
  CHECK(body.text("cwd") == "/tmp");
  CHECK(body.flag("sync"));
  CHECK_FALSE(body.flag("stdin"));
  CHECK_FALSE(body.has("tty"));
}

TEST_CASE("a standard stream that is closed is like /dev/null") {
  for (const int closed : {0, 1, 2}) {
    CAPTURE(closed);
    ExecScene scene;
    scene.exec.write(RecordKind::standard_output, "out");
    scene.exec.write(RecordKind::standard_error, "err");
    std::thread ender([&] {
      if (closed == 0) comes_true([&] { return scene.exec.stdin_closed(); });
      scene.exec.finish(kExitedZero);
    });
    RunOptions options = scene.options();
    options.closed = {closed};
    const Ran ran = run_moorage({"exec", "auth", "--", "cat"}, options);
    ender.join();
    CHECK(ran.code == 0);
    CHECK(ran.out == (closed == 1 ? "" : "out"));
    CHECK(ran.err == (closed == 2 ? "" : "err"));
  }
}

TEST_CASE("arguments may hold any bytes") {
  ExecScene scene;
  scene.exec.finish(kExitedZero);
  run_moorage({"exec", "auth", "-n", "--", "cat", "odd\xff"}, scene.options());
  CHECK(Json::parse(scene.exec.posted_body()).byte_list("argv") ==
        std::vector<std::string>{"cat", "odd\xff"});
}

TEST_CASE("failures of moorage exit with 125 and a hint") {
  ExecScene scene;
  const Ran missing = run_moorage({"exec", "nope", "--", "true"}, scene.options());
  CHECK(missing.code == 125);
  CHECK(missing.err == "moorage: no such thing\n");
  CHECK(run_moorage({"exec", "auth"}, scene.options()).code == 125);
  const Ran usage = run_moorage({"exec", "--frob", "auth", "--", "true"}, scene.options());
  CHECK(usage.code == 125);
  CHECK(usage.err.find("hint: moorage exec --help") != std::string::npos);
  RunOptions nobody{"/nonexistent/sock", "", {}};
  CHECK(run_moorage({"exec", "auth", "--", "true"}, nobody).code == 125);
}

TEST_CASE("input arrives complete over broken connections") {
  ExecScene scene;
  scene.exec.stdin_breaks = {1, 4, 5, 9};
  scene.exec.stdin_lost_part = 300'000;
  std::string input;
  for (size_t i = 0; i < 20'000'000; ++i) input += static_cast<char>(i * 31 + i / 1000);
  std::thread ender([&] {
    comes_true([&] { return scene.exec.stdin_closed(); });
    scene.exec.finish(kExitedZero);
  });
  const Ran ran = run_moorage({"exec", "auth", "--", "cat"}, scene.options(input));
  ender.join();
  CHECK(ran.code == 0);
  CHECK(ran.err == "");
  CHECK(scene.exec.stdin_bytes() == input);
  CHECK(scene.exec.stdin_closed());
}

TEST_CASE("a command that reads none of a large input ends when it ends") {
  ExecScene scene;
  scene.exec.takes_stdin = false;
  std::thread ender([&] {
    comes_true([&] { return scene.server.count("PUT /v1/execs/ex_7/stdin") > 0; });
    scene.exec.finish(R"("state":"exited","exit_code":3)");
  });
  const auto began = std::chrono::steady_clock::now();
  const Ran ran =
      run_moorage({"exec", "auth", "--", "true"}, scene.options(std::string(64 << 20, 'x')));
  ender.join();
  CHECK(ran.code == 3);
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(5));
}

TEST_CASE("a restart of the daemon in the middle goes unnoticed") {
  ExecScene scene;
  scene.exec.write(RecordKind::standard_output, "one\n");
  Running running({"exec", "auth", "--", "x"}, scene.options());
  running.read_until("one\n");
  scene.server.stop();
  scene.exec.write(RecordKind::standard_output, "two\n");
  scene.server.start();
  running.write("typed");
  CHECK(comes_true([&] { return scene.exec.stdin_bytes() == "typed"; }));
  scene.exec.write(RecordKind::standard_output, "three\n");
  scene.exec.finish(kExitedZero);
  const Ran ran = running.finish();
  CHECK(ran.out == "one\ntwo\nthree\n");
  CHECK(ran.err == "");
  CHECK(ran.code == 0);
}

TEST_CASE("a notice of the daemon has a line of its own") {
  ExecScene scene;
  scene.exec.write(RecordKind::standard_error, "Conn");
  scene.exec.write(RecordKind::keep_alive, R"({"notice":"web.example was refused"})");
  scene.exec.write(RecordKind::standard_error, "ecting...\n");
  scene.exec.write(RecordKind::keep_alive, R"({"notice":"b.example was refused"})");
  scene.exec.write(RecordKind::keep_alive, R"({"notice":"web.example was refused"})");
  scene.exec.finish(kExitedZero);
  const Ran ran = run_moorage({"exec", "auth", "--", "x"}, scene.options());
  CHECK(ran.err ==
        "Conn\nmoorage: web.example was refused\necting...\nmoorage: b.example was refused\n");
}

TEST_CASE("signals reach the command, and its end becomes ours") {
  for (const auto& [number, name] :
       {std::pair{SIGINT, "INT"}, {SIGTERM, "TERM"}, {SIGQUIT, "QUIT"}}) {
    CAPTURE(name);
    ExecScene scene;
    scene.exec.write(RecordKind::standard_output, "ready");
    scene.exec.on_signal = [&](const std::string&) {
      scene.exec.finish(R"("state":"exited","exit_code":7)");
    };
    Running running({"exec", "auth", "--", "x"}, scene.options());
    running.read_until("ready");
    running.signal(number);
    CHECK(running.finish().code == 7);
    CHECK(scene.exec.signals() ==
          std::vector<std::string>{R"({"signal":")" + std::string(name) + "\"}"});
  }
}

TEST_CASE("a second Ctrl-C within a second cancels") {
  ExecScene scene;
  scene.exec.write(RecordKind::standard_output, "ready");
  scene.exec.on_signal = [&](const std::string& name) {
    if (name == "cancel") scene.exec.finish(R"("state":"cancelled")");
  };
  Running running({"exec", "auth", "--", "x"}, scene.options());
  running.read_until("ready");
  running.signal(SIGINT);
  REQUIRE(comes_true([&] { return scene.exec.signals().size() == 1; }));
  running.signal(SIGINT);
  CHECK(running.finish().code == 130);
  CHECK(scene.exec.signals() == std::vector<std::string>{R"({"signal":"INT"})", "cancel"});
}

TEST_CASE("a command whose reader closed keeps running, with a note how to return") {
  ExecScene scene;
  scene.exec.write(RecordKind::standard_output, "first");
  Running running({"exec", "auth", "--", "yes"}, scene.options());
  running.read_until("first");
  running.close_output();
  scene.exec.write(RecordKind::standard_output, "second");
  const Ran ran = running.finish();
  CHECK(ran.code == 141);
  CHECK(ran.err ==
        "moorage: ex_7 keeps running; return: moorage attach ex_7   end it: moorage kill ex_7\n");
  CHECK(scene.exec.signals().empty());
}

TEST_CASE("detach prints the id, alone for a script, and asks for JSON") {
  ExecScene scene;
  const Ran ran = run_moorage({"exec", "auth", "--detach", "-t", "--", "agent"}, scene.options());
  CHECK(ran.code == 0);
  CHECK(ran.out == "ex_7\n");
  const Json body = Json::parse(scene.exec.posted_body());
  CHECK(body.number("tty.columns") == 80);
  CHECK(body.flag("stdin"));
  const Ran json = run_moorage({"--json", "exec", "auth", "-d", "--", "agent"}, scene.options());
  CHECK(Json::parse(json.out).text("id") == "ex_7");
}
