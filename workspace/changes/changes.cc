#include "workspace/changes/changes.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "base/background.h"
#include "base/error.h"
#include "repo_cache/repo_cache.h"

namespace moorage::workspace {
namespace {

using repo_cache::CommitTree;

constexpr int kMaxWalks = 3;
constexpr uint64_t kMaxPathBytes = 16 << 20;  // in one answer
constexpr uint32_t kModeDirectory = 0040000;

// The commits of a workspace.
struct Commits {
  Commits(const repo_cache::RepoCache& repos, const ChangeSource& source)
      : compared_id(source.base_commit), base(repos, source.repo_dir, source.base_commit) {
    // A mirror that was lost and cloned again may lack a commit that upstream rewrote.
    const std::string& commit = source.compared_with();
    if (commit == source.base_commit || !repos.has_objects(source.repo_dir, {commit})) return;
    moved.emplace(repos, source.repo_dir, commit);
    compared_id = commit;
  }
  CommitTree& compared() { return moved ? *moved : base; }

  std::string compared_id;
  CommitTree base;
  std::optional<CommitTree> moved;
};

// One pass over the layers: lists candidates, then compares them. The comparison may take as long
// as the walk.
class Look {
 public:
  Look(const ChangeSource& source, Commits& commits, ChangeSet::Remember remember,
       const ChangeSetLimits& limits)
      : base_(commits.base),
        commit_(commits.compared()),
        uppers_(source.uppers),
        walk_(source.uppers,
              [this](const std::string& path) {
                if (path.empty()) return true;
                auto entry = base_.lookup(path);
                return entry && entry->mode == kModeDirectory;
              }),
        set_(walk_, base_, commit_, remember, limits) {
    CommitTree& commit = commits.compared();
    for (const std::string& path : set_.deleted()) kinds_[path] = ChangeKind::deleted;
    for (const std::string& path : set_.nested()) kinds_[path] = ChangeKind::untracked;
    commit.set_deadline(std::chrono::steady_clock::now() + limits.walk_time);
    for (const auto& [path, file] : set_.present()) {
      const auto kind = compare(path, file);
      left_out_ = commit.late();
      if (left_out_) break;
      if (kind) kinds_[path] = *kind;
    }
    left_out_ |= commit.incomplete();
  }

  const std::map<std::string_view, ChangeKind>& kinds() const { return kinds_; }
  const std::set<std::string>& nested() const { return set_.nested(); }
  uint64_t memory_bytes() const { return set_.memory_bytes() + commit_.memory_bytes(); }
  // The layer file that this path shows; empty: none.
  std::string place_of(std::string_view path) const {
    const auto found = set_.present().find(std::string(path));
    if (found == set_.present().end() || found->second.from_base) return {};
    const auto at = place(found->first, found->second);
    return uppers_.at(at.layer) + "/" + at.path;
  }
  Change change(std::string path, ChangeKind kind) const {
    Change change{std::move(path), kind};
    const auto before = commit_.lookup(change.path);
    if (before && before->mode != kModeDirectory) change.mode_before = before->mode;
    const auto after = set_.present().find(change.path);
    if (after != set_.present().end()) change.mode_after = after->second.mode;
    return change;
  }
  uint64_t count() const { return kinds_.size() + set_.counted(); }
  bool changed_meanwhile() const { return walk_.changed_meanwhile(); }
  bool truncated() const { return walk_.truncated() || set_.truncated() || left_out_; }

  // Input for the mirror's diff. Contents are opened on demand, so this object must outlive them.
  std::vector<repo_cache::Change> contents(const Look* same_as = nullptr) {
    uint64_t path_bytes = 0;
    for (const auto& [path, kind] : kinds_) path_bytes += path.size();
    if (truncated() || path_bytes > kMaxPathBytes) {
      throw Error(Code::resource_exhausted, "too many changes for a patch",
                  "copy the files out with moorage cp, or list them in .gitignore");
    }
    std::vector<repo_cache::Change> changes;
    for (const auto& [path, kind] : kinds_) {
      if (path.ends_with('/')) continue;
      if (same_as != nullptr && shows_same(path, *same_as)) continue;
      changes.push_back(change_of(path, kind));
    }
    return changes;
  }

 private:
  repo_cache::Change change_of(std::string_view path, ChangeKind kind) {
    repo_cache::Change change;
    change.path = path;
    change.removed = kind == ChangeKind::deleted;
    if (change.removed) return change;
    const auto& [key, file] = *set_.present().find(change.path);
    change.mode = file.mode;
    change.content = [this, &key = key, &file = file] { return content(key, file); };
    return change;
  }

