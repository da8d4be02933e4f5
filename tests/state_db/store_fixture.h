// A store in a temporary directory, and the few rows that most tests start from.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"
#include "state_db/store.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"
#include "thrown_code.h"

namespace moorage::state_db_test {

class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A clock with settable time. Its N-th wall clock query kills the process: every insert makes one
// query, so this dies between two statements of one transaction.
class ScriptedClock : public base::Clock {
 public:
  int64_t wall_ms() const override;
  int64_t boot_ms() const override { return up_ms; }
  std::string boot_id() const override { return boot; }
  int64_t now_ms = 1'700'000'000'000;
  int64_t up_ms = 3'600'000;
  std::string boot = "first boot";
  mutable int64_t questions_until_death = -1;  // -1: never
};

struct TestStore {
  TemporaryDirectory directory;
  ScriptedClock clock;
  std::unique_ptr<state_db::Store> store;

  TestStore() { open(); }
  state_db::StoreOptions options() const;
  void open() { store = std::make_unique<state_db::Store>(options()); }
  void reopen() {
    store.reset();
    open();
  }
  std::string file() const { return directory.path() + "/state.db"; }
};

base::RepoId make_repository(state_db::Store& store, const std::string& url = "https://host/a/b");
state_db::NewWorkspace new_workspace(base::RepoId repository, const std::string& name);
base::WorkspaceId make_workspace(state_db::Store& store, base::RepoId repository,
                                 const std::string& name = "one");
state_db::SandboxRow make_sandbox(state_db::Store& store, base::WorkspaceId workspace);
state_db::NewExec new_exec(const state_db::SandboxRow& sandbox);

std::string message_thrown_by(const std::function<void()>& work);

// Runs work() in a forked child and returns its wait status.
int run_in_child(const std::function<void()>& work);

}  // namespace moorage::state_db_test
