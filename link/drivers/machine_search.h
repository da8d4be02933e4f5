// Finds the machine with certain labels or creates it, so that a create without an answer never
// leaves a second one: looks before, and for some time after such a create. Of several it keeps
// the one that was asked for last: the others came up too late to be seen, so nobody uses them.
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

// Of a machine that is created now.
Labels labels_now(Labels labels);

Machine find_or_create(const MachineSearch& search, Deadline deadline);
// Never creates one. A list may be behind, so not_found comes after several looks.
Machine find_existing(const MachineSearch& search, Deadline deadline);

}  // namespace moorage::link
