#include "config/policy_rules.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "base/error.h"
#include "base/limit_ranges.h"
#include "base/size_text.h"
#include "config/node_reader.h"
#include "config/values.h"
#include "config/yaml_file.h"

namespace moorage::config {
namespace {

using base::Verdict;
using Kind = YamlNode::Kind;

constexpr Range kMemory{base::kLeastMemoryBytes, base::kMostMemoryBytes};
constexpr Range kPids{base::kLeastPids, base::kMostPids};
constexpr Range kDisk{base::kLeastDiskBytes, base::kMostDiskBytes};
constexpr size_t kMaxLabelKey = 63;
constexpr size_t kMaxLabelValue = 255;
constexpr std::array<std::string_view, 5> kIsolations{"none", "container", "userns", "gvisor",
                                                      "vm"};

class RuleReader {
 public:
  RuleReader(const std::string& file, const YamlNode& node) : yaml_(file), node_(node) {}

  PolicyRule read() {
    rule_.place = yaml_.place(node_);
    if (node_.kind != Kind::map) {
      yaml_.refuse(node_, "a rule in policy consists of \"key: value\" lines",
                   "For instance: - backends: [lxc]");
    }
    yaml_.read_fields(
        node_, "a rule of policy",
        {{"users", [this](const YamlNode& n) { read_ids(n, rule_.users, user_id); }},
         {"groups", [this](const YamlNode& n) { read_ids(n, rule_.groups, group_id); }},
         {"labels", [this](const YamlNode& n) { read_labels(n); }},
         {"backends", [this](const YamlNode& n) { read_backends(n); }},
         {"min_isolation", [this](const YamlNode& n) { read_isolation(n); }},
         {"networks", [this](const YamlNode& n) { read_networks(n); }},
         {"hosts", [this](const YamlNode& n) { read_hosts(n, Verdict::allow, rule_.hosts); }},
         {"refuse_hosts",
          [this](const YamlNode& n) { read_hosts(n, Verdict::deny, rule_.refuse_hosts); }},
         {"default", [this](const YamlNode& n) { read_default(n); }},
         {"max", [this](const YamlNode& n) { read_limits(n, "max", {}, rule_.most); }}});
    check_together();
    rule_.text = "{" + text_ + "}";
    return std::move(rule_);
  }

 private:
  void show(const std::string& key, const std::string& value) {
    text_ += (text_.empty() ? "" : ", ") + key + ": " + value;
  }

  template <typename Add>
  void read_list(const YamlNode& node, const Add& add) {
    if (node.kind != Kind::list || node.items.empty()) {
      yaml_.refuse(node, "\"" + node.key + "\" must be a list: [a, b]",
                   node.kind == Kind::list ? "To leave it unrestricted, omit it." : "");
    }
    std::string text;
    for (const YamlNode& item : node.items) {
      if (item.kind != Kind::scalar)
        yaml_.refuse(item, "\"" + node.key + "\" must be a list of plain values");
      add(item);
      text += (text.empty() ? "" : ", ") + plain_text(item.text);
    }
    show(node.key, "[" + text + "]");
  }

  void read_ids(const YamlNode& node, std::vector<uint32_t>& ids,
                uint32_t (*id_of)(const std::string&)) {
    read_list(node, [&](const YamlNode& item) { ids.push_back(yaml_.parsed(item, id_of)); });
  }

  void read_backends(const YamlNode& node) {
    read_list(node, [&](const YamlNode& item) {
      rule_.backends.push_back(yaml_.parsed(item, parse_word));
    });
  }

  void read_networks(const YamlNode& node) {
    read_list(node, [&](const YamlNode& item) {
      rule_.networks.push_back(yaml_.parsed(item, parse_word));
    });
  }

  void read_hosts(const YamlNode& node, Verdict verdict, std::vector<base::NetworkRule>& to) {
    read_list(node, [&](const YamlNode& item) {
      to.push_back(yaml_.parsed(
          item, [verdict](const std::string& text) { return base::parse_rule(verdict, text); }));
    });
  }

  void read_labels(const YamlNode& node) {
    if (node.kind != Kind::map || node.items.empty())
      yaml_.refuse(node, "\"labels\" must be a map like {team: infra}");
    std::string text;
    for (const YamlNode& item : node.items) {
      check_label(item);
      rule_.labels[item.key] = item.text;
      text += (text.empty() ? "" : ", ") + plain_text(item.key) + ": " + plain_text(item.text);
    }
    show("labels", "{" + text + "}");
  }

  // A label that no workspace can have would make a rule without effect.
  void check_label(const YamlNode& item) const {
    const bool good_key = !item.key.empty() && item.key.size() <= kMaxLabelKey &&
                          item.key.find_first_not_of(kNameCharacters) == std::string::npos;
    if (!good_key)
      yaml_.refuse_key(
          item, "a label's key is 1-63 characters of A-Z a-z 0-9 - _ ., not \"" + item.key + "\"");
    if (item.kind != Kind::scalar)
      yaml_.refuse_key(item, "label \"" + item.key + "\" must have one value",
                       "Write an empty value as \"\".");
    const bool control = std::any_of(item.text.begin(), item.text.end(),
                                     [](unsigned char c) { return c < 0x20 || c == 0x7f; });
    if (item.text.size() > kMaxLabelValue || control)
      yaml_.refuse(item, "a label's value is at most 255 bytes without control characters");
  }

