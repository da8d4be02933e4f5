// What the daemon does with the packs of a link: applies them to the files here.
#pragma once

#include <string>

namespace moorage::tests {

// Every complete pack in DIRECTORY/incoming, in order, to the workspace's tree and home, whose
// owners are ids inside. Removes each.
void apply_incoming(const std::string& directory, const std::string& tree, const std::string& home);

}  // namespace moorage::tests
