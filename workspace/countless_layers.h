// Frozen layers that took too long to be counted, and when each is tried again: the host may have
// been busy. Its owner locks it.
#pragma once

#include <cstdint>
#include <map>

#include "base/clock.h"
#include "base/ids.h"

namespace moorage::workspace {

class CountlessLayers {
 public:
  explicit CountlessLayers(const base::Clock& clock) : clock_(clock) {}
  bool has(base::LayerId layer) const { return again_boot_ms_.contains(layer); }
  bool is_due(base::LayerId layer) const;  // for the first time, or again
  void note(base::LayerId layer, bool counted);

 private:
  const base::Clock& clock_;
  std::map<base::LayerId, int64_t> again_boot_ms_;
};

}  // namespace moorage::workspace
