// Signal names as clients write them: "SIGNAL_SIGTERM" (E2B), "SIGTERM", "TERM", or a number.
#pragma once

#include <optional>
#include <string_view>

namespace moorage::warden {

std::optional<int> signal_number(std::string_view name);

}  // namespace moorage::warden
