// A workspace whose sandbox runs on another machine that a test plays: it puts packs into
// incoming/. The mounts are plain directories.
#pragma once

#include <stdlib.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <thread>

#include "base/os/files.h"
#include "base/wire/journal.h"
#include "base/wire/link_config.h"
#include "packs/delta_pack.h"
#include "patience.h"
#include "state_db/tables/execs.h"
#include "workspace/access/placement_fixture.h"

namespace moorage::workspace {

inline packs::Node node(const std::string& path, packs::NodeType type) {
  packs::Node made;
  made.path = path;
  made.type = type;
  made.mode = 0644;
  made.mtime = {1'700'000'000, 7};
  return made;
}

inline void put_file(packs::PackWriter& pack, const std::string& path, const std::string& bytes) {
  packs::Node file = node(path, packs::NodeType::file);
  file.uid = file.gid = layers::kUser;
  file.size = bytes.size();
  pack.entry(file);
  constexpr size_t kPieceBytes = 256 << 10;  // the finder sends such, too
  for (size_t at = 0; at < bytes.size(); at += kPieceBytes)
    pack.piece(at, std::string_view(bytes).substr(at, kPieceBytes));
  pack.end_pieces();
}

struct RemoteFixture : PlacementFixture {
  static constexpr uint32_t kFirstId = 1'000'000'000;
  explicit RemoteFixture(const std::string& existing = {}) : PlacementFixture(existing) {
    lxc->remote = true;
  }
  ~RemoteFixture() { watcher.stop(); }

  struct Remote {
    state_db::WorkspaceRow row;
    state_db::SandboxRow sandbox;
    std::string tree;
    std::string home;
    std::string incoming;
    std::string refused;
    std::string path(uint64_t number, const std::string& ending = ".pack") const {
      return incoming + "/" + std::to_string(number) + ending;
    }
    void send(uint64_t number, const std::function<void(packs::PackWriter&)>& fill) const {
      std::string bytes;
      packs::PackWriter writer([&](std::string_view piece) { bytes += piece; });
      fill(writer);
      writer.finish();
      base::write_file(path(number), bytes);
    }
    void send_file(uint64_t number, const std::string& name, const std::string& bytes) const {
      send(number, [&](packs::PackWriter& pack) { put_file(pack, name, bytes); });
    }
    std::optional<std::string> read(const std::string& name) const {
      return base::read_file_if_exists(tree + "/" + name);
    }
    size_t packs() const { return IncomingDirectory(incoming + "/..").packs().size(); }
  };

  Remote place_of(const state_db::WorkspaceRow& row, const state_db::SandboxRow& sandbox) const {
    const std::string store_directory = directory.path();
    return {row,
            sandbox,
            store_directory + "/tree-" + row.id.str(),
            store_directory + "/home-" + row.id.str(),
            store_directory + "/sandboxes/" + sandbox.id.str() + "/" + base::kIncoming,
            store_directory + "/workspaces/" + row.id.str() + "/refused"};
  }
  Remote make_remote(const std::string& name, const state_db::WorkspaceLimits& limits = {
                                                  1ULL << 30, 1, 100, 1ULL << 30, 0}) {
    return make_remote(make_workspace(name, "lxc", limits));
  }
  Remote make_remote(const state_db::WorkspaceRow& row) {
    state_db::NewSandbox wanted;
    wanted.workspace = row.id;
    wanted.backend = "lxc";
    wanted.image = "host";
    state_db::SandboxTable table(store);
    const auto sandbox = table.create(wanted);
    table.set_running(sandbox.id, {.init = base::identify_process(getpid())});
    const Remote made = place_of(row, table.get(sandbox.id));
    for (const std::string& path : {made.tree, made.home, made.incoming})
      base::make_directories(path, 0755);
    return made;
  }
  // As after a start or an adoption.
  void run(const Remote& place) {
    backends::SandboxSpec spec;
    spec.name = place.sandbox.name;
    LiveSandbox running;
    running.sandbox = place.sandbox.id;
    running.workspace = place.row.id;
    running.name = place.sandbox.name;
    running.backend = lxc;
    running.remote = true;
    running.init = lxc->start(spec).init;
    running.endpoint = lxc->endpoint(spec.name);
    running.mounted = mount(place);
    live.set_running(std::make_shared<const LiveSandbox>(std::move(running)));
  }
  std::shared_ptr<const SharedMounts> mount(const Remote& place) {
    SharedMounts mounts;
    mounts.mounts.tree = base::open_directory(place.tree);
    mounts.mounts.home = base::open_directory(place.home);
    mounts.user_host_id = kFirstId + layers::kUser;
    return live.share(place.row.id, std::move(mounts));
  }
  Remote make_running(const std::string& name) {
    Remote place = make_remote(name);
    run(place);
    return place;
  }
  void apply(const Remote& place) { incoming.apply(*live.running(place.row.id)); }

  state_db::ExecRow make_exec(const Remote& place) {
    state_db::NewExec request;
    request.workspace = place.row.id;
    request.sandbox = place.sandbox.id;
    request.argv = {"true"};
    request.user = "user";
    state_db::ExecTable table(store);
    auto exec = table.get(table.create(request).id);
    base::make_directories(journal_directory(context.options, place.row.id, exec.id));
    base::write_file(journal_path(context.options, place.row.id, exec.id), "", 0600);
    return exec;
  }
  void write_end(const state_db::ExecRow& exec, const std::string& payload) {
    const auto head = base::encode_frame_header(
        {base::FrameKind::end, static_cast<uint32_t>(payload.size()), 1, 0}, payload);
    const base::Fd journal = base::open_file(
        journal_path(context.options, exec.request.workspace, exec.id), O_WRONLY | O_APPEND);
    base::write_all(journal.get(), std::string(head.data(), head.size()) + payload);
  }
  state_db::ExecRow now(const state_db::ExecRow& exec) {
    return state_db::ExecTable(store).get(exec.id);
  }
  state_db::SandboxRow now(const state_db::SandboxRow& sandbox) {
    return state_db::SandboxTable(store).get(sandbox.id);
  }
  std::string loss_of(const Remote& place) {  // why
    for (const auto& event : store.events(0, 1000)) {
      if (event.to == "lost" && event.subject.sandbox == place.sandbox.id) return event.text;
    }
    return {};
  }
  bool has_event(const std::string& kind) {
    const auto events = store.events(0, 1000);
    return std::any_of(events.begin(), events.end(),
                       [&](const auto& event) { return event.kind == kind; });
  }
  template <typename Condition>
  bool comes(Condition condition) {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(20) * tests::patience();
    while (!condition() && std::chrono::steady_clock::now() < end) {
      incoming.tick();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return condition();
  }
};

}  // namespace moorage::workspace
