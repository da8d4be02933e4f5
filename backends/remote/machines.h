// The machines of a backend elsewhere, for those who look after them: `moorage info`, doctor and
// the reconciler. Sandboxes at work are not changed by it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "backends/remote/places.h"

namespace moorage::backends {

class Machines {
 public:
  virtual ~Machines() = default;
  // Neither asks anybody.
  virtual std::vector<PlaceUse> places() = 0;
  virtual std::vector<MachineNote> notes() = 0;  // also of places no longer configured
  // Names of this store's sandboxes there, with or without a note. Blocks; throws what keeps it
  // from an answer: not_found (no longer configured), unavailable, deadline_exceeded.
  virtual std::vector<std::string> list_there(const std::string& place,
                                              std::chrono::milliseconds deadline) = 0;
  // Ends and removes the sandbox there, whether or not it exists, then its note. Blocks; throws
  // likewise, and the note stays.
  virtual void remove_there(const MachineNote& note, std::chrono::milliseconds deadline) = 0;
  // A credential of root's has changed: the links that run find the provider's key where it is now.
  virtual void find_key() = 0;
  // Ends what runs here for the sandbox. Its machine and its note stay, and the machine may run on
  // until salvage_there().
  virtual void leave(const std::string& sandbox) = 0;
  // Fetches what a sandbox that was left has and this host has not, into SALVAGE/incoming. From
  // then on it runs nothing more there. SALVAGE/here/incoming/last is the number of the last pack
  // that had arrived before. Returns false if the machine has no such sandbox. Repeating it is
  // harmless. Blocks; throws likewise.
  virtual bool salvage_there(const MachineNote& note, const std::string& salvage,
                             std::chrono::milliseconds deadline) = 0;
};

}  // namespace moorage::backends
