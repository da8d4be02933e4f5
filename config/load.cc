#include "config/load.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/os/files.h"
#include "base/parts.h"
#include "base/spelling.h"
#include "config/table.h"
#include "config/yaml_file.h"

namespace moorage::config {

namespace {

constexpr uint64_t kIdsOfARange = 65'536;
constexpr std::string_view kDefaultSource = "default";
constexpr std::string_view kPolicy = "policy";
constexpr std::string_view kPolicyHelp =
    "rules: who may use which backend, how well isolated and with which limits";
constexpr std::string_view kBackends = "backends";
constexpr std::string_view kBackendsHelp = "machines elsewhere that sandboxes may run on";
constexpr size_t kWideValue = 60;

using Sources = std::map<std::string_view, std::string>;

// Variables that are not settings: the CLI's socket, and crash_point.h's.
constexpr std::string_view kOtherVariables[] = {"MOORAGE_SOCKET", "MOORAGE_CRASH_AT"};

// The known setting or section closest to this name, if any.
std::optional<std::string> nearest_name(std::string_view name) {
  const std::vector<std::string> groups = setting_groups();
  std::vector<std::string_view> names(groups.begin(), groups.end());
  names.push_back(kPolicy);
  names.push_back(kBackends);
  for (const Setting& setting : settings_table()) names.push_back(setting.name);
  return base::nearest_spelling(name, names);
}

[[noreturn]] void refuse_unknown(const std::string& name, const std::string& place) {
  const auto nearest = nearest_name(name);
  // With an empty file, because the refused one would fail again.
  throw Error(Code::invalid_argument, place + ": unknown setting \"" + name + "\"",
              nearest ? "Did you mean \"" + *nearest + "\"?"
                      : "`mooraged --config /dev/null --show-config` lists all settings.");
}

void apply(const Setting& setting, const std::vector<std::string>& values, const std::string& place,
           Settings& settings) {
  try {
    setting.parse(settings, values);
  } catch (Error& error) {
    throw error.add_context(std::string(setting.name)).add_context(place);
  }
}

void apply_file(const std::string& path, Settings& settings, Sources& sources) {
  const YamlFile file = read_yaml(
      path, {.groups = setting_groups(), .trees = {std::string(kPolicy), std::string(kBackends)}});
  if (const auto rules = file.trees.find(std::string(kPolicy)); rules != file.trees.end())
    settings.policy = read_policy(path, rules->second);
  if (const auto found = file.trees.find(std::string(kBackends)); found != file.trees.end())
    settings.backends = read_remote_backends(path, found->second);
  for (const YamlNode& entry : file.entries) {
    const Setting* setting = find_setting(entry.key);
    if (!setting) refuse_unknown(entry.key, yaml_place(path, entry.key_line, entry.key_column));
    const std::string place = yaml_place(path, entry.line, entry.column);
    const bool is_list = entry.kind == YamlNode::Kind::list;
    if (setting->is_list != is_list || entry.kind == YamlNode::Kind::map) {
      throw Error(Code::invalid_argument,
                  place + ": " + entry.key +
                      (setting->is_list ? " must be a list: [/a, /b]" : " must be one value"));
    }
    std::vector<std::string> values;
    for (const YamlNode& item : entry.items) {
      if (item.kind != YamlNode::Kind::scalar) {
        throw Error(Code::invalid_argument, yaml_place(path, item.line, item.column) + ": \"" +
                                                entry.key + "\" must be a list of plain values");
      }
      values.push_back(item.text);
    }
    if (!is_list) values.push_back(entry.text);
    apply(*setting, values, place, settings);
    sources[setting->name] = path + ":" + std::to_string(entry.line);
  }
}

std::vector<std::string> values_of(const Setting& setting, const std::string& text) {
  if (!setting.is_list) return {text};
  std::vector<std::string> items;
  for (const auto item : base::split(text, ':')) {
    if (!item.empty()) items.emplace_back(item);
  }
  return items;
}

void apply_environment(const std::map<std::string, std::string>& environment, Loaded& loaded,
                       Sources& sources) {
  std::map<std::string, const Setting*> by_variable;
  for (const Setting& setting : settings_table()) by_variable[variable_of(setting)] = &setting;
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("MOORAGE_")) continue;
    const auto known = by_variable.find(name);
    if (known == by_variable.end()) {
      const auto& others = kOtherVariables;
      const bool other = std::find(std::begin(others), std::end(others), name) != std::end(others);
      if (!other) loaded.unknown_variables.push_back(name);
      continue;
    }
    const Setting& setting = *known->second;
    apply(setting, values_of(setting, value), "environment " + name, loaded.settings);
    sources[setting.name] = "environment " + name;
  }
}

