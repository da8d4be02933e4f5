// Host names in their one spelling: IDNA 2008 with the mapping of UTS 46, lower case, no dot at the
// end. Two names are the same host exactly if these spellings are equal. An address, in whatever
// spelling ("127.1", "0x7f000001", "[::1]"), is never a host name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moorage::base {

// As a person or a configuration writes it. Throws invalid_argument with the reason; the hint shows
// a correct spelling.
std::string host_name(std::string_view text);

// In a message: the text in quotes, or "the URL" if a user, a query or a fragment may have a
// secret.
std::string quoted_unless_secret(std::string_view text);

// As a program sends it (a DNS question, SNI, a Host header): ASCII only. Empty: not a host name.
std::optional<std::string> host_name_on_wire(std::string_view text);

// Whether "host" or "host:port", as of a Host header, is this host at this port. `host` is in the
// spelling of host_name().
bool authority_names(std::string_view authority, std::string_view host, uint16_t port);

}  // namespace moorage::base
