#include "repo_cache/tree_diff.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "base/log.h"
#include "repo_cache/commit_tree_state.h"
#include "repo_cache/diff_parts.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/memory_tree.h"
#include "repo_cache/text_cost.h"

namespace moorage::repo_cache {

namespace {

std::string change_name(const git_diff_delta& delta) {
  if (delta.status == GIT_DELTA_ADDED) return "added";
  if (delta.status == GIT_DELTA_DELETED) return "deleted";
  return git_oid_equal(&delta.old_file.id, &delta.new_file.id) ? "mode" : "modified";
}

const char* path_of(const git_diff_delta& delta) {
  return delta.status == GIT_DELTA_DELETED ? delta.old_file.path : delta.new_file.path;
}

uint64_t size_in(const ChangedTree& tree, const std::string& path, uint64_t kept) {
  const auto stand_in = tree.stand_ins.find(path);
  return stand_in == tree.stand_ins.end() ? kept : stand_in->second;
}

DiffStat stat_of(const Difference& difference, git_diff* diff, size_t index, const TextCost& cost) {
  const git_diff_delta* delta = git_diff_get_delta(diff, index);
  DiffStat stat;
  stat.path = path_of(*delta);
  stat.change = change_name(*delta);
  stat.bytes_before = size_in(difference.before, stat.path, cost.bytes_before());
  stat.bytes_after = size_in(difference.after, stat.path, cost.bytes_after());
  if (cost.fits() != TextCost::Fits::text) {
    stat.binary = true;
    return stat;
  }
  const GitPatch patch = patch_at(diff, index);
  stat.binary = (delta->flags & GIT_DIFF_FLAG_BINARY) != 0;
  if (patch) {
    size_t added = 0;
    size_t removed = 0;
    check_git(git_patch_line_stats(nullptr, &added, &removed, patch.get()), "count lines");
    stat.added = added;
    stat.removed = removed;
  }
  return stat;
}

// Writes a patch file by file. A file that cannot be in it is listed instead.
class PatchWriter {
 public:
  PatchWriter(const Differ& differ, const DiffLimits& limits, const Reserve& reserve,
              base::LookMemory& memory)
      : differ_(differ),
        limits_(limits),
        memory_(memory),
        listed_left_(take_for_list(memory, reserve)),
        text_(memory, memory.left_bytes() - std::min(memory.left_bytes(), reserve.next_part),
              limits.max_patch_bytes) {}

  // False: memory does not suffice for all its files at once; nothing was added.
  bool add(const Part& part) {
    const size_t size_before = text_.bytes.size();
    const size_t left_before = left_out_.size();
    const uint64_t listed_before = listed_left_;
    const GitDiff found = differ_.diff(part.difference, GIT_DIFF_SHOW_BINARY);
    GitDiff binary;  // the same in binary form, created if needed
    for (size_t i = 0; found && i < git_diff_num_deltas(found.get()); ++i) {
      if (!part.keeps(path_of(*git_diff_get_delta(found.get(), i)))) continue;
      if (add_file(part, found.get(), binary, i)) continue;
      text_.bytes.resize(size_before);
      left_out_.resize(left_before);
      listed_left_ = listed_before;
      return false;
    }
    for (const auto* tree : {&part.difference.before, &part.difference.after}) {
      for (const auto& [path, size] : tree->refused)
        if (part.keeps(path)) leave_out({path, LeftOut::kName, size});
    }
    return true;
  }

  Patch take() {
    const auto path_of = [](const LeftOut& file) { return std::tie(file.path, file.why); };
    std::sort(left_out_.begin(), left_out_.end(),
              [&](const LeftOut& a, const LeftOut& b) { return path_of(a) < path_of(b); });
    left_out_.erase(
        std::unique(left_out_.begin(), left_out_.end(),
                    [&](const LeftOut& a, const LeftOut& b) { return path_of(a) == path_of(b); }),
        left_out_.end());
    return {std::move(text_.bytes), std::move(left_out_)};
  }

 private:
  static uint64_t take_for_list(base::LookMemory& memory, const Reserve& reserve) {
    if (!memory.take(reserve.left_out)) throw_no_memory(memory);
    return reserve.left_out;
  }