void apply_overrides(const std::map<std::string, std::string>& overrides, Settings& settings,
                     Sources& sources) {
  for (const auto& [name, value] : overrides) {
    const Setting* setting = find_setting(name);
    if (!setting && name == kPolicy) {
      throw Error(Code::invalid_argument, "--set cannot set policy, a list of rules",
                  "Put them in the file given with --config.");
    }
    if (!setting && (name == kBackends || name.starts_with(std::string(kBackends) + "."))) {
      throw Error(Code::invalid_argument, "--set cannot set backends, a section with structure",
                  "Put it in the file given with --config.");
    }
    if (!setting) refuse_unknown(name, "--set");
    apply(*setting, values_of(*setting, value), "--set", settings);
    sources[setting->name] = "--set";
  }
}

// Checks that involve several settings.
void check_together(const Settings& settings) {
  const IdSettings& ids = settings.ids;
  const uint64_t pool = ids.sandbox_first_id;
  const uint64_t pool_end = pool + kIdsOfARange * ids.sandbox_slots;
  constexpr uint64_t kOthers = 2;  // the overflow id, and the user of moorage-egress
  const uint64_t disk_end = ids.disk_first_id + kIdsOfARange + kOthers;
  // Container engines store ids as signed numbers and refuse larger ones.
  constexpr uint64_t kEngineEnd = uint64_t{1} << 31;
  if (pool_end > kEngineEnd) {
    throw Error(Code::invalid_argument,
                "ids: the ids of sandboxes exceed 2147483647, the largest that container engines "
                "accept",
                "Lower ids.sandbox_first_id or ids.sandbox_slots.");
  }
  // The kernel uses 4294967295 for "no id".
  if (disk_end > UINT32_MAX) {
    throw Error(Code::invalid_argument, "ids: the ranges exceed the largest id, 4294967294",
                "Lower ids.disk_first_id.");
  }
  if (pool < disk_end && ids.disk_first_id < pool_end) {
    throw Error(Code::invalid_argument,
                "ids: the ids on disk (" + std::to_string(ids.disk_first_id) + " to " +
                    std::to_string(disk_end - 1) + ") overlap those of sandboxes (" +
                    std::to_string(pool) + " to " + std::to_string(pool_end - 1) + ")",
                "Move ids.disk_first_id or ids.sandbox_first_id so that they do not overlap.");
  }
  if (settings.sandbox.backend == "process" && !settings.sandbox.allow_process_backend) {
    throw Error(Code::invalid_argument,
                "sandbox.backend: process isolates nothing and is not allowed",
                "Set sandbox.allow_process_backend: true to use it anyway.");
  }
}

void show_policy(const std::vector<PolicyRule>& rules, std::vector<ShownSetting>& shown) {
  if (rules.empty()) {
    shown.push_back(
        {std::string(kPolicy), "[]", "", std::string(kDefaultSource), std::string(kPolicyHelp)});
  }
  for (size_t n = 0; n < rules.size(); ++n) {
    const std::string name = std::string(kPolicy) + "[" + std::to_string(n + 1) + "]";
    shown.push_back({name, rules[n].text, "", rules[n].place, std::string(kPolicyHelp)});
  }
}

