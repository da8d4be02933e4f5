// The files of a checkout as trees of git, made with an index and objects beside it. Its index only
// says which files need no reading; its flags (assume-unchanged, skip-worktree), filters and the
// caller's settings say nothing about what is on disk.
#pragma once

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "cli/local/checkout.h"

namespace moorage::cli {

class WorkTrees {
 public:
  // repository: an empty bare one that borrows the checkout's objects. head may be empty.
  WorkTrees(const Checkout& checkout, std::string repository, std::string head);

  // As `git add` inside a workspace stores the files, by the attributes among them. Without ignored
  // files and nested repositories.
  std::string write_stored();
  // The same files, byte for byte; call it after write_stored.
  std::string write_raw();
  // Whether a checkout by the attributes among the files may give other bytes than it stores.
  bool may_convert() const { return may_convert_; }
  const std::vector<std::string>& notes() const { return notes_; }  // for the user
  GitCall call(const std::string& input = {}) const;                // with their files in its index

 private:
  struct Entry {
    std::string mode;
    std::string oid;
    std::string stage;
    std::string path;
  };
  void configure();
  void seed_index();
  void clear_flags();
  std::vector<Entry> entries() const;
  // Files that git would not read because their times did not change, but whose bytes are not those
  // of their blob.
  std::vector<Entry> converted(const std::vector<Entry>& entries) const;
  std::set<std::string> by_attributes() const;
  bool mentions_conversions(const std::vector<Entry>& entries) const;
  void forget_times(const std::vector<Entry>& entries) const;
  void add_all();
  bool add_as_on_disk(const std::string& path) const;
  void drop_nested(const std::vector<Entry>& entries);
  void note_unkept();
  void note_submodules(const std::vector<Entry>& links);
  std::string write_tree() const;

  const Checkout& checkout_;
  const std::string repository_;
  const std::string head_;
  const std::string index_;
  const std::string promisor_;
  mutable std::unordered_map<std::string, std::string> blob_sizes_;  // by id, as git prints them
  bool may_convert_ = false;
  std::vector<std::string> notes_;
};

}  // namespace moorage::cli
