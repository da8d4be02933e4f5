// What was said of a sandbox's merged directories: a file with a line for each entry, in the order
// of the walk. A round reads it beside the walk and writes the next one, so memory does not grow
// with a tree. The round counts only after commit(): call it once the pack is safe, that is, would
// be sent again after a crash. Without its list a finder cannot know what it must remove, so a lost
// list means: start over from a fresh base.
//
// Lines: "path NUL inode change-time time-of-check size flags digest LF".
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/os/fd.h"
#include "layers/node.h"

namespace moorage::packs {

struct SaidEntry {
  std::string path;
  uint64_t inode = 0;
  int64_t changed_ns = 0;
  int64_t looked_ns = 0;
  uint64_t size = 0;
  char type = 'f';       // f, d, l (symlink), o (other), w (whiteout: not there)
  bool whole = false;    // a directory that was sent with all its contents: opaque or redirected
  std::string digest{};  // of an entry in doubt; empty: unknown
};

// Order of the walk: a directory before its contents, names by their bytes, "objects" last.
int compare_in_walk(std::string_view one, std::string_view other);

class SaidList {
 public:
  // Files NAME, NAME.1 and NAME.2 of a directory that the sandbox cannot reach; it stays open.
  SaidList(int directory, std::string name);
  ~SaidList();
  SaidList(SaidList&&) = delete;

  bool exists() const;
  // The last round's list replaces the previous one. Not synced: a lost commit is sent again.
  void commit();
  void remove();  // everything

  // An entry that an applier made here, with its digest (applier.h): the next round does not send
  // it back. `index` is its state in the walked directory.
  void learn(SaidEntry entry);

  // For the finder. start_pass(): reads the list of the previous pass or round.
  void start_pass();
  std::optional<SaidEntry> passed_over(const std::string& path);  // recorded before `path`
  std::optional<SaidEntry> arrive(const std::string& path);
  std::optional<SaidEntry> rest();
  void put(const SaidEntry& entry);  // in order
  void end_pass();

 private:
  struct Reader;
  struct Writer;
  struct Learned {
    SaidEntry entry;
  };
  std::optional<SaidEntry> take();

  const int directory_;
  const std::string name_;
  unsigned last_ = 0;  // NAME.1 or NAME.2 holds the last pass; 0: NAME does
  std::unique_ptr<Reader> reader_;
  std::unique_ptr<Writer> writer_;
  std::map<std::string, SaidEntry, std::less<>> learned_;
};

}  // namespace moorage::packs
