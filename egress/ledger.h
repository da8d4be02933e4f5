// What one sandbox tried to reach, for people: which name, what came of it, and which command it
// was. Programs repeat refused requests hundreds of times, so each outcome is noted once for a
// name, a port and a command. Bounded: a command that tries very many names fills only its own
// share.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/net/network_settings.h"

namespace moorage::egress {

using base::Sighting;

class Ledger {
 public:
  void note(Sighting sighting);
  // Called for each new one; one listener at a time.
  void on_new(std::function<void(const Sighting&)> listener) { listener_ = std::move(listener); }
  const std::deque<Sighting>& latest() const { return latest_; }

  static constexpr size_t kKept = 1024;
  static constexpr size_t kMaxOfOne = 200;   // of one command
  static constexpr size_t kMaxSeen = 16384;  // then what was seen is forgotten, and noted again

 private:
  std::deque<Sighting> latest_;
  uint64_t serial_ = 0;
  std::unordered_set<std::string> seen_;
  std::unordered_map<uint64_t, size_t> of_command_;
  std::function<void(const Sighting&)> listener_;
};

}  // namespace moorage::egress
