// Terminals, attach and logs: the same session seen from other commands.
#include <sys/ioctl.h>
#include <termios.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "cli/client/json.h"
#include "exec_scene.h"

using namespace moorage;
using base::RecordKind;
using cli::Json;
using test::comes_true;
using test::ExecScene;
using test::kExitedZero;
using test::Ran;
using test::run_moorage;
using test::Running;

TEST_CASE("a terminal is raw while the command runs and restored afterwards") {
  ExecScene scene;
  scene.exec.write(RecordKind::terminal, "prompt$ ");
  Running running({"exec", "auth", "-t", "--", "bash"}, scene.options(), true);
  termios during{}, after{};
  running.read_until("prompt$ ");
  ::tcgetattr(running.terminal(), &during);
  CHECK((during.c_lflag & (ICANON | ECHO | ISIG)) == 0);
  running.write("\x03");  // a byte for the PTY, no signal for us
  CHECK(comes_true([&] { return scene.exec.stdin_bytes() == "\x03"; }));
  CHECK(Json::parse(scene.exec.posted_body()).number("tty.columns") == 90);
  const winsize size{50, 120, 0, 0};
  ::ioctl(running.terminal(), TIOCSWINSZ, &size);
  running.signal(SIGWINCH);
  CHECK(comes_true([&] { return !scene.exec.signals().empty(); }));
  CHECK(scene.exec.signals()[0] == R"(resize {"columns":120,"rows":50})");
  scene.exec.finish(R"("state":"exited","exit_code":5)");
  CHECK(running.finish().code == 5);
  ::tcgetattr(running.terminal(), &after);
  CHECK(after.c_lflag == running.terminal_modes_before());
}

TEST_CASE("Ctrl-P Ctrl-Q leaves a terminal command running") {
  ExecScene scene;
  scene.exec.write(RecordKind::terminal, "prompt$ ");
  Running running({"shell", "auth"}, scene.options(), true);
  running.read_until("prompt$ ");
  running.write(
      "ab\x10"
      "c\x10\x11");
  const Ran ran = running.finish();
  CHECK(ran.code == 0);
  CHECK(scene.exec.stdin_bytes() ==
        "ab\x10"
        "c");
  CHECK(ran.err.find("ex_7 keeps running; return: moorage attach ex_7") != std::string::npos);
  scene.exec.finish(kExitedZero);
}

TEST_CASE("a closed terminal leaves the command running and its input open") {
  for (const bool signal_comes : {false, true}) {
    CAPTURE(signal_comes);
    ExecScene scene;
    scene.exec.write(RecordKind::terminal, "prompt$ ");
    Running running({"exec", "auth", "-t", "--", "bash"}, scene.options(), true);
    running.read_until("prompt$ ");
    if (signal_comes) {
      running.signal(SIGHUP);
    } else {
      running.close_terminal();
    }
    const Ran ran = running.finish();
    CHECK(ran.code == 129);
    CHECK(ran.err.find("ex_7 keeps running; return: moorage attach ex_7") != std::string::npos);
    CHECK(scene.exec.signals().empty());
    CHECK_FALSE(scene.exec.stdin_closed());
  }
}

TEST_CASE("output to a closed terminal leaves the command running") {
  ExecScene scene;
  scene.exec.write(RecordKind::terminal, "prompt$ ");
  Running running({"exec", "auth", "-n", "--", "make"}, scene.options(), true);
  running.read_until("prompt$ ");
  running.close_terminal();
  scene.exec.write(RecordKind::standard_output, "more");
  CHECK(running.finish().code == 129);
  CHECK(scene.exec.signals().empty());
}

TEST_CASE("a signal ignored at start neither detaches nor ends the command") {
  ExecScene scene;
  scene.exec.write(RecordKind::standard_output, "ready");
  auto options = scene.options();
  options.ignored = {SIGHUP, SIGINT};
  Running running({"exec", "auth", "--", "x"}, options);
  running.read_until("ready");
  running.signal(SIGHUP);
  running.signal(SIGINT);
  scene.exec.write(RecordKind::standard_output, " and more");
  running.read_until("and more");
  scene.exec.finish(kExitedZero);
  CHECK(running.finish().code == 0);
  CHECK(scene.exec.signals().empty());
}

TEST_CASE("ending attach without input leaves the command running") {
  for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGHUP}) {
    CAPTURE(number);
    ExecScene scene;
    scene.exec.write(RecordKind::standard_output, "old ");
    Running running({"attach", "-n", "--all", "ex_7"}, scene.options());
    running.read_until("old ");
    running.signal(number);
    const Ran ran = running.finish();
    CHECK(ran.code == 128 + number);
    CHECK(ran.err.find("ex_7 keeps running; return: moorage attach ex_7") != std::string::npos);
    CHECK(scene.exec.signals().empty());
  }
}

