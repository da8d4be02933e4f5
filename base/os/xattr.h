// Extended attributes of an open node. It may be open with O_PATH only, which is the only way to
// reach those of a link.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::base {

// Empty if the file system has no attributes.
std::vector<std::string> attribute_names(int fd);
std::optional<std::string> read_attribute(int fd, const std::string& name);  // nullopt: none
void write_attribute(int fd, const std::string& name, std::string_view value);
void remove_attribute(int fd, const std::string& name);  // a missing one is fine

}  // namespace moorage::base
