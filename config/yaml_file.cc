#include "config/yaml_file.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/os/files.h"

namespace moorage::config {

namespace {

constexpr uint64_t kMaxFileBytes = 1 << 20;
// An alias repeats its value: a few lines can expand to more than memory holds.
constexpr size_t kMaxTreeValues = 10'000;
constexpr int kMaxTreeLevels = 6;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What the parser says, in words for people who do not know its terms.
const struct {
  std::string_view said;
  std::string_view meant;
} kMeanings[] = {
    {YAML::ErrorMsg::END_OF_SEQ_FLOW, "this list has no closing ]"},
    {YAML::ErrorMsg::END_OF_MAP_FLOW, "this map has no closing }"},
    {YAML::ErrorMsg::MAP_VALUE,
     "a colon is not allowed here; put quotes around the text, or check the indentation"},
    {YAML::ErrorMsg::MAP_KEY, "a key is not allowed here; check the indentation"},
    {YAML::ErrorMsg::END_OF_SEQ, "this line is not indented like the list above it"},
    {YAML::ErrorMsg::END_OF_MAP, "this line is not indented like the lines above it"},
    {YAML::ErrorMsg::UNKNOWN_ANCHOR, "a text that begins with * needs quotes"},
    {YAML::ErrorMsg::UNKNOWN_TOKEN, "this character needs quotes"},
    {YAML::ErrorMsg::FLOW_END, "this bracket closes nothing"},
    {YAML::ErrorMsg::BLOCK_ENTRY, "a list item is not allowed here; check the indentation"}};

std::string explained(const std::string& said) {
  for (const auto& [begin, meant] : kMeanings) {
    if (said.starts_with(begin)) return std::string(meant);
  }
  return "this is not valid YAML: " + said;
}

// Where a document begins; ignores its contents.
class Documents : public YAML::EventHandler {
 public:
  YAML::Mark begin;
  void OnDocumentStart(const YAML::Mark& mark) override { begin = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

class Reader {
 public:
  Reader(std::string path, const YamlShape& shape) : path_(std::move(path)), shape_(shape) {}

  YamlFile read() {
    const YAML::Node root = parse();
    if (root.IsNull()) return {};
    if (!root.IsMap()) refuse(root.Mark(), "the file must hold settings as \"key: value\"");
    for (const auto& pair : root) {
      const std::string name = key_text(pair.first, "");
      if (contains(shape_.groups, name)) {
        add_group(name, pair.second);
      } else if (contains(shape_.trees, name)) {
        file_.trees.emplace(name, tree(pair.second, 1));
      } else {
        add_value(name, pair.first, pair.second);
      }
    }
    return std::move(file_);
  }

 private:
  YAML::Node parse() {
    const std::string text = base::read_file(path_, kMaxFileBytes);
    try {
      check_documents(text);
      return YAML::Load(text);
    } catch (const YAML::Exception& error) {
      refuse_tabs(text);  // what the parser says about them helps nobody
      refuse(error.mark, explained(error.msg));
    }
  }

  void refuse_tabs(const std::string& text) {
    std::istringstream lines(text);
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      const size_t tab = line.substr(0, line.find_first_not_of(" \t")).find('\t');
      if (tab == std::string::npos) continue;
      throw Error(Code::invalid_argument, yaml_place(path_, number, static_cast<int>(tab) + 1) +
                                              ": tabs are not allowed in YAML; use spaces");
    }
  }

  // At most one. LoadAll would detect more, but loops forever where the parser of yaml-cpp 0.7
  // makes no progress: at a ",".
  void check_documents(const std::string& text) {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    Documents documents;
    if (!parser.HandleNextDocument(documents)) return;
    const YAML::Mark first = documents.begin;
    if (!parser.HandleNextDocument(documents)) return;
    if (documents.begin.pos == first.pos) refuse(first, "the file is not valid YAML");
    refuse(documents.begin, "the file must contain only one YAML document");
  }

  void add_group(const std::string& group, const YAML::Node& section) {
    if (section.IsNull()) return;
    if (!section.IsMap())
      refuse(section.Mark(), "\"" + group + "\" must be a section with \"key: value\" lines");
    for (const auto& pair : section) {
      add_value(group + "." + key_text(pair.first, group + "."), pair.first, pair.second);
    }
  }

  void add_value(const std::string& name, const YAML::Node& key, const YAML::Node& value) {
    if (value.IsNull()) refuse(key.Mark(), "\"" + name + "\" has no value");
    // Without what is deeper: an unknown name is refused as unknown, not for its shape.
    YamlNode entry = node(value);
    if (value.IsSequence()) {
      for (const YAML::Node& item : value) entry.items.push_back(node(item));
    }
    set_key(entry, key, name);
    file_.entries.push_back(std::move(entry));
  }

  static YamlNode node(const YAML::Node& value) {
    YamlNode node;
    node.line = value.Mark().line + 1;
    node.column = value.Mark().column + 1;
    if (value.IsScalar()) {
      node.kind = YamlNode::Kind::scalar;
      node.text = value.Scalar();
    } else if (value.IsSequence()) {
      node.kind = YamlNode::Kind::list;
    } else if (value.IsMap()) {
      node.kind = YamlNode::Kind::map;
    }
    return node;
  }

  static void set_key(YamlNode& node, const YAML::Node& key, const std::string& name) {
    node.key = name;
    node.key_line = key.Mark().line + 1;
    node.key_column = key.Mark().column + 1;
  }

  YamlNode tree(const YAML::Node& value, int level) {
    if (level > kMaxTreeLevels) refuse(value.Mark(), "this is nested too deeply");
    if (++tree_values_ > kMaxTreeValues) refuse(value.Mark(), "these are more than 10000 values");
    YamlNode tree_of = node(value);
    if (value.IsSequence()) {
      for (const YAML::Node& item : value) tree_of.items.push_back(tree(item, level + 1));
    } else if (value.IsMap()) {
      add_fields(value, level, tree_of);
    }
    return tree_of;
  }

  void add_fields(const YAML::Node& map, int level, YamlNode& node) {
    std::set<std::string> seen;
    for (const auto& pair : map) {
      if (!pair.first.IsScalar()) refuse(pair.first.Mark(), "a key must be a plain word");
      YamlNode field = tree(pair.second, level + 1);
      set_key(field, pair.first, pair.first.Scalar());
      if (!seen.insert(field.key).second)
        refuse(pair.first.Mark(), "\"" + field.key + "\" is set twice");
      node.items.push_back(std::move(field));
    }
  }

  // The text of a key. Keys are compared as text to find repeated ones.
  std::string key_text(const YAML::Node& key, const std::string& prefix) {
    if (!key.IsScalar()) refuse(key.Mark(), "a key must be a plain word");
    const std::string& name = key.Scalar();
    if (!seen_.insert(prefix + name).second) {
      refuse(key.Mark(), "\"" + prefix + name + "\" is set twice");
    }
    return name;
  }

  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& why) {
    const std::string place =
        mark.is_null() ? path_ : yaml_place(path_, mark.line + 1, mark.column + 1);
    throw Error(Code::invalid_argument, place + ": " + why);
  }

  const std::string path_;
  const YamlShape& shape_;
  std::set<std::string> seen_;
  YamlFile file_;
  size_t tree_values_ = 0;
};

}  // namespace

std::string yaml_place(const std::string& file, int line, int column) {
  return file + ":" + std::to_string(line) + ":" + std::to_string(column);
}

YamlFile read_yaml(const std::string& path, const YamlShape& shape) {
  return Reader(path, shape).read();
}

}  // namespace moorage::config
