// Makes a frozen copy of a layer that is being written: passes while commands run bring over what
// changed since the one before, the last one runs while every process of the sandbox is frozen and
// so only has little to do. A file is taken as unchanged when inode number and change time (which
// nobody can set) are those that were seen before it was copied, and that time was not the present
// then: two writes within one tick of the kernel's clock look alike. A write through a mapping
// changes the time only when it makes a page dirty, so what was mapped to be written at the start
// of any pass is copied anew while all is frozen, and a change after that start is taken for the
// present: the mapping may have been made since, and be gone before anybody looks again. What stays
// the same since an earlier frozen copy of the same layer is a second name of that copy's file,
// which never changes. Overlay's marks (whiteouts, opaque directories, redirects) are copied like
// everything else, so a copy means the same over the same parent, and nothing over another one.
//
// The live directories are a stranger's and are being changed: nothing is opened through a link,
// one descriptor a level is held, and what vanishes under a pass is left to the next one.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

namespace moorage::workspace {

struct CopyLimits {
  uint64_t max_entries = 1'000'000;  // about 100 bytes of memory each
};

struct CopyPass {
  uint64_t entries = 0;       // looked at
  uint64_t copied_files = 0;  // their contents
  uint64_t copied_bytes = 0;  // without holes
  uint64_t linked_files = 0;  // a second name of an earlier copy's
  uint64_t removed = 0;
};

class LayerCopy {
 public:
  struct Places {
    std::string live;          // layers/ly_4
    std::string copy;          // layers/ly_5, as Storage::make_layer made it
    std::string earlier = {};  // layers/ly_3, a frozen copy of the same live layer; empty: none
  };
  // Inode numbers of what a process has mapped to write to now.
  using Mapped = std::function<std::set<ino_t>()>;
  LayerCopy(const Places& places, Mapped mapped, const CopyLimits& limits = {});
  ~LayerCopy();
  LayerCopy(const LayerCopy&) = delete;
  LayerCopy& operator=(const LayerCopy&) = delete;

  // While commands run. resource_exhausted: more entries than the limit, or deeper than 900.
  CopyPass pass();
  // Nothing writes to the live layer. conflict: something did.
  CopyPass finish();
  // Notes in the copy what it is a copy of, for the next one. Not synced: see layer_record.h.
  void keep_record();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moorage::workspace
