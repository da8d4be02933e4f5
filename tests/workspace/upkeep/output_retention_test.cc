#include "workspace/upkeep/output_retention.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <thread>

#include "backends/registry.h"
#include "base/clock.h"
#include "base/os/files.h"
#include "base/wire/journal.h"
#include "layers/storage_fixture.h"
#include "patience.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/metrics.h"
#include "workspace/context/new_workspace.h"
#include "workspace/exec/watcher.h"

using namespace moorage;
using namespace moorage::layers;
using namespace moorage::workspace;
using namespace std::chrono_literals;

namespace {

constexpr uint64_t kMiB = 1 << 20;

struct SetClock : base::Clock {
  int64_t wall_ms() const override { return wall; }
  int64_t boot_ms() const override { return boot; }
  int64_t wall = 1'700'000'000'000;
  int64_t boot = 1'000'000;
};

// Writes a journal like the warden.
struct Writer {
  base::Fd file;
  uint64_t offset = 0;

  void write(base::FrameKind kind, const std::string& payload) {
    base::FrameHeader header;
    header.kind = kind;
    header.payload_bytes = static_cast<uint32_t>(payload.size());
    header.wall_ns = 1'700'000'000'000'000'000;
    header.output_offset = offset;
    const auto head = base::encode_frame_header(header, payload);
    base::write_all(file.get(), std::string(head.data(), head.size()) + payload);
    if (base::is_output(kind)) offset += payload.size();
  }
};

// A journal as its reader sees it: "-N" for a gap of N bytes, "end", and plain output.
std::vector<std::string> told_in(const std::string& directory) {
  const base::Fd file = base::open_file(directory + "/output", O_RDONLY);
  base::JournalReader reader(file.get());
  std::vector<std::string> told;
  while (const auto frame = reader.next()) {
    if (frame->header.kind == base::FrameKind::gap) {
      told.push_back("-" + std::to_string(base::decode_gap(frame->payload)->dropped_bytes));
    } else if (frame->header.kind == base::FrameKind::end) {
      told.emplace_back("end");
    } else if (base::is_output(frame->header.kind)) {
      told.push_back(frame->payload);
    }
  }
  return told;
}

uint64_t disk_bytes_of(const std::string& directory) {
  struct stat status {};
  REQUIRE(::stat((directory + "/output").c_str(), &status) == 0);
  return static_cast<uint64_t>(status.st_blocks) * 512;
}

// A workspace with ended commands, in a store whose clock the test sets.
struct Kept {
  TemporaryDirectory place;
  const std::string directory = place.path();
  SetClock clock;
  std::unique_ptr<state_db::Store> store;
  std::unique_ptr<backends::Registry> registry;
  std::unique_ptr<repo_cache::RepoCache> repos;
  std::unique_ptr<repo_cache::BaseTrees> base_trees;
  std::unique_ptr<Storage> storage;
  LiveSandboxes live;
  base::KeyedMutex locks;
  Metrics metrics;
  std::unique_ptr<Context> context;
  base::WorkspaceId workspace;

  Kept() {
    state_db::StoreOptions options;
    options.directory = directory;
    options.clock = &clock;
    store = std::make_unique<state_db::Store>(options);
    backends::BackendOptions backend;
    backend.name_prefix = "moorage-test-";
    backend.images_directory = directory + "/images";
    backend.favor_quick_cgroup_moves = false;
    registry = std::make_unique<backends::Registry>(backend);
    repo_cache::RepoCacheOptions repo;
    repo.root = directory + "/repos";
    repos = std::make_unique<repo_cache::RepoCache>(repo);
    base_trees = std::make_unique<repo_cache::BaseTrees>(*repos);
    storage = make_overlay_storage({.store = directory});
    Options verbs;
    verbs.store = directory;
    context = std::make_unique<Context>(
        Context{*store, *repos, *base_trees, *registry, *storage, live, locks, verbs, metrics});
    workspace = add_workspace("one");
  }

