#include "workspace/chain/initial_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/os/atomic_file.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "base/os/process.h"
#include "base/os/xattr.h"
#include "repo_cache/repo_cache.h"
#include "repo_cache/workspace_git.h"
#include "state_db/tables/facts.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/sandboxes.h"
#include "workspace/chain/integrity.h"
#include "workspace/context/credentials.h"
#include "workspace/repositories/repositories.h"

namespace moorage::workspace {
namespace {

using base::check;

// A fact of the store (state_db/tables/facts.h): up to this id, all new workspaces are on the disk.
constexpr const char* kBirthsSynced = "births_synced";
constexpr uint16_t kSsh = 22;
constexpr size_t kMostHosts = 100;     // with rewritten ssh URLs
constexpr size_t kBirthsAtOnce = 100;  // checked in one sync

int64_t initial_files_synced(Context& context) {
  const auto known = state_db::find_fact(context.store, kBirthsSynced);
  return known ? std::stoll(*known) : 0;
}

void put(int directory, const std::string& name, const std::string& bytes, uint32_t owner) {
  base::AtomicFile file(directory, name, {.mode = 0644});
  file.write(bytes);
  check(fchown(file.fd(), owner, owner), "set the owner of " + name);
  file.commit();
}

// HEAD is the last file that a create writes; its name can reach the disk before its bytes do. A
// .git that is a whiteout, a file or an opaque directory was made by the agent.
bool was_cut(const std::string& upper_path) {
  if (!base::path_exists(upper_path)) return true;
  const base::Fd upper = base::open_directory(upper_path);
  struct stat status {};
  if (fstatat(upper.get(), ".git", &status, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
  const base::Fd git = base::try_open_directory_beneath(upper.get(), ".git");
  if (!git) return false;
  if (fstatat(git.get(), "HEAD", &status, AT_SYMLINK_NOFOLLOW) == 0)
    return S_ISREG(status.st_mode) && status.st_size == 0;
  return errno == ENOENT && !base::read_attribute(git.get(), "trusted.overlay.opaque");
}

// git ends the file with a line end, so a torn one is empty or lacks it. Keep anything else that an
// agent put in its place.
bool has_packed_refs(int git) {
  struct stat status {};
  if (fstatat(git, "packed-refs", &status, AT_SYMLINK_NOFOLLOW) != 0) return false;
  const base::Fd file = base::try_open_regular_beneath(git, "packed-refs", O_RDONLY);
  if (!file || fstat(file.get(), &status) != 0) return true;
  if (status.st_size == 0) return false;
  return base::read_at(file.get(), 1, static_cast<uint64_t>(status.st_size) - 1) == "\n";
}

// Unreadable ones do not fail the whole sync: their next use reports the error.
bool is_whole(Context& context, const state_db::WorkspaceRow& row) {
  try {
    return !needs_repair(context, row);
  } catch (const base::Error& error) {
    base::log(base::LogLevel::warning, "workspace.birth_not_seen",
              {{"ws", row.id}, {"error", error.message()}});
    return false;
  }
}

// The highest id such that all workspaces in (known, id] are complete and none is torn.
int64_t last_complete_initial_files(Context& context, int64_t known) {
  state_db::WorkspaceTable workspaces(context.store);
  const int64_t made = workspaces.last_made().value;
  const auto rows = workspaces.at_rest_after({known}, kBirthsAtOnce);
  for (const auto& row : rows) {
    if (row.id.value > made) break;
    if (row.state == state_db::WorkspaceState::ready && !is_whole(context, row))
      return row.id.value - 1;
  }
  return rows.size() < kBirthsAtOnce ? made : std::min(made, rows.back().id.value);
}

std::string packed_refs(Context& context, const state_db::WorkspaceRow& row) {
  const auto refs = context.repos.workspace_refs(repo_directory(row.repository));
  return repo_cache::with_branch(refs->packed_refs, "refs/heads/" + row.branch,
                                 state_db::began_at(row));
}

// Hosts of the credentials that the workspace may use: git inside asks them over https, whichever
// way the egress goes.
repo_cache::Rewritten rewritten_urls(Context& context, const state_db::WorkspaceRow& row) {
  repo_cache::Rewritten rewritten;
  for (const base::CredentialScope& scope : scopes_of(credentials_of(context.store, row))) {
    if (rewritten.size() >= kMostHosts) break;
    const bool is_key = scope.form == base::CredentialForm::ssh_key;
    const std::string at = (is_key ? scope.user : "git") + "@" + scope.host;
    auto& beginnings = rewritten[scope.host];
    if (is_key && scope.port != kSsh) {
      beginnings.insert("ssh://" + at + ":" + std::to_string(scope.port) + "/");
    } else {
      beginnings.insert(at + ":");
      beginnings.insert("ssh://" + at + "/");
    }
  }
  return rewritten;
}

bool has_file(int git, const char* name) {
  struct stat status {};
  return fstatat(git, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && status.st_size > 0;
}

std::string incoming_mark(Context& context, base::LayerId layer) {
  return context.storage.layer_path(layer) + "/incoming";
}

}  // namespace

void write_git_files(Context& context, const state_db::WorkspaceRow& row) {
  const uint32_t owner = context.options.disk_first_id + layers::kUser;
  const base::Fd upper =
      base::open_directory(context.storage.layer_path(row.layer) + "/tree/upper");
  if (mkdirat(upper.get(), ".git", 0755) != 0 && errno != EEXIST) base::throw_errno("create .git");
  const base::Fd git = base::open_directory_beneath(upper.get(), ".git");
  check(fchown(git.get(), owner, owner), "set the owner of .git");
  check(fchmod(git.get(), 0755), "set the mode of .git");  // despite the daemon's umask

  // During a repair the agent may already have packed branches of its own.
  if (!has_packed_refs(git.get())) put(git.get(), "packed-refs", packed_refs(context, row), owner);
  const auto rewritten = rewritten_urls(context, row);
  const auto repository = state_db::RepositoryTable(context.store).get(row.repository);
  const std::string origin = Repositories::origin_of(repository);
  // An imported checkout may name another origin than when its base tree was made.
  const bool own_config =
      !rewritten.empty() || (!has_upstream(repository.scope) && !origin.empty());
  if (own_config && !has_file(git.get(), "config"))
    put(git.get(), "config", repo_cache::git_config(origin, rewritten), owner);
  const bool own_index = !row.head_commit.empty() || !row.raw_commit.empty();
  if (own_index && !has_file(git.get(), "index")) {
    const std::string& head = row.head_commit.empty() ? row.base_commit : row.head_commit;
    put(git.get(), "index",
        context.base_trees.index_at(repo_directory(row.repository), row.base_commit, head,
                                    row.raw_commit),
        owner);
  }
  // HEAD last: its presence means that the files above are complete.
  put(git.get(), "HEAD", "ref: refs/heads/" + row.branch + "\n", owner);
}

void set_incoming_mark(Context& context, base::LayerId layer) {
  base::write_file_durable(incoming_mark(context, layer), "");
}

void remove_incoming_mark(Context& context, base::LayerId layer) {
  base::remove_tree(incoming_mark(context, layer));
  base::sync_directory(context.storage.layer_path(layer));
}

bool initial_files_complete(Context& context, const state_db::WorkspaceRow& row) {
  if (base::path_exists(incoming_mark(context, row.layer))) return false;
  return !was_cut(context.storage.layer_path(row.layer) + "/tree/upper") ||
         base::path_exists(context.options.store + "/workspaces/" + row.id.str() + "/journal");
}

void sync_all_initial_files(Context& context, const std::function<void()>& sync) {
  const int64_t known = initial_files_synced(context);
  const int64_t whole = last_complete_initial_files(context, known);
  sync();
  if (whole > known) state_db::set_fact(context.store, kBirthsSynced, std::to_string(whole));
}

bool initial_files_may_be_partial(Context& context, const state_db::WorkspaceRow& row) {
  if (row.id.value <= initial_files_synced(context)) return false;
  if (state_db::IntegrityTable(context.store).get(row.id).sealed_wall_ms > 0) return false;
  for (const auto& sandbox : state_db::SandboxTable(context.store).of_workspace(row.id)) {
    if (sandbox.started_wall_ms == 0) continue;
    if (sandbox.boot_id == base::boot_id()) return false;
  }
  return true;
}

bool needs_repair(Context& context, const state_db::WorkspaceRow& row) {
  const std::string upper = context.storage.layer_path(row.layer) + "/tree/upper";
  // A fork uses the git files of its parent layer.
  return was_cut(upper) && !state_db::LayerTable(context.store).get(row.layer).parent &&
         initial_files_may_be_partial(context, row);
}

void repair_initial_files(Context& context, const state_db::WorkspaceRow& row) {
  if (!needs_repair(context, row)) return clear_needs_repair(context, row.id);
  base::log(base::LogLevel::warning, "workspace.mended", {{"ws", row.id}, {"ly", row.layer}});
  try {
    context.storage.make_layer(row.layer);
    write_git_files(context, row);
    // sync_all_initial_files may record it as synced before the next power cut.
    sync_initial_files(context, row);
  } catch (base::Error& error) {
    error.add_context("cannot write the git files of " + row.name);
    set_needs_repair(context, row.id, error.message());
    throw;
  }
  clear_needs_repair(context, row.id);
}

void sync_initial_files(Context& context, const state_db::WorkspaceRow& row) {
  if (state_db::LayerTable(context.store).get(row.layer).parent ||
      state_db::IntegrityTable(context.store).get(row.id).sealed_wall_ms > 0) {
    return;
  }
  const base::Fd upper =
      base::open_directory(context.storage.layer_path(row.layer) + "/tree/upper");
  // Keep anything else that an agent put in the place of these.
  const base::Fd git = base::try_open_directory_beneath(upper.get(), ".git");
  if (!git) return;
  for (const char* name : {"packed-refs", "config", "index", "HEAD"}) {
    const base::Fd file = base::try_open_regular_beneath(git.get(), name, O_RDONLY);
    if (file) base::sync_file(file.get(), name);
  }
  base::sync_file(git.get(), ".git");
  base::sync_file(upper.get(), "tree/upper");
}

}  // namespace moorage::workspace
