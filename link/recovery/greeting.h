// What a machine says of itself in its answers to hello and prepare. Hostile: everything is
// bounded, and what has another form counts as absent.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/wire/link_config.h"

namespace moorage::link {

std::string own_protocols();  // as a warden answers GET /moorage/protocol
// Sets overlay, namespaces, root_inside, limits of `status`.
void read_facts(const boost::json::object& greeting, base::LinkStatus& status);
bool says(const boost::json::object& greeting, std::string_view flag);
// Also `network`: the provider holds the rules of a sandbox that has no network to be carried here.
void read_facts(const boost::json::object& greeting, const base::LinkConfig& config,
                base::LinkStatus& status);
// What it lost during a pause, as paths here: "/workspace/a".
std::vector<std::string> read_lost(const boost::json::object& greeting);

}  // namespace moorage::link
