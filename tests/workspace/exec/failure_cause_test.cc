#include "workspace/exec/failure_cause.h"

#include <catch2/catch.hpp>

#include "workspace/exec/end_record.h"

using namespace moorage::workspace;
using moorage::state_db::ExecCategory;
using moorage::state_db::ExecOutcome;
using moorage::state_db::ExecState;

namespace {

ExecOutcome exited(int code) {
  ExecOutcome outcome;
  outcome.exit_code = code;
  return outcome;
}

ExecOutcome ended(ExecState state) {
  ExecOutcome outcome;
  outcome.state = state;
  return outcome;
}

ExecEvidence everything() {
  ExecEvidence evidence;
  evidence.out_of_memory = evidence.disk_full = true;
  evidence.refused = {.forks = 1, .packets = 1};
  return evidence;
}

}  // namespace

TEST_CASE("refusals during a command do not give a successful command a category") {
  CHECK_FALSE(categorize(exited(0), everything()));
}

TEST_CASE("a plain failure has no category, and evidence from the kernel gives it one") {
  CHECK_FALSE(categorize(exited(1), {}));
  CHECK_FALSE(categorize(exited(127), {}));  // from a shell, not from a failed execve
  CHECK(categorize(exited(1), {.out_of_memory = true}) == ExecCategory::out_of_memory);
  CHECK(categorize(exited(1), {.disk_full = true}) == ExecCategory::disk_full);
  CHECK(categorize(exited(1), {.refused = {.forks = 1}}) == ExecCategory::pids_limit);
  CHECK(categorize(exited(1), {.refused = {.packets = 1}}) == ExecCategory::network_denied);
}

TEST_CASE("the cause of the command's own end outweighs refusals around it") {
  CHECK(categorize(ended(ExecState::timed_out), everything()) == ExecCategory::timeout);
  CHECK(categorize(ended(ExecState::cancelled), everything()) == ExecCategory::cancelled);
  CHECK(categorize(ended(ExecState::interrupted), everything()) == ExecCategory::lost);
  ExecEvidence only_around = everything();
  only_around.out_of_memory = false;
  CHECK(categorize(ended(ExecState::signalled), only_around) == ExecCategory::signal);
  CHECK(categorize(ended(ExecState::signalled), everything()) == ExecCategory::out_of_memory);
  CHECK(categorize(ended(ExecState::signalled), {.stopping = true}) == ExecCategory::stopped);
}

TEST_CASE("the end record may say why a start failed, but no other category") {
  const auto word = [](const char* failure) {
    return parse_exec_end(R"({"kind":"exited","code":127,"failure":")" + std::string(failure) +
                          "\"}")
        .category;
  };
  CHECK(word("not_found") == ExecCategory::not_found);
  CHECK(word("not_executable") == ExecCategory::not_executable);
  CHECK(word("not_started") == ExecCategory::not_started);
  for (const char* other : {"out_of_memory", "disk_full", "cancelled", "", "NOT_FOUND", "x"}) {
    CHECK_FALSE(word(other));
  }
  CHECK_FALSE(parse_exec_end(R"({"kind":"exited","code":127})").category);
  CHECK_FALSE(parse_exec_end(R"({"kind":"exited","code":127,"failure":7})").category);
}

TEST_CASE("packets without a route are counted for both protocols") {
  const std::string snmp =
      "Ip: Forwarding OutDiscards OutNoRoutes ReasmTimeout\nIp: 1 2 30 4\n"
      "Icmp: InMsgs OutNoRoutes\nIcmp: 5 600\n";
  CHECK(packets_without_route(snmp, "Ip6InReceives  \t1\nIp6OutNoRoutes  \t7\n") == 37);
  CHECK(packets_without_route("", "") == 0);
  CHECK(packets_without_route("Ip: OutNoRoutes\n", "Ip6OutNoRoutes") == 0);
}
