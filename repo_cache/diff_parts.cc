#include "repo_cache/diff_parts.h"

#include <algorithm>

#include "base/error.h"

namespace moorage::repo_cache {

namespace {

constexpr const char* kLookAt =
    "view the summary (--stat), or copy large files out with cp, and remove them";
constexpr uint64_t kPartBytes = 16 << 20;   // of contents, for more than one file
constexpr uint64_t kAllBytes = 1 << 30;     // of all contents: bounds the time to read them
constexpr uint64_t kChangeBytes = 256;      // in memory, with its name twice
constexpr uint64_t kSpareBytes = 64 << 10;  // for names that no list of changes has

bool is_below(std::string_view path, std::string_view root) {  // or the same
  return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
}

}  // namespace

bool is_selected(std::string_view path, const std::vector<std::string>& only) {
  if (only.empty()) return true;
  return std::any_of(only.begin(), only.end(),
                     [path](const std::string& root) { return is_below(path, root); });
}

Difference Differ::difference(TwoTrees trees, const AttributeChanges& changed,
                              const DiffLimits& limits, DiffMemory& memory) const {
  Difference found;
  GitTree other;
  if (trees.after_commit.empty()) {
    found.paths = paths_of(trees.before);
    found.paths.merge(paths_of(trees.after));
  } else {  // all paths: the commits differ, too
    other = find_commit_tree(repository_.get(), trees.after_commit);
  }
  found.before = apply_changes(repository_, root_, std::move(trees.before), changed.before, limits,
                               StandIn::before, memory);
  found.after = apply_changes(repository_, other ? other.get() : root_, std::move(trees.after),
                              changed.after, limits, StandIn::after, memory);
  return found;
}

GitDiff Differ::diff(const Difference& difference, uint32_t flags) const {
  git_tree* before = difference.before.tree.get();
  git_tree* after = difference.after.tree.get();
  if (git_oid_equal(git_tree_id(before), git_tree_id(after))) return nullptr;
  std::vector<char*> pathspec;
  pathspec.reserve(difference.paths.size());
  for (const std::string& path : difference.paths)
    pathspec.push_back(const_cast<char*>(path.c_str()));
  git_diff_options options = GIT_DIFF_OPTIONS_INIT;
  options.flags = flags | GIT_DIFF_DISABLE_PATHSPEC_MATCH;
  options.pathspec = {pathspec.data(), pathspec.size()};
  options.id_abbrev = GIT_OID_HEXSZ;  // git apply --binary needs whole ids
  return make_git<GitDiff>("compare two commits", git_diff_tree_to_tree, repository_.get(), before,
                           after, &options);
}

// The paths to compare. Without them libgit2 walks both trees whole (45 ms for 78,635 files). A
// file replaced by a directory changes although the list lacks it.
std::set<std::string> Differ::paths_of(const std::vector<Change>& changes) const {
  std::set<std::string> paths;
  std::set<std::string> seen;
  for (const Change& change : changes) {
    paths.insert(change.path);
    for (size_t slash = change.path.find('/'); slash != std::string::npos;
         slash = change.path.find('/', slash + 1)) {
      const std::string parent = change.path.substr(0, slash);
      if (!seen.insert(parent).second) continue;
      const GitTreeEntry entry = entry_at(root_, parent);
      if (entry && git_tree_entry_type(entry.get()) != GIT_OBJECT_TREE) paths.insert(parent);
    }
  }
  return paths;
}

Parts::Parts(const Differ& differ, TwoTrees trees, const DiffLimits& limits, Late late,
             base::LookMemory& memory)
    : differ_(differ),
      trees_(std::move(trees)),
      limits_(limits),
      late_(late),
      memory_(memory),
      left_(kAllBytes) {
  attributes_ = {attributes_among(trees_.before), attributes_among(trees_.after)};
  for (auto* changes : {&trees_.before, &trees_.after}) {
    std::erase_if(*changes, [this](const Change& change) { return !matters(change.path); });
    std::sort(changes->begin(), changes->end(),
              [](const Change& a, const Change& b) { return a.path < b.path; });
    for (const Change& change : *changes) {
      if (!memory.take(kChangeBytes + 2 * change.path.size())) throw_no_memory(memory);
      names_.push_back(change.path);
    }
  }
  std::sort(names_.begin(), names_.end());
  names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
}

Reserve Parts::reserve() const {
  constexpr uint64_t kNameBytes = 200;  // for each byte of a name, in both trees: mostly slashes
  Reserve reserve;
  for (const std::string& name : names_) {
    reserve.left_out += kLeftOutBytes + name.size();
    reserve.next_part = std::max<uint64_t>(reserve.next_part, kNameBytes * name.size());
  }
  reserve.next_part += kSpareBytes;
  return reserve;
}

void Parts::run(const Use& use) {
  if (!trees_.after_commit.empty()) {
    DiffMemory memory = begin();
    const auto whole = differ_.difference(std::move(trees_), attributes_, limits_, memory);
    use({whole, memory, [this](const std::string& path) { return selected(path); }});
    return;
  }
  for (size_t first = 0; first < names_.size(); first += limits_.part_files)
    part(first, std::min(names_.size(), first + limits_.part_files), use);
}

// Contents get the memory that the lists and the text leave.
DiffMemory Parts::begin() const {
  const uint64_t left = memory_.left_bytes();
  return DiffMemory(differ_.repository(), memory_, left - std::min(left, kSpareBytes / 2));
}

// A file at "d" decides about a selected "d/x".
bool Parts::matters(std::string_view path) const {
  if (selected(path)) return true;
  return std::any_of(trees_.only.begin(), trees_.only.end(),
                     [path](const std::string& root) { return is_below(root, path); });
}

void Parts::part(size_t first, size_t last, const Use& use) {
  if (done(first, last, use)) return;
  const size_t middle = first + (last - first) / 2;
  part(first, middle, use);
  part(middle, last, use);
}

bool Parts::done(size_t first, size_t last, const Use& use) {
  if (std::chrono::steady_clock::now() > limits_.deadline) {
    if (late_ == Late::refused)
      throw Error(Code::resource_exhausted, "the comparison takes too long", kLookAt);
    left_ = 0;  // the rest by size only
  }
  const bool may_halve = last - first > 1 && left_ >= kPartBytes;
  DiffMemory memory = begin();
  const auto found = difference(first, last, may_halve, memory);
  if (!found) return false;
  // Files replaced by a directory, or below a directory replaced by a file, are in no list.
  std::vector<std::string> unnamed;
  const auto keeps = [&](const std::string& path) {
    if (!selected(path)) return false;
    const auto named = std::lower_bound(names_.begin(), names_.end(), path);
    if (named == names_.end() || *named != path) {
      if (!unnamed_.insert(path).second) return false;
      unnamed.push_back(path);
      return true;
    }
    const auto at = static_cast<size_t>(named - names_.begin());
    return first <= at && at < last;
  };
  if (!use({*found, memory, keeps, may_halve})) {
    for (const auto& path : unnamed) unnamed_.erase(path);
    return false;
  }
  left_ -= std::min(left_, found->before.bytes + found->after.bytes);
  return true;
}

// Empty: it needs too much memory at once.
std::optional<Difference> Parts::difference(size_t first, size_t last, bool may_halve,
                                            DiffMemory& memory) const {
  DiffLimits limits = limits_;
  limits.max_changed_bytes =
      std::min({left_, limits_.max_changed_bytes, last - first > 1 ? kPartBytes : left_});
  TwoTrees some{among(trees_.before, first, last), among(trees_.after, first, last), {}, {}};
  try {
    auto found = differ_.difference(std::move(some), attributes_, limits, memory);
    const bool whole = found.before.stand_ins.empty() && found.after.stand_ins.empty();
    if (whole || !may_halve) return found;
  } catch (const Error& error) {
    if (!may_halve || error.code() != Code::resource_exhausted) throw;
  }
  return std::nullopt;
}

std::vector<Change> Parts::among(const std::vector<Change>& changes, size_t first,
                                 size_t last) const {
  const auto before = [](const Change& change, const std::string& path) {
    return change.path < path;
  };
  const auto begin = std::lower_bound(changes.begin(), changes.end(), names_[first], before);
  if (last == names_.size()) return {begin, changes.end()};
  return {begin, std::lower_bound(begin, changes.end(), names_[last], before)};
}

}  // namespace moorage::repo_cache
