// The fields of a request in JSON, and the answer that is one text. They throw invalid_argument.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "outpost/stream/channels.h"

namespace boost::json {
class object;
}

namespace moorage::outpost {

boost::json::object parse_request(std::string_view text);
std::string text_in(const boost::json::object& request, std::string_view name);
bool flag_in(const boost::json::object& request, std::string_view name);  // missing: false
uint64_t number_in(const boost::json::object& request, std::string_view name);

std::unique_ptr<Channel> text_answer(Wire wire, const std::string& answer);

}  // namespace moorage::outpost
