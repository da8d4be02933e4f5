// A long journal keeps its beginning and its end: the middle goes while the command still writes,
// by whole frames. A gap (base/journal.h) is written over the first of them, then the bytes of all
// are given back to the disk; a gap that is there grows. The file keeps its length, so no reader's
// place moves, and a kill between the two leaves bytes that the next cut takes along. On a file
// system that cannot punch holes nothing goes, and the warden drops what it finds no room for.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/journal.h"

namespace moorage::workspace {

// What the warden may take of the disk for a journal that is to stay below `limit_bytes`: it may be
// ahead of us by a little.
uint64_t journal_room(uint64_t limit_bytes);

// Which frames of a journal may go. Fed by who reads it from its beginning on.
class JournalMiddle {
 public:
  struct Cut {
    uint64_t begin = 0;  // in the file; frames begin at both
    uint64_t end = 0;
    uint64_t begin_offset = 0;  // of output
    uint64_t end_offset = 0;
    int64_t first_ns = 0;
    int64_t last_ns = 0;
  };

  explicit JournalMiddle(uint64_t limit_bytes) : step_bytes_(limit_bytes / 16) {}
  // Each frame in its order, with where it was and where the next one is.
  void passed(const base::Frame& frame, uint64_t begin, uint64_t end);
  // What is to go now, so that the file takes less than `limit_bytes`: a quarter of it is kept of
  // the beginning and half of it of the end. It includes what went before.
  std::optional<Cut> next_cut(uint64_t limit_bytes) const;
  void done(const Cut& cut);
  uint64_t dropped_bytes() const;  // of output, in all gaps so far

 private:
  struct Place {
    uint64_t position = 0;
    uint64_t offset = 0;
    int64_t before_ns = 0;  // when the frame before it was written
    int64_t at_ns = 0;
  };
  std::optional<Place> head_end(uint64_t limit_bytes) const;

  const uint64_t step_bytes_;
  std::deque<Place> places_;                        // frames that are there, some way apart
  std::optional<Cut> cut_;                          // what is gone
  std::deque<std::pair<uint64_t, uint64_t>> gaps_;  // of the warden's: offset, bytes
  uint64_t position_ = 0;                           // of the next frame
  int64_t last_ns_ = 0;
};

// All output of a command that ended, which late output may follow; nothing: it is gone already, or
// the journal does not say where it ended.
std::optional<JournalMiddle::Cut> cut_before_end(int fd, uint64_t output_bytes);

// Throws Error(unsupported) where the file system cannot punch holes.
void cut_journal(const std::string& path, const JournalMiddle::Cut& cut);

// A journal that is still written, as it is now: whole frames, whatever is cut out of it meanwhile,
// and nothing of what its gaps pass over. Its end, if there is one, is left out.
struct JournalCopy {
  uint64_t output_bytes = 0;   // that it goes to
  uint64_t dropped_bytes = 0;  // of these, in gaps
};
JournalCopy copy_journal(int fd, const std::function<void(std::string_view)>& sink);

// One that is cut no more, as it is without what its gaps pass over, for an archive: parts of the
// file, and bytes in their place.
struct CompactPart {
  uint64_t offset = 0;
  uint64_t size = 0;
  std::string bytes;  // not empty: these, instead of a part
};
std::vector<CompactPart> compact_journal(int fd);

}  // namespace moorage::workspace
