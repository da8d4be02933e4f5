// What a worker is as a process: what it takes over from the keeper, and the rights that it gives
// up before it speaks with a machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/os/fd.h"
#include "link/inside_sockets.h"
#include "link/journal_intake.h"

namespace moorage::link {

struct Inherited {
  base::Fd listener;
  std::vector<JournalFile> journals;
  base::Fd name_space;    // empty: no network
  base::Fd network_line;  // may be empty
};
// All that the keeper hands over, up to `go`. Throws unavailable if it has ended.
Inherited take_over(int line);

void set_up_process();
// Of the calling thread.
void give_up_rights();
// The provider's key, which the keeper has read with all its rights. Throws why it cannot be had.
std::string ask_for_key(int line);
// Before this process gives up the right to enter it. Empty: no network.
std::unique_ptr<InsideSockets> enter_network(base::Fd name_space);

}  // namespace moorage::link