  static layers::UpperDirectory place(const std::string& path, const PresentFile& file) {
    return {file.source.layer, file.source.path.empty() ? path : file.source.path};
  }

  // Both show the same file of one frozen layer, so skip it unread; .gitattributes affects others.
  bool shows_same(std::string_view path, const Look& other) const {
    if (path.ends_with(".gitattributes")) return false;
    const std::string here = place_of(path);
    return !here.empty() && other.kinds_.contains(path) && here == other.place_of(path);
  }

  // nullopt: no change, or gone by now (which the walk notices).
  std::optional<ChangeKind> compare(const std::string& path, const PresentFile& file) {
    const auto tracked = commit_.lookup(path);
    if (!tracked || tracked->mode == kModeDirectory) return ChangeKind::untracked;
    const bool was_link = tracked->mode == repo_cache::kModeSymlink;
    const bool is_link = file.mode == repo_cache::kModeSymlink;
    if (tracked->mode == repo_cache::kModeSubmodule || was_link != is_link) {
      return ChangeKind::type;
    }
    std::optional<bool> same = same_content(path, file, *tracked);
    if (!same) return std::nullopt;
    if (!*same) return ChangeKind::modified;
    if (tracked->mode != file.mode) return ChangeKind::mode;
    return std::nullopt;
  }

  std::optional<bool> same_content(const std::string& path, const PresentFile& file,
                                   const repo_cache::TreeEntry& tracked) {
    if (file.from_base) {
      const auto moved = base_.lookup(file.source.path);
      return moved && moved->oid == tracked.oid;
    }
    if (file.mode == repo_cache::kModeSymlink) {
      const auto target = walk_.read_link(place(path, file));
      if (!target) return std::nullopt;
      return commit_.link_equals(path, *target);
    }
    const base::Fd fd = walk_.open_file(place(path, file));
    if (!fd) return std::nullopt;
    return commit_.content_equals(path, tracked.mode, fd.get());
  }

  repo_cache::Content content(const std::string& path, const PresentFile& file) {
    if (file.from_base) return repo_cache::Stored{base_.lookup(file.source.path).value().oid};
    if (file.mode == repo_cache::kModeSymlink) {
      if (auto target = walk_.read_link(place(path, file))) return *std::move(target);
    } else if (base::Fd fd = walk_.open_file(place(path, file))) {
      return fd;
    }
    throw Error(Code::conflict, path + " changed during reading", "try again");
  }

