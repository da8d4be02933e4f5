// Proves that a push does not rewrite history: by the commits between the two, whose names are
// their own hashes, so that nobody can invent them. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moorage::workspace {

struct CommitChain {
  bool has_new = false;  // the new commit is among them
  bool reaches = false;  // from it, by parents, to the old one
  int64_t commits = 0;   // found on the way
  std::string title;     // first line of the new commit's message: untrusted
};
// `batch`: untrusted, as git-cat-file(1) --batch writes objects; a cut end is ignored.
CommitChain read_commit_chain(std::string_view batch, const std::string& old_id,
                              const std::string& new_id);

}  // namespace moorage::workspace
