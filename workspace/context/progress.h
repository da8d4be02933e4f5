// How a long verb reports its progress to the client.
#pragma once

#include <functional>
#include <string>

namespace moorage::workspace {

// "fetch", "checkout", "start"; percent is -1 if the total is unknown. Called from any thread.
using Progress =
    std::function<void(const std::string& phase, int percent, const std::string& text)>;

}  // namespace moorage::workspace
