// The git side of `create --from`: turns a directory into a bundle file, without the daemon. Takes
// a checkout, a linked worktree, a subdirectory (meaning the whole repository), a repository
// without commits, and a plain directory (with an initial commit as HEAD). A shallow checkout gives
// its current tree alone, because its history cannot be bundled. The user's repository is only
// read: the new index and objects are in a temporary directory.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace moorage::cli {

class LocalBundle {
 public:
  // Finds the repository. Throws Error(invalid_argument) when the directory cannot be imported.
  explicit LocalBundle(const std::string& directory);
  ~LocalBundle();
  LocalBundle(LocalBundle&&) = delete;

  const std::string& top() const { return top_; }  // absolute; the label of the import
  // Makes the two commits.
  void commit();
  // The bundle is `header` followed by the file from body_offset.
  struct Written {
    std::string path;
    std::string header;
    uint64_t body_offset = 0;
  };
  // A thin bundle, on top of the tips that the daemon has.
  Written write(const std::vector<std::string>& tips_of_daemon) const;

  const std::string& head_commit() const { return head_; }
  const std::string& work_commit() const { return work_; }
  const std::vector<std::string>& notes() const { return notes_; }  // for the user

 private:
  using Environment = std::map<std::string, std::string>;
  std::string git(const std::vector<std::string>& words, const Environment& more) const;
  bool find_repository(const std::string& directory);
  void make_plain_repository();
  Environment in_work_tree() const;
  void seed_index();
  std::string commit_tree(const std::string& tree, const std::string& parent,
                          const std::string& message);
  Written with_both_refs(const std::string& path) const;

  std::string temporary_;  // removed at the end
  std::string top_;
  std::string git_dir_;  // the user's, or a temporary one for a plain directory
  std::string objects_;  // of git_dir_
  bool plain_ = false;
  std::string head_;
  std::string work_;
  std::vector<std::string> notes_;
};

}  // namespace moorage::cli
