// What moorage-link, doctor and gc do to a machine without a stream: commands that print JSON.
#pragma once

#include <string>

#include "outpost/directory.h"

namespace moorage::outpost {

// {"sandboxes":[{"name","generation","living","started"}],"trees":[{"key","complete","bytes"}]}
std::string list(const Directory& directory);

// Ends a sandbox and removes it; a missing one is fine.
void remove_sandbox(const Directory& directory, const std::string& name);

// Removes what no sandbox needs: trees, and everything if there is no sandbox.
void clean(const Directory& directory);

}  // namespace moorage::outpost
