// Reads the values of a section with structure: each is refused with its place in the file.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "config/yaml_file.h"

namespace moorage::config {

class NodeReader {
 public:
  struct Field {
    std::string_view name;
    std::function<void(const YamlNode&)> read;
  };

  explicit NodeReader(std::string file) : file_(std::move(file)) {}

  std::string place(const YamlNode& node) const { return file_ + ":" + std::to_string(node.line); }
  [[noreturn]] void refuse(const YamlNode& node, const std::string& why,
                           const std::string& hint = {}) const;
  [[noreturn]] void refuse_key(const YamlNode& node, const std::string& why,
                               const std::string& hint = {}) const;
  // Calls each key's reader; refuses unknown keys and those without a value. `where`: "a rule".
  void read_fields(const YamlNode& map, const std::string& where,
                   const std::vector<Field>& fields) const;

  // Calls parse(), and adds the node's position to its errors.
  template <typename Parse>
  auto parsed(const YamlNode& node, const Parse& parse) const {
    if (node.kind != YamlNode::Kind::scalar) refuse(node, "\"" + node.key + "\" must be one value");
    try {
      return parse(node.text);
    } catch (Error& error) {
      if (!node.key.empty()) error.add_context(node.key);
      throw error.add_context(yaml_place(file_, node.line, node.column));
    }
  }

 private:
  const std::string file_;
};

// A text as YAML reads it within [] and {}, quoted where it must be.
std::string plain_text(const std::string& text);

}  // namespace moorage::config
