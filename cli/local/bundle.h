// The git side of `create --from`: turns a directory into a bundle file, without the daemon. It has
// HEAD, the work that is not committed, and all branches and tags. History that a shallow or
// partial clone lacks is fetched by the caller's git from where he cloned; if that fails, a shallow
// checkout gives its current tree alone. The user's repository is only read: the new index and
// objects are in a temporary directory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/local/checkout.h"

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
  Written write(const std::vector<std::string>& tips_of_daemon) const;

  const std::string& head_commit() const { return head_; }
  const std::string& work_commit() const { return work_; }  // head and what is not committed
  const std::string& raw_commit() const { return raw_; }    // the same, byte for byte as on disk
  const std::vector<std::string>& notes() const { return notes_; }  // for the user

 private:
  GitCall in_repository(const std::string& input = {}) const;
  std::vector<std::string> with_callers_settings(std::vector<std::string> words) const;
  void make_repository();
  std::string commit_tree(const std::string& tree, const std::string& parent,
                          const std::string& message) const;
  bool complete_history();
  void take_refs(bool with_history);
  std::vector<std::string> known(const std::vector<std::string>& tips) const;

  std::string temporary_;  // removed at the end
  Checkout checkout_;
  std::string repository_;  // bare; borrows the objects of the checkout
  std::string origin_;
  std::string head_;
  std::string work_;
  std::string raw_;
  std::vector<Ref> refs_;  // sent with them
  std::vector<std::string> notes_;
};

}  // namespace moorage::cli
