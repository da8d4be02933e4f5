// A size for people: "412M", "1.2G", bytes as they are below 1 KiB.
#pragma once

#include <cstdint>
#include <string>

namespace moorage::base {

std::string size_text(uint64_t bytes);

}  // namespace moorage::base