  base::WorkspaceId add_workspace(const std::string& name) {
    auto wanted = new_workspace(*store, name);
    wanted.branch = "moorage/" + name;
    wanted.backend = "lxc";
    wanted.image = "host";
    state_db::WorkspaceTable table(*store);
    const auto id = table.create(wanted).id;
    table.set_ready(id);
    state_db::SandboxTable sandboxes(*store);
    state_db::NewSandbox sandbox;
    sandbox.workspace = id;
    sandbox.backend = "lxc";
    sandbox.image = "host";
    sandboxes.set_running(sandboxes.create(sandbox).id, {});
    return id;
  }

  state_db::ExecRow run(uint64_t bytes, bool ends = true) {
    state_db::ExecTable table(*store);
    state_db::NewExec request;
    request.workspace = workspace;
    request.sandbox = state_db::SandboxTable(*store).live(workspace)->id;
    request.argv = {"job"};
    request.user = "user";
    const auto id = table.create(request).id;
    base::make_directories(journal(id));
    const base::Fd file =
        base::open_file(journal(id) + "/output", O_WRONLY | O_CREAT | O_EXCL, 0600);
    base::write_all(file.get(), std::string(bytes, 'x'));
    base::set_append_only(file.get(), true);
    state_db::ExecOutcome outcome;
    outcome.output_bytes = bytes;
    if (ends) table.finish(id, outcome);
    return table.get(id);
  }
  // A command that ended and left a process that may still write.
  std::pair<state_db::ExecRow, Writer> run_server(size_t mebibytes) {
    auto row = run(0, false);
    Writer writer{base::open_file(journal(row.id) + "/output", O_WRONLY | O_APPEND)};
    writer.write(base::FrameKind::started, "{\"pid\":7}");
    for (size_t i = 0; i < mebibytes; ++i)
      writer.write(base::FrameKind::standard_output, std::string(kMiB, 'x'));
    state_db::ExecOutcome outcome;
    outcome.output_bytes = writer.offset;
    writer.write(base::FrameKind::end, "{}");
    state_db::ExecTable(*store).finish(row.id, outcome);
    return {state_db::ExecTable(*store).get(row.id), std::move(writer)};
  }
  std::string journal(base::ExecId exec) const {
    return journal_directory(context->options, workspace, exec);
  }
  // Replaces its journal with a FIFO: opening that blocks until somebody writes to it.
  std::string put_fifo(const state_db::ExecRow& exec) const {
    const std::string path = journal(exec.id) + "/output";
    base::set_append_only(base::open_file(path, O_RDONLY).get(), false);
    REQUIRE(::unlink(path.c_str()) == 0);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    return path;
  }
  bool has(const state_db::ExecRow& exec) const { return base::path_exists(journal(exec.id)); }
};

}  // namespace

TEST_CASE(
    "output over a workspace's limit is removed, oldest first, never that of running commands") {
  Kept kept;
  OutputRetention retention(*kept.context, {11 * kMiB, 0});
  const auto running = kept.run(2 * kMiB, false);
  std::vector<state_db::ExecRow> execs;
  for (int i = 0; i < 6; ++i) {
    execs.push_back(kept.run(2 * kMiB));
    retention.exec_ended(execs.back());
  }
  CHECK(kept.has(running));
  for (size_t i = 0; i < execs.size(); ++i) {
    CAPTURE(i);
    CHECK(kept.has(execs[i]) == (i >= 2));
  }
  CHECK(state_db::ExecTable(*kept.store).get(execs[0].id).outcome.output_bytes == 2 * kMiB);
  const auto large = kept.run(20 * kMiB);  // the newest stays, whatever its size
  retention.exec_ended(large);
  CHECK(kept.has(large));
  CHECK_FALSE(kept.has(execs[5]));
}

TEST_CASE("output is removed when it expires, by the store's age and not by the wall clock") {
  Kept kept;
  constexpr int64_t kDay = 86'400'000;
  OutputRetention retention(*kept.context, {0, 30 * kDay});
  const auto old = kept.run(100);
  const auto running = kept.run(100, false);
  retention.sweep();
  kept.clock.wall += 400 * kDay;
  retention.sweep();
  CHECK(kept.has(old));
  kept.clock.boot += 29 * kDay;
  const auto young = kept.run(100);
  retention.sweep();
  CHECK(kept.has(old));
  kept.clock.boot += kDay;
  retention.sweep();
  CHECK_FALSE(kept.has(old));
  CHECK(kept.has(young));
  CHECK(kept.has(running));
}

