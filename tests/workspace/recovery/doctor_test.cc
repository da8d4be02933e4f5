// Doctor finds differences between rows, disk and backends, repairs the safe ones, and leaves the
// others to a person with a command.
#include "workspace/recovery/doctor.h"

#include <sys/stat.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/os/files.h"
#include "workspace/recovery/recovery_fixture.h"

namespace moorage::workspace {
namespace {

using state_db::IntegrityState;
using state_db::WorkspaceState;

const Finding* find(const Diagnosis& diagnosis, const std::string& subject) {
  const auto& all = diagnosis.findings;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const Finding& each) { return each.subject == subject; });
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string> texts(const Diagnosis& diagnosis) {
  std::vector<std::string> all;
  for (const Finding& finding : diagnosis.findings) all.push_back(finding.text);
  return all;
}

struct DoctorFixture : RecoveryFixture {
  std::string store_path = directory.path();
  // With its layer on the disk, and a repository whose mirror nobody needs.
  state_db::WorkspaceRow make_complete(const std::string& name) {
    const auto row = make_whole(name, "lxc");
    complete(row.id);
    return row;
  }
  void complete(base::WorkspaceId id) {
    using state_db::RepositoryState;
    const auto row = state_db::WorkspaceTable(store).get(id);
    storage->make_layer(row.layer);
    if (state_db::RepositoryTable(store).get(row.repository).state == RepositoryState::evicted)
      return;
    store.move(row.repository, RepositoryState::cloning, RepositoryState::ready, "by the test");
    store.move(row.repository, RepositoryState::ready, RepositoryState::evicted, "by the test");
  }
};

}  // namespace

TEST_CASE("doctor finds nothing in a store whose rows, disk and sandboxes agree") {
  DoctorFixture test;
  test.make_complete("rests");
  const auto sandbox = test.make_running("works", "lxc");
  test.complete(sandbox.workspace);
  const Diagnosis diagnosis = test.doctor.look(true);
  CHECK(texts(diagnosis).empty());
  CHECK(diagnosis.clean());
}

TEST_CASE("doctor repairs the safe differences, and the next check is clean") {
  DoctorFixture test;
  test.storage->make_layer({77});
  base::make_directories(test.store_path + "/workspaces/ws_88/journal");
  base::make_directories(test.store_path + "/sandboxes/sb_99");
  backends::SandboxSpec unknown;
  unknown.name = test.options().backends.name_prefix + "sb_98";
  test.docker->start(unknown);
  base::check(chmod(test.store_path.c_str(), 0755), "chmod");
  const auto cut = test.make_complete("cut");
  test.store.move(cut.id, WorkspaceState::ready, WorkspaceState::deleting, "by the test");
  const auto changed = test.make_complete("changed");
  state_db::IntegrityTable(test.store).set(changed.id, IntegrityState::changed_outside, "a file");

  const Diagnosis seen = test.doctor.look(false);
  CHECK(!seen.clean());
  const Diagnosis fixed = test.doctor.fix(false);
  for (const std::string& subject :
       {test.store_path + "/layers/ly_77", test.store_path + "/workspaces/ws_88",
        test.store_path + "/sandboxes/sb_99", unknown.name, test.store_path, cut.id.str(),
        changed.id.str()}) {
    INFO(subject);
    REQUIRE(find(seen, subject));
    CHECK(!find(seen, subject)->repaired);
    REQUIRE(find(fixed, subject));
    CHECK(find(fixed, subject)->repaired);
  }
  // The work that was moved aside stays for a person.
  const Diagnosis after = test.doctor.look(false);
  CHECK(texts(after) == std::vector<std::string>{"2 layers and journals are kept in lost/"});
  CHECK(base::list_directory(test.context.options.lost()).size() == 2);
}

TEST_CASE("doctor leaves lost files to a person, with a command") {
  DoctorFixture test;
  const auto row = test.make_complete("broken");
  base::remove_tree(test.storage->layer_path(row.layer) + "/home");
  base::make_directories(test.store_path + "/layers/of-a-person");
  const Diagnosis fixed = test.doctor.fix(false);
  CHECK(!fixed.clean());
  for (const std::string& subject : {row.id.str(), test.store_path + "/layers/of-a-person"}) {
    INFO(subject);
    const Finding* finding = find(fixed, subject);
    REQUIRE(finding);
    CHECK(finding->severity == Severity::error);
    CHECK(!finding->repaired);
    CHECK(finding->mend.empty());
    CHECK(!finding->command.empty());
  }
  CHECK(base::path_exists(test.store_path + "/layers/of-a-person"));
}

TEST_CASE("a running command without a watcher and a dead sandbox are errors") {
  DoctorFixture test;
  const auto dead = test.make_dead("dead", "lxc");
  test.complete(dead.request.workspace);
  const Diagnosis seen = test.doctor.look(false);
  for (const std::string& subject : {dead.id.str(), dead.request.sandbox.str()}) {
    INFO(subject);
    REQUIRE(find(seen, subject));
    CHECK(find(seen, subject)->severity == Severity::error);
  }
  const Diagnosis fixed = test.doctor.fix(false);
  REQUIRE(find(fixed, dead.request.sandbox.str()));
  CHECK(find(fixed, dead.request.sandbox.str())->repaired);
  CHECK(test.now(dead).state == state_db::ExecState::interrupted);
}

TEST_CASE("doctor reports a sandbox that lives but stays frozen") {
  DoctorFixture test;
  const auto sandbox = test.make_running("cold", "lxc");
  test.complete(sandbox.workspace);
  using state_db::SandboxState;
  test.store.move(sandbox.id, SandboxState::running, SandboxState::frozen, "by the test");
  const Diagnosis seen = test.doctor.look(false);
  REQUIRE(find(seen, sandbox.id.str()));
  CHECK(find(seen, sandbox.id.str())->check == "steps");
}

// A verb at work is between two steps all the time.
TEST_CASE("doctor does not report a workspace while a verb works on it") {
  DoctorFixture test;
  const auto row = test.make_complete("busy");
  test.store.move(row.id, WorkspaceState::ready, WorkspaceState::deleting, "by the test");
  const auto verb = test.locks.lock(row.id.str(), "delete", std::chrono::milliseconds(0));
  CHECK(texts(test.doctor.look(false)).empty());
}

}  // namespace moorage::workspace
