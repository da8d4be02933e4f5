// The state of a sandbox's merged directories that the receiver knows: a file with a line for each
// entry, in the order of the walk. A round reads it beside the walk and writes the next one, so
// memory does not grow with a tree. The round counts only after commit(): call it once the pack is
// safe, that is, would be sent again after a crash. Without its list a finder cannot know which
// removals to send, so a lost list means: start over from a fresh base.
//
// Lines: "path NUL inode change-time time-of-check size flags digest LF".
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/fd.h"

namespace moorage::packs {

struct SentEntry {
  std::string path;
  uint64_t inode = 0;
  int64_t changed_ns = 0;
  int64_t looked_ns = 0;
  uint64_t size = 0;
  char type = 'f';       // f, d, l (symlink), o (other), w (whiteout: not there)
  bool whole = false;    // a directory that was sent with all its contents: opaque or redirected
  std::string digest{};  // of an entry in doubt; empty: unknown
  bool learned = false;  // not of the list: an applier made it since
};

// So no reference of a git repository arrives without its objects.
inline constexpr std::string_view kWalkedLast = "objects";

// Order of the walk: a directory before its contents, names by their bytes, "objects" last.
int compare_in_walk(std::string_view one, std::string_view other);

// An entry that an applier made or removed in the walked directories (applier.h), so that the next
// round does not send it back. Only in memory: after a restart it is sent back once.
struct LearnedEntry {
  std::string digest{};
  bool removed = false;
  bool fresh = false;  // a directory made anew: it hides nothing that the receiver has
};

class SentList {
 public:
  SentList();  // remembers nothing: for a tree that is sent once
  // Files NAME, NAME.1 and NAME.2 of a directory that the sandbox cannot reach; it stays open.
  SentList(int directory, std::string name);
  ~SentList();
  SentList(SentList&&) = delete;

  bool exists() const;
  // The last round's list replaces the previous one. Not synced: a lost commit is sent again.
  void commit();
  void remove();  // everything
  void learn(const std::string& path, LearnedEntry entry);

  // For the finder: a round of passes, each along the entries in order.
  void start_round();
  void start_pass();
  // The entry of this path, after passed_over() has returned all before it. It and next_below()
  // also return learned entries that the list does not have, in the first pass.
  std::optional<SentEntry> passed_over(std::string_view path);
  std::optional<SentEntry> arrive(std::string_view path);
  std::optional<SentEntry> next_below(std::string_view path);
  const LearnedEntry* learned(std::string_view path) const;
  void put(const SentEntry& entry);  // in order
  void end_pass();

 private:
  struct Reader;
  struct Writer;
  std::string file_name(unsigned number) const;
  template <typename Wanted>
  std::optional<SentEntry> take_if(const Wanted& wanted);

  const int directory_ = -1;
  const std::string name_;
  unsigned last_ = 0;  // 1, 2: NAME.1 or NAME.2 holds the last pass; 0: NAME does
  std::unique_ptr<Reader> reader_;
  std::unique_ptr<Writer> writer_;
  std::map<std::string, LearnedEntry, std::less<>> learned_;
  std::vector<std::string> unmet_;  // of learned_, made and not removed, in the order of the walk
  size_t next_unmet_ = 0;
};

// Whether `path` is below `directory`.
bool is_below(std::string_view path, std::string_view directory);

}  // namespace moorage::packs
