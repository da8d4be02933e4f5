// The distance of two trees, and the nearest of several (tree_listing.h, base_tree.h).
#include <algorithm>
#include <limits>
#include <string_view>

#include "repo_cache/base_tree.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/tree_listing.h"

namespace moorage::repo_cache {

namespace {

class Walk {
 public:
  Walk(git_repository* repository, uint64_t limit, const DifferenceVisitor& visit)
      : repository_(repository), limit_(limit), visit_(visit) {}

  // Either may be missing.
  void compare(const git_oid* from, const git_oid* to, const std::string& path) {
    if (++directories_ > limit_) complete_ = false;
    if (!complete_) return;
    const GitTree old_tree = from ? read_tree(repository_, *from) : GitTree();
    const GitTree new_tree = to ? read_tree(repository_, *to) : GitTree();
    const size_t old_count = old_tree ? git_tree_entrycount(old_tree.get()) : 0;
    const size_t new_count = new_tree ? git_tree_entrycount(new_tree.get()) : 0;
    // Both are in git's order of names; a tree out of order only makes the result wrong.
    for (size_t o = 0, n = 0; complete_ && (o < old_count || n < new_count);) {
      const git_tree_entry* before =
          o < old_count ? git_tree_entry_byindex(old_tree.get(), o) : nullptr;
      const git_tree_entry* after =
          n < new_count ? git_tree_entry_byindex(new_tree.get(), n) : nullptr;
      const int order = !before ? 1 : !after ? -1 : git_tree_entry_cmp(before, after);
      if (order <= 0) ++o;
      if (order >= 0) ++n;
      take(order <= 0 ? before : nullptr, order >= 0 ? after : nullptr, path);
    }
  }

  bool complete() const { return complete_; }

 private:
  static const git_oid* tree_of(const git_tree_entry* entry) {
    if (!entry || git_tree_entry_filemode(entry) != GIT_FILEMODE_TREE) return nullptr;
    return git_tree_entry_id(entry);
  }

  void take(const git_tree_entry* before, const git_tree_entry* after, const std::string& path) {
    if (before && after && git_oid_equal(git_tree_entry_id(before), git_tree_entry_id(after)) &&
        git_tree_entry_filemode(before) == git_tree_entry_filemode(after)) {
      return;
    }
    const git_oid* old_tree = tree_of(before);
    const git_oid* new_tree = tree_of(after);
    const std::string name = child_path(path, git_tree_entry_name(before ? before : after));
    if (((before && !old_tree) || (after && !new_tree)) && !visit_(name)) complete_ = false;
    if (complete_ && (old_tree || new_tree)) compare(old_tree, new_tree, name);
  }

  git_repository* repository_;
  const uint64_t limit_;
  const DifferenceVisitor& visit_;
  uint64_t directories_ = 0;
  bool complete_ = true;
};

}  // namespace

bool each_difference(git_repository* repository, const git_oid& from, const git_oid& to,
                     uint64_t limit, const DifferenceVisitor& visit) {
  Walk walk(repository, limit, visit);
  if (!git_oid_equal(&from, &to)) walk.compare(&from, &to, "");
  return walk.complete();
}

TreeDistance measure_distance(git_repository* repository, const git_oid& from, const git_oid& to,
                              uint64_t limit) {
  TreeDistance distance;
  distance.complete = each_difference(repository, from, to, limit, [&](std::string_view path) {
    distance.attributes |= path.substr(path.rfind('/') + 1) == ".gitattributes";
    return ++distance.files <= limit;
  });
  return distance;
}

std::optional<std::string> BaseTrees::nearest(const std::string& repo, const std::string& commit,
                                              const std::vector<Candidate>& candidates) const {
  const GitRepository repository = open_mirror(cache_.mirror_directory(repo));
  const GitTree to = find_commit_tree(repository.get(), commit);
  std::optional<std::string> found;
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const Candidate& candidate : candidates) {
    if (least == 0) break;
    const GitTree from = find_commit_tree(repository.get(), candidate.commit);
    const auto distance =
        measure_distance(repository.get(), *git_tree_id(from.get()), *git_tree_id(to.get()),
                         std::min(candidate.limit, least - 1));
    if (!distance.complete) continue;
    found = candidate.commit;
    least = distance.files;
  }
  return found;
}

}  // namespace moorage::repo_cache
