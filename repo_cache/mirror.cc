#include "repo_cache/mirror.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>

#include <set>
#include <thread>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/parts.h"
#include "repo_cache/git_handles.h"

namespace moorage::repo_cache {

namespace {

constexpr std::string_view kUpstream = "refs/upstream/";
constexpr std::string_view kKeep = "refs/keep/";

MOORAGE_CRASH_POINT(clone_fetched, "repo.clone.fetched");
MOORAGE_CRASH_POINT(clone_synced, "repo.clone.synced");
MOORAGE_CRASH_POINT(fetch_marked, "repo.fetch.marked");
MOORAGE_CRASH_POINT(fetch_done, "repo.fetch.done");

bool is_branch_or_tag(std::string_view ref) {
  return ref.starts_with("refs/heads/") || ref.starts_with("refs/tags/");
}

std::string refspec_of(const std::string& upstream_ref) {
  return std::string("+").append(upstream_ref).append(":").append(to_mirror_ref(upstream_ref));
}

// "<oid>\t<ref>" and "ref: <ref>\tHEAD", as printed by git ls-remote --symref.
UpstreamRefs parse_ls_remote(std::string_view text, uint32_t max_refs,
                             const std::set<std::string>& others) {
  UpstreamRefs result;
  while (!text.empty()) {
    std::string_view ref = base::take_until(text, '\n');
    if (ref.find('\t') == std::string_view::npos) continue;
    const std::string_view value = base::take_until(ref, '\t');
    if (ref == "HEAD" && value.starts_with("ref: ")) {
      result.head_ref = std::string(value.substr(5));
    } else if (value.size() == 64) {
      throw Error(Code::unsupported, "this repository has SHA-256 object ids",
                  "repositories with SHA-256 object ids are not supported yet");
    } else if ((is_branch_or_tag(ref) && !ref.ends_with("^{}")) ||
               others.contains(std::string(ref))) {
      result.oids.emplace(ref, value);
    }
    if (result.oids.size() > max_refs) {
      throw Error(Code::resource_exhausted, "this repository has more than " +
                                                std::to_string(max_refs) + " branches and tags");
    }
  }
  if (result.oids.count(result.head_ref)) return result;
  // HEAD names a branch that was never pushed. If there is only one branch, use that.
  result.head_ref.clear();
  for (const auto& [ref, oid] : result.oids) {
    if (!ref.starts_with("refs/heads/")) continue;
    if (!result.head_ref.empty()) return UpstreamRefs{std::move(result.oids), {}};
    result.head_ref = ref;
  }
  return result;
}

// Whether `after` reaches everything that `before` reaches. Tags are separate objects.
bool moved_forward(git_repository* repository, const std::string& before,
                   const std::string& after) {
  const git_oid from = parse_oid(before);
  const git_oid to = parse_oid(after);
  git_object* object = nullptr;
  if (git_object_lookup(&object, repository, &from, GIT_OBJECT_COMMIT) < 0) return false;
  const GitObject commit(object);
  return git_graph_descendant_of(repository, &to, &from) == 1;
}

}  // namespace

std::string keep_command(const std::string& oid) {
  return std::string("update refs/keep/").append(oid).append(" ").append(oid).append("\n");
}

std::string to_mirror_ref(const std::string& upstream_ref) {
  return std::string(kUpstream) + upstream_ref.substr(std::string_view("refs/").size());
}

MirrorLock::MirrorLock(const std::string& repo_directory, const Deadline& deadline) {
  base::make_directories(repo_directory);
  fd_ = base::open_file(repo_directory + "/lock", O_RDWR | O_CREAT, 0600);
  while (flock(fd_.get(), LOCK_EX | LOCK_NB) < 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) base::throw_errno("lock the mirror");
    deadline.left();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

Mirror::Mirror(const RepoCacheOptions& options, std::string repo_directory)
    : options_(options),
      git_(options),
      directory_(std::move(repo_directory)),
      git_directory_(directory_ + "/git"),
      new_directory_(directory_ + "/git.new"),
      broken_directory_(directory_ + "/git.broken") {}

UpstreamRefs Mirror::ask_upstream(const FetchTask& task) const {
  const std::string text =
      git_.run({"ls-remote", "--symref", "--", task.url.fetch}, task.deadline,
               {.protocol = std::string(scheme_name(task.url.scheme)), .access = &task.access},
               "list branches of " + task.url.display);
  return parse_ls_remote(text, options_.max_refs, other_refs());
}

UpstreamRefs Mirror::upstream_refs() const {
  const GitRepository repository = open_mirror(git_directory_);
  UpstreamRefs result;
  for (auto& [ref, oid] : list_references(repository.get())) {
    if (!ref.starts_with(kUpstream)) continue;
    result.oids.emplace("refs/" + ref.substr(kUpstream.size()), std::move(oid));
  }
  git_reference* raw = nullptr;
  if (git_reference_lookup(&raw, repository.get(), "refs/upstream/HEAD") == 0) {
    const GitReference head(raw);
    const char* target = git_reference_symbolic_target(head.get());
    if (target) result.head_ref = "refs/" + std::string(target).substr(kUpstream.size());
  }
  return result;
}

// None of a mirror that is damaged: it is rebuilt without them.
std::set<std::string> Mirror::other_refs() const {
  std::set<std::string> others;
  if (!exists()) return others;
  try {
    for (const auto& [ref, oid] : upstream_refs().oids)
      if (!is_branch_or_tag(ref)) others.insert(ref);
  } catch (const Error& error) {
    base::log(base::LogLevel::warning, "repo.refs_unreadable",
              {{"directory", directory_}, {"error", error.message()}});
  }
  return others;
}

std::vector<std::string> Mirror::tip_commits() const {
  const GitRepository repository = open_mirror(git_directory_);
  std::set<std::string> tips;
  for (const auto& [ref, hex] : list_references(repository.get())) {
    const git_oid oid = parse_oid(hex);
    const auto object = make_git<GitObject>("read " + ref, git_object_lookup, repository.get(),
                                            &oid, GIT_OBJECT_ANY);
    git_object* commit = nullptr;
    if (git_object_peel(&commit, object.get(), GIT_OBJECT_COMMIT) < 0)
      continue;  // a tag of a tree or blob
    tips.insert(format_oid(*git_object_id(commit)));
    git_object_free(commit);
  }
  return {tips.begin(), tips.end()};
}

void Mirror::initialize_at(const std::string& git_directory, const Deadline& deadline) const {
  // World-readable whatever the daemon's umask: sandboxes read objects/ through a read-only mount.
  // The store above it is 0700.
  git_.run({"init", "--quiet", "--bare", "--template=", "--initial-branch=main", "--shared=0644",
            "--", git_directory},
           deadline, {}, "make a repository");
}

void Mirror::initialize(const MirrorLock&, const Deadline& deadline) const {
  base::remove_tree(new_directory_);
  initialize_at(new_directory_, deadline);
  base::sync_file_system(new_directory_);
  base::rename_into_place(new_directory_, git_directory_);
  base::sync_directory(directory_);
}

void Mirror::fetch_into(const std::string& git_directory, const FetchTask& task,
                        const UpstreamRefs& upstream) const {
  std::string others;
  for (const auto& [ref, oid] : upstream.oids)
    if (!is_branch_or_tag(ref)) others += refspec_of(ref) + "\n";
  const GitRun run{.directory = git_directory,
                   .protocol = std::string(scheme_name(task.url.scheme)),
                   .access = &task.access,
                   .input = others,
                   .inherit_fds = {task.lock.fd()},
                   .max_file_bytes = options_.max_fetch_bytes,
                   .progress = task.progress,
                   .from_upstream = true};
  std::vector<std::string> words{"fetch",
                                 "--stdin",
                                 "--prune",
                                 "--no-tags",
                                 "--no-auto-gc",
                                 "--no-write-fetch-head",
                                 "--no-recurse-submodules",
                                 "--progress",
                                 "--",
                                 task.url.fetch,
                                 "+refs/heads/*:refs/upstream/heads/*",
                                 "+refs/tags/*:refs/upstream/tags/*"};
  git_.run(words, task.deadline, run, "fetch " + task.url.display);
}

void Mirror::set_head(const std::string& git_directory, const std::string& head_ref,
                      const Deadline& deadline) const {
  const GitRun run{.directory = git_directory};
  if (!head_ref.empty()) {
    git_.run({"symbolic-ref", "refs/upstream/HEAD", to_mirror_ref(head_ref)}, deadline, run,
             "record upstream's HEAD");
  } else {
    git_.try_run({"symbolic-ref", "--delete", "refs/upstream/HEAD"}, deadline,
                 run);  // may be missing
  }
}

void Mirror::pack_refs(const std::string& git_directory, const Deadline& deadline) const {
  git_.run({"pack-refs", "--all"}, deadline, {.directory = git_directory}, "pack references");
}

void Mirror::update_refs(const std::string& commands, const Deadline& deadline) const {
  if (commands.empty()) return;
  git_.run({"update-ref", "--stdin"}, deadline, {.directory = git_directory_, .input = commands},
           "update the mirror's references");
}

void Mirror::make_new_clone(const FetchTask& task, const UpstreamRefs& upstream) const {
  base::remove_tree(new_directory_);
  initialize_at(new_directory_, task.deadline);
  fetch_into(new_directory_, task, upstream);
  set_head(new_directory_, upstream.head_ref, task.deadline);
  pack_refs(new_directory_, task.deadline);
  clone_fetched.pass();
}

void Mirror::clone(const FetchTask& task, const UpstreamRefs& upstream) const {
  try {
    make_new_clone(task, upstream);
  } catch (const Error&) {
    base::remove_tree(new_directory_);
    throw;
  }
  base::sync_file_system(new_directory_);
  clone_synced.pass();
  base::rename_into_place(new_directory_, git_directory_);
  base::sync_directory(directory_);
}

// Keeps old tips before the fetch, in case of a crash; afterwards releases those that upstream only
// moved forward.
void Mirror::fetch(const FetchTask& task, const UpstreamRefs& upstream) const {
  const UpstreamRefs before = upstream_refs();
  std::set<std::string> kept;
  {
    const GitRepository repository = open_mirror(git_directory_);
    for (const auto& [ref, oid] : list_references(repository.get())) {
      if (ref.starts_with(kKeep)) kept.insert(oid);
    }
  }
  std::set<std::string> candidates;
  for (const auto& [ref, oid] : before.oids) {
    const auto now = upstream.oids.find(ref);
    if (now == upstream.oids.end() || now->second != oid) candidates.insert(oid);
  }
  std::string commands;
  for (const auto& oid : candidates) {
    if (!kept.count(oid)) commands += keep_command(oid);
  }
  base::write_file_durable(directory_ + "/fetching", "");
  update_refs(commands, task.deadline);
  fetch_marked.pass();
  fetch_into(git_directory_, task, upstream);
  set_head(git_directory_, upstream.head_ref, task.deadline);
  std::string gone;  // git prunes only branches and tags
  for (const auto& [ref, oid] : before.oids) {
    if (!is_branch_or_tag(ref) && !upstream.oids.contains(ref))
      gone += "delete " + to_mirror_ref(ref) + "\n";
  }
  update_refs(gone, task.deadline);
  fetch_done.pass();

  const UpstreamRefs after = upstream_refs();
  const GitRepository repository = open_mirror(git_directory_);
  std::set<std::string> lost;
  for (const auto& [ref, oid] : before.oids) {
    const auto now = after.oids.find(ref);
    if (now != after.oids.end() && now->second == oid) continue;
    if (now == after.oids.end() || !moved_forward(repository.get(), oid, now->second))
      lost.insert(oid);
  }
  commands.clear();
  for (const auto& oid : candidates) {
    if (!kept.count(oid) && !lost.count(oid)) commands += "delete refs/keep/" + oid + "\n";
  }
  for (const auto& oid : lost) commands += keep_command(oid);
  update_refs(commands, task.deadline);
  pack_refs(git_directory_, task.deadline);
  remove((directory_ + "/fetching").c_str());
}

void Mirror::fetch_more(const FetchTask& task, const std::string& wanted) const {
  const bool by_id = !wanted.starts_with("refs/");
  const UpstreamRefs before = upstream_refs();
  base::write_file_durable(directory_ + "/fetching", "");
  if (const auto known = before.oids.find(wanted); known != before.oids.end())
    update_refs(keep_command(known->second), task.deadline);
  const GitRun run{.directory = git_directory_,
                   .protocol = std::string(scheme_name(task.url.scheme)),
                   .access = &task.access,
                   .inherit_fds = {task.lock.fd()},
                   .max_file_bytes = options_.max_fetch_bytes,
                   .progress = task.progress,
                   .from_upstream = true};
  const auto fetched = git_.try_run({"fetch", "--no-tags", "--no-auto-gc", "--no-write-fetch-head",
                                     "--no-recurse-submodules", "--progress", "--", task.url.fetch,
                                     by_id ? wanted + ":refs/keep/" + wanted : refspec_of(wanted)},
                                    task.deadline, run);
  if (fetched.ok()) pack_refs(git_directory_, task.deadline);
  remove((directory_ + "/fetching").c_str());
  if (fetched.ok()) return;
  for (const char* refusal : {"find remote ref", "not our ref", "unadvertised object"}) {
    if (fetched.error.find(refusal) != std::string::npos)
      throw Error(Code::not_found, task.url.display + " has no " + wanted + ", or does not show it",
                  by_id ? "use a branch or tag that contains it" : "check the name");
  }
  throw git_failure(fetched, "fetch " + wanted + " of " + task.url.display);
}

}  // namespace moorage::repo_cache
