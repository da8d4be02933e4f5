// A YAML file as a flat list of named values with their places. Knows nothing of the settings.
#pragma once

#include <string>
#include <vector>

namespace moorage::config {

struct YamlEntry {
  std::string name{};                 // "group.key", or "key" at the top
  std::vector<std::string> values{};  // one for a scalar
  bool is_list = false;
  int line = 0;  // of the value, from 1
  int column = 0;
  int key_line = 0;
  int key_column = 0;
};

// Throws invalid_argument with "FILE:LINE:COLUMN: " in front: bad syntax, a repeated key, deeper
// nesting than group and key, no value. `groups` are the names whose value is a section.
std::vector<YamlEntry> read_yaml(const std::string& path, const std::vector<std::string>& groups);

}  // namespace moorage::config
