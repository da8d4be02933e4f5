// Which command made a connection, or asked the resolver, in a sandbox on another machine. It has
// no control group here that the kernel could report, so moorage-link connects from an address that
// stands for the command: 127.64.0.0/10 holds 22 bits of its number. moorage-egress reports that
// mark in place of a control group's id. It is for people and never decides.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/net/ip_address.h"

namespace moorage::base {

uint32_t command_mark(std::string_view tag);  // "ex_12". 0: not the tag of a command
IpAddress marked_address(uint32_t mark);      // of 0: 127.0.0.1
uint32_t mark_of(const IpAddress& address);   // 0: none

}  // namespace moorage::base
