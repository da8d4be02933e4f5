// Commands frozen for a count, and the report if one cannot be thawed.
#include "workspace/upkeep/sandbox_writes.h"

#include <catch2/catch.hpp>

#include "backends/fake.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/temporary_directory.h"

using namespace moorage;

namespace {

// Its thaw fails.
class StuckGroup : public backends::ExecGroup {
 public:
  explicit StuckGroup(base::Code code) : code_(code) {}
  std::vector<base::Fd> join_fds() override { return {}; }
  base::Fd kill_fd() override { return {}; }
  void kill() override {}
  void set_frozen(bool frozen) override {
    if (!frozen) throw base::Error(code_, "no thaw");
  }
  uint64_t oom_kills() override { return 0; }
  uint64_t refused_forks() override { return 0; }
  bool empty() override { return true; }
  std::vector<pid_t> members(size_t) override { return {}; }
  uint64_t processes() override { return 0; }
  void remove() override {}

 private:
  const base::Code code_;
};

class StuckBackend : public backends::FakeBackend {
 public:
  explicit StuckBackend(base::Code code) : FakeBackend({}), code_(code) {}
  std::unique_ptr<backends::ExecGroup> exec_group(const std::string&, const std::string&) override {
    return std::make_unique<StuckGroup>(code_);
  }

 private:
  const base::Code code_;
};

// The log for a frozen command whose thaw failed with this error.
std::string log_of_failed_thaw(base::Code code) {
  const test::TemporaryDirectory directory;
  const std::string file = directory / "log";
  base::set_up_log({base::LogLevel::debug, false, file});
  StuckBackend backend(code);
  workspace::LiveSandbox running;
  running.backend = &backend;
  workspace::SandboxWrites writes;
  writes.by_exec[base::ExecId{1}] = {};
  { const workspace::FrozenExecs still(running, writes); }
  base::set_up_log({});
  return base::read_file(file);
}

}  // namespace

TEST_CASE("a failed thaw is a warning, unless its command is gone") {
  CHECK_THAT(log_of_failed_thaw(base::Code::internal), Catch::Contains("warning exec.not_thawed"));
  CHECK_THAT(log_of_failed_thaw(base::Code::not_found), Catch::Contains("debug exec.not_thawed"));
}
