// A long journal keeps its beginning and its end; its middle is cut by whole frames while the
// command still writes. A gap (base/wire/journal.h) overwrites the first of them, then the disk
// space of all is freed; an existing gap grows. The file keeps its length, so readers keep their
// positions; a kill between the two steps leaves bytes that the next cut frees. On a file system
// that cannot punch holes nothing is cut, and the warden drops output that does not fit.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/wire/journal.h"

namespace moorage::base {

// The disk space that the warden may use for a journal limited to `limit_bytes`: it may run a
// little ahead of us.
uint64_t journal_room(uint64_t limit_bytes);

// Decides which frames of a journal to cut. A reader feeds it every frame from the beginning.
class JournalMiddle {
 public:
  struct Cut {
    uint64_t begin = 0;  // position in the file; frames begin at both ends
    uint64_t end = 0;
    uint64_t begin_offset = 0;  // of output
    uint64_t end_offset = 0;
    int64_t first_ns = 0;
    int64_t last_ns = 0;
  };

  explicit JournalMiddle(uint64_t limit_bytes) : step_bytes_(limit_bytes / 16) {}
  // Takes each frame in order, with its position and that of the next one.
  void passed(const Frame& frame, uint64_t begin, uint64_t end);
  // The next cut, so that the file takes less than `limit_bytes`: keeps a quarter of that at the
  // beginning and half of it at the end. It includes earlier cuts.
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
  std::deque<Place> places_;                        // starts of present frames, some way apart
  std::optional<Cut> cut_;                          // cut so far
  std::deque<std::pair<uint64_t, uint64_t>> gaps_;  // made by the warden: offset, bytes
  uint64_t position_ = 0;                           // of the next frame
  int64_t last_ns_ = 0;
};

// Cuts all output of an ended command, but not late output after its end; nullopt: already cut, or
// the journal does not say where the command ended.
std::optional<JournalMiddle::Cut> cut_before_end(int fd, uint64_t output_bytes);

// Throws Error(unsupported) where the file system cannot punch holes.
void cut_journal(const std::string& path, const JournalMiddle::Cut& cut);

// Copies the current state of a journal that is still written: whole frames, whatever is cut from
// it meanwhile, without the bytes under its gaps and without an `end` frame.
struct JournalCopy {
  uint64_t output_bytes = 0;   // output offset at the end of the copy
  uint64_t dropped_bytes = 0;  // of these, in gaps
};
JournalCopy copy_journal(int fd, const std::function<void(std::string_view)>& sink);

// For an archive: a journal that is no longer cut, without the bytes under its gaps, as parts of
// the file and replacement bytes.
struct CompactPart {
  uint64_t offset = 0;
  uint64_t size = 0;
  std::string bytes;  // if not empty, use these instead of a part of the file
};
std::vector<CompactPart> compact_journal(int fd);

}  // namespace moorage::base
