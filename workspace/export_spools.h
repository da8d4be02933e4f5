// What exports wrote that their clients have not read yet: files without names in the store, so no
// walk finds them. Each belongs to who asked for the export. One user has a bounded number of them,
// and all of them together never take more than half of the room beyond what is kept free: then the
// writer waits for its reader (byte_spool.h), and others find room as before.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "workspace/byte_spool.h"
#include "workspace/context.h"
#include "workspace/disk_room.h"

namespace moorage::workspace {

// Whether one more byte may wait where all that waits takes `held` already.
bool has_room_for_exports(const DiskRoom& room, uint64_t held_bytes);

class ExportSpools {
 public:
  explicit ExportSpools(const Context& context) : context_(context) {}
  // Counts as one of this user's as long as somebody has it. Throws conflict: there are too many.
  std::shared_ptr<ByteSpool> make(uint32_t uid);
  uint64_t bytes_of(uint32_t uid);
  uint64_t bytes();

 private:
  struct One {
    uint32_t uid = 0;
    std::weak_ptr<ByteSpool> spool;
  };
  // Those that somebody has.
  std::vector<std::shared_ptr<ByteSpool>> present(const std::optional<uint32_t>& uid);

  const Context& context_;
  std::mutex mutex_;
  std::vector<One> all_;
};

}  // namespace moorage::workspace
