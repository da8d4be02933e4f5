#include "repo_cache/patch_text.h"

namespace moorage::repo_cache {

GitPatch patch_at(git_diff* diff, size_t index) {
  git_patch* patch = nullptr;
  check_git(git_patch_from_diff(&patch, diff, index), "compare a file");
  return GitPatch(patch);
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