  void leave_out(const LeftOut& file) {
    const uint64_t bytes = kLeftOutBytes + file.path.size();
    if (bytes <= listed_left_) {
      listed_left_ -= bytes;
    } else if (!memory_.take(bytes)) {  // it is in no list of changes
      throw_no_memory(memory_);
    }
    left_out_.push_back(file);
  }

  // For lack of room.
  void leave_out_for_size(const std::string& path, uint64_t before, uint64_t after, bool removed) {
    const uint64_t text = binary_text_bytes(before + after);
    const uint64_t memory = before + 2 * after + TextCost::binary_bytes(before, after) + text;
    const bool too_large = std::max(before, after) > limits_.max_file_bytes ||
                           text > limits_.max_patch_bytes || memory > base::kAllLooksBytes;
    leave_out(
        {path, too_large ? LeftOut::kTooLarge : LeftOut::kFull, std::max(before, after), removed});
  }

  // False: the part must be halved.
  bool add_file(const Part& part, git_diff* found, GitDiff& binary, size_t index) {
    const git_diff_delta* delta = git_diff_get_delta(found, index);
    const std::string path = path_of(*delta);
    const bool removed = delta->status == GIT_DELTA_DELETED;
    const auto& [before, after, paths] = part.difference;
    if (before.stand_ins.contains(path) || after.stand_ins.contains(path)) {
      if (part.memory.memory().crowded()) throw_no_memory(part.memory.memory());
      leave_out_for_size(path, size_in(before, path, 0), size_in(after, path, 0), removed);
      return true;
    }
    try {
      return add_readable(part, found, binary, index);
    } catch (const Error& error) {
      if (error.code() != Code::corrupted) throw;
      base::log(base::LogLevel::warning, "diff.unreadable",
                {{"path", path}, {"error", error.message()}});
      leave_out({path, LeftOut::kUnreadable, readable_size(delta->new_file), removed});
      return true;
    }
  }

  // 0: removed, or as unreadable as its former version.
  uint64_t readable_size(const git_diff_file& file) const {
    try {
      return git_oid_is_zero(&file.id) ? 0 : blob_size(differ_.repository().odb(), file.id);
    } catch (const Error& error) {
      if (error.code() != Code::corrupted) throw;
      return 0;
    }
  }

  bool add_readable(const Part& part, git_diff* found, GitDiff& binary, size_t index) {
    const git_diff_delta* delta = git_diff_get_delta(found, index);
    const std::string path = path_of(*delta);
    const TextCost cost(differ_.repository().odb(), *delta, limits_.max_file_bytes,
                        part.memory.memory());
    const bool removed = delta->status == GIT_DELTA_DELETED;
    if (part.may_halve && cost.lacks_room()) return false;
    std::optional<base::MemoryShare> binary_share;
    GitPatch patch;
    if (cost.fits() == TextCost::Fits::text) {
      patch = patch_at(found, index);
    } else if (part.memory.memory().crowded()) {
      throw_no_memory(part.memory.memory());
    } else if (cost.fits() == TextCost::Fits::binary && cost.take_binary(binary_share)) {
      constexpr uint32_t kBinary = GIT_DIFF_SHOW_BINARY | GIT_DIFF_FORCE_BINARY;
      if (!binary) binary = differ_.diff(part.difference, kBinary);
      patch = patch_at(binary.get(), index);  // the flag keeps the order
    } else {
      if (part.memory.memory().crowded()) throw_no_memory(part.memory.memory());
      leave_out_for_size(path, cost.bytes_before(), cost.bytes_after(), removed);
      return true;
    }
    if (patch && !print(*patch)) {
      leave_out_for_size(path, cost.bytes_before(), cost.bytes_after(), removed);
    } else if (part.difference.after.unfaithful.contains(path)) {
      leave_out({path, LeftOut::kConverted, cost.bytes_after()});
    }
    return true;
  }

  // False: no room for it.
  bool print(git_patch& patch) {
    const size_t size_before = text_.bytes.size();
    const int answer = git_patch_print(&patch, append_line, &text_);
    if (text_.full) {
      if (text_.memory.crowded()) throw_no_memory(text_.memory);
      text_.bytes.resize(size_before);
      text_.full = false;
      return false;
    }
    check_git(answer, "print the diff");
    return true;
  }

