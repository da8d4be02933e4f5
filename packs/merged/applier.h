// Applies packs of merged changes (finder.h) to the merged directories of a sandbox. A pack is
// hostile input: its paths have no "..", no empty part and no link in them, every directory is
// opened below the previous one by descriptor, owners are shifted into the sandbox's range,
// attributes are those of packs/attributes.h, devices and whiteouts are refused, and everything is
// counted against limits. An entry that breaks a rule is refused as corrupted, by name. setuid bits
// and file capabilities are kept: they name ids of the sandbox's own range.
//
// Applying twice equals applying once, and so does applying again after an interruption. A file
// that replaces another is written beside it and renamed, so a reader sees one or the other. The
// caller syncs, and must be the only applier of these directories.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/fd.h"
#include "packs/delta_pack.h"
#include "packs/merged/roots.h"
#include "packs/merged/sent_list.h"

namespace moorage::packs {

struct ApplyLimits {
  uint64_t entries = 10'000'000;  // removals included
  uint64_t bytes = 1ULL << 40;    // of data in files
  size_t path_bytes = kMaxMergedPathBytes;
  size_t depth = kMaxMergedDepth;
};

struct AppliedChanges {
  uint64_t entries = 0;
  uint64_t removals = 0;
  uint64_t bytes = 0;
  uint64_t cut = 0;  // entries without some user.*, which this file system cannot store
};

class MergedApplier : public PackVisitor {
 public:
  struct Options {
    std::vector<MergedRoot> roots;  // `uppers` are not used
    ApplyLimits limits = {};
    std::function<bool(std::string_view path)> allowed = {};  // empty: all
    std::function<void()> check_stopping = {};                // may throw to stop
    // After each complete entry and removal, for SentList::learn. Not for hard links.
    std::function<void(const std::string& path, LearnedEntry entry)> made = {};
  };
  // `options` outlives it.
  explicit MergedApplier(const Options& options);
  ~MergedApplier() override;

  void entry(const Node& entry) override;
  void growth(const std::string& path) override;  // refused
  void piece(uint64_t offset, std::string_view bytes) override;
  void end_pieces() override;
  void removal(const std::string& path) override;
  void finish();  // sets the times of the last directories
  const AppliedChanges& applied() const { return applied_; }
  // The last complete entry: FinderOptions::after.
  const std::string& last() const { return last_; }

 private:
  struct Level;
  struct Place {
    int directory = -1;
    std::string name;        // empty: a root itself
    Level* level = nullptr;  // of the directory
    const MergedRoot* root = nullptr;
  };
  struct OpenFile;
  std::optional<Place> find(const std::string& path, bool needed);
  bool open_level(const std::string& name);
  void close_levels(size_t kept);
  void count(const std::string& path);
  void check(const Node& entry, const MergedRoot& root) const;
  void update_directory(int fd, const Node& entry, const MergedRoot& root);
  bool make_directory(const Place& place, const Node& entry);
  void make_other(const Place& place, const Node& entry);
  void make_link(const Node& entry);
  void put_in_place(const Place& place, const std::string& made, const Node& entry);
  void complete(int fd, const Node& entry, const MergedRoot& root);
  void remove_at(const Place& place);
  void learn(const std::string& path, const std::string& digest, bool fresh);

  const Options& options_;
  std::vector<Level> levels_;  // nested open directories; the first is a root
  std::unique_ptr<OpenFile> file_;
  AppliedChanges applied_;
  std::string last_;
};

// Verifies the whole pack first, so nothing is applied of one that is damaged.
AppliedChanges apply_pack(const PackReader& pack, const MergedApplier::Options& options);

}  // namespace moorage::packs
