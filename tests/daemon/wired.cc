#include "wired.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/os/files.h"
#include "state_db/tables/repositories.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"

namespace moorage::daemon {

namespace {

workspace::ServiceOptions options_in(const std::string& directory) {
  workspace::ServiceOptions options;
  options.backends.name_prefix = "moorage-test-";
  options.backends.images_directory = directory + "/images";
  options.backends.favor_quick_cgroup_moves = false;
  options.repos.root = directory + "/repos";
  options.storage.store = directory;
  options.workspace.store = directory;
  options.workspace.archive_directory = directory + "/archive";
  options.workspace.upload_max_bytes = 1 << 20;
  return options;
}

}  // namespace

Wired::Wired()
    : store_({.directory = directory_.path()}),
      events_(store_),
      services_(store_, options_in(directory_.path())),
      policy_(services_, {{"api.socket", "/run/x", "", "default", "where"}},
              [this] {
                if (!refusal.empty()) throw base::Error(base::Code::invalid_argument, refusal);
                return next_read;
              }),
      info_{.events = events_, .policy = policy_, .host = {}} {}

base::WorkspaceId Wired::make_workspace(const std::string& name, uint32_t owner) {
  state_db::NewWorkspace workspace;
  workspace.name = name;
  workspace.owner_uid = owner;
  workspace.repository =
      state_db::RepositoryTable(store_).find_or_create({"https://x/a/b", "", "a/b"}).first;
  workspace.base_commit = std::string(40, 'a');
  workspace.branch = "moorage/" + name;
  workspace.backend = "lxc";
  workspace.image = "host";
  state_db::WorkspaceTable table(store_);
  const auto id = table.create(workspace).id;
  table.set_ready(id);
  state_db::SandboxTable sandboxes(store_);
  state_db::NewSandbox sandbox;
  sandbox.workspace = id;
  sandbox.backend = "lxc";
  sandbox.image = "host";
  sandboxes.set_running(sandboxes.create(sandbox).id, {});
  return id;
}

base::ExecId Wired::make_exec(base::WorkspaceId workspace, bool with_journal) {
  state_db::ExecTable table(store_);
  state_db::NewExec request;
  request.workspace = workspace;
  request.sandbox = state_db::SandboxTable(store_).live(workspace)->id;
  request.owner_uid = state_db::WorkspaceTable(store_).get(workspace).owner_uid;
  request.argv = {"job"};
  request.directory = "/workspace";
  request.user = "user";
  const auto id = table.create(request).id;
  if (!with_journal) return id;
  const std::string path = workspace::journal_directory(services_.context.options, workspace, id);
  base::make_directories(path);
  base::open_file(path + "/output", O_WRONLY | O_CREAT | O_EXCL, 0600);
  services_.watcher.watch_exec(table.get(id), false);
  return id;
}

std::string Wired::journal_path(base::ExecId exec) {
  const auto row = state_db::ExecTable(store_).get(exec);
  return workspace::journal_directory(services_.context.options, row.request.workspace, exec) +
         "/output";
}

void Wired::write_frame(base::ExecId exec, base::FrameKind kind, const std::string& payload) {
  base::FrameHeader header;
  header.kind = kind;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  header.wall_ns = 1'000'000'000;
  header.output_offset = output_bytes_[exec];
  const auto head = base::encode_frame_header(header, payload);
  const base::Fd file = base::open_file(journal_path(exec), O_WRONLY | O_APPEND);
  base::write_all(file.get(), std::string(head.begin(), head.end()) + payload);
  if (base::is_output(kind)) output_bytes_[exec] += payload.size();
  if (kind == base::FrameKind::gap)
    output_bytes_[exec] += base::decode_gap(payload).value().dropped_bytes;
}

void Wired::remove_journal(base::ExecId exec) {
  base::check(unlink(journal_path(exec).c_str()), "remove the journal");
}

void Wired::end(base::ExecId exec, int exit_code) {
  write_frame(exec, base::FrameKind::end,
              R"({"kind":"exited","code":)" + std::to_string(exit_code) + "}");
  soon([&] { return state_db::ExecTable(store_).get(exec).state != state_db::ExecState::running; });
}

}  // namespace moorage::daemon
