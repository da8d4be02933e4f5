// Parses JSON strictly: one object, no duplicate keys, at most kMaxJsonDepth levels, valid UTF-8.
#pragma once

#include <string_view>

namespace boost::json {
class value;
}

namespace moorage::daemon {

boost::json::value parse_strictly(std::string_view text);  // throws Error(invalid_argument)

}  // namespace moorage::daemon
