// Frozen layers that took too long to count, and when to retry each: the host may have been busy.
// Its owner locks it.
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
  bool is_due(base::LayerId layer) const;  // also true before the first attempt
  void note(base::LayerId layer, bool counted);

 private:
  const base::Clock& clock_;
  std::map<base::LayerId, int64_t> again_boot_ms_;
};

}  // namespace moorage::workspace
