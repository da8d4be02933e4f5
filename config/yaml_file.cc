#include "config/yaml_file.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/files.h"

namespace moorage::config {

using base::Code;
using base::Error;

namespace {

constexpr uint64_t kMaxFileBytes = 1 << 20;

// Where a document begins, and nothing of what is in it.
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
  Reader(std::string path, const std::vector<std::string>& groups)
      : path_(std::move(path)), groups_(groups) {}

  std::vector<YamlEntry> read() {
    const YAML::Node root = parse();
    if (root.IsNull()) return {};
    if (!root.IsMap()) refuse(root.Mark(), "the file must hold settings as \"key: value\"");
    for (const auto& pair : root) {
      const std::string name = key_text(pair.first, "");
      if (std::find(groups_.begin(), groups_.end(), name) == groups_.end()) {
        add_value(name, pair.first, pair.second);
      } else {
        add_group(name, pair.second);
      }
    }
    return std::move(entries_);
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

  // At most one. LoadAll would tell, but goes round for ever where the parser of yaml-cpp 0.7 does
  // not move: it stays in front of a ",".
  void check_documents(const std::string& text) {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    Documents documents;
    if (!parser.HandleNextDocument(documents)) return;
    const YAML::Mark first = documents.begin;
    if (!parser.HandleNextDocument(documents)) return;
    if (documents.begin.pos == first.pos) refuse(first, "this is not YAML");
    refuse(documents.begin, "the file must hold one document");
  }

  void add_group(const std::string& group, const YAML::Node& section) {
    if (section.IsNull()) return;
    if (!section.IsMap())
      refuse(section.Mark(), "\"" + group + "\" is a section: \"key: value\" lines below it");
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
    // What is in a section that does not exist is refused by its name, not by its shape.
    if (value.IsScalar()) entry.values.push_back(value.Scalar());
    entry.is_list = value.IsSequence();
    if (entry.is_list) {
      for (const YAML::Node& item : value) {
        if (!item.IsScalar())
          refuse(item.Mark(), "\"" + name + "\" must be a list of plain values");
        entry.values.push_back(item.Scalar());
      }
    }
    entries_.push_back(std::move(entry));
  }

  // The text of a key. Keys are compared as text, so that a repeated one is found.
  std::string key_text(const YAML::Node& key, const std::string& prefix) {
    if (!key.IsScalar()) refuse(key.Mark(), "a key must be a plain word");
    const std::string name = key.Scalar();
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
  const std::vector<std::string>& groups_;
  std::set<std::string> seen_;
  std::vector<YamlEntry> entries_;
};

}  // namespace

std::vector<YamlEntry> read_yaml(const std::string& path, const std::vector<std::string>& groups) {
  return Reader(path, groups).read();
}

}  // namespace moorage::config