void show_backends(const RemoteBackends& backends, std::vector<ShownSetting>& shown) {
  const std::string help(kBackendsHelp);
  if (backends.shown.empty())
    shown.push_back({std::string(kBackends), "{}", "", std::string(kDefaultSource), help});
  for (const auto& [name, text, place] : backends.shown)
    shown.push_back({name, text, "", place, help});
}

// Near the program: the same directory in a build tree, ../libexec/moorage when installed.
std::string find_libexec_directory() {
  std::string path(4096, '\0');
  path.resize(static_cast<size_t>(
      base::check(readlink("/proc/self/exe", path.data(), path.size()), "find this program")));
  const std::string directory = path.substr(0, path.rfind('/'));
  const std::string installed = directory.substr(0, directory.rfind('/')) + "/libexec/moorage";
  return base::path_exists(installed) ? installed : directory;
}

// Without a directory that was asked for, those of the release; a release without any has `none`.
std::map<std::string, NetworkPreset> find_network_presets(const Settings& settings) {
  const std::string& wanted = settings.network.presets_directory;
  if (!wanted.empty()) return read_network_presets(wanted);
  const std::string own = settings.libexec_directory + "/networks";
  if (!base::path_exists(own)) return {{std::string(kNoNetwork), no_network()}};
  return read_network_presets(own);
}

void check_network_mode(const Settings& settings) {
  if (settings.network_presets.contains(settings.network.mode)) return;
  std::string names;
  for (const auto& [name, preset] : settings.network_presets)
    names += (names.empty() ? "" : ", ") + name;
  throw Error(Code::invalid_argument,
              "network.mode: there is no network \"" + settings.network.mode + "\"",
              "One of: " + names + ".");
}

}  // namespace

Loaded load(const LoadOptions& options) {
  Loaded loaded;
  Sources sources;
  const std::string default_file(kDefaultFile);
  if (options.file) {
    apply_file(*options.file, loaded.settings, sources);
  } else if (base::path_exists(default_file)) {
    apply_file(default_file, loaded.settings, sources);
  }
  apply_environment(options.environment, loaded, sources);
  apply_overrides(options.overrides, loaded.settings, sources);
  check_together(loaded.settings);
  if (loaded.settings.libexec_directory.empty()) {
    loaded.settings.libexec_directory = find_libexec_directory();
  }
  loaded.settings.network_presets = find_network_presets(loaded.settings);
  check_network_mode(loaded.settings);
  for (const Setting& setting : settings_table()) {
    const auto source = sources.find(setting.name);
    loaded.shown.push_back(
        {.name = std::string(setting.name),
         .value = setting.print(loaded.settings),
         .unit = std::string(setting.unit),
         .source = source == sources.end() ? std::string(kDefaultSource) : source->second,
         .help = std::string(setting.help)});
  }
  show_policy(loaded.settings.policy, loaded.shown);
  show_backends(loaded.settings.backends, loaded.shown);
  return loaded;
}

std::map<std::string, std::string> environment_of_process() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text(*entry);
    const size_t equals = text.find('=');
    if (!text.starts_with("MOORAGE_") || equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::string show_text(const std::vector<ShownSetting>& shown) {
  size_t name_width = 0;
  size_t value_width = 0;
  for (const ShownSetting& setting : shown) {
    name_width = std::max(name_width, setting.name.size());
    // A long rule must not push the sources of all other settings to the right.
    if (setting.value.size() <= kWideValue)
      value_width = std::max(value_width, setting.value.size());
  }
  std::string text;
  for (const ShownSetting& setting : shown) {
    text +=
        setting.name + std::string(name_width + 2 - setting.name.size(), ' ') + setting.value +
        std::string(std::max(value_width, setting.value.size()) + 2 - setting.value.size(), ' ') +
        setting.source + "\n";
  }
  return text;
}

}  // namespace moorage::config
