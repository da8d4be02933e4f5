// A YAML file as a flat list of named values with their positions; a few values with structure as
// trees. Does not know the settings.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace moorage::config {

// A value of any shape.
struct YamlNode {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string key{};              // in a map
  std::string text{};             // of a scalar
  std::vector<YamlNode> items{};  // of a list or map, in order; keys are unique
  int line = 0;                   // from 1
  int column = 0;
  int key_line = 0;
  int key_column = 0;
};

struct YamlFile {
  // The key is "group.key", or "key" at the top. Scalars, lists of them, and maps without items.
  std::vector<YamlNode> entries{};
  std::map<std::string, YamlNode> trees{};
};

// `groups`: names of sections; `trees`: names of values to read as trees.
struct YamlShape {
  std::vector<std::string> groups{};
  std::vector<std::string> trees{};
};

// Throws invalid_argument with prefix "FILE:LINE:COLUMN: ": bad syntax, a repeated key, deeper
// nesting than group and key, a missing value; for trees more than 10,000 values or 6 levels.
YamlFile read_yaml(const std::string& path, const YamlShape& shape);

std::string yaml_place(const std::string& file, int line, int column);  // "FILE:LINE:COLUMN"

}  // namespace moorage::config
