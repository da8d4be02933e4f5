#include "base/wire/link_config.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "base/error.h"

namespace moorage::base {
namespace {

namespace json = boost::json;

constexpr size_t kMaxText = 2000;  // of a status
constexpr std::array<std::string_view, 3> kLimits{"memory", "pids", "cpus"};

template <typename T, typename Visit>
void each_tree_field(T& tree, const Visit& visit) {
  visit("key", tree.key);
  visit("path", tree.path);
}

template <typename T, typename Visit>
void each_key_field(T& key, const Visit& visit) {
  visit("place", key.place);
  visit("recipient", key.recipient);
  visit("credential", key.credential);
}

template <typename T, typename Visit>
void each_rules_field(T& rules, const Visit& visit) {
  visit("hosts", rules.hosts);
  visit("refusal", rules.refusal);
  visit("hint", rules.hint);
}

template <typename T, typename Visit>
void each_ssh_field(T& ssh, const Visit& visit) {
  visit("host", ssh.host);
  visit("destination", ssh.destination);
  visit("config_file", ssh.config_file);
  visit("directory", ssh.directory);
}

template <typename T, typename Visit>
void each_layer_field(T& layer, const Visit& visit) {
  visit("tree", layer.tree);
  visit("home", layer.home);
}

template <typename T, typename Visit>
void each_config_field(T& config, const Visit& visit) {
  visit("name", config.name);
  visit("directory", config.directory);
  visit("generation", config.generation);
  visit("driver", config.driver);
  visit("place", config.place);
  visit("key", config.key);
  visit("first_id", config.first_id);
  visit("outpost", config.outpost);
  visit("warden", config.warden);
  visit("kept_trees", config.kept_trees);
  visit("sync_interval_s", config.sync_interval_s);
  visit("start_deadline_s", config.start_deadline_s);
  visit("machine_is_ours", config.machine_is_ours);
  visit("machine", config.machine);
  visit("machine_generation", config.machine_generation);
  visit("memory_bytes", config.memory_bytes);
  visit("pids", config.pids);
  visit("cpus", config.cpus);
}

template <typename T, typename Visit>
void each_status_field(T& status, const Visit& visit) {
  visit("connected", status.connected);
  visit("overlay", status.overlay);
  visit("pid_namespace", status.pid_namespace);
  visit("net_namespace", status.net_namespace);
  visit("root_inside", status.root_inside);
  visit("limits", status.limits);
  visit("network", status.network);
  visit("runs", status.runs);
  visit("behind_ms", status.behind_ms);
  visit("last_pack", status.last_pack);
  visit("restored", status.restored);
  visit("kept_ms", status.kept_ms);
  visit("reason", status.reason);
}

auto writer(json::object& object) {
  return [&object](const char* key, const auto& field) { object[key] = json::value_from(field); };
}

auto reader(const json::value& value) {
  return [&value](const char* key, auto& field) {
    field = json::value_to<std::remove_reference_t<decltype(field)>>(value.at(key));
  };
}

template <typename Read>
auto parsed(const std::string& text, Code code, const std::string& what, const Read& read) {
  try {
    return read(json::parse(text));
  } catch (const std::exception& error) {
    throw Error(code, "not " + what + ": " + error.what());
  }
}

constexpr std::array<std::pair<LinkKey::Source, std::string_view>, 4> kKeySources{
    {{LinkKey::Source::file, "file"},
     {LinkKey::Source::command, "command"},
     {LinkKey::Source::sealed, "sealed"},
     {LinkKey::Source::missing, "missing"}}};

std::string_view key_source_text(LinkKey::Source source) {
  return std::ranges::find(kKeySources, source, &decltype(kKeySources)::value_type::first)->second;
}

LinkKey::Source key_source_of(std::string_view text) {
  const auto found =
      std::ranges::find(kKeySources, text, &decltype(kKeySources)::value_type::second);
  if (found == kKeySources.end()) throw Error(Code::invalid_argument, "no such source of a key");
  return found->first;
}

}  // namespace

std::string link_config_text(const LinkConfig& config) {
  json::object object;
  json::object base;
  json::object objects;
  json::object certificates;
  json::object rules;
  each_config_field(config, writer(object));
  each_tree_field(config.base, writer(base));
  each_tree_field(config.objects, writer(objects));
  each_tree_field(config.certificates, writer(certificates));
  each_rules_field(config.provider_rules, writer(rules));
  object["provider_rules"] = std::move(rules);
  object["settings"] = json::parse(config.settings);
  object["base"] = std::move(base);
  object["objects"] = std::move(objects);
  object["certificates"] = std::move(certificates);
  return json::serialize(object);
}

LinkConfig parse_link_config(const std::string& text) {
  return parsed(text, Code::invalid_argument, "a configuration of moorage-link",
                [](const json::value& value) {
                  LinkConfig config;
                  each_config_field(config, reader(value));
                  config.settings = json::serialize(value.at("settings").as_object());
                  each_tree_field(config.base, reader(value.at("base")));
                  each_tree_field(config.objects, reader(value.at("objects")));
                  each_tree_field(config.certificates, reader(value.at("certificates")));
                  each_rules_field(config.provider_rules, reader(value.at("provider_rules")));
                  return config;
                });
}

std::string link_key_text(const LinkKey& key) {
  json::object object{{"source", key_source_text(key.source)}};
  each_key_field(key, writer(object));
  return json::serialize(object);
}

LinkKey parse_link_key(const std::string& text) {
  return parsed(text, Code::invalid_argument, "a source of a key", [](const json::value& value) {
    LinkKey key{.source = key_source_of(json::value_to<std::string>(value.at("source")))};
    each_key_field(key, reader(value));
    return key;
  });
}

std::string ssh_settings_text(const SshSettings& settings) {
  json::object object;
  each_ssh_field(settings, writer(object));
  return json::serialize(object);
}

SshSettings parse_ssh_settings(const std::string& text) {
  return parsed(text, Code::invalid_argument, "settings of ssh", [](const json::value& value) {
    SshSettings settings;
    each_ssh_field(settings, reader(value));
    return settings;
  });
}

std::string link_layers_text(const std::vector<LinkLayer>& layers) {
  json::array list;
  for (const LinkLayer& layer : layers) {
    json::object object;
    each_layer_field(layer, writer(object));
    list.push_back(std::move(object));
  }
  return json::serialize(json::object{{"layers", std::move(list)}});
}

std::vector<LinkLayer> parse_link_layers(const std::string& text) {
  return parsed(text, Code::invalid_argument, "a list of layers", [](const json::value& value) {
    std::vector<LinkLayer> layers;
    for (const json::value& one : value.at("layers").as_array()) {
      each_layer_field(layers.emplace_back(), reader(one));
    }
    return layers;
  });
}

std::string link_status_text(const LinkStatus& status) {
  json::object object;
  each_status_field(status, writer(object));
  return json::serialize(object);
}

LinkStatus parse_link_status(const std::string& text) {
  return parsed(text, Code::corrupted, "a status of moorage-link", [](const json::value& value) {
    LinkStatus status;
    each_status_field(status, reader(value));
    status.overlay.resize(std::min(status.overlay.size(), size_t{16}));
    status.network.resize(std::min(status.network.size(), kMaxText));
    status.reason.resize(std::min(status.reason.size(), kMaxText));
    std::erase_if(status.limits, [](const std::string& limit) {
      return std::find(kLimits.begin(), kLimits.end(), limit) == kLimits.end();
    });
    status.limits.resize(std::min(status.limits.size(), kLimits.size()));
    return status;
  });
}

}  // namespace moorage::base
