// Export output that clients have not read yet: unnamed files in the store, so no walk finds them.
// Each belongs to the user who started the export. One user has a bounded number of them, and all
// of them together take at most half of the space beyond the reserve: then the writer waits for
// its reader (base/byte_spool.h), and others still find room.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/byte_spool.h"
#include "workspace/context/context.h"
#include "workspace/context/free_space.h"

namespace moorage::workspace {

// Whether one more byte may be buffered when `held_bytes` already are.
bool has_room_for_exports(const DiskRoom& room, uint64_t held_bytes);

class ExportSpools {
 public:
  explicit ExportSpools(const Context& context) : context_(context) {}
  // Counts for this user as long as somebody holds it. Throws conflict: the user has too many.
  std::shared_ptr<base::ByteSpool> make(uint32_t uid);
  uint64_t bytes_of(uint32_t uid);
  uint64_t bytes();

 private:
  struct One {
    uint32_t uid = 0;
    std::weak_ptr<base::ByteSpool> spool;
  };
  // Those that somebody still holds.
  std::vector<std::shared_ptr<base::ByteSpool>> present(const std::optional<uint32_t>& uid);

  const Context& context_;
  std::mutex mutex_;
  std::vector<One> all_;
};

}  // namespace moorage::workspace
