// The JSON of requests: proto3 JSON, read with limits. Every error is invalid_argument.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace boost::json {
class object;
}

namespace moorage::warden {

boost::json::object parse_object(std::string_view text);  // empty text gives an empty object
const boost::json::object& member_object(const boost::json::object& body, std::string_view name);
std::optional<uint64_t> read_offset(const boost::json::object& body);  // "offset", if present

}  // namespace moorage::warden
