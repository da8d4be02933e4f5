#include "wired.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/os/files.h"
#include "state_db/tables/repositories.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"

namespace moorage::daemon {

Wired::Wired() {
  state_db::StoreOptions options;
  options.directory = directory_.path();
  store_ = std::make_unique<state_db::Store>(options);
  events_ = std::make_unique<EventHub>(*store_);
  backends::BackendOptions backend_options;
  backend_options.name_prefix = "moorage-test-";
  backend_options.images_directory = directory_.path() + "/images";
  backend_options.favor_quick_cgroup_moves = false;
  registry_ = std::make_unique<backends::Registry>(backend_options);
  repo_cache::RepoCacheOptions repo_options;
  repo_options.root = directory_.path() + "/repos";
  repos_ = std::make_unique<repo_cache::RepoCache>(repo_options);
  base_trees_ = std::make_unique<repo_cache::BaseTrees>(*repos_);
  storage_ = layers::make_overlay_storage({.store = directory_.path()});
  workspace::Options verbs;
  verbs.store = directory_.path();
  verbs.archive_directory = directory_.path() + "/archive";
  context_ = std::make_unique<workspace::Context>(workspace::Context{
      *store_, *repos_, *base_trees_, *registry_, *storage_, locks_, verbs, metrics_});
  watcher_ = std::make_unique<workspace::ExecWatcher>(*context_, active_);
  repositories_ = std::make_unique<workspace::Repositories>(*context_);
  repository_verbs_ = std::make_unique<workspace::RepositoryVerbs>(*context_, *repositories_);
  integrity_ = std::make_unique<workspace::IntegrityCheck>(*context_);
  put_away_ = std::make_unique<workspace::PutAway>(*context_, *repositories_, *integrity_);
  bring_back_ = std::make_unique<workspace::BringBack>(*context_, *repositories_, *integrity_);
  replica_ = std::make_unique<workspace::Replica>(*context_, active_, workspace::Replica::Rules{});
  workspaces_ = std::make_unique<workspace::Workspaces>(
      *context_, *repositories_, active_, *watcher_, *integrity_, *bring_back_, *replica_);
  execs_ = std::make_unique<workspace::Execs>(*context_, *workspaces_, active_, *watcher_);
  archives_ = std::make_unique<workspace::Archives>(*context_, *workspaces_, active_, *put_away_,
                                                    *bring_back_);
  spools_ = std::make_unique<workspace::ExportSpools>(*context_);
  flattening_ = std::make_unique<workspace::Flattening>(*context_, *repositories_, active_);
  gc_ = std::make_unique<workspace::Gc>(*context_, active_, workspaces_->leases(), *repositories_,
                                        *integrity_, *archives_, workspace::GcRules{});
  budgets_ =
      std::make_unique<workspace::Budgets>(*context_, *gc_, *spools_, workspace::BudgetLimits{});
  snapshots_ = std::make_unique<workspace::Snapshots>(*context_, *workspaces_, active_,
                                                      *flattening_, *integrity_, *budgets_);
  exports_ = std::make_unique<workspace::Exports>(*context_, *repositories_, *workspaces_,
                                                  *snapshots_, active_, *integrity_, *spools_);
  imports_ = std::make_unique<workspace::Imports>(*context_, *repositories_, *workspaces_,
                                                  *integrity_, *budgets_);
  moves_ = std::make_unique<workspace::Moves>(*context_, *workspaces_, *execs_, active_);
  comparison_ = std::make_unique<workspace::Comparison>(*context_, *workspaces_);
  best_of_driver_ = std::make_unique<workspace::BestOfDriver>(*context_, *workspaces_, *execs_,
                                                              *snapshots_, *comparison_);
  best_of_ =
      std::make_unique<workspace::BestOf>(*context_, *workspaces_, *snapshots_, *best_of_driver_);
  usage_ = std::make_unique<workspace::StoreUsage>(*context_);
  top_ = std::make_unique<workspace::Top>(*context_, active_, *watcher_);
  reconciler_ = std::make_unique<workspace::Reconciler>(*context_, *repositories_, *workspaces_,
                                                        active_, *watcher_);
  doctor_ = std::make_unique<workspace::Doctor>(*context_, *repositories_, *workspaces_, *watcher_,
                                                *reconciler_);
  quotas_ = std::make_unique<workspace::QuotaWatch>(*context_, active_, *watcher_,
                                                    workspace::QuotaWatch::Stop{});
  api_ =
      std::make_unique<Api>(Api{*context_,    *repository_verbs_, *workspaces_, *execs_, *archives_,
                                *exports_,    *imports_,          *snapshots_,  *moves_, *best_of_,
                                *comparison_, *events_,           *usage_,      *top_,   *doctor_,
                                *gc_,         *quotas_,           1 << 20,      {},      {}});
}

base::WorkspaceId Wired::make_workspace(const std::string& name, uint32_t owner) {
  state_db::NewWorkspace workspace;
  workspace.name = name;
  workspace.owner_uid = owner;
  workspace.repository =
      state_db::RepositoryTable(*store_).find_or_create({"https://x/a/b", "", "a/b"}).first;
  workspace.base_commit = std::string(40, 'a');
  workspace.branch = "moorage/" + name;
  workspace.backend = "lxc";
  workspace.image = "host";
  state_db::WorkspaceTable table(*store_);
  const auto id = table.create(workspace).id;
  table.set_ready(id);
  state_db::SandboxTable sandboxes(*store_);
  state_db::NewSandbox sandbox;
  sandbox.workspace = id;
  sandbox.backend = "lxc";
  sandbox.image = "host";
  sandboxes.set_running(sandboxes.create(sandbox).id, {});
  return id;
}

base::ExecId Wired::make_exec(base::WorkspaceId workspace, bool with_journal) {
  state_db::ExecTable table(*store_);
  state_db::ExecRequest request;
  request.workspace = workspace;
  request.sandbox = state_db::SandboxTable(*store_).live(workspace)->id;
  request.owner_uid = state_db::WorkspaceTable(*store_).get(workspace).owner_uid;
  request.argv = {"job"};
  request.directory = "/workspace";
  request.user = "user";
  const auto id = table.create(request).id;
  if (!with_journal) return id;
  const std::string path = workspace::journal_directory(context_->options, workspace, id);
  base::make_directories(path);
  base::open_file(path + "/output", O_WRONLY | O_CREAT | O_EXCL, 0600);
  watcher_->watch_exec(table.get(id), false);
  return id;
}

std::string Wired::journal_path(base::ExecId exec) {
  const auto row = state_db::ExecTable(*store_).get(exec);
  return workspace::journal_directory(context_->options, row.request.workspace, exec) + "/output";
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
  soon(
      [&] { return state_db::ExecTable(*store_).get(exec).state != state_db::ExecState::running; });
}

}  // namespace moorage::daemon
