#include "config/network_presets.h"

#include <algorithm>

#include "base/error.h"
#include "base/os/files.h"
#include "config/values.h"
#include "config/yaml_file.h"

namespace moorage::config {
namespace {

using base::Verdict;

constexpr std::string_view kEnding = ".yaml";
constexpr Range kPorts{1, 65535};

struct PresetFile {
  NetworkPreset preset;
  std::vector<std::string> methods;  // of hosts without methods of their own
  std::string include;
};

class PresetReader {
 public:
  explicit PresetReader(std::string path) : path_(std::move(path)) {}

  PresetFile read() {
    const YamlFile yaml = read_yaml(path_, {{}, {"allow", "refuse_quietly"}});
    for (const YamlNode& entry : yaml.entries) read_entry(entry);
    for (const auto& [name, node] : yaml.trees)
      read_rules(node, name == "allow" ? Verdict::allow : Verdict::deny_quietly);
    if (file_.preset.summary.empty())
      throw Error(Code::invalid_argument, path_ + ": \"summary\" is missing");
    return std::move(file_);
  }

 private:
  template <typename Parse>
  auto parsed(const YamlNode& node, const Parse& parse) const {
    try {
      return parse();
    } catch (Error& error) {
      throw error.add_context(yaml_place(path_, node.line, node.column));
    }
  }

  void read_entry(const YamlNode& entry) {
    parsed(entry, [&] {
      if (entry.key == "summary") {
        file_.preset.summary = entry.text;
      } else if (entry.key == "include") {
        file_.include = parse_word(entry.text);
      } else if (entry.key == "open_ports") {
        file_.preset.open = true;
        for (const YamlNode& port : entry.items)
          file_.preset.open_ports.push_back(
              static_cast<uint16_t>(parse_integer(port.text, kPorts)));
      } else if (entry.key == "methods") {
        file_.methods = base::parse_methods(entry.text);
      } else {
        throw Error(Code::invalid_argument, "unknown key \"" + entry.key + "\"",
                    "Allowed keys: summary, include, open_ports, methods, allow, refuse_quietly.");
      }
    });
  }

  void read_rules(const YamlNode& node, Verdict verdict) {
    for (const YamlNode& item : node.items) {
      base::NetworkRule rule = parsed(item, [&] { return base::parse_rule(verdict, item.key); });
      if (verdict == Verdict::allow && !is_narrow(rule)) rule.methods = file_.methods;
      rule.reason = item.text;
      if (rule.reason.empty()) {
        throw Error(
            Code::invalid_argument,
            yaml_place(path_, item.key_line, item.key_column) + ": " + item.key + " has no reason",
            "Write one after the colon.");
      }
      file_.preset.rules.push_back(std::move(rule));
    }
  }

  const std::string path_;
  PresetFile file_;
};

// Adds what the preset includes; each may include one other.
NetworkPreset whole(const std::map<std::string, PresetFile>& files, const std::string& name) {
  NetworkPreset preset = files.at(name).preset;
  std::string next = files.at(name).include;
  for (size_t depth = 0; !next.empty(); ++depth) {
    const auto found = files.find(next);
    if (found == files.end() || depth > files.size()) {
      throw Error(Code::invalid_argument,
                  "network " + name + " includes \"" + next + "\", " +
                      (found == files.end() ? "which does not exist" : "which includes it"));
    }
    const NetworkPreset& other = found->second.preset;
    preset.rules.insert(preset.rules.end(), other.rules.begin(), other.rules.end());
    preset.open = preset.open || other.open;
    preset.open_ports.insert(preset.open_ports.end(), other.open_ports.begin(),
                             other.open_ports.end());
    next = found->second.include;
  }
  return preset;
}

}  // namespace

NetworkPreset no_network() { return {"no network", false, {}, {}}; }

std::map<std::string, NetworkPreset> read_network_presets(const std::string& directory) {
  std::map<std::string, PresetFile> files;
  for (const std::string& file : base::list_directory(directory)) {
    if (!file.ends_with(kEnding)) continue;
    const std::string name = parse_word(file.substr(0, file.size() - kEnding.size()));
    if (name == kNoNetwork)
      throw Error(Code::invalid_argument, directory + "/" + file + ": the name is reserved");
    files[name] = PresetReader(directory + "/" + file).read();
  }
  std::map<std::string, NetworkPreset> presets{{std::string(kNoNetwork), no_network()}};
  for (const auto& [name, file] : files) presets[name] = whole(files, name);
  return presets;
}

}  // namespace moorage::config
