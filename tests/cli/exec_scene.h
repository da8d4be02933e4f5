// The scene of the tests that run a command: the program, and a daemon with one FakeExec.
#pragma once

#include <chrono>
#include <string>
#include <thread>

#include "fake_exec.h"
#include "program.h"
#include "scripted_server.h"

namespace moorage::test {

inline constexpr const char* kExitedZero = R"("state":"exited","exit_code":0)";

// Polls until the other side has acted.
template <typename Condition>
bool comes_true(Condition condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

struct ExecScene {
  FakeExec exec;
  ScriptedServer server{[this](Call& call) {
    if (!exec.handle(call)) call.reply(404, R"({"code":"not_found","message":"no such thing"})");
  }};
  RunOptions options(std::string input = "") {
    server.settle();  // handlers see the test's setup
    return {server.socket_path(), std::move(input), {}};
  }
};

}  // namespace moorage::test
