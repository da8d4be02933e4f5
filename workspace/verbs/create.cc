#include "workspace/verbs/create.h"

#include "backends/registry.h"
#include "base/crash_point.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/snapshots.h"
#include "workspace/access/placement.h"
#include "workspace/chain/initial_files.h"
#include "workspace/chain/layer_life.h"
#include "workspace/context/free_space.h"
#include "workspace/sandbox/sandboxes.h"

namespace moorage::workspace {
namespace {

MOORAGE_CRASH_POINT(after_intent, "create.after_intent");
MOORAGE_CRASH_POINT(after_layer, "create.after_layer");
MOORAGE_CRASH_POINT(after_ready, "create.after_ready");

// "acme/My_Shop" -> "my-shop": a proposal, checked like any name from a user.
std::string proposed_name(const std::string& display) {
  std::string name;
  for (const char c : display.substr(display.find_last_of('/') + 1)) {
    const char lower = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool good = (lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9');
    if (good) {
      name += lower;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "work" : name.substr(0, 50);
}

// Each field is preceded by its length, so that two different requests never give the same text.
std::string request_hash(const CreateRequest& request) {
  std::string text;
  const auto add = [&](const std::string& part) {
    text += std::to_string(part.size()) + ":" + part;
  };
  for (const auto* part : {&request.name, &request.repo_url, &request.ref, &request.branch,
                           &request.backend, &request.image}) {
    add(*part);
  }
  if (request.import) {
    add(request.import->repo.str());
    add(request.import->head_commit);
    add(request.import->work_commit);
    if (request.import->raw_commit != request.import->work_commit)
      add("raw " + request.import->raw_commit);
  }
  if (!request.runtime.empty()) add("runtime " + request.runtime);
  add(policy_hash_text(request.policy));
  add(request.disposable ? "disposable" : "");
  if (request.team_gid) add("team " + std::to_string(*request.team_gid));
  for (const auto& [key, value] : request.labels) {
    add(key);
    add(value);
  }
  return base::sha256_hex(text);
}

// Backend, image and limits: from the request, else from the host's rules, else from the settings.
void place(Context& context, const CreateRequest& request, state_db::NewWorkspace& workspace) {
  const Options& options = context.options;
  const Placement placement(context, workspace.owner_uid, request.labels);
  const auto usual = placement.place_or({options.default_backend, "host", ""});
  workspace.backend = request.backend.empty() ? usual.backend : request.backend;
  workspace.image = request.image.empty() ? usual.image : request.image;
  workspace.runtime = request.runtime;
  // A runtime belongs to its backend.
  if (request.runtime.empty() && request.backend.empty()) workspace.runtime = usual.runtime;
  const state_db::Place place{workspace.backend, workspace.image, workspace.runtime};
  placement.check_backend_accepts(place);
  check_backend_accepts(context, place, {});
  workspace.policy.limits = placement.limits_or({.memory_bytes = options.memory_bytes,
                                                 .cpus = options.cpus,
                                                 .pids = options.pids,
                                                 .disk_bytes = options.disk_limit_bytes,
                                                 .disk_files = options.disk_limit_files});
  apply_policy(request.policy, workspace.policy);
  placement.check_limits(workspace.policy.limits);
  placement.check_network(placement.network_or(workspace.policy.network), workspace.backend);
}

bool is_commit_id(const std::string& text) {
  return text.size() == 40 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

// The repository, fetched from upstream. Skips the fetch for a full commit id that is cached: its
// meaning never changes.
state_db::RepositoryRow Create::repository_for(const Caller& caller, const CreateRequest& request,
                                               const Progress& progress) {
  if (request.import) return find_repository(context_.store, caller, request.import->repo);
  const Asker asker{caller.uid, request.labels};
  if (is_commit_id(request.ref)) {
    if (auto row = repositories_.find_commit(request.repo_url, asker, request.ref)) return *row;
  }
  return repositories_.ensure(request.repo_url, asker, progress);
}

WorkspaceView Create::create(const Caller& caller, const CreateRequest& request,
                             const Progress& progress) {
  check_request(request);
  state_db::WorkspaceTable table(context_.store);
  state_db::NewWorkspace workspace;
  workspace.owner_uid = caller.uid;
  if (!request.idempotency_key.empty()) {
    workspace.idempotency_key = request.idempotency_key;
    workspace.request_hash = request_hash(request);
    if (const auto made = table.find_made(workspace))
      return views_.made_before(caller, made->id, "created");
  }
  require_room(context_.options, "cannot create a workspace");
  if (!request.name.empty() && table.find_live(caller.uid, request.name)) {
    throw Error(Code::already_exists, "there is already a workspace '" + request.name + "'",
                "choose another name, or use it: moorage exec " + request.name + " -- ...");
  }
  place(context_, request, workspace);

  const auto repo = repository_for(caller, request, progress);
  admission_.admit(caller.uid, repo.id);
  const std::string repo_dir = repo_directory(repo.id);
  if (request.import) {
    stand_on_work(*request.import, repo_dir, workspace);
  } else {
    const auto resolved = resolve(caller, request, repo.id, progress);
    workspace.base_commit = resolved.commit;
    workspace.base_ref = resolved.ref;
  }
  workspace.repository = repo.id;
  workspace.disposable = request.disposable;
  workspace.team_gid = request.team_gid;
  workspace.labels = request.labels;
  const auto [created, guard] = stand_on_base(workspace, request, repo, progress);
  if (created.existed) return views_.made_before(caller, created.id, "created");
  after_intent.pass();

  const auto row = table.get(created.id);
  try {
    context_.storage.make_layer(row.layer);
    write_raw_files(row);
    write_git_files(context_, row);
    after_layer.pass();
    table.set_ready(row.id);
  } catch (const Error& error) {
    abandon(context_, row, error.message());
    throw;
  }
  after_ready.pass();
  base::log(base::LogLevel::info, "workspace.created",
            {{"ws", row.id}, {"name", row.name}, {"repo", repo.id}, {"commit", row.base_commit}});
  return views_.view(table.get(row.id));
}

// Fetches what the mirror lacks: a pull request, or a commit that no branch has any more.
repo_cache::ResolvedRef Create::resolve(const Caller& caller, const CreateRequest& request,
                                        base::RepoId repo, const Progress& progress) {
  const std::string directory = repo_directory(repo);
  std::optional<Error> missing;
  try {
    return context_.repos.resolve(directory, request.ref);
  } catch (const Error& error) {
    if (error.code() != Code::not_found || !repo_cache::RepoCache::can_fetch_more(request.ref))
      throw;
    missing = error;
  }
  try {
    repositories_.fetch_more(repo, request.repo_url, {caller.uid, request.labels}, request.ref,
                             progress);
  } catch (const Error& error) {
    if (error.code() != Code::not_found && error.code() != Code::unavailable) throw;
    throw Error(Code::not_found, missing->message() + " (" + error.message() + ")",
                missing->hint());
  }
  return context_.repos.resolve(directory, request.ref);
}

// Uncommitted work of the checkout belongs to the base, so no diff shows it as the agent's.
void Create::stand_on_work(const ImportedWork& import, const std::string& repo_dir,
                           state_db::NewWorkspace& workspace) const {
  const auto follow = [&](const std::string& commit, const std::string& parent,
                          const std::string& named) {
    const std::string found = context_.repos.resolve(repo_dir, commit).commit;
    if (found != parent && !context_.repos.is_child(repo_dir, found, parent)) {
      throw Error(Code::invalid_argument, named + " does not follow the commit before it",
                  "send the whole answer of POST /v1/repos/import");
    }
    return found;
  };
  const std::string head = context_.repos.resolve(repo_dir, import.head_commit).commit;
  workspace.base_commit = follow(import.work_commit, head, "import.work_commit");
  const std::string raw = follow(import.raw_commit, workspace.base_commit, "import.raw_commit");
  if (head != workspace.base_commit) workspace.head_commit = head;
  if (raw != workspace.base_commit) workspace.raw_commit = raw;
}

void Create::write_raw_files(const state_db::WorkspaceRow& row) const {
  if (row.raw_commit.empty()) return;
  const std::string layer = context_.storage.layer_path(row.layer);
  const base::Fd upper = base::open_directory(layer + "/tree/upper");
  if (context_.base_trees.write_raw_files(repo_directory(row.repository), row.base_commit,
                                          row.raw_commit, upper.get()) > 0)
    base::sync_file_system(layer);  // a repair makes the other files again, but not these
}

// Collection may remove an unused base tree in between: then make it again.
Create::Made Create::stand_on_base(state_db::NewWorkspace& workspace, const CreateRequest& request,
                                   const state_db::RepositoryRow& repo, const Progress& progress) {
  constexpr int kTries = 5;
  for (int attempt = 1; attempt <= kTries; ++attempt) {
    repositories_.ensure_base_tree(repo.id, workspace.base_commit, progress);
    if (auto created = insert(workspace, request, repo)) return *std::move(created);
  }
  throw Error(Code::conflict, "the base tree of " + repo.name + " was removed repeatedly",
              "try again");
}

// nullopt: the base tree is gone.
std::optional<Create::Made> Create::insert(state_db::NewWorkspace& workspace,
                                           const CreateRequest& request,
                                           const state_db::RepositoryRow& repo) {
  state_db::WorkspaceTable table(context_.store);
  // One transaction, as in `remove`: a repository cannot go while a workspace of it is created.
  return context_.store.transaction([&]() -> std::optional<Made> {
    if (state_db::RepositoryTable(context_.store).get(repo.id).state ==
        state_db::RepositoryState::evicted) {
      throw Error(Code::conflict, repo.name + " was removed meanwhile", "try again");
    }
    if (!state_db::BaseTreeTable(context_.store).find(repo.id, workspace.base_commit))
      return std::nullopt;
    workspace.name = request.name.empty()
                         ? table.free_name(workspace.owner_uid, proposed_name(repo.name))
                         : request.name;
    workspace.branch = request.branch.empty() ? "moorage/" + workspace.name : request.branch;
    Made made{table.create(workspace), base::KeyedMutex::Guard{}};
    if (!made.first.existed) made.second = hold_new(context_, made.first.id, "create");
    return made;
  });
}

}  // namespace moorage::workspace
