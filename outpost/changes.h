// Changes of a sandbox's files, both ways, in packs of merged changes (packs/merged). All functions
// run in a process of their own: they enter the sandbox and cannot leave it.
//
// The entries that link knows are a list (packs/merged/sent_list.h). said/base is the one that link
// has acknowledged, and said/next the one it will have once it acknowledges the last pack. Until
// then each round starts from the base again: after a lost answer, the next one repeats it and adds
// later changes. sync.json has the numbers. Entries that link itself sent are in learned/<number of
// the pack>, so that they are not sent back; the file goes once link acknowledges a round that
// knew them.
#pragma once

#include <cstdint>
#include <string>

#include "base/os/fd.h"
#include "outpost/inside/process_one.h"

namespace moorage::outpost {

// Everything there now counts as sent, if nothing was ever recorded.
void begin_record(const std::string& sandbox, const ProcessOne& one);

void apply_changes(const std::string& sandbox, const ProcessOne& one, uint64_t number, Fd pack);

// Writes sandbox/sync.pack; false: nothing has changed since pack `acknowledged`. conflict: that
// pack was never sent.
bool find_changes(const std::string& sandbox, const ProcessOne& one, uint64_t acknowledged);

}  // namespace moorage::outpost
