// Machines elsewhere that nothing here uses are found, removed later, and never waited for.
#include "workspace/recovery/machines.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "base/os/files.h"
#include "workspace/recovery/recovery_fixture.h"

namespace moorage::workspace {
namespace {

using std::chrono::milliseconds;

// Sandboxes on two hosts in memory. A host can be unreachable, or slow until it is let go.
class FakeRemote : public backends::FakeBackend, public backends::Machines {
 public:
  explicit FakeRemote(const backends::BackendOptions& options, const std::string& directory)
      : FakeBackend(options), pool_(directory, "ssh", {{"a", 4}, {"b", 4}}) {}

  backends::Machines* machines() override { return this; }
  std::vector<backends::PlaceUse> places() override { return pool_.uses(); }
  std::vector<backends::MachineNote> notes() override { return pool_.notes(); }

  std::vector<std::string> list_there(const std::string& place, milliseconds) override {
    reach(place);
    const std::lock_guard lock(mutex_);
    return {there_[place].begin(), there_[place].end()};
  }
  void find_key() override {}
  void remove_there(const backends::MachineNote& note, milliseconds) override {
    reach(note.place);
    {
      const std::lock_guard lock(mutex_);
      there_[note.place].erase(note.sandbox);
    }
    pool_.release(note.sandbox);
  }

  void leave(const std::string& sandbox) override { FakeBackend::destroy(sandbox); }
  bool salvage_there(const backends::MachineNote& note, const std::string&, milliseconds) override {
    reach(note.place);
    const std::lock_guard lock(mutex_);
    ++salvaged_;
    if (!salvage_error_.empty()) throw Error(base::Code::unavailable, salvage_error_);
    return there_[note.place].contains(note.sandbox);
  }
  void fail_salvage(const std::string& error) {
    const std::lock_guard lock(mutex_);
    salvage_error_ = error;
  }
  size_t salvaged() {
    const std::lock_guard lock(mutex_);
    return salvaged_;
  }

  void make(const std::string& sandbox, const std::string& place, bool noted = true) {
    if (noted) pool_.take(sandbox, 1, place);
    const std::lock_guard lock(mutex_);
    there_[place].insert(sandbox);
  }
  bool exists(const std::string& sandbox) {
    const std::lock_guard lock(mutex_);
    return there_["a"].contains(sandbox) || there_["b"].contains(sandbox);
  }
  enum class Reach { answers, refuses, hangs };
  void set(const std::string& place, Reach reach) {
    const std::lock_guard lock(mutex_);
    reach_[place] = reach;
    changed_.notify_all();
  }
  size_t contacts(const std::string& place) {
    const std::lock_guard lock(mutex_);
    return contacts_[place];
  }
  backends::Places& pool() { return pool_; }

 private:
  void reach(const std::string& place) {
    std::unique_lock lock(mutex_);
    ++contacts_[place];
    changed_.wait(lock, [&] { return reach_[place] != Reach::hangs; });
    if (reach_[place] == Reach::refuses) {
      lock.unlock();
      pool_.failed(place, "no route to host");
      throw Error(base::Code::unavailable, "no route to host", "check the cable");
    }
  }

  backends::Places pool_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::set<std::string>> there_;
  std::map<std::string, Reach> reach_;
  std::map<std::string, size_t> contacts_;
  std::string salvage_error_;
  size_t salvaged_ = 0;
};

using Reach = FakeRemote::Reach;

struct MachinesFixture : RecoveryFixture {
  Salvage salvage{context, chains};
  FakeRemote* remote = put_remote();
  const std::string prefix = options().backends.name_prefix;

