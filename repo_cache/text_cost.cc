#include "repo_cache/text_cost.h"

#include <algorithm>
#include <string_view>

#include "repo_cache/memory_tree.h"

namespace moorage::repo_cache {
namespace {

constexpr size_t kLookedAtForNul = 8000;  // by libgit2, and by git

bool has_content(const git_diff_file& file) {
  return !git_oid_is_zero(&file.id) && file.mode != GIT_FILEMODE_COMMIT;
}

uint64_t size_of(git_odb* odb, const git_diff_file& file) {
  return has_content(file) ? blob_size(odb, file.id) : 0;
}

// nullopt: binary.
std::optional<uint64_t> lines_of(git_odb* odb, const git_diff_file& file) {
  if (!has_content(file)) return 0;
  const GitOdbObject object = read_object(odb, file.id);
  const std::string_view bytes = content_of(object);
  if (bytes.substr(0, kLookedAtForNul).find('\0') != std::string_view::npos) return std::nullopt;
  return static_cast<uint64_t>(std::count(bytes.begin(), bytes.end(), '\n')) + 1;
}

}  // namespace

TextCost::TextCost(git_odb* odb, const git_diff_delta& delta, uint64_t max_file_bytes,
                   base::LookMemory& memory)
    : odb_(odb),
      delta_(delta),
      memory_(memory),
      before_(size_of(odb, delta.old_file)),
      after_(size_of(odb, delta.new_file)) {
  if (std::max(before_, after_) > max_file_bytes) return;
  contents_.emplace(memory, before_ + after_);
  if (!*contents_) return;
  const auto count = lines();
  if (!count) return;
  lines_bytes_ = *count * kDiffLineBytes;
  lines_.emplace(memory, lines_bytes_);
}

std::optional<uint64_t> TextCost::lines() const {
  if (git_oid_equal(&delta_.old_file.id, &delta_.new_file.id)) return 0;  // only the mode differs
  const auto before = lines_of(odb_, delta_.old_file);
  if (!before) return std::nullopt;
  const auto after = lines_of(odb_, delta_.new_file);
  if (!after) return std::nullopt;
  return *before + *after;
}

TextCost::Fits TextCost::fits() const {
  if (!contents_ || !*contents_) return Fits::not_at_all;
  return lines_ && *lines_ ? Fits::text : Fits::binary;
}

bool TextCost::lacks_room() const {
  if (contents_ && !*contents_) return true;
  return lines_ && !*lines_ && lines_bytes_ <= base::kAllLooksBytes / 2;
}

// Memory for deflating both into growing strings, and for a delta of each from the other: an index
// (24 bytes per 16 bytes) and the delta.
uint64_t TextCost::binary_bytes(uint64_t before, uint64_t after) {
  const uint64_t both = before + after;
  return before && after ? 3 * both : both + both / 2;
}

bool TextCost::take_binary(std::optional<base::MemoryShare>& share) const {
  share.emplace(memory_, binary_bytes(before_, after_));
  return static_cast<bool>(*share);
}

GitPatch patch_at(git_diff* diff, size_t index) {
  return make_git<GitPatch>("compare a changed file", git_patch_from_diff, diff, index);
}

int append_line(const git_diff_delta* delta, const git_diff_hunk*, const git_diff_line* line,
                void* payload) {
  auto& text = *static_cast<PatchText*>(payload);
  // For a binary file with only a changed mode, libgit2 prints "Binary files differ", which git
  // apply refuses.
  if (line->origin == GIT_DIFF_LINE_BINARY &&
      git_oid_equal(&delta->old_file.id, &delta->new_file.id)) {
    return 0;
  }
  if (!text.make_room(line->content_len + 1)) {
    text.full = true;
    return GIT_EUSER;
  }
  const char origin = line->origin;
  if (origin == GIT_DIFF_LINE_CONTEXT || origin == GIT_DIFF_LINE_ADDITION ||
      origin == GIT_DIFF_LINE_DELETION) {
    text.bytes += origin;
  }
  text.bytes.append(line->content, line->content_len);
  return 0;
}

}  // namespace moorage::repo_cache
