// Makes a frozen copy of a layer that is being written. Passes while commands run copy the changes
// since the pass before; the last pass runs while every process of the sandbox is frozen, so it has
// little left to do. A file counts as unchanged if its inode number and change time (which nobody
// can set) match those seen before it was copied, and that time was not the present then: two
// writes within one tick of the kernel's clock look alike. A write through a mapping changes the
// time only when it dirties a page. So a file mapped for writing at the start of any pass is copied
// again in the frozen pass, and a change after that start counts as the present: a mapping may have
// come and gone in between. A file unchanged since an earlier frozen copy of the same layer is
// hard-linked to that copy's file, which never changes. Overlay's marks (whiteouts, opaque
// directories, redirects) are copied too, so a copy is valid only over the same parent.
//
// The live directories are untrusted and changing: nothing is opened through a link, one descriptor
// is held for each level, and the next pass handles files that vanish during a pass.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

namespace moorage::layers {

struct CopyLimits {
  uint64_t max_entries = 1'000'000;  // about 100 bytes of memory each
};

struct CopyPass {
  uint64_t entries = 0;       // checked
  uint64_t copied_files = 0;  // with contents
  uint64_t copied_bytes = 0;  // without holes
  uint64_t linked_files = 0;  // hard links to an earlier copy
  uint64_t removed = 0;
};

class LayerCopy {
 public:
  struct Places {
    std::string live;          // layers/ly_4
    std::string copy;          // layers/ly_5, made by Storage::make_layer
    std::string earlier = {};  // layers/ly_3, a frozen copy of the same live layer; may be empty
  };
  // Inode numbers of files that a process has mapped for writing now.
  using Mapped = std::function<std::set<ino_t>()>;
  LayerCopy(const Places& places, Mapped mapped, const CopyLimits& limits = {});
  ~LayerCopy();
  LayerCopy(LayerCopy&&) = delete;

  // Runs beside commands. Throws resource_exhausted: too many entries, or deeper than 900.
  CopyPass pass();
  // Nothing may write to the live layer. Throws conflict if something did.
  CopyPass finish();
  // Writes into the copy its source's state, for the next copy. Not synced: see copy_record.h.
  void keep_record();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moorage::layers
