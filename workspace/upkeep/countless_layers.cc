#include "workspace/upkeep/countless_layers.h"

namespace moorage::workspace {
namespace {

constexpr int64_t kTriedAgain_ms = 10 * 60'000;

}  // namespace

bool CountlessLayers::is_due(base::LayerId layer) const {
  const auto known = again_boot_ms_.find(layer);
  return known == again_boot_ms_.end() || clock_.boot_ms() >= known->second;
}

void CountlessLayers::note(base::LayerId layer, bool counted) {
  again_boot_ms_.erase(layer);
  if (!counted) again_boot_ms_[layer] = clock_.boot_ms() + kTriedAgain_ms;
}

}  // namespace moorage::workspace
