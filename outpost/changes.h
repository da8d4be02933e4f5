// Changes of a sandbox's files, both ways, in packs of merged changes (packs/merged). All functions
// run in a process of their own: they enter the sandbox and cannot leave it.
//
// The entries that link knows are a list (packs/merged/sent_list.h). said/base is the one that link
// has acknowledged, and said/next the one it will have once it acknowledges the last pack. Until
// then each round starts from the base again: after a lost answer, the next one repeats it and adds
// later changes. sync.json has the numbers. Entries that link itself sent are in learned/<number of
// the pack>, so that they are not sent back; the file goes once link acknowledges a round that
// knew them. said/quiet: nothing ran during the last round; the names in the spool then.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/os/fd.h"
#include "outpost/inside/process_one.h"

namespace moorage::outpost {

// Everything there now counts as sent, if nothing was ever recorded.
void begin_record(const std::string& sandbox, const ProcessOne& one);

void apply_changes(const std::string& sandbox, const ProcessOne& one, uint64_t number, Fd pack);

// Writes sandbox/sync.pack; false: nothing has changed since pack `acknowledged`. conflict: that
// pack was never sent.
bool find_changes(const std::string& sandbox, const ProcessOne& one, uint64_t acknowledged);

// What link has acknowledged, as far as is known here: the next pack may have arrived as well, if
// it was sent.
struct Acknowledged {
  uint64_t pack = 0;
  bool next_was_sent = false;
};
Acknowledged last_acknowledged(const std::string& sandbox);  // quick; in any process

// After the machine was paused: some providers lose files then. The changes are the same walk as
// find_changes, when nothing has run since the last round that link has: so the machine made them.
struct Losses {
  bool compared = false;                // false: something has run since, or nothing ever ran
  std::vector<std::string> paths = {};  // that differ: "tree/a"
};
[[noreturn]] void throw_lost();  // not_found
// not_found: the record of what link has is lost, or older than what link has.
Losses find_losses(const std::string& sandbox, const ProcessOne& one, uint64_t acknowledged);

}  // namespace moorage::outpost
