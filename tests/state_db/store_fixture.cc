#include "store_fixture.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/os/files.h"
#include "state_db/tables/repositories.h"

namespace moorage::state_db_test {

using namespace state_db;

TemporaryDirectory::TemporaryDirectory() {
  const char* base = getenv("TMPDIR");
  path_ = std::string(base ? base : "/tmp") + "/moorage-state-XXXXXX";
  base::check(mkdtemp(path_.data()) ? 0 : -1, path_);
}

TemporaryDirectory::~TemporaryDirectory() { base::remove_tree(path_); }

int64_t ScriptedClock::wall_ms() const {
  if (questions_until_death >= 0 && questions_until_death-- == 0) kill(getpid(), SIGKILL);
  return now_ms;
}

StoreOptions TestStore::options() const {
  StoreOptions options;
  options.directory = directory.path();
  options.clock = &clock;
  return options;
}

base::RepoId make_repository(Store& store, const std::string& url) {
  return RepositoryTable(store).create({.url = url, .scope = "", .name = "a/b"});
}

NewWorkspace new_workspace(base::RepoId repository, const std::string& name) {
  NewWorkspace wanted;
  wanted.name = name;
  wanted.owner_uid = 1000;
  wanted.repository = repository;
  wanted.base_ref = "main";
  wanted.base_commit = std::string(40, 'a');
  wanted.branch = "agent/" + name;
  wanted.backend = "lxc";
  wanted.image = "host";
  wanted.policy.limits = {.memory_bytes = 4ULL << 30, .cpus = 1.5, .pids = 4096};
  wanted.labels = {{"task", "AUTH-12"}, {"user", "ann"}};
  return wanted;
}

base::WorkspaceId make_workspace(Store& store, base::RepoId repository, const std::string& name) {
  WorkspaceTable workspaces(store);
  const auto made = workspaces.create(new_workspace(repository, name));
  workspaces.set_ready(made.id);
  return made.id;
}

SandboxRow make_sandbox(Store& store, base::WorkspaceId workspace) {
  return SandboxTable(store).create({.workspace = workspace, .backend = "lxc", .image = "host"});
}

NewExec new_exec(const SandboxRow& sandbox) {
  NewExec request;
  request.workspace = sandbox.workspace;
  request.sandbox = sandbox.id;
  request.owner_uid = 1000;
  request.argv = {"true"};
  request.directory = "/workspace";
  request.user = "user";
  return request;
}

std::string message_thrown_by(const std::function<void()>& work) {
  try {
    work();
  } catch (const base::Error& error) {
    return error.message();
  }
  FAIL("no error was thrown");
  return {};
}

int run_in_child(const std::function<void()>& work) {
  const pid_t pid = base::check(fork(), "fork");
  if (pid == 0) {
    try {
      work();
    } catch (const std::exception& error) {
      fprintf(stderr, "child: %s\n", error.what());
      _exit(99);
    }
    _exit(0);
  }
  int status = 0;
  base::check(waitpid(pid, &status, 0), "waitpid");
  return status;
}

}  // namespace moorage::state_db_test
