#include "workspace/changes/change_set.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace moorage::workspace {
namespace {

using repo_cache::kModeExecutable;
using repo_cache::kModeFile;
using repo_cache::kModeSubmodule;
using repo_cache::kModeSymlink;

constexpr uint32_t kModeDirectory = 0040000;
constexpr size_t kMaxIgnoreBytes = 1 << 20;
constexpr uint64_t kItemBytes = 192;    // a node of each map with it, and heap overhead
constexpr uint64_t kPatternBytes = 64;  // one line of an ignore file, without its text
constexpr std::string_view kIgnoreFile = ".gitignore";

std::string join(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

// Memory while it waits to be visited, and in the ignore rules' cached answers.
uint64_t cost(const layers::MergedDirectory& directory) {
  uint64_t bytes = kItemBytes + 2 * directory.path.size();
  for (const layers::UpperDirectory& upper : directory.uppers)
    bytes += sizeof upper + upper.path.size();
  return bytes + (directory.base ? directory.base->size() : 0);
}

}  // namespace

ChangeSet::ChangeSet(layers::LayerWalk& walk, const repo_cache::CommitTree& base,
                     const repo_cache::CommitTree& commit, Remember remember,
                     const ChangeSetLimits& limits)
    : walk_(walk),
      base_(base),
      commit_(commit),
      remember_(remember),
      deadline_(std::chrono::steady_clock::now() + limits.walk_time),
      memory_(limits.max_memory_bytes) {
  walk_.charge(&memory_);
  ignore_.set_deadline(deadline_);
  // Visit parents before children, so that a child can undo what its parent says about the base.
  pending_.push_back(walk_.root());
  while (!pending_.empty() && !late()) {
    layers::MergedDirectory directory = std::move(pending_.back());
    pending_.pop_back();
    visit(directory);
  }
  walk_.charge(nullptr);
  find_deleted();
  if (&base_ != &commit_) add_differences();
}

bool ChangeSet::afford(uint64_t bytes) {
  if (memory_.take(bytes)) return true;
  truncated_ = true;
  return false;
}

bool ChangeSet::late() {
  if (std::chrono::steady_clock::now() < deadline_) return false;
  truncated_ = true;
  return true;
}

bool ChangeSet::tracked_directory(const std::string& path) const {
  if (path.empty()) return true;
  std::optional<repo_cache::TreeEntry> entry = commit_.lookup(path);
  return entry && entry->mode == kModeDirectory;
}

void ChangeSet::visit(const layers::MergedDirectory& directory) {
  layers::LayerWalk::Open open = walk_.open(directory);
  in_tracked_ = tracked_directory(directory.path);
  if (!in_tracked_) {
    // Like git: an untracked directory that contains a repository is one entry, without its
    // contents.
    for (const std::string& name : open.names()) {
      if (name != ".git") continue;
      std::optional<layers::MergedEntry> entry = open.entry(name);
      if (!entry || entry->kind == layers::EntryKind::absent) continue;
      hide(directory.path);
      if (remember_ == Remember::numbers) {
        ++counted_;
      } else if (afford(kItemBytes + directory.path.size())) {
        nested_.insert(directory.path + "/");
      }
      return;
    }
  }
  load_ignore_file(directory, open);
  for (const std::string& name : open.names()) {
    if (name == ".git") continue;  // the repository at the top; git ignores the name below it, too
    if (late()) return;
    if (std::optional<layers::MergedEntry> entry = open.entry(name))
      visit_entry(directory, name, *entry);
  }
}

void ChangeSet::visit_entry(const layers::MergedDirectory& parent, const std::string& name,
                            const layers::MergedEntry& entry) {
  if (entry.kind == layers::EntryKind::directory) return enter(parent, name, entry.directory);
  const std::string path = join(parent.path, name);
  hide(path);
  // Not a FIFO, a socket or a device: git cannot store them.
  if (entry.kind == layers::EntryKind::file || entry.kind == layers::EntryKind::symlink)
    add_file(entry, path);
}

void ChangeSet::add_file(const layers::MergedEntry& entry, const std::string& path) {
  const bool tracked = in_tracked_ && commit_.is_tracked(path);
  if (!tracked && ignore_.matches(path, false)) return;
  if (!tracked && remember_ == Remember::numbers) {
    ++counted_;
    return;
  }
  PresentFile file;
  file.source.layer = entry.source.layer;
  if (entry.source.path != path) file.source.path = entry.source.path;
  if (!afford(kItemBytes + path.size() + file.source.path.size())) return;
  file.mode = entry.kind == layers::EntryKind::symlink ? kModeSymlink
              : entry.executable                       ? kModeExecutable
                                                       : kModeFile;
  present_[path] = std::move(file);
}

void ChangeSet::enter(const layers::MergedDirectory& parent, const std::string& name,
                      layers::MergedDirectory directory) {
  const std::string path = directory.path;
  std::optional<repo_cache::TreeEntry> tracked;
  if (in_tracked_) tracked = commit_.lookup(path);
  if (tracked && tracked->mode == kModeSubmodule) {  // still a directory: count it as unchanged
    if (&base_ != &commit_ && afford(kItemBytes + path.size())) {
      submodules_.insert(path);
      hide(path);  // what the base has there
    }
    return;
  }
  std::optional<std::string> expected;
  if (parent.base) expected = join(*parent.base, name);
  const bool ignored = !(tracked && tracked->mode == kModeDirectory) && ignore_.matches(path, true);
  if (expected && directory.base != expected) hide(path);
  if (ignored) return;
  if (directory.base && directory.base != expected) rename(*directory.base, path);
  if (!afford(cost(directory))) return;
  pending_.push_back(std::move(directory));
}

// Hides everything that the base or a renamed parent directory has at or below this path.
void ChangeSet::hide(const std::string& path) {
  present_.erase(path);
  const std::string below = path + "/";
  auto first = present_.lower_bound(below);
  auto last = first;
  while (last != present_.end() && last->first.starts_with(below)) ++last;
  present_.erase(first, last);
  if (const auto below_it = base_.lookup(path)) hidden_.emplace(path, below_it->mode);
}

// Adds the files that moved along with a directory of the base.
void ChangeSet::rename(const std::string& from, const std::string& to) {
  hide(to);
  const std::vector<std::string> files = base_.files_below(from);
  for (const std::string& file : files) {
    if (!file.ends_with(kIgnoreFile) || file[file.size() - kIgnoreFile.size() - 1] != '/') continue;
    const std::string directory = file.substr(0, file.size() - kIgnoreFile.size() - 1);
    add_ignore_file(to + directory.substr(from.size()), base_.read_blob(file, kMaxIgnoreBytes));
  }
  for (const std::string& file : files) {
    std::optional<repo_cache::TreeEntry> entry = base_.lookup(file);
    if (!entry || entry->mode == kModeSubmodule) continue;  // shows an empty directory
    const std::string path = to + file.substr(from.size());
    if (!commit_.is_tracked(path) && ignore_.matches(path, false)) continue;
    if (!afford(kItemBytes + path.size() + file.size())) return;
    PresentFile moved;
    moved.from_base = true;
    moved.source.path = file;
    moved.mode = entry->mode;
    present_[path] = std::move(moved);
  }
}

// Current contents count, also of a new or changed ignore file. Like git, ignore a symlink.
void ChangeSet::load_ignore_file(const layers::MergedDirectory& directory,
                                 layers::LayerWalk::Open& open) {
  for (const std::string& name : open.names()) {
    if (name != kIgnoreFile) continue;
    std::optional<layers::MergedEntry> entry = open.entry(name);
    if (!entry) break;
    base::Fd fd;
    if (entry->kind == layers::EntryKind::file) fd = walk_.open_file(entry->source);
    add_ignore_file(directory.path, fd ? base::read_up_to(fd.get(), kMaxIgnoreBytes) : "");
    return;
  }
  if (!directory.base) return;
  const std::string path = join(*directory.base, std::string(kIgnoreFile));
  std::optional<repo_cache::TreeEntry> entry = base_.lookup(path);
  if (!entry || entry->mode == kModeSymlink || entry->size > kMaxIgnoreBytes) return;
  add_ignore_file(directory.path, base_.read_blob(path, kMaxIgnoreBytes));
}

void ChangeSet::add_ignore_file(const std::string& directory, const std::string& bytes) {
  const auto lines = static_cast<uint64_t>(std::count(bytes.begin(), bytes.end(), '\n')) + 1;
  const uint64_t cost = kItemBytes + directory.size() + bytes.size() + lines * kPatternBytes;
  if (afford(cost)) ignore_.add(directory, bytes);
}

void ChangeSet::find_deleted() {
  const auto look_at = [&](const std::string& file) {
    if (present_.contains(file) || submodules_.contains(file)) return;
    if (&base_ == &commit_ || commit_.is_tracked(file)) deleted_.insert(file);
  };
  for (const auto& [path, mode] : hidden_) {
    if (mode != kModeDirectory) {
      look_at(path);
      continue;
    }
    for (const std::string& file : base_.files_below(path)) look_at(file);
  }
}

bool ChangeSet::is_hidden(const std::string& path) const {
  for (size_t end = path.size(); end != std::string::npos; end = path.rfind('/', end - 1)) {
    if (hidden_.contains(path.substr(0, end))) return true;
  }
  return false;
}

// A file that the commit has differently from the base. No upper has it, unless as ignored.
void ChangeSet::add_difference(const std::string& path) {
  const auto below_it = base_.lookup(path);
  const auto tracked = commit_.lookup(path);
  const bool is_submodule = tracked && tracked->mode == kModeSubmodule;
  const bool is_tracked = tracked && tracked->mode != kModeDirectory;
  const bool shows = below_it && below_it->mode != kModeDirectory && !is_hidden(path);
  if (shows && below_it->mode == kModeSubmodule) {  // an empty directory
    if (is_tracked && !is_submodule && afford(kItemBytes + path.size())) deleted_.insert(path);
  } else if (shows) {
    if (!is_tracked && ignore_.matches(path, false)) return;
    if (!is_tracked && remember_ == Remember::numbers) {
      ++counted_;
      return;
    }
    if (!afford(kItemBytes + 2 * path.size())) return;
    PresentFile file;
    file.from_base = true;
    file.source.path = path;
    file.mode = below_it->mode;
    present_[path] = std::move(file);
  } else if (is_tracked && !submodules_.contains(path) && afford(kItemBytes + path.size())) {
    deleted_.insert(path);
  }
}

void ChangeSet::add_differences() {
  const bool whole = base_.each_difference(commit_, [&](std::string_view at) {
    const std::string path(at);
    if (late() || truncated_) return false;
    if (!present_.contains(path) && !deleted_.contains(path)) add_difference(path);
    return true;
  });
  if (!whole) truncated_ = true;
}

}  // namespace moorage::workspace
