// Commands frozen for a count, and the report if one cannot be thawed.
#include "workspace/upkeep/quota_use.h"

#include <catch2/catch.hpp>

#include "backends/fake_backend.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/temporary_directory.h"

using namespace moorage;

namespace {

// Its thaw fails.
class StuckGroup : public backends::FakeExecGroup {
 public:
  explicit StuckGroup(base::Code code) : code_(code) {}
  void set_frozen(bool frozen) override {
    if (!frozen) throw base::Error(code_, "no thaw");
  }

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
