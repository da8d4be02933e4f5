// The git side of `create --from`: turns a directory into a bundle file, without the daemon. It has
// HEAD, the work that is not committed, and all branches and tags. The caller's git fetches the
// objects and commits that a partial or shallow clone lacks from where he cloned; if that fails, a
// shallow checkout gives the history that it has (history.h), and a partial one its files alone.
// The user's repository is only read: the new index and objects are in a temporary directory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/local/history.h"

namespace moorage::cli {

class LocalBundle {
 public:
  // Finds the repository. Throws Error(invalid_argument) when the directory cannot be imported.
  explicit LocalBundle(const std::string& directory);
  ~LocalBundle();
  LocalBundle(LocalBundle&&) = delete;

  const std::string& top() const { return checkout_.top; }  // absolute; the label of the import
  const std::string& origin() const { return origin_; }     // without credentials; may be empty
  // Makes the commits.
  void commit();
  // The bundle is `header` followed by the file from body_offset.
  struct Written {
    std::string path;
    std::string header;
    uint64_t body_offset = 0;
  };
  // A thin bundle, on top of the tips that the daemon has.
  Written write(const std::vector<std::string>& tips_of_daemon);

  // Of git, with all files of the commits in its index.
  const GitCall& in_tree() const { return in_tree_; }
  const std::string& head_commit() const { return head_; }
  const std::string& work_commit() const { return work_; }  // head and what is not committed
  const std::string& raw_commit() const { return raw_; }    // the same, byte for byte as on disk
  const std::vector<std::string>& notes() const { return notes_; }  // for the user

 private:
  GitCall in_repository(const std::string& input = {}) const;
  void make_repository();
  std::string commit_tree(const std::string& tree, const std::string& parent,
                          const std::string& message) const;
  std::vector<Ref> present_refs();
  std::string commit_files() const;
  void commit_work(const History& history);
  base::ProcessResult create(const std::string& path,
                             const std::vector<std::string>& known_tips) const;
  std::vector<std::string> known(const std::vector<std::string>& tips) const;

  std::string temporary_;  // removed at the end
  Checkout checkout_;
  std::string repository_;  // bare; borrows the objects of the checkout
  std::string origin_;
  std::string stored_;  // trees of its files
  std::string files_;
  GitCall in_tree_;
  bool may_convert_ = false;  // the first one by its attributes, in a checkout
  std::string head_;
  std::string work_;
  std::string raw_;
  std::vector<Ref> refs_;  // sent with them
  std::vector<std::string> notes_;
};

}  // namespace moorage::cli
