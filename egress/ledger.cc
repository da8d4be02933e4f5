#include "egress/ledger.h"

#include "base/clock.h"

namespace moorage::egress {

void Ledger::note(Sighting sighting) {
  if (seen_.size() >= kMaxSeen) {
    seen_.clear();
    of_command_.clear();
  }
  const std::string key = std::to_string(static_cast<int>(sighting.kind)) + " " +
                          std::to_string(sighting.port) + " " + std::to_string(sighting.cgroup) +
                          " " + sighting.host;
  size_t& count = of_command_[sighting.cgroup];
  if (count > kMaxOfOne || !seen_.insert(key).second) return;
  if (++count > kMaxOfOne) {
    sighting.host.clear();
    sighting.port = 0;
    sighting.why = "it tried more than " + std::to_string(kMaxOfOne) + " names";
  }
  sighting.serial = ++serial_;
  sighting.at_ms = base::system_clock().wall_ms();
  latest_.push_back(sighting);
  if (latest_.size() > kKept) latest_.pop_front();
  if (listener_) listener_(sighting);
}

}  // namespace moorage::egress
