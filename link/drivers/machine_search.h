// Finds the machine with certain labels or creates it, so that a create without an answer never
// leaves a second one: looks before, and for some time after such a create, and of several keeps
// the one with the smallest id, which is the same one for every process that looks.
#pragma once

#include <functional>
#include <vector>

#include "link/driver.h"

namespace moorage::link {

struct MachineSearch {
  std::function<std::vector<Machine>()> find;
  std::function<Machine()> create;  // unknown_outcome: it may exist
  std::function<void(const Machine&)> end;
};

Machine find_or_create(const MachineSearch& search, Deadline deadline);
// Never creates one. A list may be behind, so not_found comes after several looks.
Machine find_existing(const MachineSearch& search, Deadline deadline);

}  // namespace moorage::link
