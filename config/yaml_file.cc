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
    try {
      const std::string text = base::read_file(path_, kMaxFileBytes);
      check_documents(text);
      return YAML::Load(text);
    } catch (const YAML::Exception& error) {
      refuse(error.mark, error.msg);
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
    YamlEntry entry{.name = name};
    entry.line = value.Mark().line + 1;
    entry.column = value.Mark().column + 1;
    entry.key_line = key.Mark().line + 1;
    entry.key_column = key.Mark().column + 1;
    if (value.IsNull()) refuse(key.Mark(), "\"" + name + "\" has no value");
    // Refuses a value in an unknown section by its name, not by its shape.
    if (value.IsScalar()) entry.values.push_back(value.Scalar());
    entry.is_list = value.IsSequence();
    if (entry.is_list) {
      for (const YAML::Node& item : value) {
        if (!item.IsScalar())
          refuse(item.Mark(), "\"" + name + "\" must be a list of plain values");
        entry.values.push_back(item.Scalar());
      }
    }
    file_.entries.push_back(std::move(entry));
  }

  YamlNode tree(const YAML::Node& value, int level) {
    if (level > kMaxTreeLevels) refuse(value.Mark(), "values are nested too deeply");
    if (++tree_values_ > kMaxTreeValues) refuse(value.Mark(), "there are more than 10000 values");
    YamlNode node;
    node.line = value.Mark().line + 1;
    node.column = value.Mark().column + 1;
    if (value.IsScalar()) {
      node.kind = YamlNode::Kind::scalar;
      node.text = value.Scalar();
    } else if (value.IsSequence()) {
      node.kind = YamlNode::Kind::list;
      for (const YAML::Node& item : value) node.items.push_back(tree(item, level + 1));
    } else if (value.IsMap()) {
      node.kind = YamlNode::Kind::map;
      add_fields(value, level, node);
    }
    return node;
  }

  void add_fields(const YAML::Node& map, int level, YamlNode& node) {
    std::set<std::string> seen;
    for (const auto& pair : map) {
      if (!pair.first.IsScalar()) refuse(pair.first.Mark(), "a key must be a plain word");
      YamlNode field = tree(pair.second, level + 1);
      field.key = pair.first.Scalar();
      field.key_line = pair.first.Mark().line + 1;
      field.key_column = pair.first.Mark().column + 1;
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
    std::string place = path_;
    if (!mark.is_null())
      place += ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
    throw Error(Code::invalid_argument, place + ": " + why);
  }

  const std::string path_;
  const YamlShape& shape_;
  std::set<std::string> seen_;
  YamlFile file_;
  size_t tree_values_ = 0;
};

}  // namespace

YamlFile read_yaml(const std::string& path, const YamlShape& shape) {
  return Reader(path, shape).read();
}

}  // namespace moorage::config