  FakeRemote* put_remote() {
    auto made = std::make_unique<FakeRemote>(options().backends, directory.path() + "/remote");
    FakeRemote* backend = made.get();
    registry.put("ssh", std::move(made));
    return backend;
  }
  ~MachinesFixture() {
    for (const char* place : {"a", "b"}) remote->set(place, Reach::answers);
  }
  // A workspace that went on without its machine on host a.
  struct Left {
    state_db::SandboxRow sandbox;
    base::SnapshotId base;
  };
  Left make_left(const std::string& name) {
    Left left{.sandbox = make_running(name, "ssh"), .base = {}};
    remote->make(left.sandbox.name, "a");
    state_db::NewSnapshot base;
    base.workspace = left.sandbox.workspace;
    base.idempotency_key = given_up_key(left.sandbox.id);
    left.base = state_db::SnapshotTable(store).begin(base).id;
    state_db::SnapshotTable(store).finish(left.base, 0);
    store.move(left.sandbox.id, state_db::SandboxState::running, state_db::SandboxState::lost,
               "test");
    state_db::SandboxTable(store).set_destroyed(left.sandbox.id, state_db::SandboxState::lost);
    return left;
  }
  std::vector<std::string> names(const std::vector<UnusedMachine>& found) {
    std::vector<std::string> all;
    for (const auto& one : found) all.push_back(one.note.sandbox);
    return all;
  }
  const Finding* find(const Diagnosis& diagnosis, const std::string& subject) {
    for (const Finding& each : diagnosis.findings)
      if (each.check == "machines" && each.subject == subject) return &each;
    return nullptr;
  }
};

}  // namespace

TEST_CASE("a machine whose sandbox is destroyed or missing is removed, one in use stays") {
  MachinesFixture test;
  const auto used = test.make_running("works", "ssh");
  test.remote->make(used.name, "a");
  const auto dead = test.make_running("ended", "ssh");
  test.remote->make(dead.name, "a");
  test.store.move(dead.id, state_db::SandboxState::running, state_db::SandboxState::lost, "test");
  state_db::SandboxTable(test.store).set_destroyed(dead.id, state_db::SandboxState::lost);
  test.remote->make(test.prefix + "sb_77", "b");
  test.remote->make(test.prefix + "sb_78", "b", /*noted=*/false);

  MachineSweep sweep(test.context, test.salvage);
  CHECK(test.names(sweep.unused()) == std::vector<std::string>{dead.name, test.prefix + "sb_77"});
  sweep.sweep();
  CHECK(sweep.wait(kLong));
  CHECK(test.remote->exists(used.name));
  CHECK_FALSE(test.remote->exists(dead.name));
  CHECK_FALSE(test.remote->exists(test.prefix + "sb_77"));
  CHECK_FALSE(test.remote->exists(test.prefix + "sb_78"));
  CHECK(sweep.unused().empty());
  CHECK(test.remote->notes().size() == 1);
}

TEST_CASE("a machine with changes of a workspace is removed only once they are here") {
  MachinesFixture test;
  const auto left = test.make_left("web");
  test.remote->fail_salvage("the disk there is broken");
  MachineSweep sweep(test.context, test.salvage);
  CHECK(sweep.unused().at(0).left->base.id == left.base);
  sweep.sweep();
  CHECK(sweep.wait(kLong));
  CHECK(test.remote->exists(left.sandbox.name));
  const auto shown = left_machines(test.context, left.sandbox.workspace);
  REQUIRE(shown.size() == 1);
  CHECK(shown[0].trouble == "the disk there is broken");
  const Diagnosis seen = test.doctor.look(false);
  REQUIRE(test.find(seen, left.sandbox.name));
  CHECK(test.find(seen, left.sandbox.name)->text ==
        "web went on without the last changes on a (ssh); the last try to fetch them failed: the "
        "disk there is broken");

  test.remote->fail_salvage("");
  sweep.sweep(/*now=*/true);
  CHECK(sweep.wait(kLong));
  CHECK_FALSE(test.remote->exists(left.sandbox.name));
  CHECK(test.remote->salvaged() == 2);
  // It had nothing more.
  CHECK(state_db::SnapshotTable(test.store).get(left.base).state ==
        state_db::SnapshotState::dropped);
  CHECK(left_machines(test.context, left.sandbox.workspace).empty());
  CHECK_FALSE(base::path_exists(salvage_directory(test.context.options, left.sandbox.id)));
}

TEST_CASE("nothing is fetched for a workspace that is deleted, or whose base was dropped") {
  MachinesFixture test;
  const auto deleted = test.make_left("deleted");
  test.store.move(deleted.sandbox.workspace, state_db::WorkspaceState::ready,
                  state_db::WorkspaceState::deleting, "test");
  const auto dropped = test.make_left("dropped");
  state_db::SnapshotTable(test.store).drop(dropped.base, "test");
  MachineSweep sweep(test.context, test.salvage);
  sweep.sweep();
  CHECK(sweep.wait(kLong));
  CHECK(sweep.unused().empty());
  CHECK(test.remote->salvaged() == 0);
}

TEST_CASE("a place that does not answer keeps its notes, is asked less often, and delays nobody") {
  MachinesFixture test;
  test.remote->make(test.prefix + "sb_77", "a");
  test.remote->make(test.prefix + "sb_78", "b");
  test.remote->set("a", Reach::refuses);
  MachineSweep sweep(test.context, test.salvage,
                     {.first_pause_ms = 3'600'000, .longest_pause_ms = 3'600'000});
  sweep.sweep();
  CHECK(sweep.wait(kLong));
  CHECK(test.remote->exists(test.prefix + "sb_77"));
  CHECK_FALSE(test.remote->exists(test.prefix + "sb_78"));
  const size_t contacts = test.remote->contacts("a");
  sweep.sweep();
  CHECK(sweep.wait(kLong));
  CHECK(test.remote->contacts("a") == contacts);
  test.remote->set("a", Reach::answers);
  sweep.sweep(/*now=*/true);
  CHECK(sweep.wait(kLong));
  CHECK_FALSE(test.remote->exists(test.prefix + "sb_77"));
  CHECK(sweep.unused().empty());
}

TEST_CASE("a sweep never waits for a machine, and begins one visit of a place at a time") {
  MachinesFixture test;
  test.remote->make(test.prefix + "sb_77", "a");
  test.remote->set("a", Reach::hangs);
  MachineSweep sweep(test.context, test.salvage);
  sweep.sweep();
  REQUIRE(test.comes([&] { return test.remote->contacts("a") == 1; }));
  sweep.sweep(/*now=*/true);
  CHECK_FALSE(sweep.wait(milliseconds(20)));
  CHECK(test.remote->contacts("a") == 1);
  test.remote->set("a", Reach::answers);
  CHECK(sweep.wait(kLong));
  CHECK_FALSE(test.remote->exists(test.prefix + "sb_77"));
}

TEST_CASE("a sweep of everything follows a visit that goes on") {
  MachinesFixture test;
  MachineSweep sweep(test.context, test.salvage);
  sweep.sweep();  // lists: not again for some time
  REQUIRE(sweep.wait(kLong));
  test.remote->make(test.prefix + "sb_77", "a");
  test.remote->set("a", Reach::hangs);
  sweep.sweep();
  REQUIRE(test.comes([&] { return test.remote->contacts("a") == 2; }));
  test.remote->make(test.prefix + "sb_78", "a", /*noted=*/false);
  sweep.sweep(/*now=*/true);
  test.remote->set("a", Reach::answers);
  CHECK(sweep.wait(kLong));
  CHECK_FALSE(test.remote->exists(test.prefix + "sb_77"));
  CHECK_FALSE(test.remote->exists(test.prefix + "sb_78"));
}

TEST_CASE("each place is asked on its own, and one that hangs claims nothing") {
  MachinesFixture test;
  test.remote->make(test.prefix + "sb_77", "a");
  test.remote->make(test.prefix + "sb_78", "b", /*noted=*/false);
  test.remote->set("a", Reach::hangs);
  MachineSweep sweep(test.context, test.salvage);
  std::vector<PlaceAnswer> answers;
  REQUIRE(test.comes([&] {
    answers = sweep.ask(milliseconds(100));
    return answers.size() == 2 && answers[1].error.empty();
  }));
  CHECK(answers[0].error == "it did not answer in time");
  CHECK(answers[0].sandboxes.empty());
  CHECK(answers[1].sandboxes == std::vector<std::string>{test.prefix + "sb_78"});
  CHECK(test.names(sweep.unknown(answers)) == std::vector<std::string>{test.prefix + "sb_78"});
  test.remote->set("a", Reach::answers);
}

TEST_CASE("doctor lists unused machines and places that do not answer, and removes the former") {
  MachinesFixture test;
  test.remote->make(test.prefix + "sb_77", "a");
  test.remote->make(test.prefix + "sb_78", "a", /*noted=*/false);
  test.remote->set("b", Reach::refuses);
  const std::string notes = test.directory.path() + "/remote";
  base::write_file(notes + "/" + test.prefix + "sb_9.json", "{}");

  const Diagnosis seen = test.doctor.look(false);
  REQUIRE(test.find(seen, test.prefix + "sb_77"));
  CHECK(test.find(seen, test.prefix + "sb_77")->text ==
        "its sandbox was destroyed while its machine could not be reached; it may still exist on "
        "a (ssh)");
  REQUIRE(test.find(seen, test.prefix + "sb_78"));
  CHECK(test.find(seen, test.prefix + "sb_78")->text ==
        "a sandbox exists on a (ssh) that state.db does not list");
  REQUIRE(test.find(seen, "ssh/b"));
  CHECK(test.find(seen, "ssh/b")->text == "b did not say which sandboxes it has: no route to host");
  CHECK(test.find(seen, "ssh/b")->command == "check the cable");
  REQUIRE(test.find(seen, test.prefix + "sb_9"));
  CHECK(test.find(seen, test.prefix + "sb_9")->severity == Severity::error);
  CHECK(test.remote->exists(test.prefix + "sb_77"));  // it only looks

  const Diagnosis fixed = test.doctor.fix(false);
  CHECK(test.find(fixed, test.prefix + "sb_77")->repaired);
  CHECK(test.find(fixed, test.prefix + "sb_78")->repaired);
  CHECK_FALSE(test.find(fixed, "ssh/b")->repaired);
  CHECK_FALSE(test.find(fixed, test.prefix + "sb_9")->repaired);
  CHECK_FALSE(test.remote->exists(test.prefix + "sb_77"));
  CHECK_FALSE(test.remote->exists(test.prefix + "sb_78"));
}

TEST_CASE("a machine on a host that is no longer configured is left to a person") {
  MachinesFixture test;
  const std::string notes = test.directory.path() + "/remote";
  backends::Places(notes, "ssh", {{"old", 1}}).take(test.prefix + "sb_77", 1, "");
  test.remote = test.put_remote();
  const Diagnosis fixed = test.doctor.fix(false);
  const Finding* finding = test.find(fixed, test.prefix + "sb_77");
  REQUIRE(finding);
  CHECK_FALSE(finding->repaired);
  CHECK(finding->text.ends_with("exist on old (ssh), which is no longer in the configuration"));
  CHECK(finding->command.starts_with("add old to backends.ssh again; or "));
}

}  // namespace moorage::workspace
