// A sandbox on a machine that has neither user namespaces nor overlays for us, and that belongs to
// this sandbox alone. Its places are plain directories of the machine:
//
//   /workspace, /home/user   the base tree is copied there (copy_tree.h)
//   /.moorage/objects        git objects, a copy; likewise /.moorage/certificates
//
// What was there before lies in the sandbox's directory meanwhile (before/). Commands are ordinary
// processes of the machine and see all of it. They run as uid 1000 if we are root there, else as
// the user we are. Nothing of Moorage may lie below the places.
#pragma once

#include <string>

#include "outpost/inside/process_one.h"
#include "outpost/inside/root.h"

namespace moorage::outpost {

// Makes the places, once; harmless to repeat. unsupported: the machine does not allow it.
void make_plain_places(const RootPlan& plan);
// Empties them, if this sandbox has them, and puts back what was there.
void clear_plain_places(const std::string& sandbox);

// As make_process_one: it waits for SIGUSR1, then starts the warden. It is the subreaper of all
// that runs, and ends what is left when the warden ends.
void make_plain_process(const RootPlan& plan, ProcessOne one, const Handover& handover);

}  // namespace moorage::outpost