TEST_CASE("a journal that still gets late output stays, with a gap for what was removed") {
  Kept kept;
  OutputRetention retention(*kept.context, {11 * kMiB, 0});
  auto [server, writer] = kept.run_server(6);
  auto [quiet, nothing] = kept.run_server(0);
  for (int i = 0; i < 6; ++i) retention.exec_ended(kept.run(2 * kMiB));
  REQUIRE(kept.has(server));
  REQUIRE(kept.has(quiet));
  CHECK(disk_bytes_of(kept.journal(server.id)) < kMiB);
  writer.write(base::FrameKind::standard_output, "late");
  nothing.write(base::FrameKind::standard_error, "later");
  CHECK(told_in(kept.journal(server.id)) ==
        std::vector<std::string>{"-" + std::to_string(6 * kMiB), "end", "late"});
  CHECK(told_in(kept.journal(quiet.id)) == std::vector<std::string>{"end", "later"});

  // Again: nothing more can be removed from it.
  retention.exec_ended(kept.run(11 * kMiB));
  CHECK(told_in(kept.journal(server.id)).size() == 3);

  // Without a writer it is removed like any other, and its record says where it ended.
  writer.file.reset();
  nothing.file.reset();
  retention.exec_ended(kept.run(11 * kMiB));
  CHECK_FALSE(kept.has(server));
  CHECK_FALSE(kept.has(quiet));
  state_db::ExecTable table(*kept.store);
  CHECK(table.get(server.id).outcome.output_bytes == 6 * kMiB + 4);
  CHECK(table.get(quiet.id).outcome.output_bytes == 5);
}

TEST_CASE("a journal that still gets late output does not expire") {
  Kept kept;
  constexpr int64_t kDay = 86'400'000;
  OutputRetention retention(*kept.context, {0, 30 * kDay});
  auto [server, writer] = kept.run_server(1);
  retention.sweep();
  kept.clock.boot += 31 * kDay;
  retention.sweep();
  REQUIRE(kept.has(server));
  writer.write(base::FrameKind::standard_output, "late");
  CHECK(told_in(kept.journal(server.id)) ==
        std::vector<std::string>{"-" + std::to_string(kMiB), "end", "late"});
  writer.file.reset();
  retention.sweep();
  CHECK_FALSE(kept.has(server));
}

TEST_CASE("without a limit and a time all output is kept") {
  Kept kept;
  OutputRetention retention(*kept.context, {0, 0});
  const auto exec = kept.run(5 * kMiB);
  retention.exec_ended(exec);
  retention.sweep();
  CHECK(kept.has(exec));
}

TEST_CASE("slow removal in one workspace does not hold up another") {
  Kept kept;
  OutputRetention retention(*kept.context, {11 * kMiB, 0});
  const auto slow = kept.run(0);
  const std::string fifo = kept.put_fifo(slow);
  const auto large = kept.run(20 * kMiB);
  // Repeated, as it does nothing while is_removing() holds the lock.
  std::atomic<bool> seen = false;
  auto held = std::async(std::launch::async, [&] {
    do retention.exec_ended(large);
    while (!seen);
  });
  const auto is_removing = [&] {
    try {
      kept.locks.lock(kept.workspace.str(), "test", std::chrono::milliseconds(0));
      return false;
    } catch (const base::Error&) {
      return true;
    }
  };
  while (!is_removing()) std::this_thread::yield();
  seen = true;

  kept.workspace = kept.add_workspace("other");
  const auto first = kept.run(10 * kMiB);
  const auto second = kept.run(10 * kMiB);
  auto other = std::async(std::launch::async, [&] { retention.exec_ended(second); });
  CHECK(other.wait_for(tests::patient(20s)) == std::future_status::ready);
  CHECK_FALSE(kept.has(first));
  CHECK(kept.has(second));
  base::open_file(fifo, O_WRONLY);
  held.wait();
}
