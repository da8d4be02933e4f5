// Finds what changed in a sandbox's merged directories since the previous round, and writes it into
// a delta pack (packs/delta_pack.h). An entry in the pack replaces what the receiver has; a removal
// removes everything below it. A directory comes before its contents, and the entry of a directory
// precedes any change directly in it, so that the receiver gets its times right.
//
// Of an overlay only the upper directories are walked, to learn which paths may have changed; the
// data comes from the merged directory. A whiteout is a removal. A directory that hides or moves
// lower ones (opaque, redirected) is a removal, then its whole merged contents. A plain tree is
// walked whole. Paths are opened below pinned descriptors, never through a link.
//
// An entry counts as unchanged if inode number and change time are those in the list of sent
// entries (sent_list.h), unless the change was too recent then, or the file was mapped for writing:
// such an entry is read again in the next round, and sent if its digest differs. The walk is not a
// point in time: passes follow each other until one finds nothing, up to a limit; "objects" is
// visited last in a directory, so no reference of a git repository arrives without its objects.
//
// Hard links are kept within a round: all names of a file have its change time, so they are sent
// together, the first as a file. Beyond kMaxLinkedFiles names they become copies. Not sent, but
// counted: devices, entries nested too deep, files that cannot be read.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "layers/overlay_lookup.h"
#include "packs/delta_pack.h"
#include "packs/merged/roots.h"
#include "packs/merged/sent_list.h"

namespace moorage::packs {

struct FinderOptions {
  std::vector<MergedRoot> roots;
  layers::OverlayMarks marks = layers::OverlayMarks::trusted;
  std::function<bool(std::string_view path)> wanted = {};          // empty: all
  std::set<ino_t> mapped = {};                                     // layers/mapped_files.h
  int64_t mapped_looked_ns = std::numeric_limits<int64_t>::max();  // when `mapped` was read
  unsigned passes = 4;  // 1 for a tree that nobody changes
  // Entries before this one in the walk's order have arrived: they are not sent again.
  std::string after = {};
  std::function<void()> check_stopping = {};  // called now and then; may throw to stop
};

struct FoundChanges {
  uint64_t entries = 0;
  uint64_t removals = 0;
  uint64_t bytes = 0;       // of files' contents, before compression
  uint64_t skipped = 0;     // devices, and entries nested too deep
  uint64_t unreadable = 0;  // permission denied
  uint64_t cut = 0;         // over kMaxFileAttributesBytes: sent without some user.*
  bool any() const { return entries + removals > 0; }
};

class MergedFinder {
 public:
  // Returns the pack to write to; called only once there is something to write.
  using Pack = std::function<PackWriter&()>;

  // `options` and `sent` outlive it.
  MergedFinder(const FinderOptions& options, SentList& sent);
  MergedFinder(MergedFinder&&) = delete;

  // One round. Afterwards call sent.commit() once the pack is safe. An empty `pack`: nothing is
  // sent, everything found counts as sent (after a pack was applied and before anything runs).
  FoundChanges find(const Pack& pack);
  // Sends these paths and what lies below them, as they are now, with the directories above them;
  // a missing one is a removal. Does not use the list.
  FoundChanges find_paths(const std::vector<std::string>& paths, const Pack& pack);

 private:
  class Round;
  const FinderOptions& options_;
  SentList& sent_;
};

inline constexpr size_t kMaxLinkedFiles = 200'000;

}  // namespace moorage::packs