  const CommitTree& base_;    // below the layers
  const CommitTree& commit_;  // compared with
  const std::vector<std::string>& uppers_;
  layers::LayerWalk walk_;
  ChangeSet set_;
  std::map<std::string_view, ChangeKind> kinds_;  // the paths are set_'s
  bool left_out_ = false;
};

// Runs `use` on passes over the tree until one saw no change. Only the last one rethrows a
// conflict.
template <typename Use>
auto steady_look(const ChangeSource& source, Commits& commits, const ChangeSetLimits& limits,
                 const Use& use, ChangeSet::Remember remember = ChangeSet::Remember::paths) {
  for (int walk = 1;; ++walk) {
    Look look(source, commits, remember, limits);
    const bool last = walk == kMaxWalks;
    if (look.changed_meanwhile() && !look.truncated() && !last) continue;
    try {
      return use(look);
    } catch (const Error& error) {
      if (error.code() != Code::conflict || last) throw;
    }
  }
}

// Reading the contents may take as long as the walk.
repo_cache::DiffLimits diff_limits(const DiffScope& scope, const ChangeSetLimits& limits,
                                   uint64_t held_bytes) {
  return {.max_changed_bytes = scope.max_bytes,
          .max_patch_bytes = scope.max_bytes,
          .held_bytes = held_bytes,
          .deadline = std::chrono::steady_clock::now() + limits.walk_time};
}

template <typename Use>
auto two_looks(const repo_cache::RepoCache& repos, const ChangeSource& before,
               const ChangeSource& after, const ChangeSetLimits& limits, const Use& use) {
  Commits commits(repos, before);
  Commits others(repos, after);
  return steady_look(before, commits, limits, [&](Look& from) {
    return steady_look(after, others, limits,
                       [&](Look& to) { return use(commits, others, from, to); });
  });
}

repo_cache::TwoTrees two_trees(const Commits& before, const Commits& after, Look& from, Look& to,
                               const DiffScope& scope) {
  const bool same = before.compared_id == after.compared_id;
  return {.before = from.contents(same ? &to : nullptr),
          .after = to.contents(same ? &from : nullptr),
          .after_commit = same ? "" : after.compared_id,
          .only = scope.only};
}

// Repositories in the repository, which no diff goes into.
std::vector<std::string> nested_paths(const Look& look, const Look* before,
                                      const DiffScope& scope) {
  std::vector<std::string> paths;
  for (const std::string& path : look.nested()) {
    if (before != nullptr && before->nested().contains(path)) continue;
    if (repo_cache::is_selected(path, scope.only)) paths.push_back(path);
  }
  return paths;
}

Patch with_nested(Patch patch, const std::vector<std::string>& nested) {
  for (const std::string& path : nested)
    patch.left_out.push_back({path, repo_cache::LeftOut::kNested, 0});
  std::sort(patch.left_out.begin(), patch.left_out.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  return patch;
}

std::vector<DiffStat> with_nested(std::vector<DiffStat> stats,
                                  const std::vector<std::string>& nested) {
  for (const std::string& path : nested) {
    stats.push_back({.path = path,
                     .binary = true,
                     .change = "added",
                     .left_out = repo_cache::LeftOut::kNested});
  }
  std::sort(stats.begin(), stats.end(),
            [](const auto& a, const auto& b) { return a.path < b.path; });
  return stats;
}

}  // namespace

ChangeList Changes::status(const ChangeSource& source, size_t limit) const {
  const base::Background background;
  Commits commits(repos_, source);
  return steady_look(source, commits, limits_, [limit](Look& look) {
    ChangeList list;
    list.truncated = look.truncated();
    uint64_t path_bytes = 0;
    for (const auto& [path, kind] : look.kinds()) {
      path_bytes += path.size();
      if (list.changes.size() == limit || path_bytes > kMaxPathBytes) {
        list.truncated = true;
        break;
      }
      list.changes.push_back(look.change(std::string(path), kind));
    }
    return list;
  });
}

ChangeCount Changes::count(const ChangeSource& source) const {
  const base::Background background;
  Commits commits(repos_, source);
  return steady_look(
      source, commits, limits_,
      [](Look& look) {
        return ChangeCount{look.count(), look.truncated()};
      },
      ChangeSet::Remember::numbers);
}

Patch Changes::patch(const ChangeSource& source, const DiffScope& scope) const {
  const base::Background background;
  Commits commits(repos_, source);
  return steady_look(source, commits, limits_, [&](Look& look) {
    Patch patch = commits.compared().patch_between(
        {{}, look.contents(), {}, scope.only}, diff_limits(scope, limits_, look.memory_bytes()));
    return with_nested(std::move(patch), nested_paths(look, nullptr, scope));
  });
}

std::vector<DiffStat> Changes::stat(const ChangeSource& source, const DiffScope& scope) const {
  const base::Background background;
  Commits commits(repos_, source);
  return steady_look(source, commits, limits_, [&](Look& look) {
    auto stats = commits.compared().stat_between({{}, look.contents(), {}, scope.only},
                                                 diff_limits(scope, limits_, look.memory_bytes()));
    return with_nested(std::move(stats), nested_paths(look, nullptr, scope));
  });
}

Patch Changes::patch(const ChangeSource& before, const ChangeSource& after,
                     const DiffScope& scope) const {
  const base::Background background;
  return two_looks(repos_, before, after, limits_,
                   [&](Commits& commits, const Commits& others, Look& from, Look& to) {
                     Patch patch = commits.compared().patch_between(
                         two_trees(commits, others, from, to, scope),
                         diff_limits(scope, limits_, from.memory_bytes() + to.memory_bytes()));
                     return with_nested(std::move(patch), nested_paths(to, &from, scope));
                   });
}

std::vector<DiffStat> Changes::stat(const ChangeSource& before, const ChangeSource& after,
                                    const DiffScope& scope) const {
  const base::Background background;
  return two_looks(repos_, before, after, limits_,
                   [&](Commits& commits, const Commits& others, Look& from, Look& to) {
                     auto stats = commits.compared().stat_between(
                         two_trees(commits, others, from, to, scope),
                         diff_limits(scope, limits_, from.memory_bytes() + to.memory_bytes()));
                     return with_nested(std::move(stats), nested_paths(to, &from, scope));
                   });
}

}  // namespace moorage::workspace