  const Differ& differ_;
  const DiffLimits& limits_;
  base::LookMemory& memory_;
  uint64_t listed_left_;  // taken, for files to be left out
  PatchText text_;
  std::vector<LeftOut> left_out_;
};

// Files that no tree of git can have.
void add_refused(const Part& part, std::vector<DiffStat>& result) {
  const auto& [before, after, paths] = part.difference;
  auto sizes = after.refused;
  sizes.insert(before.refused.begin(), before.refused.end());
  for (const auto& [path, size] : sizes) {
    if (!part.keeps(path)) continue;
    const auto old = before.refused.find(path);
    const auto now = after.refused.find(path);
    const bool was = old != before.refused.end(), is = now != after.refused.end();
    DiffStat stat{.path = path,
                  .binary = true,
                  .change = !was  ? "added"
                            : !is ? "deleted"
                                  : "modified",
                  .left_out = LeftOut::kName};
    if (was) stat.bytes_before = old->second;
    if (is) stat.bytes_after = now->second;
    result.push_back(std::move(stat));
  }
}

// False: memory does not suffice for all its files at once; nothing was added.
bool add_stats(const Differ& differ, const Part& part, const DiffLimits& limits,
               std::vector<DiffStat>& result) {
  const size_t size_before = result.size();
  const GitDiff found = differ.diff(part.difference, 0);
  for (size_t i = 0; found && i < git_diff_num_deltas(found.get()); ++i) {
    const git_diff_delta* delta = git_diff_get_delta(found.get(), i);
    if (!part.keeps(path_of(*delta))) continue;
    const TextCost cost(differ.repository().odb(), *delta, limits.max_file_bytes,
                        part.memory.memory());
    if (part.may_halve && cost.lacks_room()) {
      result.resize(size_before);
      return false;
    }
    DiffStat stat = stat_of(part.difference, found.get(), i, cost);
    if (!result.empty() && result.back().path == stat.path) {
      // A file that became a link, or vice versa, appears as deleted and added.
      stat.added += result.back().added;
      stat.removed += result.back().removed;
      stat.binary |= result.back().binary;
      stat.bytes_before += result.back().bytes_before;
      stat.bytes_after += result.back().bytes_after;
      stat.change = "type";
      result.pop_back();
    }
    result.push_back(std::move(stat));
  }
  add_refused(part, result);
  std::sort(result.begin() + static_cast<ptrdiff_t>(size_before), result.end(),
            [](const DiffStat& a, const DiffStat& b) { return a.path < b.path; });
  return true;
}

uint64_t memory_of(const DiffLimits& limits) {
  return base::kAllLooksBytes - std::min(base::kAllLooksBytes, limits.held_bytes);
}

}  // namespace

Patch CommitTree::patch(std::vector<Change> changes, const DiffLimits& limits) const {
  return patch_between({{}, std::move(changes), "", {}}, limits);
}

std::vector<DiffStat> CommitTree::stat(std::vector<Change> changes,
                                       const DiffLimits& limits) const {
  return stat_between({{}, std::move(changes), "", {}}, limits);
}

Patch CommitTree::patch_between(TwoTrees trees, const DiffLimits& limits) const {
  base::LookMemory memory(memory_of(limits));
  const Differ differ(state_->repository, state_->root.get());
  Parts parts(differ, std::move(trees), limits, Parts::Late::refused, memory);
  PatchWriter writer(differ, limits, parts.reserve(), memory);
  parts.run([&](const Part& part) { return writer.add(part); });
  return writer.take();
}

std::vector<DiffStat> CommitTree::stat_between(TwoTrees trees, const DiffLimits& limits) const {
  base::LookMemory memory(memory_of(limits));
  const Differ differ(state_->repository, state_->root.get());
  std::vector<DiffStat> result;
  Parts(differ, std::move(trees), limits, Parts::Late::by_size, memory).run([&](const Part& part) {
    return add_stats(differ, part, limits, result);
  });
  return result;
}

}  // namespace moorage::repo_cache
