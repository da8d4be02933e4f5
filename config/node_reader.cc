#include "config/node_reader.h"

#include <algorithm>

#include "base/spelling.h"
#include "config/values.h"

namespace moorage::config {
namespace {

std::string joined(const std::vector<std::string_view>& names) {
  std::string text;
  for (const auto name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

}  // namespace

void NodeReader::refuse(const YamlNode& node, const std::string& why,
                        const std::string& hint) const {
  throw Error(Code::invalid_argument, yaml_place(file_, node.line, node.column) + ": " + why, hint);
}

void NodeReader::refuse_key(const YamlNode& node, const std::string& why,
                            const std::string& hint) const {
  throw Error(Code::invalid_argument,
              yaml_place(file_, node.key_line, node.key_column) + ": " + why, hint);
}

void NodeReader::read_fields(const YamlNode& map, const std::string& where,
                             const std::vector<Field>& fields) const {
  std::vector<std::string_view> names;
  names.reserve(fields.size());
  for (const Field& field : fields) names.push_back(field.name);
  for (const YamlNode& item : map.items) {
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const Field& known) { return known.name == item.key; });
    if (field == fields.end()) {
      const auto nearest = base::nearest_spelling(item.key, names);
      refuse_key(
          item, "unknown key \"" + item.key + "\" in " + where,
          nearest ? "Did you mean \"" + *nearest + "\"?" : "Allowed keys: " + joined(names) + ".");
    }
    if (item.kind == YamlNode::Kind::null) refuse_key(item, "\"" + item.key + "\" has no value");
    field->read(item);
  }
}

std::string plain_text(const std::string& text) {
  const bool null = text.empty() || text == "null" || text == "Null" || text == "NULL";
  const bool safe = std::all_of(text.begin(), text.end(), [](char c) {
    return c == '/' || kNameCharacters.find(c) != std::string_view::npos;
  });
  if (!null && text.front() != '-' && safe) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

}  // namespace moorage::config
