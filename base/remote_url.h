// The URL of a git remote, as somebody may see it who must not get its credentials.
#pragma once

#include <string>
#include <string_view>

namespace moorage::base {

// Without password, and without user name unless over ssh. Empty: not a place in a network (a path,
// file://, a remote helper), or malformed.
std::string url_without_credentials(std::string_view url);

}  // namespace moorage::base