  void read_isolation(const YamlNode& node) {
    const auto& known = kIsolations;
    if (node.kind != Kind::scalar ||
        std::find(known.begin(), known.end(), node.text) == known.end()) {
      yaml_.refuse(
          node, "min_isolation: " +
                    (node.kind == Kind::scalar ? "\"" + node.text + "\" is not one" : "not one") +
                    " of none, container, userns, gvisor, vm, weakest first");
    }
    rule_.min_isolation = node.text;
    show("min_isolation", node.text);
  }

  void read_default(const YamlNode& node) {
    std::string names;
    const auto name = [&](const char* key, std::string& to, auto parse) {
      return NodeReader::Field{key, [this, &names, key, &to, parse](const YamlNode& n) {
                                 to = yaml_.parsed(n, parse);
                                 names += (names.empty() ? "" : ", ") + std::string(key) + ": " +
                                          plain_text(to);
                               }};
    };
    const auto image = [](const std::string& text) {
      if (text.empty()) throw Error(Code::invalid_argument, "the name of an image cannot be empty");
      return text;
    };
    default_ = node;
    read_limits(node, "default",
                {name("backend", rule_.default_backend, parse_word),
                 name("runtime", rule_.default_runtime, parse_runtime),
                 name("image", rule_.default_image, image),
                 name("network", rule_.default_network, parse_word)},
                rule_.usual, &names);
  }

  static double parse_cpus(const std::string& text) {
    return parse_real(text, base::kLeastCpus, base::kMostCpus);
  }
  static uint32_t parse_pids(const std::string& text) {
    return static_cast<uint32_t>(parse_integer(text, kPids));
  }

  void read_size(const YamlNode& node, const Range& range, std::optional<uint64_t>& to) {
    to = yaml_.parsed(node, [&](const std::string& text) { return parse_bytes(text, range); });
  }

  void read_limits(const YamlNode& node, const std::string& key,
                   std::vector<NodeReader::Field> fields, PolicyLimits& to,
                   const std::string* names = nullptr) {
    if (node.kind != Kind::map || node.items.empty())
      yaml_.refuse(node, "\"" + key + "\" must be a map like {memory: 2GiB}");
    fields.push_back(
        {"memory", [&](const YamlNode& n) { read_size(n, kMemory, to.memory_bytes); }});
    fields.push_back({"cpus", [&](const YamlNode& n) { to.cpus = yaml_.parsed(n, parse_cpus); }});
    fields.push_back({"pids", [&](const YamlNode& n) { to.pids = yaml_.parsed(n, parse_pids); }});
    fields.push_back({"disk", [&](const YamlNode& n) { read_size(n, kDisk, to.disk_bytes); }});
    yaml_.read_fields(node, "\"" + key + "\" of a rule", fields);
    std::string text = names ? *names : "";
    const auto add = [&](const char* name, const std::string& value) {
      text += (text.empty() ? "" : ", ") + std::string(name) + ": " + value;
    };
    if (to.memory_bytes) add("memory", print_bytes(*to.memory_bytes));
    if (to.cpus) add("cpus", base::number_text(*to.cpus));
    if (to.pids) add("pids", std::to_string(*to.pids));
    if (to.disk_bytes) add("disk", print_bytes(*to.disk_bytes));
    show(key, "{" + text + "}");
  }

  template <typename T>
  void check_within(const char* key, const std::optional<T>& usual,
                    const std::optional<T>& most) const {
    if (usual && most && *usual > *most) {
      yaml_.refuse(default_, std::string(key) + ": the rule's default exceeds its max",
                   "Lower the default, or raise the max.");
    }
  }

  void check_together() const {
    if (!rule_.default_runtime.empty() && rule_.default_backend.empty()) {
      yaml_.refuse(default_, "a default runtime needs a default backend",
                   "Add the backend: {backend: docker, runtime: " + rule_.default_runtime + "}");
    }
    const bool speaks = !rule_.backends.empty() || !rule_.min_isolation.empty() ||
                        !rule_.default_backend.empty() || !rule_.default_image.empty() ||
                        !rule_.default_network.empty() || !rule_.networks.empty() ||
                        !rule_.hosts.empty() || !rule_.refuse_hosts.empty() ||
                        !(rule_.usual == PolicyLimits{}) || !(rule_.most == PolicyLimits{});
    if (!speaks) {
      yaml_.refuse(node_, "this rule has no effect",
                   "Give it backends, min_isolation, default or max; without it only other "
                   "rules apply.");
    }
    const auto& allowed = rule_.backends;
    if (!allowed.empty() && !rule_.default_backend.empty() &&
        std::find(allowed.begin(), allowed.end(), rule_.default_backend) == allowed.end()) {
      yaml_.refuse(default_, "the default backend \"" + rule_.default_backend +
                                 "\" is not among the backends of the same rule");
    }
    check_within("memory", rule_.usual.memory_bytes, rule_.most.memory_bytes);
    check_within("cpus", rule_.usual.cpus, rule_.most.cpus);
    check_within("pids", rule_.usual.pids, rule_.most.pids);
    check_within("disk", rule_.usual.disk_bytes, rule_.most.disk_bytes);
  }

  const NodeReader yaml_;
  const YamlNode& node_;
  YamlNode default_;
  PolicyRule rule_;
  std::string text_;
};

}  // namespace

std::vector<PolicyRule> read_policy(const std::string& file, const YamlNode& section) {
  std::vector<PolicyRule> rules;
  if (section.kind == Kind::null) return rules;
  if (section.kind != Kind::list) {
    throw Error(Code::invalid_argument,
                yaml_place(file, section.line, section.column) + ": policy must be a list of rules",
                "Each begins with a dash: - backends: [lxc]");
  }
  for (const YamlNode& item : section.items) rules.push_back(RuleReader(file, item).read());
  return rules;
}

}  // namespace moorage::config
