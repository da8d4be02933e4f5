// Output of background processes that outlive their exec: read and dropped for as long as they hold
// the pipe, so that a daemon is neither blocked by a full pipe nor killed by SIGPIPE. At most
// kMaxAbandoned pipes; then the oldest is closed.
#pragma once

#include <list>

#include "base/fd.h"
#include "warden/loop.h"

namespace moorage::warden {

inline constexpr size_t kMaxAbandoned = 256;

class AbandonedOutput {
 public:
  explicit AbandonedOutput(Loop& loop) : loop_(loop) {}
  void take(base::Fd fd);  // non-blocking

 private:
  struct Entry {
    base::Fd fd;
    std::unique_ptr<Watch> watch;
  };
  void drop_some(std::list<Entry>::iterator entry);

  Loop& loop_;
  std::list<Entry> entries_;  // oldest first
};

}  // namespace moorage::warden