TEST_CASE("in attach with input Ctrl-C interrupts the command, other signals detach") {
  ExecScene scene;
  scene.exec.write(RecordKind::standard_output, "old ");
  scene.exec.on_signal = [&](const std::string&) {
    scene.exec.finish(R"("state":"exited","exit_code":7)");
  };
  for (const int number : {SIGTERM, SIGHUP}) {
    Running running({"attach", "--all", "ex_7"}, scene.options());
    running.read_until("old ");
    running.signal(number);
    CHECK(running.finish().code == 128 + number);
  }
  CHECK(scene.exec.signals().empty());
  Running running({"attach", "--all", "ex_7"}, scene.options());
  running.read_until("old ");
  running.signal(SIGINT);
  CHECK(running.finish().code == 7);
  CHECK(scene.exec.signals() == std::vector<std::string>{R"({"signal":"INT"})"});
}

TEST_CASE("attach shows new output and continues the input at its offset") {
  ExecScene scene;
  scene.exec.write(RecordKind::standard_output, "old ");
  Running running({"attach", "ex_7"}, scene.options());
  REQUIRE(comes_true([&] { return scene.server.count("GET /v1/execs/ex_7/output") == 1; }));
  running.write("in");
  REQUIRE(comes_true([&] { return scene.exec.stdin_bytes() == "in"; }));
  running.close_input();
  scene.exec.write(RecordKind::standard_output, "new");
  scene.exec.finish(kExitedZero);
  CHECK(running.finish().out == "new");
  CHECK_FALSE(scene.exec.stdin_closed());
  CHECK(run_moorage({"attach", "ex_7", "--all"}, scene.options()).out == "old new");
}

TEST_CASE("a command that runs on keeps the input that it was sent") {
  for (const bool reader_closes : {false, true}) {
    CAPTURE(reader_closes);
    ExecScene scene;
    scene.exec.stdin_read = 0;
    scene.exec.write(RecordKind::standard_output, "ready");
    Running running({"exec", "auth", "--", "sleep", "9"}, scene.options());
    running.read_until("ready");
    running.write("one\ntwo\n");
    REQUIRE(comes_true([&] { return scene.exec.stdin_bytes() == "one\ntwo\n"; }));
    CHECK(running.unread_input() == 8);
    if (reader_closes) {
      running.close_output();
      scene.exec.write(RecordKind::standard_output, "more");
    } else {
      running.signal(SIGHUP);
    }
    CHECK(running.finish().code == (reader_closes ? 141 : 129));
    CHECK(running.unread_input() == 0);
  }
}

TEST_CASE("logs print existing output, from an offset, and one stream alone") {
  ExecScene scene;
  scene.exec.write(RecordKind::standard_output, "out1 ");
  scene.exec.write(RecordKind::standard_error, "err ");
  scene.exec.write(RecordKind::standard_output, "out2");
  const Ran ran = run_moorage({"logs", "ex_7"}, scene.options());
  CHECK(ran.out == "out1 out2");
  CHECK(ran.err == "err ");
  CHECK(ran.code == 0);
  CHECK(run_moorage({"logs", "ex_7", "--since-offset", "3"}, scene.options()).out == "1 out2");
  CHECK(run_moorage({"logs", "ex_7", "--stderr"}, scene.options()).out == "");
  CHECK(run_moorage({"logs", "ex_7", "--stdout"}, scene.options()).err == "");
  const Ran both = run_moorage({"logs", "ex_7", "--stdout", "--stderr"}, scene.options());
  CHECK(both.out == "out1 out2");
  CHECK(both.err == "err ");
  scene.exec.finish(R"("state":"exited","exit_code":9)");
  CHECK(run_moorage({"logs", "ex_7", "-f"}, scene.options()).code == 0);
}

TEST_CASE("logs of an interrupted command do not refer to the logs") {
  ExecScene scene;
  scene.exec.finish(R"("state":"interrupted")");
  CHECK(run_moorage({"logs", "ex_7"}, scene.options()).err ==
        "moorage: ex_7 was interrupted: its sandbox ended first\n");
}

TEST_CASE("logs refuse a command of another workspace") {
  ExecScene scene;
  test::ScriptedServer server([&](test::Call& call) {
    if (call.is("GET /v1/workspaces/auth") || call.is("GET /v1/workspaces/ws_1"))
      return call.reply(200, R"({"id":"ws_1","name":"auth"})");
    if (call.is("GET /v1/workspaces/other")) return call.reply(200, R"({"id":"ws_2"})");
    if (!scene.exec.handle(call)) call.reply(404, R"({"code":"not_found","message":"none"})");
  });
  scene.exec.write(RecordKind::standard_output, "text");
  server.settle();
  CHECK(run_moorage({"logs", "auth", "ex_7"}, {server.socket_path(), "", {}}).out == "text");
  const Ran ran = run_moorage({"logs", "other", "ex_7"}, {server.socket_path(), "", {}});
  CHECK(ran.code == 1);
  CHECK(ran.out == "");
  CHECK(ran.err.find("ex_7 belongs to another workspace, auth\n") != std::string::npos);
}
